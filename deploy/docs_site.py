"""Builds the documentation as a web site: `python -m deploy.docs_site site`. With `--llms`, only writes llms.txt, a
list of the pages for programs that read them.

The pages have the same paths as in the repository, so that their links work. The files to which they link are copied,
too. A link to a folder becomes text. The navigation comes from the index, docs/README.md. MkDocs, from
deploy/docs.lock, converts the pages to HTML, and refuses a link or an anchor that does not exist.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).parents[1]
INDEX = "docs/README.md"
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/report.md")
LLMS = "llms.txt"
_LINK = re.compile(
    r"(?<!!)\[(?P<text>[^\]\[]*(?:\[[^\]]*\][^\]\[]*)*)\]\((?!https?:|mailto:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)"
)
_IMAGE = re.compile(r"(?:src|srcset)=\"([^\":]+)\"|!\[[^\]]*\]\((?!https?:)([^)\s]+)\)")
_SETTINGS = """
site_name: binlog-dispatcher
use_directory_urls: false
theme:
  name: material
  font: false
  features: [navigation.top, navigation.indexes, search.highlight, content.code.copy]
  palette:
    - {media: "(prefers-color-scheme: light)", scheme: default, primary: indigo}
    - {media: "(prefers-color-scheme: dark)", scheme: slate, primary: indigo}
plugins: [search]
markdown_extensions:
  - pymdownx.highlight
  - pymdownx.superfences
  - toc: {permalink: true, slugify: !!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}}
validation:
  nav: {omitted_files: warn, not_found: warn}
  links: {not_found: warn, anchors: warn, absolute_links: warn, unrecognized_links: warn}
"""


class Page(NamedTuple):
    """`path`: in the repository; `name`: in the navigation; `about`: what the page is about, in a sentence."""

    path: str
    name: str
    about: str


def sections(root: Path = ROOT) -> dict[str, list[Page]]:
    """Returns the pages below each heading of the index, in the order of the index. `Page.about` comes from the page's
    row in the index; if the page has no row of its own, it is the page's first sentence."""
    found: dict[str, list[Page]] = {}
    seen = {INDEX}
    text = (root / INDEX).read_text(encoding="utf-8")
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, rows = part.partition("\n")
        of_heading = found.setdefault(heading, [])
        for row in rows.splitlines():
            cells = row.strip("| ").split(" | ")
            for match in _LINK.finditer(row):
                path = _target(Path(INDEX), match["path"])
                if not path.startswith("docs/") or not path.endswith(".md") or path in seen:
                    continue
                seen.add(path)
                own_row = match[0] in cells[:-1]
                about = _plain(cells[-1]) if own_row else first_sentence(root / path)
                of_heading.append(Page(path, match["text"], about))
                if path.endswith("/README.md"):
                    of_heading += _beside(root, path, text)
    found["Project"] = [
        Page(path, title(root / path), first_sentence(root / path)) for path in OUTSIDE
    ]
    return found


def _beside(root: Path, path: str, index: str) -> Iterator[Page]:
    """Yields the pages of a folder that only the README.md of this folder links to."""
    for file in sorted((root / path).parent.glob("*.md")):
        page = file.relative_to(root).as_posix()
        if page != path and f"({page.removeprefix('docs/')})" not in index:
            yield Page(page, title(file), first_sentence(file))


def pages(root: Path = ROOT) -> list[str]:
    """Returns the paths of all pages of the site."""
    return ["README.md", INDEX, *(page.path for part in sections(root).values() for page in part)]


def title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def first_sentence(page: Path) -> str:
    """Returns the first sentence of a page's first paragraph."""
    text = re.sub(r"\A#.*\n", "", page.read_text(encoding="utf-8"))
    starts = ("#", "|", "*", "-", "<", "!", "```")
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    paragraph = _plain(next(part for part in paragraphs if part and not part.startswith(starts)))
    return re.split(r"(?<=[.:]) ", paragraph)[0].rstrip(":.")


def _plain(text: str) -> str:
    """Returns text without its links."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def llms_text(root: Path = ROOT) -> str:
    """Returns llms.txt: the pages by heading, each with a link and what it is about."""
    lines = ["# binlog-dispatcher", "", f"> {title_sentence(root)}"]
    for heading, of_heading in sections(root).items():
        lines += ["", f"## {heading}", ""]
        lines += [f"- [{page.name}]({page.path}): {page.about}" for page in of_heading]
    return "\n".join(lines) + "\n"


def title_sentence(root: Path) -> str:
    readme = (root / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^\*\*(.+)\*\*$", readme, re.MULTILINE)
    assert found is not None, "the README begins with a bold sentence"
    return found[1]


def stage(folder: Path, root: Path = ROOT) -> None:
    """Copy all pages into a folder, and the files that they link to or show."""
    known = set(pages(root))
    for page in known:
        shown = partial(_shown_link, Path(page), known, root)
        text = _LINK.sub(shown, (root / page).read_text(encoding="utf-8"))
        target = folder / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        for file in _files(Path(page), text, root):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / file, folder / file)


def _shown_link(page: Path, known: Collection[str], root: Path, match: re.Match[str]) -> str:
    target = _target(page, match["path"])
    is_shown = target in known or ((root / target).is_file() and not target.endswith(".md"))
    return match[0] if is_shown else match["text"]


def _files(page: Path, text: str, root: Path) -> Iterator[str]:
    paths = [match["path"] for match in _LINK.finditer(text)]
    paths += [one or other for one, other in _IMAGE.findall(text)]
    for path in paths:
        target = _target(page, path)
        if not target.endswith(".md") and (root / target).is_file():
            yield target


def _target(page: Path, path: str) -> str:
    """Returns the path in the repository to which a page links."""
    return (ROOT / page.parent / path).resolve().relative_to(ROOT).as_posix()


def navigation(root: Path = ROOT) -> list[dict[str, object]]:
    parts: list[dict[str, object]] = [{"binlog-dispatcher": "README.md"}, {"All pages": INDEX}]
    for heading, of_heading in sections(root).items():
        parts.append({heading: [{page.name: page.path} for page in of_heading]})
    return parts


def build(site: Path) -> None:
    """Write the site into a folder, which is replaced. Raises CalledProcessError for a broken link."""
    with tempfile.TemporaryDirectory(prefix="docs-site-") as home:
        stage(Path(home, "pages"))
        given = {"docs_dir": "pages", "site_dir": str(site.resolve()), "nav": navigation()}
        settings = Path(home, "mkdocs.yml")
        settings.write_text(_SETTINGS + yaml.safe_dump(given, sort_keys=False), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--clean",
            "-f",
            str(settings),
        ]
        environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # without its advertisement
        subprocess.run(command, check=True, env=environment)
    of_site = re.sub(r"\]\((\S+)\.md\)", r"](\1.html)", llms_text()).replace(
        "/README.html", "/index.html"
    )
    (site / LLMS).write_text(of_site, encoding="utf-8")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.docs_site", description=__doc__)
    parser.add_argument("site", type=Path, nargs="?", help="the folder of the site")
    parser.add_argument("--llms", action="store_true", help="write llms.txt, and no site")
    options = parser.parse_args(arguments)
    if options.llms:
        (ROOT / LLMS).write_text(llms_text(), encoding="utf-8")
    elif options.site is not None:
        build(options.site)
        print(options.site)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
