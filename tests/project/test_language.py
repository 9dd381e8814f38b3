"""Names and prose: no public name has two meanings, no name is retired, and prose does not use some words."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Public names that several modules of a package tree may have, with the reason.
SHARED = {
    "main": "the entry point of each command",
}

# Former names, which must not be used again: they had several meanings, or no meaning in replication.
RETIRED = {
    "Absent", "Arrived", "Boarding", "Declared", "Flaw", "Keeping", "Known", "LookedUp", "Mark", "Mirrored", "NAMESAKE",
    "Need", "ROOMLESS", "Rooms", "Runs", "Seen", "Skeleton", "Sought", "Spot", "Steps", "Storing", "Surveyed", "Tails",
    "Takers", "Track", "board", "boarding", "cool", "group_of", "lend", "namesake", "place_of", "rider", "riders",
    "riding", "spec_of",
}  # fmt: skip

# Metaphors, constructions that readers must read twice, and words about the project's past.
AVOIDED = (
    "whom", "nobody", "that is none", "namesake", "boards", "boarded", "boarding", "rides", "riding", "rider",
    "riders", "thrice", "whoever", "until now", "before this change", "earlier versions", "went on behind",
)  # fmt: skip
THIS_FILE = Path(__file__).relative_to(ROOT).as_posix()


def tracked(*patterns: str) -> list[str]:
    """Returns the repository's files that match, without this file."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [
        name for name in names.split("\0") if name and name != THIS_FILE and (ROOT / name).is_file()
    ]


def public_names(package: str, *, classes_only: bool = False) -> dict[str, list[str]]:
    """Returns, for each public top-level class or function of a package tree, the modules that define this name."""
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if classes_only and not isinstance(node, ast.ClassDef):
                continue
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                modules[node.name].append(path.relative_to(ROOT).as_posix())
    return {name: files for name, files in modules.items() if not name.startswith("_")}


def modules_that_spark_sink_imports() -> set[str]:
    """Returns the files of dispatcher from which a module of spark_sink imports."""
    modules: set[str] = set()
    for path in (ROOT / "spark_sink").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dispatcher."):
                name = str(node.module).replace(".", "/")
                modules |= {f"{name}.py", *(f"{name}/{alias.name}.py" for alias in node.names)}
    return modules


@pytest.mark.parametrize("package", ["dispatcher", "spark_sink"])
def test_no_two_modules_of_a_package_define_the_same_public_name(package: str) -> None:
    doubled = {
        name: modules for name, modules in public_names(package).items() if len(set(modules)) > 1
    }
    assert {name: doubled[name] for name in doubled.keys() - SHARED.keys()} == {}


def test_spark_sink_defines_no_public_name_of_a_module_that_it_imports() -> None:
    imported = modules_that_spark_sink_imports()
    names = {name for name, modules in public_names("dispatcher").items() if imported & {*modules}}
    assert "BinlogError" in names
    repeated = names & public_names("spark_sink").keys()
    assert repeated - SHARED.keys() == set()


def test_no_class_of_spark_sink_has_the_name_of_one_of_the_daemon() -> None:
    own, others = (public_names(name, classes_only=True) for name in ("spark_sink", "dispatcher"))
    assert own.keys() & others.keys() == set()


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Yields the names that a module defines, assigns, imports or uses."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.Name():
                yield node.id
            case ast.Attribute():
                yield node.attr
            case ast.arg() | ast.keyword():
                yield node.arg or ""
            case ast.alias():
                yield node.asname or node.name


def test_no_identifier_of_the_product_is_a_retired_name() -> None:
    found = {
        f"{file}: {name}"
        for file in tracked("dispatcher/*.py", "spark_sink/*.py")
        for name in identifiers(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        if name in RETIRED
    }
    assert sorted(found) == []


def test_prose_has_no_avoided_word() -> None:
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, AVOIDED))})\b", re.IGNORECASE)
    found = [
        f"{file}:{number}: {line.strip()}"
        for file in tracked("*.py", "*.md", ":!CHANGELOG.md")  # CHANGELOG.md contains former names
        for number, line in enumerate((ROOT / file).read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []
