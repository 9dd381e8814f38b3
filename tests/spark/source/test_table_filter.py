"""Which rows and statements the option `tables` selects."""

from __future__ import annotations

import pytest

from dispatcher.binlog.decode.delivered import Ddl
from spark_sink.source.table_filter import TableFilter

TABLES = (("shop", "order*"), ("billing", "invoices"), ("logs_?", "*"))


def statement(query: str, database: str = "shop") -> Ddl:
    return Ddl(1, 1, 0, "", "binlog.000001", 4, 0, database, query, 0)


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
    assert TableFilter(TABLES).selects(statement(query)) is selected


def test_names_without_a_database_are_of_the_statement_s() -> None:
    assert not TableFilter(TABLES).selects(statement("CREATE TABLE orders (id INT)", "other"))


def test_a_pattern_of_databases_matches_none_of_the_server_s_own() -> None:
    every = TableFilter((("*", "*"),))
    assert every.selects(statement("DROP TABLE t"))
    assert not every.selects(statement("DROP TABLE t", "mysql"))
