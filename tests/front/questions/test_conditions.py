"""LIKE and WHERE."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.front.questions.conditions import AllOf, AnyOf, Like, LikePattern, OneOf, RowFilter


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


def test_values_of_a_column_that_are_required() -> None:
    schema = OneOf("table_schema", frozenset(("shop",)), given=("Shop",))
    table = OneOf("table_name", frozenset(("a", "b")), given=("a", "b"))
    both = RowFilter(where=AllOf((schema, table)))
    assert both.required("table_schema") == ("Shop",)
    assert both.required("table_name") == ("a", "b")
    assert RowFilter(where=AnyOf((schema, table))).required("table_schema") is None
    assert RowFilter(where=schema).required("table_schema") == ("Shop",)
    assert RowFilter().required("table_schema") is None
    without = OneOf("table_schema", frozenset(("shop",)), negated=True, given=("shop",))
    assert RowFilter(where=without).required("table_schema") is None


def test_null_matches_nothing() -> None:
    row = {"name": None, "kind": "x"}
    assert not OneOf("name", frozenset(("a",)), negated=True).matches(row)
    assert not Like("name", LikePattern("%"), negated=True).matches(row)
    assert not RowFilter(like=LikePattern("%")).matches(row)
    assert OneOf("kind", frozenset(("a",)), negated=True).matches(row)
