"""LIKE and WHERE."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.front.questions.conditions import LikePattern, OneOf, RowFilter


def expression(pattern: str) -> str:
    """The pattern as a regular expression."""
    pieces = []
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            pieces.append(re.escape(next(characters, "\\")))
        else:
            pieces.append({"%": ".*", "_": "."}.get(character, re.escape(character)))
    return "".join(pieces)


@given(st.text("ab%_\\", max_size=8), st.text("abAB%_\\", max_size=8))
def test_like_is_a_regular_expression(pattern: str, text: str) -> None:
    expected = re.fullmatch(expression(pattern), text, re.DOTALL | re.IGNORECASE) is not None
    assert LikePattern(pattern).matches(text) is expected


def test_a_pattern_of_many_wildcards_takes_no_exponential_time() -> None:
    assert not LikePattern("%a" * 250 + "b").matches("a" * 4000)


def test_a_pattern_longer_than_the_text_is_not_compared() -> None:
    assert not LikePattern("_" * 5).matches("aaaa")
    assert LikePattern("%_%_%%_%_%").matches("aaaa")


def test_values_of_a_column_that_are_required() -> None:
    schema, table = OneOf.of("table_schema", ["Shop"]), OneOf.of("table_name", ["a", "b", "a"])
    both = RowFilter(where=(schema, table))
    assert both.required("table_schema") == ("Shop",)
    assert both.required("table_name") == ("a", "b")
    assert RowFilter().required("table_schema") is None
    assert both.matches({"table_schema": "SHOP", "table_name": "B"})
    assert not both.matches({"table_schema": "shop", "table_name": "c"})


def test_null_matches_nothing() -> None:
    row = {"name": None, "kind": "x"}
    assert not RowFilter(where=(OneOf.of("name", ["a"]),)).matches(row)
    assert not RowFilter(like=LikePattern("%")).matches(row)
