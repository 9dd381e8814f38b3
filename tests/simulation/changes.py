"""Changes of one function's syntax tree, by which a mutant describes what it breaks.

Each change contains the code that it alters, as Python text. The text is compared in the form of `ast.unparse`, so
neither formatting nor other statements matter. If it does not occur exactly once in the function, StaleError is raised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")
Function = ast.FunctionDef | ast.Module
# Statements that contain other statements.
_COMPOUND = (
    ast.FunctionDef,
    ast.ClassDef,
    ast.If,
    ast.For,
    ast.While,
    ast.With,
    ast.Try,
    ast.Match,
)


class StaleError(Exception):
    """The source no longer has the code that a mutant alters, or has this code more than once."""


class Change(Protocol):
    def apply(self, function: Function) -> None:
        """Alter the function in place. Raises StaleError."""


@dataclass(frozen=True, slots=True)
class Return:
    """The function returns `value`, and does nothing else."""

    value: str

    def apply(self, function: Function) -> None:
        function.body = [ast.Return(_expression(self.value))]


@dataclass(frozen=True, slots=True)
class Assign:
    """The only assignment to `target` in the function assigns `value`. If a mutant alters a module, only assignments
    outside of functions and classes count: those of constants."""

    target: str
    value: str

    def apply(self, function: Function) -> None:
        body = function.body if isinstance(function, ast.Module) else ast.walk(function)
        assignments = [
            node
            for node in body
            if isinstance(node, ast.Assign)
            and any(ast.unparse(target) == self.target for target in node.targets)
        ]
        _only(assignments, f"an assignment to {self.target}").value = _expression(self.value)


@dataclass(frozen=True, slots=True)
class Replace:
    """The only expression `old` becomes `new`."""

    old: str
    new: str

    def apply(self, function: Function) -> None:
        old, new = _normal(self.old), _expression(self.new)
        _replace_in(function, old, new, self.old)


@dataclass(frozen=True, slots=True)
class If:
    """The only `if` whose condition contains the expression `part` gets the condition `test`."""

    part: str
    test: str

    def apply(self, function: Function) -> None:
        part = _normal(self.part)
        ifs = [node for node in ast.walk(function) if isinstance(node, ast.If)]
        ifs = [node for node in ifs if _contains(node.test, part)]
        _only(ifs, f"a condition with {self.part}").test = _expression(self.test)


@dataclass(frozen=True, slots=True)
class Remove:
    """The only element `element` of a list is left out."""

    element: str

    def apply(self, function: Function) -> None:
        (wanted,) = ast.parse(f"[{self.element}]", mode="eval").body.elts  # type: ignore[attr-defined]
        places = [
            (node, element)
            for node in ast.walk(function)
            if isinstance(node, ast.List)
            for element in node.elts
            if ast.unparse(element) == ast.unparse(wanted)
        ]
        node, element = _only(places, f"an element {self.element}")
        node.elts.remove(element)


@dataclass(frozen=True, slots=True)
class Drop:
    """The only statement that is `statement` is left out. If `statement` is an expression: the only statement that
    contains this expression."""

    statement: str

    def apply(self, function: Function) -> None:
        body, index = _find_statement(function, self.statement)
        body[index : index + 1] = [] if len(body) > 1 else [ast.Pass()]


@dataclass(frozen=True, slots=True)
class Insert:
    """`statements` are inserted before the only statement that is `before`. If `before` is an expression: before the
    only statement that contains this expression."""

    before: str
    statements: str

    def apply(self, function: Function) -> None:
        body, index = _find_statement(function, self.before)
        body[index:index] = ast.parse(self.statements).body


def find_function(tree: ast.Module, names: list[str]) -> Function:
    """The function of these names, such as a class and its method; without names the module itself."""
    node: ast.Module | ast.ClassDef | ast.FunctionDef = tree
    for name in names:
        definitions = [
            child
            for child in node.body
            if isinstance(child, ast.ClassDef | ast.FunctionDef) and child.name == name
        ]
        node = _only(definitions, f"a definition of {name}")
    assert not isinstance(node, ast.ClassDef), f"{node.name} is a class"
    return node


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _normal(text: str) -> str:
    return ast.unparse(_expression(text))


def _contains(node: ast.AST, text: str) -> bool:
    return any(isinstance(n, ast.expr) and ast.unparse(n) == text for n in ast.walk(node))


def _only(matches: list[T], name: str) -> T:
    if len(matches) != 1:
        raise StaleError(f"{name} stands {len(matches)} times")
    return matches[0]


def _replace_in(function: Function, old: str, new: ast.expr, name: str) -> None:
    count = 0

    class Replacer(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            nonlocal count
            if isinstance(node, ast.expr) and ast.unparse(node) == old:
                count += 1
                return new
            return self.generic_visit(node)

    Replacer().visit(function)
    if count != 1:
        raise StaleError(f"{name} stands {count} times")


def _find_statement(function: Function, text: str) -> tuple[list[ast.stmt], int]:
    """The list that holds a statement, and the index of the statement in this list."""
    (statement,) = ast.parse(text).body
    expression = ast.unparse(statement.value) if isinstance(statement, ast.Expr) else None
    places = [
        (body, index)
        for body in _bodies(function)
        for index, node in enumerate(body)
        if (
            ast.unparse(node) == ast.unparse(statement)
            if expression is None
            else not isinstance(node, _COMPOUND) and _contains(node, expression)
        )
    ]
    return _only(places, text)


def _bodies(function: Function) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(function):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list):
                yield body
