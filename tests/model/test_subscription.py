"""Subscriptions: names, shell-style patterns, exclusions. The tests compare with a matcher that tries all
possibilities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.subscription import SYSTEM_DATABASES, NamePatterns, Subscription, is_pattern
from dispatcher.stream.routes import Filter, Routes

ANY = st.text("ab", max_size=4)
SIMPLE = st.text("ab*?", min_size=1, max_size=4)
NAMES = st.text("ab", min_size=1, max_size=4)
PAIRS = st.tuples(SIMPLE, SIMPLE)


def matches(pattern: str, name: str) -> bool:
    """Matches `*` and `?`. For a `*`, tries every length of text."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(matches(pattern[1:], name[n:]) for n in range(len(name) + 1))
    return bool(name) and pattern[0] in ("?", name[0]) and matches(pattern[1:], name[1:])


@given(st.lists(SIMPLE, max_size=3), NAMES)
def test_patterns_match_as_trying_everything_does(patterns: list[str], name: str) -> None:
    assert NamePatterns(patterns).match(name) == any(matches(each, name) for each in patterns)


@given(
    st.lists(SIMPLE, min_size=1, max_size=3),
    st.none() | st.lists(PAIRS, max_size=3),
    st.lists(PAIRS, max_size=3),
    st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=20),
)
def test_a_filter_decides_as_the_rules_say(
    databases: list[str],
    tables: list[tuple[str, str]] | None,
    excluded: list[tuple[str, str]],
    names: list[tuple[str, str]],
) -> None:
    def one_of(pairs: list[tuple[str, str]], name: tuple[str, str]) -> bool:
        return any(matches(d, name[0]) and matches(t, name[1]) for d, t in pairs)

    names = list(dict.fromkeys(names))
    routes, wanted = Routes(), Filter(databases, tables, excluded)
    for n, (database, table) in enumerate(names):
        routes.table(database.encode(), table.encode())
        if n % 3 == 0:
            wanted.route_mask(routes)  # the mask grows in several steps
    expected = [
        any(matches(each, name[0]) for each in databases)
        and (tables is None or one_of(tables, name))
        and not one_of(excluded, name)
        for name in names
    ]
    assert wanted.route_mask(routes).tolist() == expected


def test_sets_of_characters_and_literal_wildcards() -> None:
    patterns = NamePatterns(["shop_[0-9]", "a[*]", "x[!yz]", "größe?"])
    assert [name for name in ("shop_1", "shop_a", "a*", "ab", "xa", "xy", "größe1", "groesse1")
            if patterns.match(name)] == ["shop_1", "a*", "xa", "größe1"]  # fmt: skip
    assert not is_pattern("größe-1.x") and is_pattern("a?")


@pytest.mark.parametrize("name", sorted(SYSTEM_DATABASES))
def test_a_pattern_matches_no_database_of_the_server_itself(name: str) -> None:
    assert not Subscription(["*"]).has_database(name)
    assert not Subscription([f"{name[:-1]}?"]).has_table(name, "t")
    assert Subscription(["*", name]).has_table(name, "t")
    assert Subscription(["*"]).has_table("shop", name)


def test_case_counts() -> None:
    assert not Subscription(["Shop*"]).has_database("shop_1")


def test_statements_about_a_database_as_a_whole() -> None:
    listed = Subscription(["shop", "crm"], [("shop", "orders")])
    assert listed.has_database("crm")  # DROP DATABASE may concern tables that a reader has
    excluded = Subscription(["*"], None, [("tmp*", "*"), ("shop", "log_*")])
    assert excluded.has_database("shop") and not excluded.has_database("tmp_1")
    assert not excluded.has_table("tmp_1", "t") and not excluded.has_table("shop", "log_1")
    assert excluded.has_table("shop", "orders")


def test_a_rename_across_the_border_is_delivered_and_the_other_table_is_not() -> None:
    routes, wanted = Routes(), Filter(["shop"], None, [("shop", "tmp_*")])
    into = routes.ddl([("shop", "tmp_orders"), ("shop", "orders")])
    within = routes.ddl([("shop", "tmp_orders"), ("shop", "tmp_items")])
    outside = routes.ddl([("crm", "a"), ("crm", "b")])
    mask = wanted.route_mask(routes)
    assert [bool(mask[route]) for route in (into, within, outside)] == [True, False, False]


def test_a_hostile_pattern_is_matched_without_backtracking() -> None:
    """A matcher that backtracks would need longer than any run of the tests."""
    assert not NamePatterns(["*a" * 30 + "b"]).match("a" * 64)


def test_the_cost_is_per_name_and_not_per_call() -> None:
    routes, wanted = Routes(), Filter(["*"], None, [("*", "tmp_*")])
    for n in range(1000):
        routes.table(b"shop", b"t%d" % n)
    first = wanted.route_mask(routes)
    assert wanted.route_mask(routes) is first and np.all(first)
