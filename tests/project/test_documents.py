"""The targets of links and anchors, and the files and names that documents mention, exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from dispatcher.model.errors import POLICY, ErrorKind

ROOT = Path(__file__).parents[2]
# All folders with modules. The README.md of each folder lists its modules.
PACKAGES = sorted(
    {file.parent for tree in ("dispatcher", "spark_sink") for file in (ROOT / tree).rglob("*.py")}
)
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(folder / "README.md" for folder in PACKAGES),
    ]
)
INDEX = ROOT / "docs/README.md"
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
_FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
_PATH = re.compile(r"[a-z_0-9./-]+(?:/|\.(?:py|toml|yaml))")
_MODULE = re.compile(r"[a-z_0-9]+\.py")
_NAME = re.compile(r"[A-Za-z_]+(?:\.[a-z_]+)?")


def prose(document: Path) -> str:
    """Returns the document without its fenced code blocks."""
    return _FENCE.sub("", document.read_text(encoding="utf-8"))


@cache
def anchors(document: Path) -> frozenset[str]:
    """Returns the anchors that GitHub makes for the headings of a document."""
    headings = re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)
    return frozenset(
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    )


@cache
def source() -> str:
    """Returns the text of all production code."""
    files = [*(ROOT / "dispatcher").rglob("*.py"), *(ROOT / "spark_sink").rglob("*.py")]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def code_spans(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def within(path: Path) -> str:
    """Returns the path within the repository, as the id of a test."""
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("document", DOCUMENTS, ids=within)
def test_every_link_and_anchor_exists(document: Path) -> None:
    broken = []
    for target, anchor in _LINK.findall(prose(document)):
        file = (document.parent / target).resolve() if target else document
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(f"{target}#{anchor}")
    assert broken == []


def test_the_index_links_to_every_document_once() -> None:
    targets = [target for target, _ in _LINK.findall(prose(INDEX))]
    pages = sorted(document.name for document in (ROOT / "docs").glob("*.md"))
    assert sorted(target for target in targets if "/" not in target) == [
        name for name in pages if name != INDEX.name
    ]


def test_the_readme_links_to_the_index() -> None:
    assert ("docs/README.md", "") in _LINK.findall(prose(ROOT / "README.md"))


@pytest.mark.parametrize("package", PACKAGES, ids=within)
def test_the_readme_of_a_package_names_its_modules(package: Path) -> None:
    """The README names all modules of the package and no other modules. A path that it mentions exists in the
    repository or in the package."""
    text = (package / "README.md").read_text(encoding="utf-8")
    spans = code_spans(text)
    named = {span for span in spans if _MODULE.fullmatch(span)}
    modules = {file.name for file in package.glob("*.py")}
    paths = {span for span in spans if re.fullmatch(r"[a-z_]+/[a-z_0-9./-]*", span)}
    assert text.startswith(f"# {within(package)}\n")
    assert modules - named - {"__init__.py"} == set()
    assert named - modules == set()
    assert {
        path for path in paths if not any((root / path).exists() for root in (ROOT, package))
    } == set()
    assert len(text.splitlines()) <= 25


def test_every_path_in_the_architecture_exists() -> None:
    spans = [span for span in code_spans(ARCHITECTURE) if _PATH.fullmatch(span)]
    drawn = re.findall(r"[a-z_]+(?:/[a-z_]+)+\.py", ARCHITECTURE)
    missing = {
        path
        for path in (*spans, *drawn)
        if not ((ROOT / path).exists() or (ROOT / "dispatcher" / path).exists())
    }
    assert len(spans) > 100
    assert missing == set()


def test_every_class_and_constant_in_the_architecture_exists() -> None:
    names = [name for name in code_spans(ARCHITECTURE) if re.match("[A-Z]", name)]
    names = [name.partition(".")[0] for name in names if _NAME.fullmatch(name)]
    missing = {name for name in names if not re.search(rf"\b{name}\b", source())}
    assert len(names) > 10
    assert missing == set()


def test_every_test_in_the_order_of_writes_exists() -> None:
    text = (ROOT / "docs/durability.md").read_text(encoding="utf-8")
    tests = re.findall(r"`(tests/[a-z_0-9/]+\.py)::(\w+)`", text)
    missing = [
        f"{file}::{name}"
        for file, name in tests
        if not re.search(
            rf"^(?:async )?def {name}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE
        )
    ]
    assert len(tests) > 50
    assert missing == []
    # Each row of a table names a test, or says that there is none.
    rows = re.findall(r"^\| (?!effect|---)(.+) \|$", text, re.MULTILINE)
    assert [row for row in rows if "tests/" not in row.rpartition(" | ")[2]] == []


def test_every_module_of_the_glossary_has_the_name_of_its_row() -> None:
    cells = re.findall(r"^\| [^|]+ \| [^|]+ \| (`[^|]+) \|$", GLOSSARY, re.MULTILINE)
    assert len(cells) > 50
    for name, span in re.findall(r"(?:`(\w+)` in )?`([^`]*/[^`]*)`", "\n".join(cells)):
        paths = [path for path in (ROOT / span, ROOT / "dispatcher" / span) if path.exists()]
        assert paths, span
        assert not name or re.search(rf"\b(?:class|def) {name}\b", paths[0].read_text()), name


def test_every_answer_is_short_and_has_a_link() -> None:
    text = (ROOT / "docs/faq.md").read_text(encoding="utf-8")
    answers = re.findall(r"^## (.+\?)\n\n((?:.+\n)+)(?=\n## |\Z)", text, re.MULTILINE)
    assert len(answers) == text.count("\n## ") >= 15
    assert [question for question, answer in answers if answer.count("\n") > 5] == []
    assert [question for question, answer in answers if not _LINK.search(answer)] == []


def test_every_package_is_in_the_architecture() -> None:
    packages = {file.parent.name for file in (ROOT / "dispatcher").glob("*/__init__.py")}
    assert {name for name in packages if f"`{name}/`" not in ARCHITECTURE} == set()


def section(document: str, heading: str) -> str:
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_every_error_kind_in_the_documents_exists() -> None:
    kinds = re.findall(r"`([A-Z_]+)`", section("http-api.md", "Errors"))
    assert len(kinds) > 10
    assert set(kinds) <= set(ErrorKind.__members__)


def test_the_handbook_has_a_way_out_of_every_kind_of_fault() -> None:
    """Each kind has the reaction that the code has."""
    words = {"retry": "retry", "operator": "correct", "fatal": "decide", "refuse": "refuse"}
    rows = re.findall(
        r"^\| `([A-Z_]+)` \| (\w+) \|", section("operating.md", "Kinds of faults"), re.MULTILINE
    )
    assert len(rows) == len(ErrorKind)
    assert dict(rows) == {kind.name: words[POLICY[kind].action] for kind in ErrorKind}


@pytest.mark.parametrize(
    ("document", "heading"),
    [("files.md", "When something is wrong"), ("sources.md", "What a server refuses")],
)
def test_every_quoted_message_is_one_of_the_code(document: str, heading: str) -> None:
    cells = re.findall(r"^\| (`.+?) \|", section(document, heading), re.MULTILINE)
    parts = [
        part.strip() for cell in cells for span in code_spans(cell) for part in span.split("...")
    ]
    assert len(cells) > 5
    assert [part for part in parts if part not in source()] == []
