"""Code of dispatcher, spark_sink, deploy, benchmarks or examples reads each name that dispatcher and spark_sink define.

A name that only tests use counts as unread. The test compares names, not types: it does not find an unread member of a
class if the code reads an attribute with the same name anywhere.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEFINING = ("dispatcher", "spark_sink")
READING = (*DEFINING, "deploy", "benchmarks", "examples")

# Functions with these decorators are called by frameworks.
REGISTERING = {"post", "get", "delete", "callback", "command", "field_validator", "model_validator"}
# The code reads members of such classes by value or position, or all members together.
READ_TOGETHER = {"Enum", "IntEnum", "StrEnum", "NamedTuple", "TypedDict", "BaseModel"}
# Any other base class is from a library, which calls the methods that the derived class overrides.
NEUTRAL_BASES = {"Protocol", "Exception", "Generic"}
READING_CALLS = {"getattr", "hasattr", "attrgetter", "methodcaller"}

EXCEPTIONS = {
    "TableCounts.unread_events": "inspect reads it by its name in _COUNTS",
    "ClearText.authenticate": "PyMySQL calls it",
}
Tree = ast.Module
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Definition:
    """`path`: the name within its file; `member`: True for a member of a class; `lines`: the lines of the definition. A
    read in one of these lines may be a recursion."""

    module: str
    path: str
    line: int
    member: bool
    lines: range = range(0)

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.path}"


def _last(node: ast.expr) -> str:
    """Returns the name, or the attribute's name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


# -- what is defined -------------------------------------------------------------------------------------------


class _Definitions:
    """The definitions of one file. `own`: names of the project's classes."""

    def __init__(self, module: str, own: set[str]) -> None:
        self._module = module
        self._own = own

    def of(self, body: list[ast.stmt], path: str = "") -> Iterator[Definition]:
        """Yields the definitions of the module, or of a function within it. Variables of a function are not
        included."""
        for node in body:
            if isinstance(node, Function):
                yield from self._function(node, path, member=False)
            elif isinstance(node, ast.ClassDef):
                yield from self._class(node, path)
            elif not path and isinstance(node, ast.Assign | ast.AnnAssign):
                yield from self._variables(node, path, member=False)
            else:
                for part in ("body", "orelse", "finalbody", "handlers"):
                    yield from self.of(getattr(node, part, []), path)

    def _class(self, node: ast.ClassDef, path: str) -> Iterator[Definition]:
        yield self._definition(node, f"{path}{node.name}", member=False)
        bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
        together = bool(bases & READ_TOGETHER)
        overrides = bool(bases - READ_TOGETHER - NEUTRAL_BASES - self._own)
        inner = f"{path}{node.name}."
        for part in node.body:
            if isinstance(part, Function):
                yield from self._function(part, inner, member=True, called=overrides)
                stored = (name for name in ast.walk(part) if isinstance(name, ast.Attribute))
                for name in stored if not overrides else ():
                    if isinstance(name.ctx, ast.Store) and _last(name.value) == "self":
                        yield Definition(self._module, inner + name.attr, name.lineno, member=True)
            elif isinstance(part, ast.ClassDef):
                yield from self._class(part, inner)
            elif isinstance(part, ast.Assign | ast.AnnAssign) and not together:
                yield from self._variables(part, inner, member=True)

    def _function(
        self, node: Function, path: str, *, member: bool, called: bool = False
    ) -> Iterator[Definition]:
        decorators = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
        names = {_last(one) for one in decorators}
        if not called and not names & REGISTERING:
            yield self._definition(node, f"{path}{node.name}", member=member)
        yield from self.of(node.body, f"{path}{node.name}.")

    def _variables(
        self, node: ast.Assign | ast.AnnAssign, path: str, *, member: bool
    ) -> Iterator[Definition]:
        if isinstance(node.value, ast.Call) and _last(node.value.func) == "range":
            return  # this names all numbers of an enumeration
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    yield Definition(self._module, path + name.id, node.lineno, member)

    def _definition(self, node: Function | ast.ClassDef, path: str, *, member: bool) -> Definition:
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        return Definition(self._module, path, node.lineno, member, lines)


# -- what is read ----------------------------------------------------------------------------------------------


