"""Servers with `lower_case_table_names=1`: their logs hold names in lower case in TABLE_MAPs, and as they were typed in
statements."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.sql.statement import parse_statement
from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Reader, until
from tests.servers import Kind
from tests.servers.plugin import ServerFactory

FOLDING = "--lower-case-table-names=1"
STATEMENTS = (
    "CREATE DATABASE Shop",
    "USE Shop",
    "CREATE TABLE Orders (Id INT PRIMARY KEY)",
    "INSERT INTO ORDERS VALUES (1)",
    "TRUNCATE TABLE Orders",
    "ALTER TABLE ORDERS ADD k INT",
    "INSERT INTO orders VALUES (2, 2)",
    "CREATE TABLE Ren (id INT PRIMARY KEY)",
    "RENAME TABLE Ren TO Ren2",
    "RENAME TABLE Orders TO Swap, Ren2 TO ORDERS, SWAP TO ren2",
    "INSERT INTO Orders VALUES (3)",
    "CREATE DATABASE Other",
    "USE Other",
    "TRUNCATE TABLE Shop.Orders",
    "CREATE TABLE T2 (id INT PRIMARY KEY)",
    "DROP DATABASE SHOP",
)
OF_ORDERS = [
    "CREATE DATABASE", "CREATE TABLE", "orders", "TRUNCATE TABLE", "ALTER TABLE", "orders", "RENAME TABLE", "orders",
    "TRUNCATE TABLE", "DROP DATABASE",
]  # fmt: skip


def seen(reader: Reader) -> list[str]:
    """Returns the first two words of each statement, and the table of each change of rows, in order."""
    return [
        " ".join(part.statement.text.split()[:2])
        if isinstance(part, delivered.Ddl)
        else part.table_map.table
        for part in reader.changes()
    ]


@pytest.mark.parametrize("kind", ["mysql97", "mariadb1011", "mariadb118"])
def test_statements_are_delivered_by_the_names_of_the_server(
    kind: Kind, server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source
) -> None:
    server = server_factory(kind, FOLDING)
    daemon = make_daemon(
        {
            "shop": source(server, "Shop", start="earliest"),
            "orders": source(server, "shop", tables=["shop.Orders"], start="earliest"),
            "other": source(server, "OTHER", start="earliest"),
        }
    )
    daemon.start()
    server.execute(*STATEMENTS)
    orders = Reader(daemon, "orders").open()
    assert seen(orders.read_to(server)) == OF_ORDERS
    whole = Reader(daemon, "shop").open()
    assert seen(whole.read_to(server)) == [
        *OF_ORDERS[:6], "CREATE TABLE", "RENAME TABLE", *OF_ORDERS[6:],
    ]  # fmt: skip
    other = Reader(daemon, "other").open()
    assert seen(other.read_to(server)) == ["CREATE DATABASE", "CREATE TABLE"]
    ddl = [part for part in whole.changes() if isinstance(part, delivered.Ddl)]
    assert {part.statement.facts.lower_case_table_names for part in ddl} == {1}
    names = {name for part in ddl for name in parse_statement(part.statement).tables}
    assert names == {("shop", name) for name in ("orders", "ren", "ren2", "swap")}


@pytest.mark.parametrize("kind", ["mysql97", "mysql56"])
def test_a_definition_follows_an_alter_in_another_spelling(
    kind: Kind, server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source
) -> None:
    minimal = ("--binlog-row-metadata=MINIMAL",) if kind == "mysql97" else ()
    server = server_factory(kind, FOLDING, *minimal)
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (a INT PRIMARY KEY, b INT)")
    daemon = make_daemon({"names": source(server, "Shop")})
    daemon.start()
    reader = Reader(daemon, "names").open()
    server.execute("INSERT INTO shop.t VALUES (1, 2)")
    reader.read_to(server)
    server.execute("ALTER TABLE Shop.T CHANGE a b INT, CHANGE b a INT")
    reader.read_to(server)
    server.execute("INSERT INTO SHOP.T VALUES (3, 4)")
    reader.read_to(server)
    rows: list[dict[str, Any]] = [
        row["after"]
        for part in reader.changes()
        if isinstance(part, delivered.TableChanges)
        for row in part.batch.to_pylist()
    ]
    assert rows == [{"a": 1, "b": 2}, {"b": 3, "a": 4}]


def test_a_host_that_compares_names_otherwise_is_refused(
    server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source
) -> None:
    server = server_factory("mariadb118")
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (a INT PRIMARY KEY)")
    daemon = make_daemon({"names": source(server, "shop")})
    api = daemon.start()
    api.until_state("names", "streaming")
    refused = "lower_case_table_names=1, but the log was read with 0 so far"
    server.restart(FOLDING)
    until(lambda: refused in str(api.row("names")["last_error"]), "the server is refused")
    assert api.row("names")["state"] == "failed"
    daemon.restart().until_state("names", "streaming")
