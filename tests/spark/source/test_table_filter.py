"""The objects that statements touch, and the statements and tables that the option `tables` selects."""

from __future__ import annotations

import pytest

from spark_sink.source.selection.table_filter import TableFilter
from spark_sink.source.selection.touched import TouchedObjects
from tests.support.statements import as_logged

TABLES = (("shop", "order*"), ("billing", "invoices"), ("logs_?", "*"))


def touched(query: str, database: str = "shop") -> TouchedObjects:
    return TouchedObjects.of(as_logged(query, database, 0))


@pytest.mark.parametrize(
    ("query", "selected"),
    [
        ("CREATE TABLE orders (id INT)", True),
        ("CREATE TABLE customers (id INT)", False),
        ("ALTER TABLE billing.invoices ADD c INT", True),
        ("ALTER TABLE billing.payments ADD c INT", False),
        ("RENAME TABLE customers TO orders_old", True),
        ("DROP TABLE a, logs_1.b, c", True),
        ("TRUNCATE logs_12.b", False),
        ("DROP DATABASE billing", True),
        ("DROP DATABASE other", False),
        ("GRANT SELECT ON shop.orders TO u", False),
        ("CREATE SOMETHING that no parser knows", True),
    ],
)
def test_statements_are_selected_by_what_they_touch(query: str, selected: bool) -> None:
    assert TableFilter(TABLES).selects_statement(touched(query), 0) is selected


def test_names_without_a_database_are_of_the_statement_s() -> None:
    create = touched("CREATE TABLE orders (id INT)", "other")
    assert not TableFilter(TABLES).selects_statement(create, 0)


def test_a_pattern_of_databases_matches_none_of_the_server_s_own() -> None:
    every = TableFilter((("*", "*"),))
    assert every.selects_statement(touched("DROP TABLE t"), 0)
    assert not every.selects_statement(touched("DROP TABLE t", "mysql"), 0)


@pytest.mark.parametrize("value", [1, 2])
def test_names_are_compared_as_the_server_compares_them(value: int) -> None:
    tables = TableFilter((("Shop", "Orders"), ("LOGS_?", "B*")))
    for database, table in (("shop", "orders"), ("SHOP", "ORDERS"), ("logs_1", "b2")):
        assert tables.selects_table(database, table, value)
        assert not tables.selects_table(database, table, 0)
    assert tables.selects_table("Shop", "Orders", 0)
    statement = touched("DROP TABLE oRDERS", "sHOP")
    assert tables.selects_statement(statement, value)
    assert not tables.selects_statement(statement, 0)
    assert tables.selects_statement(touched("DROP DATABASE logs_1"), value)


@pytest.mark.parametrize(
    ("query", "database", "table", "tables"),
    [
        ("CREATE TABLE `or.ders` (id INT)", "shop", "or.ders", [("shop", "or.ders")]),
        ("DROP TABLE a, b, a", "shop", None, [("shop", "a"), ("shop", "b")]),
        ("RENAME TABLE a TO old.a", None, None, [("shop", "a"), ("old", "a")]),
        ("DROP DATABASE old", "old", None, []),
        ("CREATE TRIGGER old.x BEFORE INSERT ON old.t FOR EACH ROW SET @a = 1", "old", None, []),
        ("GRANT SELECT ON shop.orders TO u", None, None, []),
        ("CREATE SOMETHING that no parser knows", None, None, None),
    ],
)
def test_what_a_statement_touches_is_in_its_columns(
    query: str, database: str | None, table: str | None, tables: list[tuple[str, str]] | None
) -> None:
    pairs = None if tables is None else [{"database": db, "table": name} for db, name in tables]
    assert touched(query).columns() == {"database": database, "table": table, "tables": pairs}
