"""Routes by name: equal names have one route and different names have different routes, whatever their hashes and
numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.stream.routes import NO_ROUTE, Filter, Routes, find_route

names = st.binary(min_size=1, max_size=64)


def found(routes: Routes, database: bytes, table: bytes) -> int:
    buf = np.frombuffer(b"??" + database + b"\0\0" + table, dtype=np.uint8).copy()
    return int(
        find_route(
            buf, 2, len(database), 4 + len(database), len(table),
            routes.slots, routes.names, routes.spans,
        )
    )  # fmt: skip


@given(st.lists(st.tuples(names, names), unique=True, max_size=40))
def test_what_is_interned_is_found(pairs: list[tuple[bytes, bytes]]) -> None:
    routes = Routes()
    for n, (database, table) in enumerate(pairs):
        assert found(routes, database, table) == -1
        assert routes.table(database, table) == n
    for n, (database, table) in enumerate(pairs):
        assert found(routes, database, table) == n


def test_the_border_between_the_names_counts() -> None:
    routes = Routes()
    routes.table(b"ab", b"c")
    assert found(routes, b"a", b"bc") == -1
    assert found(routes, b"abc", b"") == -1
    assert found(routes, b"ab", b"c") == 0


def test_thousands_of_tables_with_statements_between() -> None:
    routes = Routes()
    interned = {}
    for n in range(5000):
        database, table = b"database_%d" % (n % 7), b"table_%d" % n
        interned[database, table] = routes.table(database, table)
        if n % 10 == 0:
            routes.ddl([(f"database_{n}", None)])
    assert len(set(interned.values())) == 5000
    for (database, table), route in interned.items():
        assert found(routes, database, table) == route


def test_statements_share_a_route_with_their_equals() -> None:
    routes = Routes()
    one = routes.ddl([("a", "t"), ("b", None)])
    assert routes.ddl([("b", None), ("a", "t"), ("a", "t")]) == one
    assert routes.targets[one] == (("a", "t"), ("b", None))
    assert routes.ddl([]) == NO_ROUTE


def test_a_filter_grows_with_the_routes() -> None:
    routes = Routes()
    by_database, by_table = Filter(["a"]), Filter(["a", "b"], [("b", "t")])
    assert len(by_database.route_mask(routes)) == 0
    routes.table(b"a", b"t")
    assert by_database.route_mask(routes).tolist() == [1]
    routes.table(b"b", b"t")
    routes.ddl([("a", None)])
    routes.ddl([("c", None), ("b", "t")])
    routes.ddl([("b", "x")])
    assert by_database.route_mask(routes).tolist() == [1, 0, 1, 0, 0]
    assert by_table.route_mask(routes).tolist() == [0, 1, 1, 1, 0]


def test_names_that_are_not_utf8_do_no_harm() -> None:
    routes = Routes()
    assert found(routes, b"\xff", b"t") == -1
    routes.table(b"\xff", b"t")
    assert found(routes, b"\xff", b"t") == 0
    assert Filter(["a"]).route_mask(routes).tolist() == [0]


@pytest.mark.parametrize("value", [0, 1, 2])
def test_names_are_compared_as_the_server_compares_them(value: int) -> None:
    routes = Routes()
    routes.lower_case_table_names = value
    rows = routes.table(b"shop" if value == 1 else b"Shop", b"orders" if value == 1 else b"Orders")
    statement = routes.ddl([("SHOP", "ORDERS")])
    whole = routes.ddl([("SHOP", None)])
    if value:
        assert routes.targets[rows] == routes.targets[statement] == (("shop", "orders"),)
    by_table = Filter(["Shop"], [("Shop", "Ord*")]).route_mask(routes)
    assert by_table[rows] == 1
    assert by_table[statement] == by_table[whole] == (value > 0)
    assert not Filter(["Shop"], None, [("shop", "ORDERS")]).route_mask(routes)[rows] or not value
