"""Columns and keys of tables on real servers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.login import connect
from dispatcher.mysql.table_schema import table_columns
from tests.servers.server import Server
from tests.support.accounts import account


def test_a_table(any_server: Server, new_database: Callable[[Server], str]) -> None:
    database = new_database(any_server)
    any_server.execute(
        "CREATE TABLE `ta``ble` (b INT UNSIGNED NOT NULL, a BIGINT NOT NULL, `na``me` VARCHAR(10)"
        " CHARACTER SET latin1 NOT NULL, note TEXT CHARACTER SET utf8mb4, kind ENUM('x','y')"
        " CHARACTER SET utf8mb4, raw VARBINARY(3), PRIMARY KEY (a, b), UNIQUE (b))",
        database=database,
    )
    with account(any_server, "columns") as endpoint, closing(connect(endpoint)) as connection:
        seen = table_columns(connection, database, "ta`ble")
    assert (seen["database"], seen["table"]) == (database, "ta`ble")
    assert seen["key"] == ["a", "b"]
    columns = {column.pop("name"): column for column in seen["columns"]}
    assert list(columns) == ["b", "a", "na`me", "note", "kind", "raw"]
    # MySQL 8.0.19 dropped the display width of integers.
    assert columns["b"]["mysql_type"] in ("int unsigned", "int(10) unsigned")
    expected = {"mysql_type": "varchar(10)", "nullable": False, "charset": "latin1"}
    assert columns["na`me"] == expected
    assert columns["kind"] == {
        "mysql_type": "enum('x','y')",
        "nullable": True,
        "charset": "utf8mb4",
    }
    assert columns["raw"]["charset"] is None


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("a INT NOT NULL, b INT NOT NULL, UNIQUE z (b), UNIQUE y (a)", ["b"]),
        ("a INT, b INT NOT NULL, UNIQUE z (a), UNIQUE y (b)", ["b"]),
        ("a INT, b INT NOT NULL, UNIQUE z (a, b)", []),
        ("a INT NOT NULL, b INT NOT NULL, KEY z (a)", []),
        ("a INT NOT NULL, b INT NOT NULL, UNIQUE y (b), PRIMARY KEY (a)", ["a"]),
    ],
)
def test_which_key(
    columns: str, key: list[str], any_server: Server, new_database: Callable[[Server], str]
) -> None:
    database = new_database(any_server)
    any_server.execute(f"CREATE TABLE t ({columns})", database=database)
    with account(any_server, "keys") as endpoint, closing(connect(endpoint)) as connection:
        assert table_columns(connection, database, "t")["key"] == key


def test_an_expression_is_no_key(mysql97: Server, new_database: Callable[[Server], str]) -> None:
    database = new_database(mysql97)
    table = "CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, UNIQUE z ((a + 1)), UNIQUE y (b))"
    mysql97.execute(table, database=database)
    with account(mysql97, "expression") as endpoint, closing(connect(endpoint)) as connection:
        assert table_columns(connection, database, "t")["key"] == ["b"]


def test_no_such_table(any_server: Server, new_database: Callable[[Server], str]) -> None:
    database = new_database(any_server)
    with (
        account(any_server, "no_table") as endpoint,
        closing(connect(endpoint)) as connection,
        pytest.raises(BinlogError, match=f"no table {database}.nothing") as caught,
    ):
        table_columns(connection, database, "nothing")
    assert caught.value.kind is ErrorKind.UNKNOWN_TABLE
