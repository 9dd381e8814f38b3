"""The code reads each field of the mirror's records and of their states, because a field that is only written is
useless.

The test infers types roughly, from annotations: a value has a class if its annotation names the class, or if it is made
from a value of this class. So `record` in `for record in records`, and `max(records, ...)`, have the class of
`records`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
RULES = ROOT / "spark_sink" / "mirror" / "rules"
DEFINED_IN = (RULES / "states.py", RULES / "table_record.py")

# Functions that read every field to store the field.
CODEC = {"row_of", "detail_json"}

# Fields that are stored only for people who read the control table.
FOR_PEOPLE = {"TableRecord": ["server"], "Failing": ["lsn"]}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Classes = frozenset[str]
NONE: Classes = frozenset()


def is_dataclass(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef) and any(
        "dataclass" in ast.unparse(decorator) for decorator in node.decorator_list
    )


@dataclass
class Program:
    """Facts about the modules. `fields`: of the tested dataclasses; `aliases`: of annotations; `returns`: by name, what
    functions return; `attributes`: by name, the classes of all attributes."""

    fields: dict[str, dict[str, Classes]] = field(default_factory=dict)
    aliases: dict[str, Classes] = field(default_factory=dict)
    returns: dict[str, Classes] = field(default_factory=dict)
    attributes: dict[str, Classes] = field(default_factory=dict)

    def define(self, modules: Iterable[ast.Module]) -> None:
        """Add the facts of the modules that define the dataclasses."""
        trees = list(modules)
        classes = [node for tree in trees for node in tree.body if is_dataclass(node)]
        self.fields = {node.name: {} for node in classes if isinstance(node, ast.ClassDef)}
        for tree in trees:
            for node in tree.body:
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    self.aliases[node.targets[0].id] = self.named(node.value)
        for node in classes:
            assert isinstance(node, ast.ClassDef)
            self.fields[node.name] = {
                item.target.id: self.named(item.annotation)
                for item in node.body
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
            }

    def learn(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, Function):
                known = self.returns.get(node.name, NONE)
                self.returns[node.name] = known | self.named(node.returns)
            if isinstance(node, ast.AnnAssign):
                name = ast.unparse(node.target).rpartition(".")[2]
                self.attributes[name] = self.attributes.get(name, NONE) | self.named(
                    node.annotation
                )

    def named(self, annotation: ast.expr | None) -> Classes:
        """Returns the classes that an annotation names."""
        found: set[str] = set()
        for node in ast.walk(annotation) if annotation is not None else ():
            name = node.id if isinstance(node, ast.Name) else ""
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = node.value
            found |= {name} & self.fields.keys()
            found |= self.aliases.get(name, NONE)
        return frozenset(found)


@dataclass
class Reader:
    """Finds the fields that one function reads. `own`: the class of the function's `self`."""

    program: Program
    own: Classes
    variables: dict[str, Classes] = field(default_factory=dict)
    found: set[tuple[str, str]] = field(default_factory=set)

    def read(self, function: Function) -> set[tuple[str, str]]:
        for _ in range(3):  # a variable may be assigned below its use
            self.visit(function)
        return self.found

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, Function):
            if node.name in CODEC:
                return
            arguments = node.args
            for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                self.bind(arg.arg, self.program.named(arg.annotation))
            self.bind("self", self.own)
        for child in ast.iter_child_nodes(node):
            self.visit(child)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            classes = self.classes_of(node.value)
            self.found |= {(c, node.attr) for c in classes if node.attr in self.program.fields[c]}
        self._assign(node)

    # -- variables -------------------------------------------------------------------------------------------------

    def bind(self, name: str, classes: Classes) -> None:
        self.variables[name] = self.variables.get(name, NONE) | classes

    def _assign(self, node: ast.AST) -> None:
        """Bind the variables that a statement or an expression assigns."""
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind_all(target, self.classes_of(value))
            case ast.AnnAssign(target=target, annotation=annotation):
                self._bind_all(target, self.program.named(annotation))
            case ast.NamedExpr(target=target, value=value):
                self._bind_all(target, self.classes_of(value))
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                self._bind_all(target, self.classes_of(value))
            case ast.Call(args=args):
                # If an argument is a lambda, such as `key`, its parameters have the classes of the other arguments.
                given = [*args, *(keyword.value for keyword in node.keywords)]
                for function in (value for value in given if isinstance(value, ast.Lambda)):
                    for arg in function.args.args:
                        self.bind(arg.arg, self._union(args))
            case ast.Match(subject=subject, cases=cases):
                for case in cases:
                    self._pattern(case.pattern, self.classes_of(subject))

    def _bind_all(self, target: ast.expr, classes: Classes) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self.bind(node.id, classes)

    def _pattern(self, pattern: ast.pattern, subject: Classes) -> None:
        match pattern:
            case ast.MatchAs(pattern=inner, name=name):
                if name is not None:
                    cls = inner.cls if isinstance(inner, ast.MatchClass) else None
                    self.bind(name, self.program.named(cls) if cls is not None else subject)
                if inner is not None:
                    self._pattern(inner, subject)
            case ast.MatchOr(patterns=patterns):
                for inner in patterns:
                    self._pattern(inner, subject)
            case ast.MatchClass(cls=cls, patterns=patterns, kwd_attrs=names, kwd_patterns=values):
                for found in self.program.named(cls):
                    fields = self.program.fields[found]
                    given = [*zip(fields, patterns, strict=False), *zip(names, values, strict=True)]
                    for attr, inner in given:
                        self.found.add((found, attr))
                        self._pattern(inner, fields.get(attr, NONE))

    # -- values ----------------------------------------------------------------------------------------------------

    def classes_of(self, node: ast.expr) -> Classes:
        """Returns the classes of a value, or of its elements."""
        program = self.program
        match node:
            case ast.Compare():
                return NONE
            case ast.Name(id=name):
                return self.variables.get(name, NONE)
            case ast.Attribute(value=value, attr=attr):
                return self._attribute(self.classes_of(value), attr)
            case ast.Call(func=ast.Name(id=name)) if name in program.fields:
                return frozenset({name})
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if (
                name in program.returns
            ):
                return program.returns[name]
        return self._union(c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr))

    def _union(self, values: Iterable[ast.expr]) -> Classes:
        return NONE.union(*map(self.classes_of, values))

    def _attribute(self, of: Classes, attr: str) -> Classes:
        program = self.program
        held = [program.fields[c][attr] for c in of if attr in program.fields[c]]
        if held:
            return NONE.union(*held)
        if attr in program.attributes or attr in program.returns:
            return program.attributes.get(attr, NONE) | program.returns.get(attr, NONE)
        return of


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Yields the functions of a module, each with the class of which it is a method."""
    for node in tree.body:
        if isinstance(node, Function):
            yield "", node
        if isinstance(node, ast.ClassDef):
            yield from ((node.name, item) for item in node.body if isinstance(item, Function))


def unread_fields(
    defining: Iterable[ast.Module], modules: Iterable[ast.Module]
) -> dict[str, list[str]]:
    """Returns, by class, the fields of the dataclasses of `defining` that no function of `modules` reads."""
    program, trees = Program(), list(modules)
    program.define(defining)
    for tree in trees:
        program.learn(tree)
    read: set[tuple[str, str]] = set()
    for tree in trees:
        for cls, function in functions(tree):
            own = frozenset({cls} & program.fields.keys())
            read |= Reader(program, own).read(function)
    unread: dict[str, list[str]] = defaultdict(list)
    for cls, fields in program.fields.items():
        for name in fields:
            if (cls, name) not in read:
                unread[cls].append(name)
    return dict(unread)


def test_every_field_of_a_record_and_of_its_states_is_read() -> None:
    modules = {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "spark_sink").rglob("*.py"))
    }
    assert unread_fields([modules[path] for path in DEFINED_IN], modules.values()) == FOR_PEOPLE


DEFINITION = """
@dataclass
class Stop:
    lsn: int
    why: str
    since: int
    rows: int
    lost: int
    seen: int
    was: Was | None

@dataclass
class Was:
    complete: bool
    lsn: int

State = Stop | Was
"""

USE = """
def row_of(stop: Stop) -> dict:
    return {"rows": stop.rows}  # to store it

def newest(stops: Iterable[State], entry: Entry) -> Stop:
    stops[0].seen = entry.rows
    match stops[0]:
        case Stop(1, since=since):
            return replace(stops[0], rows=0, seen=4)
        case Stop(was=before) if before.complete:
            pass
    return max(stops, key=lambda stop: stop.why)
"""


def test_a_field_that_is_only_written_is_found() -> None:
    definition, use = ast.parse(DEFINITION), ast.parse(USE)
    expected = {"Stop": ["rows", "lost", "seen"], "Was": ["lsn"]}
    assert unread_fields([definition], [definition, use]) == expected
