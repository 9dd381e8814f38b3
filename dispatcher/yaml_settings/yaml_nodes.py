"""Reads YAML 1.2 as PyYAML's nodes, which have line numbers and keep duplicate keys.

The parser is libyaml. For a thousand consumers, a parser in Python would take longer than the rest of the daemon's
start. libyaml implements YAML 1.1, so this module decides what a plain scalar means in YAML 1.2. The module refuses the
three characters that are line breaks only in YAML 1.1. In a list in brackets, a text that begins with `?` or `:` needs
quotes, although YAML 1.2 does not require them.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.cyaml import CParser
from yaml.nodes import Node, ScalarNode
from yaml.resolver import BaseResolver

_DEPTH_MAX = 64
_UNREADABLE = re.compile(
    r"[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)

_PLAIN = "plain"  # the tag of a scalar without quotes, which may be a number, a boolean or null
_TEXT = BaseResolver.DEFAULT_SCALAR_TAG
# The core schema of YAML 1.2.
_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_NUMBER_START = frozenset("-+.0123456789")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_BASED_INTEGER = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


class InvalidYaml(Exception):
    """The text is not valid YAML. `line` counts from 1."""

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line


class _Loader(CParser, BaseResolver):  # type: ignore[misc] # PyYAML has no types
    """Composes nodes. PyYAML calls these methods for each node."""

    def __init__(self, text: str) -> None:
        CParser.__init__(self, text)
        BaseResolver.__init__(self)
        self._depth = 0

    def resolve(self, kind: type[Node], value: Any, implicit: Any) -> str:
        if kind is ScalarNode:
            return _PLAIN if implicit[0] else _TEXT
        tag: str = super().resolve(kind, value, implicit)
        return tag

    def descend_resolver(self, outer: Node | None, index: Any) -> None:  # noqa: ARG002
        """Limit the depth of nesting: the parser calls itself for each level, so the stack would overflow."""
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            assert outer is not None
            raise InvalidYaml(f"nested deeper than {_DEPTH_MAX} levels", line_of(outer))

    def ascend_resolver(self) -> None:
        self._depth -= 1


def read_nodes(text: str) -> Node | None:
    """Returns the node of the text's document; None if the text is empty. An alias is the same node object as the node
    to which it refers, not a copy. Raises InvalidYaml."""
    if (unreadable := _UNREADABLE.search(text)) is not None:
        code = ord(unreadable[0])
        problem = f'the character U+{code:04X} is refused; write "\\u{code:04X}" in double quotes'
        raise InvalidYaml(problem, text.count("\n", 0, unreadable.start()) + 1)
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        problem = ", ".join(filter(None, (error.context, error.problem)))
        line = error.problem_mark.line + 1
        raise InvalidYaml(_explained(problem, text, error), line) from error
    finally:
        loader.dispose()


def line_of(node: Node) -> int:
    """The line in which a node begins, counted from 1."""
    line: int = node.start_mark.line + 1
    return line


def value_of(scalar: ScalarNode) -> Any:
    """What a scalar means in YAML 1.2. Raises ValueError."""
    text: str = scalar.value
    if scalar.tag == _TEXT:
        return text
    if scalar.tag != _PLAIN:
        raise ValueError(f"the tag {scalar.tag} is not supported; remove it")
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _BASED_INTEGER.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return float(text.replace(".", "")) if _NOT_FINITE.fullmatch(text) else text


def _explained(problem: str, text: str, error: yaml.MarkedYAMLError) -> str:
    """Returns the parser's problem with advice. Without quotes, a pattern such as * is an alias in YAML, and ?x or ::1
    in a list is not text in YAML 1.1."""
    at = text[error.problem_mark.index :][:1]
    if at == "\t":
        return "a tab, which YAML does not allow here; indent with spaces"
    if "alias" in problem:
        return f'{problem}; a pattern that begins with * needs quotes, such as "*"'
    if "did not find expected key" in problem:
        what = "this line does not continue the mapping before it"
        return f"{what}; indent the keys of a mapping alike, and close its quotes and brackets"
    unquoted = "node content" in problem and at in ("?", ":")
    return f"{problem}; a value that begins with {at} needs quotes" if unquoted else problem
