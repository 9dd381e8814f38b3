"""Settings are read as YAML 1.2. The nodes keep their lines, and keys that occur twice."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from yaml.nodes import MappingNode, Node, SequenceNode

from dispatcher.yaml_settings.yaml_nodes import InvalidYaml, line_of, read_nodes, value_of


def plain(node: Node) -> Any:
    if isinstance(node, MappingNode):
        return {plain(key): plain(value) for key, value in node.value}
    if isinstance(node, SequenceNode):
        return [plain(item) for item in node.value]
    return value_of(node)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[(word, None) for word in ("", "~", "null", "Null", "NULL")],
        *[(word, True) for word in ("true", "True", "TRUE")],
        *[(word, False) for word in ("false", "False", "FALSE")],
        *[(word, word) for word in ("yes", "No", "on", "OFF", "y", "nULL", "tRUE", "=", "<<")],
        *[("0", 0), ("-5", -5), ("+7", 7), ("007", 7), ("0777", 777), ("0o17", 15), ("0xfF", 255)],
        *[(word, word) for word in ("0b1", "1_000", "0o8", "-0x1", "12:30", "5s", "1.2.3", "+")],
        *[("0.5", 0.5), (".5", 0.5), ("1.", 1.0), ("1e3", 1000.0), ("-1.5E-1", -0.15)],
        *[(".inf", math.inf), ("-.INF", -math.inf), ("+.Inf", math.inf), ("inf", "inf")],
        *[(word, word) for word in ("2026-11-23", "2026-11-23T12:00:00Z", ".", "e3", "1e", "-.nan")],
        *[("'5'", "5"), ('"true"', "true"), ("''", ""), ("!!str 5", "5")],
        *[("|\n  5\n", "5\n"), (">-\n  two\n  lines\n", "two lines"), ("two\n  lines", "two lines")],
        *[("10MiB", "10MiB"), ("127.0.0.1:8085", "127.0.0.1:8085"), ("shop.*", "shop.*")],
    ],
)  # fmt: skip
def test_what_a_scalar_means(text: str, value: Any) -> None:
    found = plain(read_nodes(f"a: {text}"))["a"]
    assert (type(found), found) == (type(value), value)


def test_not_a_number() -> None:
    assert math.isnan(plain(read_nodes(".NaN")))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("%YAML 1.1\n---\na: yes\n", {"a": "yes"}),
        ("---\na: 1\n...\n", {"a": 1}),
        ("a:\r\n  b: 1\r\n", {"a": {"b": 1}}),
        ("\ufeffa: 1\n", {"a": 1}),
        ("a:\tb # c\n", {"a": "b"}),
        ("[{'k':1}, k: 2, a:b, -]", [{"k": 1}, {"k": 2}, "a:b", "-"]),
        ("a:\n- b\n-\n", {"a": ["b", None]}),
        ("? a\n: b\n", {"a": "b"}),
        ('"\\u2028\\x41\\/": "\N{SNOWMAN}\N{GRINNING FACE}"', {"\u2028A/": "\N{SNOWMAN}\N{GRINNING FACE}"}),
    ],
)  # fmt: skip
def test_forms_of_texts(text: str, value: Any) -> None:
    assert plain(read_nodes(text)) == value


def test_json_is_yaml() -> None:
    value = {"a": {"b": ["läden", 1, -0.5, True, None], "c": "x\n\"'\t\\"}, "d": {}, "e": []}
    for indent in (None, 2):
        assert plain(read_nodes(json.dumps(value, indent=indent))) == value


def test_an_empty_text_has_no_node() -> None:
    assert read_nodes("") is read_nodes("# a comment\n") is None


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: 1\nb: x\u2028y\n", 2, 'the character U+2028 is refused; write "\\u2028" in double quotes'),
        ("a: 'x\x85'\n", 1, "the character U+0085 is refused"),
        ("a: \x00\n", 1, "the character U+0000 is refused"),
        ("a: 1\n---\nb: 2\n", 2, "but found another document"),
        ("a: *b\n", 1, 'found undefined alias; a pattern that begins with * needs quotes, such as "*"'),
        ("a:\n  b: [*.x]\n", 2, "a pattern that begins with * needs quotes"),
        ("a: b: c\n", 1, "mapping values are not allowed"),
        ("a: 'x\n", 2, "found unexpected end of stream"),
        ("a: [&x b, &x c]\n", 1, "found duplicate anchor"),
        ("a:\n- {b: ?c}\n", 2, "a value that begins with ? needs quotes"),
        ("a: [::1]\n", 1, "a value that begins with : needs quotes"),
        ("a: [b, ,]\n", 1, "did not find expected node content"),
        ("a: !<x\n", 1, ""),
        ("a: x\ufeff: y\n", 1, ""),
    ],
)  # fmt: skip
def test_an_invalid_text(text: str, line: int, problem: str) -> None:
    with pytest.raises(InvalidYaml) as caught:
        read_nodes(text)
    assert problem in caught.value.problem and caught.value.line == line


@pytest.mark.parametrize("text", ["!!int 5", "!!python/object:os.system x", "!x 5"])
def test_a_tag_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"the tag .* is not supported; remove it"):
        plain(read_nodes(text))


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000, "a:\n" + "- " * 70 + "x\n"])
def test_deep_nesting_is_refused(text: str) -> None:
    """libyaml calls itself for each level: without a limit the stack overflows, which ends the process."""
    with pytest.raises(InvalidYaml, match="nested deeper than 64 levels"):
        read_nodes(text)


def test_lines_and_duplicate_keys_are_kept() -> None:
    node: Any = read_nodes("# a comment\na:\n  b: 1\n\na: [x,\n  y]\n")
    (first, inner), (second, items) = node.value
    assert (first.value, line_of(first), line_of(inner)) == ("a", 2, 3)
    assert (second.value, line_of(second)) == ("a", 5)
    assert [line_of(item) for item in items.value] == [5, 6]
