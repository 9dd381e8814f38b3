"""Reads YAML 1.2 as nodes: the values of a text with their lines, and with keys that occur twice.

Two parsers make the same nodes. ruamel.yaml reads all of YAML 1.2, and its messages are the ones that people see; its
scanner is written in Python, and takes half of the start with a thousand consumers. PyYAML's parser is libyaml, in C,
for YAML 1.1. So libyaml reads a text in which both versions mean the same: no rare characters, tags, directives,
block scalars or scalars of several lines, and no plain scalar that could be a number in an unusual form, or a time.
Any other text, and any text that libyaml refuses, is read by ruamel.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from ruamel.yaml.nodes import Node as RuamelNode

_LIBYAML: bool = yaml.__with_libyaml__
_DEPTH_MAX = 64

# Where both parsers could differ. Characters that are line breaks in one version, or no text at all:
_UNUSUAL_CHARACTER = re.compile(
    r"[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
# Directives and documents; at the beginning of a token: tags, block scalars, complex keys and reserved characters;
# anchors and aliases with unusual names.
_UNUSUAL_TOKEN = re.compile(
    r"""^(?:%|\.\.\.)
    | (?<!\A)^---
    | \A---(?!\n)
    | (?:^|(?<=[\s,\[\]{}:-]))(?:[!|>%@`?] | [&*](?![A-Za-z0-9_-]+(?:[\s,\]}]|\Z)))""",
    re.MULTILINE | re.VERBOSE,
)
_COMMENT = re.compile(r"(?:^|(?<=\s))\#.*", re.MULTILINE)
_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,14})\.[0-9]{1,15}")
# More than what is a number, a time, or a word with a meaning, in either version.
_NUMBER_LIKE = re.compile(
    r"""[-+]?(?:0[box]?)?[0-9a-fA-F_]+
    | [-+]?[0-9_]*\.?[0-9_]*(?:[eE][-+]?[0-9]*)?
    | [-+]?\.(?:inf|nan)
    | [0-9]{4}-[0-9].*
    | <<|=""",
    re.VERBOSE | re.IGNORECASE,
)
_NUMBER_START = frozenset("-+.0123456789<=")


@dataclass(slots=True, eq=False)
class Scalar:
    """`text`: as it is written, without quotes; `value`: what it means; `problem`: why it has no value."""

    line: int
    text: str
    value: Any
    problem: str = ""


@dataclass(slots=True, eq=False)
class Items:
    """A list."""

    line: int
    items: list[Node]


@dataclass(slots=True, eq=False)
class Pairs:
    """A mapping, in the order of the text; a key may occur twice."""

    line: int
    items: list[tuple[Node, Node]]


Node = Scalar | Items | Pairs


class InvalidYaml(Exception):
    """`line` counts from 1; 0 = it is not known."""

    def __init__(self, problem: str, line: int = 0) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line


def read_nodes(text: str) -> Node | None:
    """Returns the node of the text's document, None if it is empty. Lines count from 1. An alias is the same object as
    what it refers to. Raises InvalidYaml."""
    usual = not _UNUSUAL_CHARACTER.search(text)
    if _LIBYAML and usual and not _UNUSUAL_TOKEN.search(_COMMENT.sub("", text)):
        try:
            return _with_libyaml(text)
        except (_Unsure, yaml.YAMLError, ValueError):
            pass  # ruamel.yaml says what the text means, or what is wrong
    return read_nodes_with_ruamel(text)


# -- libyaml ----------------------------------------------------------------------------------------------------


class _Unsure(Exception):
    """The versions of YAML may differ about the text."""


def _with_libyaml(text: str) -> Node | None:
    from yaml.cyaml import CParser  # noqa: PLC0415 - there is none if PyYAML was built without libyaml

    parser = CParser(text)
    try:
        return _Composer(text).document(parser.get_event)
    finally:
        parser.dispose()


class _Composer:
    """Makes nodes of libyaml's events. libyaml's own composer calls itself for each level, without a limit."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._anchors: dict[str, Node] = {}
        self._open: list[Items | Pairs] = []
        self._keys: list[Node | None] = []  # of each open mapping: the key that has no value yet
        self._root: Node | None = None

    def document(self, next_event: Callable[[], Any]) -> Node | None:
        while not isinstance(event := next_event(), yaml.StreamEndEvent):
            if isinstance(event, yaml.ScalarEvent):
                self._add(event.anchor, _scalar(event))
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._begin(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._open.pop()
                self._keys.pop()
            elif isinstance(event, yaml.AliasEvent):
                if event.anchor not in self._anchors:
                    raise _Unsure
                self._add(None, self._anchors[event.anchor])
            elif isinstance(event, yaml.DocumentStartEvent) and self._root is not None:
                raise _Unsure  # a second document
        return self._root

    def _begin(self, event: Any) -> None:
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        # A pair in a list, without braces, is a mapping in some forms, and for some parsers.
        pair = is_mapping and event.flow_style and self._text[event.start_mark.index] != "{"
        if event.tag is not None or pair or len(self._open) == _DEPTH_MAX:
            raise _Unsure
        line = event.start_mark.line + 1
        node = Pairs(line, []) if is_mapping else Items(line, [])
        self._add(event.anchor, node)
        self._open.append(node)
        self._keys.append(None)

    def _add(self, anchor: str | None, node: Node) -> None:
        if anchor is not None:
            if anchor in self._anchors:
                raise _Unsure
            self._anchors[anchor] = node
        if not self._open:
            self._root = node
            return
        outer, key = self._open[-1], self._keys[-1]
        if isinstance(outer, Pairs) and key is not None:
            outer.items.append((key, node))
            self._keys[-1] = None
        elif isinstance(node, Scalar) and node.value is None and not node.text:
            # Nothing is written there. The parsers differ about its line; the line of a key's value does not matter.
            raise _Unsure
        elif isinstance(outer, Pairs):
            self._keys[-1] = node
        else:
            outer.items.append(node)


def _scalar(event: Any) -> Scalar:
    line, text = event.start_mark.line + 1, event.value
    if event.end_mark.line >= line or event.tag is not None:
        raise _Unsure  # several lines are joined, or a tag says what it means
    return Scalar(line, text, _meaning(text) if event.implicit[0] else text)


def _meaning(text: str) -> Any:
    """What a plain scalar means in YAML 1.2."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    if _NUMBER_LIKE.fullmatch(text):
        raise _Unsure
    return text


# -- ruamel.yaml ------------------------------------------------------------------------------------------------


def read_nodes_with_ruamel(text: str) -> Node | None:
    """As `read_nodes`, for any text."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - rarely needed, and slow to load
    from ruamel.yaml.error import MarkedYAMLError, YAMLError  # noqa: PLC0415

    try:
        node = YAML(typ="safe", pure=True).compose(text)
    except (YAMLError, ValueError) as error:
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        problem = (error.problem if isinstance(error, MarkedYAMLError) else None) or str(error)
        line = mark.line + 1 if mark is not None else 0
        raise InvalidYaml(f"{problem}{_hint(error)}", line) from error
    return None if node is None else _Ruamel().converted(node)


def load_value(text: str) -> Any:
    """Returns the value of a text, such as a list. Raises InvalidYaml, also for keys that occur twice."""
    from ruamel.yaml import YAML  # noqa: PLC0415
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415

    try:
        return YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError) as error:
        raise InvalidYaml(str(error)) from error


def _hint(error: Exception) -> str:
    """A pattern such as * without quotes is an alias in YAML."""
    texts = getattr(error, "context", None), getattr(error, "problem", None)
    alias = any("alias" in text for text in texts if text)
    return '; a pattern that begins with * needs quotes, such as "*"' if alias else ""


class _Ruamel:
    """Converts ruamel.yaml's nodes."""

    def __init__(self) -> None:
        from ruamel.yaml import YAML  # noqa: PLC0415

        self._constructor = YAML(typ="safe", pure=True).constructor
        self._known: dict[int, Node] = {}

    def converted(self, node: RuamelNode) -> Node:
        from ruamel.yaml.nodes import MappingNode, SequenceNode  # noqa: PLC0415

        if (same := self._known.get(id(node))) is not None:
            return same
        line = node.start_mark.line + 1
        if isinstance(node, MappingNode):
            self._known[id(node)] = pairs = Pairs(line, [])
            pairs.items += [
                (self.converted(key), self.converted(value)) for key, value in node.value
            ]
            return pairs
        if isinstance(node, SequenceNode):
            self._known[id(node)] = items = Items(line, [])
            items.items += [self.converted(item) for item in node.value]
            return items
        self._known[id(node)] = scalar = self._scalar(node, line)
        return scalar

    def _scalar(self, node: RuamelNode, line: int) -> Scalar:
        from ruamel.yaml.error import MarkedYAMLError, YAMLError  # noqa: PLC0415

        text = str(node.value)
        try:
            return Scalar(line, text, self._constructor.construct_object(node))
        except (YAMLError, ValueError) as error:
            problem = error.problem if isinstance(error, MarkedYAMLError) else None
            return Scalar(line, text, None, str(problem or error) or "it has no value")