@dataclass
class Reads:
    """All reads. `names`: the names that a module reads, with their lines; `imported`: (module, name) that other
    modules import; `attributes`: the attributes of any object that are read, with module and line; `in_classes`:
    (module, name) that bodies of classes read."""

    names: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    imported: set[tuple[str, str]] = field(default_factory=set)
    attributes: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))
    in_classes: set[tuple[str, str]] = field(default_factory=set)

    def of(self, found: Definition) -> bool:
        here = found.module, found.name
        if found.member:
            attributes = self.attributes[found.name]
            return here in self.in_classes or any(
                module != found.module or line not in found.lines for module, line in attributes
            )
        lines = self.names[here]
        return here in self.imported or any(line not in found.lines for line in lines)

    def add(self, module: str, tree: Tree, modules: set[str]) -> None:
        """Add the reads of a file. `modules`: the names of all modules."""
        imported: dict[str, tuple[str, str]] = {}
        aliases: dict[str, str] = {}
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                for one in node.names:
                    name, full = one.asname or one.name, f"{node.module}.{one.name}"
                    if full in modules:
                        aliases[name] = full
                    else:
                        imported[name] = node.module, one.name
        for node in nodes:
            self._add_node(module, node, imported, aliases)
        self._add_classes(module, tree, in_class=False)

    def _add_node(
        self,
        module: str,
        node: ast.AST,
        imported: dict[str, tuple[str, str]],
        aliases: dict[str, str],
    ) -> None:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            self.names[module, node.id].append(node.lineno)
            if node.id in imported:
                self.imported.add(imported[node.id])
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in aliases:
                self.imported.add((aliases[node.value.id], node.attr))
            else:
                self.attributes[node.attr].append((module, node.lineno))
        elif isinstance(node, ast.MatchClass):
            for name in node.kwd_attrs:
                self.attributes[name].append((module, node.lineno))
        elif isinstance(node, ast.Call):
            if _last(node.func) in READING_CALLS:
                texts = (one.value for one in node.args if isinstance(one, ast.Constant))
                for text in texts:
                    self.attributes[str(text)].append((module, node.lineno))
        elif isinstance(node, ast.Assign) and _last(node.targets[0]) == "__all__":
            self.imported |= {
                imported[name] for name in ast.literal_eval(node.value) if name in imported
            }

    def _add_classes(self, module: str, node: ast.AST, *, in_class: bool) -> None:
        """Add the names that bodies of classes read, which are variables of the class or of the module."""
        for part in ast.iter_child_nodes(node):
            inside = isinstance(part, ast.ClassDef) or (
                in_class and not isinstance(part, Function | ast.Lambda)
            )
            if in_class and isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                self.in_classes.add((module, part.id))
            if in_class and isinstance(
                part, Function
            ):  # defaults and decorators belong to the scope of the class
                for one in [*part.args.defaults, *part.args.kw_defaults, *part.decorator_list]:
                    for name in ast.walk(one) if one is not None else ():
                        if isinstance(name, ast.Name):
                            self.in_classes.add((module, name.id))
            self._add_classes(module, part, in_class=inside)


def unread(trees: dict[str, Tree]) -> list[Definition]:
    """Returns the definitions in these files that no code reads."""
    reads, own = Reads(), set[str]()
    for module, tree in trees.items():
        reads.add(module, tree, set(trees))
        own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return [
        found
        for module, tree in trees.items()
        if module.partition(".")[0] in DEFINING
        for found in _Definitions(module, own).of(tree.body)
        if not (found.name == "_" or found.name.startswith("__")) and not reads.of(found)
    ]


def test_everything_is_read() -> None:
    trees = {}
    for file in (file for folder in READING for file in sorted((ROOT / folder).rglob("*.py"))):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        trees[module] = ast.parse(file.read_text(encoding="utf-8"))
    found = unread(trees)
    paths = {one.path for one in found}
    assert [str(one) for one in found if one.path not in EXCEPTIONS] == []
    assert EXCEPTIONS.keys() - paths == set(), "these are read, or gone"


CODE = """
import lib
from enum import Enum
FIRST, SECOND = 1, 2
A, B = range(2)
def used(): return FIRST
def recursive(): recursive()
class Kind(Enum):
    ONE = 1
class Plain:
    size: int
    other: int = 0
    LIMIT = 5
    HALF = LIMIT // 2
    def __init__(self): self.stored = used(); self.size = self.HALF
    @property
    def shown(self): return self.size
    @app.get("/")
    def route(self): pass
class Handler(lib.Base):
    def on_event(self): return Plain(), Kind
"""


def test_what_is_found() -> None:
    other = "from dispatcher.a import Handler\nHandler(stored=1)\n"
    found = unread({"dispatcher.a": ast.parse(CODE), "deploy.b": ast.parse(other)})
    assert [one.path for one in found] == [
        "SECOND", "recursive", "Plain.other", "Plain.stored", "Plain.shown",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["stored", "shown"])
def test_what_reads(name: str) -> None:
    code = f"getattr(x, {name!r})\nmatch x:\n    case Plain({name}=1): pass\nx.{name}\n"
    for reading in (code.partition("\n")[0], code.partition("\n")[2]):
        found = unread({"dispatcher.a": ast.parse(CODE), "deploy.b": ast.parse(reading)})
        assert f"Plain.{name}" not in [one.path for one in found]
