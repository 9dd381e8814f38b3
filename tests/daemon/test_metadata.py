"""Servers that do not log the names of columns: the daemon adds the names to table maps, or fails the consumer with an
error.

An altered table has the same TABLE_MAP before and after the ALTER.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.events.index import Index
from dispatcher.binlog.decode.events.parts import Layouts
from dispatcher.binlog.table_map.parse import TableMap
from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Json, Reader, tip_seq
from tests.servers import Server

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A table, a row, a statement that alters the table, and a second row. `old`, `new`: the two rows, each with the
    column names of its time."""

    table: str
    old_row: str
    alter: str
    new_row: str
    old: dict[str, Any]
    new: dict[str, Any]
    key: tuple[str, ...] = ()


CASES = {
    "swapped names": Case(
        "(a INT, b INT)", "1, 2",
        "ALTER TABLE t CHANGE a b INT, CHANGE b a INT", "3, 4", {"a": 1, "b": 2}, {"b": 3, "a": 4},
    ),
    "other labels": Case(
        "(e ENUM('x', 'y'))", "'x'", "ALTER TABLE t MODIFY e ENUM('new', 'x')", "'x'", {"e": "x"}, {"e": "x"},
    ),
    "added key": Case(
        "(a INT NOT NULL, b INT)", "1, 2", "ALTER TABLE t ADD PRIMARY KEY (a)", "3, 4", {"a": 1, "b": 2},
        {"a": 3, "b": 4}, ("a",),
    ),
    "unsigned": Case(
        "(a INT)", "-1", "TRUNCATE TABLE t; ALTER TABLE t MODIFY a INT UNSIGNED", "4294967295", {"a": -1},
        {"a": 4294967295},
    ),
    "character set": Case(
        "(a VARCHAR(9) CHARACTER SET latin1)", "'é'",
        "TRUNCATE TABLE t; ALTER TABLE t MODIFY a VARCHAR(9) CHARACTER SET latin2", "'ł'", {"a": "é"}, {"a": "ł"},
    ),
}  # fmt: skip


