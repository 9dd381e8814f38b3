"""Servers that do not log the names of columns: the daemon derives definitions from the statements in the log.

Each script runs at once on a daemon that has read everything before. When the daemon looks a table up, all statements
of the script have been executed, so information_schema shows only the last definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.table_map.table_kind import TableKind
from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Reader
from tests.servers import Server

METADATA = {
    "mysql97": "MINIMAL", "mysql56": "", "mariadb1011": "NO_LOG", "mariadb118": "NO_LOG",
    "mariadb118 MINIMAL": "MINIMAL", "mariadb1011 FULL": "FULL",
}  # fmt: skip

Row = dict[str, Any]
Steps = list[tuple[str, Row | None]]
"""Statements, each with the row that it inserts, by the names that the columns have at that time."""

# Statements for every server.
SCRIPTS: dict[str, Steps] = {
    "create, insert, alter": [
        ("CREATE TABLE t (a INT PRIMARY KEY, b INT)", None),
        ("INSERT INTO t VALUES (1, 2)", {"a": 1, "b": 2}),
        ("ALTER TABLE t CHANGE a b INT, CHANGE b a INT", None),
        ("INSERT INTO t VALUES (3, 4)", {"b": 3, "a": 4}),
    ],
    "add, update, not null": [
        ("CREATE TABLE t (id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, x VARCHAR(20))", None),
        ("INSERT INTO t VALUES (1, 'é')", {"id": 1, "x": "é"}),
        ("ALTER TABLE t ADD COLUMN y INT AFTER id", None),
        ("INSERT INTO t VALUES (2, 7, 'b')", {"id": 2, "y": 7, "x": "b"}),
        ("UPDATE t SET y = 0 WHERE y IS NULL", {"id": 1, "y": 0, "x": "é"}),
        ("ALTER TABLE t MODIFY y INT NOT NULL DEFAULT 0", None),
        ("INSERT INTO t VALUES (4000000000, 8, 'c')", {"id": 4000000000, "y": 8, "x": "c"}),
    ],
    "labels": [
        ("CREATE TABLE t (e ENUM('x','y') CHARACTER SET latin1, s SET('p','q'), n INT)", None),
        ("INSERT INTO t VALUES ('x', 'p,q', 1)", {"e": "x", "s": "p,q", "n": 1}),
        ("ALTER TABLE t MODIFY e ENUM('y','x') CHARACTER SET latin1, MODIFY s SET('q','p')", None),
        ("INSERT INTO t VALUES ('x', 'q', 2)", {"e": "x", "s": "q", "n": 2}),
        ("ALTER TABLE t MODIFY e ENUM('it''s','x')", None),
        ("INSERT INTO t VALUES ('it''s', '', 3)", {"e": "it's", "s": "", "n": 3}),
    ],
    "many": [("CREATE TABLE t (c0 INT, d0 INT)", None)] + [
        step
        for n in range(1, 9)
        for step in (
            (f"ALTER TABLE t CHANGE c{n - 1} c{n} INT, CHANGE d{n - 1} d{n} INT FIRST", None),
            (f"INSERT INTO t (c{n}, d{n}) VALUES ({n}, {-n})",
             {f"d{n}": -n, f"c{n}": n}),
        )
    ],
    "renamed in a chain": [
        ("CREATE TABLE t (a INT, b INT)", None),
        ("CREATE TABLE u LIKE t", None),
        ("ALTER TABLE u CHANGE a c INT", None),
        ("INSERT INTO t VALUES (1, 2)", {"a": 1, "b": 2}),
        ("INSERT INTO u VALUES (3, 4)", {"c": 3, "b": 4}),
        ("RENAME TABLE t TO v, u TO t, v TO u", None),
        ("INSERT INTO t VALUES (5, 6)", {"c": 5, "b": 6}),
        ("INSERT INTO u VALUES (7, 8)", {"a": 7, "b": 8}),
        ("ALTER TABLE u RENAME TO w, CHANGE a x INT", None),
        ("INSERT INTO w VALUES (9, 10)", {"x": 9, "b": 10}),
        ("DROP TABLE t, w", None),
    ],
    "dropped and created": [
        ("CREATE TABLE t (a INT, b INT)", None),
        ("INSERT INTO t VALUES (1, 2)", {"a": 1, "b": 2}),
        ("DROP TABLE t", None),
        ("CREATE TABLE t (x INT, y INT UNSIGNED)", None),
        ("INSERT INTO t VALUES (3, 4000000000)", {"x": 3, "y": 4000000000}),
        ("DROP TABLE t", None),
    ],
    "keys and indexes": [
        ("CREATE TABLE t (a INT NOT NULL, b VARCHAR(30), UNIQUE KEY k (a), KEY i (b(5)))", None),
        ("INSERT INTO t VALUES (1, 'b')", {"a": 1, "b": "b"}),
        ("CREATE INDEX j ON t (a, b)", None),
        ("INSERT INTO t VALUES (2, 'c')", {"a": 2, "b": "c"}),
        ("ALTER TABLE t DROP INDEX k, ADD PRIMARY KEY (b(3)), CHANGE a c INT", None),
        ("INSERT INTO t VALUES (3, 'd')", {"c": 3, "b": "d"}),
        ("ALTER TABLE t DROP PRIMARY KEY, MODIFY b VARCHAR(30) FIRST", None),
        ("INSERT INTO t VALUES ('e', 4)", {"b": "e", "c": 4}),
    ],
    "character sets": [
        ("CREATE TABLE t (a VARCHAR(9), e ENUM('a')) CHARACTER SET latin1", None),
        ("INSERT INTO t VALUES ('é', 'a')", {"a": "é", "e": "a"}),
        ("TRUNCATE TABLE t", None),
        ("ALTER TABLE t CONVERT TO CHARACTER SET latin2, RENAME TO t2", None),
        ("INSERT INTO t2 VALUES ('ł', 'a')", {"a": "ł", "e": "a"}),
        ("TRUNCATE TABLE t2", None),
        ("ALTER TABLE t2 CHANGE a b VARCHAR(9) CHARACTER SET cp1251", None),
        ("INSERT INTO t2 VALUES ('ж', 'a')", {"b": "ж", "e": "a"}),
    ],
    "options": [
        ("CREATE TABLE t (a INT COMMENT 'x, y)', b DECIMAL(9,2) DEFAULT '1.5', CONSTRAINT p PRIMARY KEY (a))"
         " ENGINE=InnoDB COMMENT='c' ROW_FORMAT=DYNAMIC PARTITION BY HASH (a) PARTITIONS 2", None),
        ("CREATE TABLE IF NOT EXISTS t (z INT)", None),
        ("INSERT INTO t (a) VALUES (1)", {"a": 1, "b": Decimal("1.50")}),
        ("ALTER TABLE t CHANGE b c DECIMAL(9,2), COMMENT='d', ALGORITHM=INPLACE", None),
        ("INSERT INTO t (a) VALUES (2)", {"a": 2, "c": None}),
        ("ALTER TABLE t CHANGE c d DECIMAL(9,2)", None),
    ],
}  # fmt: skip


@pytest.fixture(params=METADATA)
def nameless_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    server: Server = request.getfixturevalue(request.param.partition(" ")[0])
    metadata = METADATA[request.param]
    if not metadata:
        yield server
        return
    before = server.execute("SELECT @@GLOBAL.binlog_row_metadata")[0][0]
    server.execute(f"SET GLOBAL binlog_row_metadata = {metadata}")
    try:
        yield server
    finally:
        server.execute(f"SET GLOBAL binlog_row_metadata = {before}")


def inserted(reader: Reader, server: Server) -> list[Row]:
    """Returns the rows that were inserted since the last call, with the names of columns in the delivered log."""
    reader.read_to(server)
    found = [
        row["after"]
        for change in reader.changes()
        if isinstance(change, delivered.TableChanges)
        for row in change.batch.to_pylist()
    ]
    reader.chunks.clear()
    return found


def test_rows_have_the_columns_of_their_time(
    nameless_server: Server,
    new_database: Callable[[Server], str],
    make_daemon: MakeDaemon,
    source: Source,
) -> None:
    """A restart in the middle changes nothing."""
    server = nameless_server
    databases = {what: new_database(server) for what in SCRIPTS}
    names = {what: f"c{n}" for n, what in enumerate(SCRIPTS)}
    daemon = make_daemon({names[w]: source(server, databases[w]) for w in SCRIPTS})
    api = daemon.start()
    for name in names.values():
        api.until_state(name, "streaming")
    for half in (0, 1):
        expected: dict[str, list[Row]] = {}
        for what, steps in SCRIPTS.items():
            middle = len(steps) // 2
            chosen = steps[middle:] if half else steps[:middle]
            server.execute(*[statement for statement, _ in chosen], database=databases[what])
            expected[what] = [row for _, row in chosen if row is not None]
        for what, rows in expected.items():
            reader = Reader(daemon, names[what]).open()
            assert inserted(reader, server) == rows, (what, half)
        daemon.restart()


def test_a_versioned_table_that_becomes_another_at_once(
    mariadb118: Server,
    new_database: Callable[[Server], str],
    make_daemon: MakeDaemon,
    source: Source,
) -> None:
    """The TABLE_MAPs do not say what the table is, and the server shows only the newest definition."""
    server = mariadb118
    database = new_database(server)
    daemon = make_daemon({"c": source(server, database)})
    daemon.start().until_state("c", "streaming")
    daemon.stop()
    server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING",
        "INSERT INTO t VALUES (1, 1)",
        "UPDATE t SET v = 2",
        "ALTER TABLE t DROP SYSTEM VERSIONING",
        "INSERT INTO t VALUES (2, 3)",
        database=database,
    )
    daemon.start()
    reader = Reader(daemon, "c").open().read_to(server)
    changes = [c for c in reader.changes() if isinstance(c, delivered.TableChanges)]
    assert [c.table_map.kind for c in changes] == [TableKind.VERSIONED, TableKind.TABLE]
    rows = [row["after"] for c in changes for row in c.batch.to_pylist()]
    assert [(row["id"], row["v"]) for row in rows] == [(1, 1), (1, 2), (2, 3)]
