"""Settings are read by libyaml where it reads what ruamel.yaml reads, and by ruamel.yaml otherwise."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from dispatcher.settings import yaml_nodes
from dispatcher.settings.yaml_nodes import (
    InvalidYaml,
    Items,
    Node,
    Pairs,
    Scalar,
    read_nodes,
    read_nodes_with_ruamel,
)

ROOT = Path(__file__).parents[2]
TEXTS = 4_000

FRAGMENTS = [
    *"ab[]{},:?!|>-%@`\\# \n\t'\"", "b: ", "consumers:", "  ", "\n  ", "\n    ", "\n- ", "- ", ", ", ": ", " # c",
    "&a ", "*a", "&x", "*x ", "? ", "--", "---", "...", "\\n", "\\x41", "\\u00e4", '\\"', '""', "''", "null", "true",
    "yes", "~", "1", "-1", "0", "007", "1.5", "1e3", "0x1f", "0o7", "1_000", "2024-01-01", "12:30", ".5", "+1", "=",
    "<<", "<<: ", "u@h:3306", "[::1]:8085", "10MiB", "127.0.0.1:8085", "é", "\u2603", "\u2028", "\ufeff", "/a/b",
    "key: value", '"a": ', '"k":1', "'x y'", "a b", "a#b", "a: b", " :", "::", "a:", "${P}", "shop.*", "- -", " - ",
]  # fmt: skip


def shape(node: Node | None, seen: dict[int, int]) -> Any:
    """Everything that settings use of a node. The line of nothing, which only the value of a key may be, is not."""
    if node is None:
        return None
    if id(node) in seen:
        return "same", seen[id(node)]
    seen[id(node)] = len(seen)
    if isinstance(node, Scalar):
        line = node.line if node.text or node.value is not None else 0
        return line, node.text, type(node.value), repr(node.value), node.problem
    if isinstance(node, Items):
        return node.line, [shape(item, seen) for item in node.items]
    return node.line, [(shape(key, seen), shape(value, seen)) for key, value in node.items]


@pytest.fixture
def by_ruamel(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that ruamel.yaml has read."""
    texts: list[str] = []

    def recorded(text: str) -> Node | None:
        texts.append(text)
        return read_nodes_with_ruamel(text)

    monkeypatch.setattr(yaml_nodes, "read_nodes_with_ruamel", recorded)
    return texts


def test_libyaml_reads_what_ruamel_reads(by_ruamel: list[str]) -> None:
    generator, with_libyaml = random.Random(25), 0
    for _ in range(TEXTS):
        text = "".join(generator.choices(FRAGMENTS, k=generator.randint(1, 12)))
        text = generator.choice(("{}", "{}", "a:\n  {}", "{{{}}}", "a: [{}]")).format(text)
        by_ruamel.clear()
        try:
            read = read_nodes(text)
        except InvalidYaml:
            assert by_ruamel == [text]  # what people see is its message
            continue
        if not by_ruamel:
            with_libyaml += 1
            assert shape(read, {}) == shape(read_nodes_with_ruamel(text), {}), repr(text)
    assert with_libyaml > TEXTS // 8


def test_usual_settings_are_read_by_libyaml(by_ruamel: list[str]) -> None:
    example = (ROOT / "config/dispatcher.example.yaml").read_text(encoding="utf-8")
    as_json = json.dumps({"consumers": {"a": {"databases": ["läden"], "password": "x\n\"'"}}})
    anchors = "---\na: {mysql: &where u@h:3306, tables: &all ['*', 'b.*']}\nb: {mysql: *where, tables: *all}\n"
    for text in (example, as_json, anchors, "listen: 127.0.0.1:8085\nseconds: 0.5\nbytes: 10MiB\n"):
        read = read_nodes(text)
        assert by_ruamel == []
        assert shape(read, {}) == shape(read_nodes_with_ruamel(text), {})


@pytest.mark.parametrize(
    "text",
    [
        "a: yes\nb: 0777\n",
        "a: 12:30\nb: 1_000\nc: 0o17\nd: 1e3\n",
        "a: 2026-11-23\n",
        "a: |\n  text\n",
        "a: 'two\n  lines'\n",
        "a: two\n  lines\n",
        "%YAML 1.1\n---\na: yes\n",
        "a: !!str 5\n",
        "a: \u2028b\n",
        "a:\r\n  b: 1\r\n",
        "a: ['k':1]\n",
        "a:\n-\n- b\n",
        "- " * 100,
        "[" * 100 + "]" * 100,
    ],
)
def test_a_text_that_versions_read_differently_means_what_it_means_in_1_2(text: str) -> None:
    try:
        expected: Any = shape(read_nodes_with_ruamel(text), {})
    except InvalidYaml as error:
        expected = str(error), error.line
    try:
        found: Any = shape(read_nodes(text), {})
    except InvalidYaml as error:
        found = str(error), error.line
    assert found == expected


def test_deep_nesting_is_not_left_to_libyaml() -> None:
    """Its composer would overflow the stack, which ends the process."""
    with pytest.raises(RecursionError):
        read_nodes("[" * 2_000)


def test_words_and_numbers() -> None:
    node = read_nodes("[yes, no, on, true, null, ~, 5, -5, 0.25, 5s, 1.2.3, '5', \"true\"]")
    assert isinstance(node, Items)
    values = [item.value for item in node.items if isinstance(item, Scalar)]
    assert values == ["yes", "no", "on", True, None, None, 5, -5, 0.25, "5s", "1.2.3", "5", "true"]


def test_lines_and_duplicate_keys_are_kept() -> None:
    node = read_nodes("# a comment\na:\n  b: 1\n\na: [x,\n  y]\n")
    assert isinstance(node, Pairs)
    (first, inner), (second, items) = node.items
    assert isinstance(first, Scalar) and isinstance(second, Scalar)
    assert (first.text, first.line, inner.line) == ("a", 2, 3)
    assert (second.text, second.line) == ("a", 5)
    assert isinstance(items, Items) and [item.line for item in items.items] == [5, 6]