@pytest.fixture(params=["mysql97", "mysql56"])
def nameless_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that does not log the names of columns, because of its settings or its age."""
    server: Server = request.getfixturevalue(request.param)
    if request.param == "mysql56":
        yield server
        return
    server.execute("SET GLOBAL binlog_row_metadata = MINIMAL")
    try:
        yield server
    finally:
        server.execute("SET GLOBAL binlog_row_metadata = FULL")


def here(server: Server) -> Json:
    executed = server.execute("SELECT @@GLOBAL.gtid_executed")[0][0]
    return {"gtid": str(executed).replace("\n", "")}


def rows(reader: Reader) -> Rows:
    """Returns the rows that were inserted since the last call, with the names of columns in the delivered log."""
    found = []
    for change in reader.changes():
        if isinstance(change, delivered.TableChanges):
            found += [row["after"] for row in change.batch.to_pylist()]
    reader.chunks.clear()
    return found


def keys(reader: Reader) -> list[tuple[str, ...]]:
    changes = [c for c in reader.changes() if isinstance(c, delivered.TableChanges)]
    return [tuple(c.table_map.columns[i].name for i in c.table_map.key) for c in changes]


def alter(server: Server, database: str, case: Case) -> None:
    server.execute(*case.alter.split("; "), database=database)


def test_a_row_has_the_columns_of_its_time_or_its_consumer_fails(
    nameless_server: Server,
    new_database: Callable[[Server], str],
    make_daemon: MakeDaemon,
    source: Source,
) -> None:
    server = nameless_server
    databases = {what: new_database(server) for what in CASES}
    quiet = new_database(server)
    for what, case in CASES.items():
        server.execute(f"CREATE TABLE t {case.table}", database=databases[what])
    server.execute("CREATE TABLE t (n INT)", database=quiet)
    before = here(server)
    for what, case in CASES.items():
        server.execute(f"INSERT INTO t VALUES ({case.old_row})", database=databases[what])
        alter(server, databases[what], case)
    server.execute("INSERT INTO t VALUES (7)", database=quiet)
    after = here(server)
    for what, case in CASES.items():
        server.execute(f"INSERT INTO t VALUES ({case.new_row})", database=databases[what])

    lax = {"assume_current_schema": True}
    swapped = databases["swapped names"]
    consumers = {"quiet": source(server, quiet, start=before)}
    consumers |= {"lax": source(server, swapped, start=before, **lax)}
    for n, database in enumerate(databases.values()):
        consumers[f"early{n}"] = source(server, database, start=before)
        consumers[f"late{n}"] = source(server, database, start=after)
    daemon = make_daemon(consumers)
    api = daemon.start()

    # The daemon cannot know the definition before the ALTER, so the consumer fails with an error that says this.
    for n, (what, database) in enumerate(databases.items()):
        row = api.until_state(f"early{n}", "failed")
        assert f"table {database}.t" in row["last_error"], what
        assert "assume_current_schema" in row["last_error"]
        assert "binlog_row_metadata=FULL" in row["last_error"]
    # The other consumers continue.
    assert rows(Reader(daemon, "quiet").open().read_to(server)) == [{"n": 7}]
    assert rows(Reader(daemon, "lax").open().read_to(server)) == [
        {"b": 1, "a": 2},
        {"b": 3, "a": 4},
    ]
    late = [Reader(daemon, f"late{n}").open() for n in range(len(CASES))]
    for reader, case in zip(late, CASES.values(), strict=True):
        reader.read_to(server)
        assert keys(reader) == [case.key]
        assert rows(reader) == [case.new]

    # At the end of the log the daemon knows each new definition of a table.
    reader = late[0]
    server.execute("INSERT INTO t VALUES (5, 6)", database=swapped)
    assert rows(reader.read_to(server)) == [{"b": 5, "a": 6}]
    server.execute("ALTER TABLE t CHANGE a c INT", "INSERT INTO t VALUES (7, 8)", database=swapped)
    assert rows(reader.read_to(server)) == [{"b": 7, "c": 8}]

    # After a restart the daemon still knows the definitions that it knew before, although it could not look them up
    # again.
    looked_up = daemon.log.count('"looking up tables"')
    daemon.stop()
    server.execute("INSERT INTO t VALUES (9, 10)", database=swapped)
    daemon.start()
    assert rows(reader.open().read_to(server)) == [{"b": 9, "c": 10}]
    server.execute("INSERT INTO t VALUES (11, 12)", database=swapped)
    reader.read_to(server)
    daemon.stop()
    server.execute(
        "INSERT INTO t VALUES (13, 14)", "ALTER TABLE t CHANGE c d INT", "INSERT INTO t VALUES (15, 16)",
        database=swapped,
    )  # fmt: skip
    daemon.start()
    assert rows(reader.open().read_to(server)) == [
        {"b": 11, "c": 12}, {"b": 13, "c": 14}, {"b": 15, "d": 16},
    ]  # fmt: skip
    assert looked_up, daemon.log


def test_labels_come_from_the_log_where_the_schema_shows_them_wrong(
    mariadb118: Server,
    new_database: Callable[[Server], str],
    make_daemon: MakeDaemon,
    source: Source,
) -> None:
    """The daemon looks up each table with a UUID or INET column. information_schema shows an emoji in a label as
    '?'."""
    database = new_database(mariadb118)
    daemon = make_daemon({"c": source(mariadb118, database)})
    daemon.start().until_state("c", "streaming")
    mariadb118.execute(
        "CREATE TABLE t (u UUID, e ENUM('😀','why?') CHARACTER SET utf8mb4, s SET('?','😀') CHARACTER SET utf8mb4)",
        "INSERT INTO t VALUES ('12345678-1234-1234-1234-123456789abc', 1, 3)",
        "CREATE TABLE i (i INET6, e ENUM('why?','b') CHARACTER SET utf8mb4)",
        "INSERT INTO i VALUES ('::1', 1)",
        database=database,
    )
    reader = Reader(daemon, "c").open().read_to(mariadb118)
    assert rows(reader) == [
        {"u": "12345678-1234-1234-1234-123456789abc", "e": "😀", "s": "?,😀"},
        {"i": "::1", "e": "why?"},
    ]


def test_mariadb_addresses_have_the_form_of_select(
    mariadb118: Server,
    new_database: Callable[[Server], str],
    make_daemon: MakeDaemon,
    source: Source,
) -> None:
    """MariaDB logs an INET column as BINARY, even with full metadata."""
    database = new_database(mariadb118)
    daemon = make_daemon({"c": source(mariadb118, database)})
    daemon.start().until_state("c", "streaming")
    mariadb118.execute(
        "CREATE TABLE t (u UUID, i INET6, b BINARY(4))",
        "INSERT INTO t VALUES ('12345678-1234-1234-1234-123456789abc', '::1', 'abcd')",
        database=database,
    )
    reader = Reader(daemon, "c").open().read_to(mariadb118)
    assert rows(reader) == [
        {"u": "12345678-1234-1234-1234-123456789abc", "i": "::1", "b": b"abcd"}
    ]  # fmt: skip


def test_a_reader_that_understands_unknown_definitions_gets_the_rows_of_all_tables(
    nameless_server: Server,
    new_database: Callable[[Server], str],
    make_daemon: MakeDaemon,
    source: Source,
    tmp_path: Path,
) -> None:
    """The consumer fails until its reader says so, also after a restart, and again for another reader."""
    server, (_, case) = nameless_server, next(iter(CASES.items()))
    database = new_database(server)
    server.execute(f"CREATE TABLE t {case.table}", "CREATE TABLE fine (n INT)", database=database)
    start = here(server)
    server.execute(f"INSERT INTO t VALUES ({case.old_row})", database=database)
    alter(server, database, case)
    server.execute("INSERT INTO fine VALUES (7)", database=database)
    daemon = make_daemon({"c": source(server, database, start=start)})
    api = daemon.start()
    api.until_state("c", "failed")

    def reasons(session: int, after: Json) -> dict[str, str]:
        """Returns for each delivered table why its definition is unknown. mysqlbinlog reads the bytes, too."""
        end = after
        while end["seq"] < tip_seq(server):
            end = api.poll("c", session, end, wait_ms=5000, unknown_definitions=True)["end"]
        file = tmp_path / "delivered"
        file.write_bytes(api.binlog("c", session, after, end))
        printed = server.mysqlbinlog("-v", "--base64-output=decode-rows", file)
        assert printed.stdout.count("### INSERT INTO") == 2, printed
        layouts = Layouts(Index.of(file.read_bytes()))
        found = [TableMap.parse(body) for body in layouts.bodies]
        return {each.table: each.unknown for each in found}

    opened = api.call("c", "session", after=None, unknown_definitions=True)
    for restarted in (False, True):
        if restarted:
            api = daemon.restart(kill=True)
            api.until_state("c", "failed")
        found = reasons(opened["session"], opened["position"])
        assert found["fine"] == "" and "may have been altered since" in found["t"]
    Reader(daemon, "c").open()
    api.until_state("c", "failed")
