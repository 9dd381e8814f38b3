"""The daemon delivers XA transactions: one session prepares, another session commits, and the daemon is killed between
prepare and commit."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pymysql
import pytest

from dispatcher.model.gtid import GtidSet
from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Daemon, Reader, until
from tests.daemon.test_servers import TABLE, replay, selected
from tests.servers import Server
from tests.support.dumps import printed

XID = "X'00FF275C',X'62',2147483647"  # a byte 0, a quote and a backslash
XID_LOGGED = XID.replace("FF", "ff").replace("5C", "5c")


def session(server: Server, *statements: str) -> None:
    """Run statements on a new connection, and close the connection."""
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            cursor.fetchall()


@pytest.fixture
def nothing_left() -> Iterator[list[Server]]:
    """At the end, roll back all prepared transactions. Otherwise a failed test would leave tables locked."""
    used: list[Server] = []
    yield used
    for server in used:
        for xid in (XID, "'gone'"):
            with suppress(pymysql.Error):  # expected: the transaction is already gone
                server.execute(f"XA ROLLBACK {xid}")


def xa(xid: str, *statements: str, end: str = "PREPARE {}") -> list[str]:
    return [f"XA START {xid}", *statements, f"XA END {xid}", "XA " + end.format(xid)]


def insert(table: str, first: int, count: int) -> str:
    rows = ", ".join(f"({n}, 'row {n}', {n}.5, NULL)" for n in range(first, first + count))
    return f"INSERT INTO {table} VALUES {rows}"


def prepared(daemon: Daemon, *, besides: str = "") -> int:
    """Returns how many prepared transactions the daemon keeps. `besides`: the user of a connection whose transactions
    are not counted."""
    with closing(sqlite3.connect(f"file:{daemon.state}?mode=ro", uri=True)) as db:
        kept = db.execute("SELECT client FROM prepared").fetchall()
    return sum(not besides or not client.startswith(besides) for (client,) in kept)


def forgotten(server: Server, database: str, readers: dict[str, Reader], daemon: Daemon) -> bool:
    """True if the daemon keeps no prepared transaction, after it has stored progress again. Transactions of the failed
    consumer's connection are not counted, because this connection may or may not have read further after the fault."""
    session(server, f"DELETE FROM {database}.t LIMIT 1")
    for reader in readers.values():
        reader.read_to(server)
    return prepared(daemon, besides="late") == 0


def rows_printed(text: str, *databases: str) -> Counter[tuple[str, ...]]:
    """Returns the rows that the tool prints, each with its table and values."""
    found: Counter[tuple[str, ...]] = Counter()
    row: tuple[str, ...] = ()
    for line in [*text.splitlines(), ""]:
        if line.startswith("### ") and not line.startswith(
            ("### INSERT", "### UPDATE", "### DELETE")
        ):
            row += (line,)
            continue
        if row and any(f"`{database}`.`t`" in row[0] for database in databases):
            found[row] += 1
        row = (line,) if line.startswith("### ") else ()
    return found


@pytest.mark.parametrize("kind", ["mysql97", "mariadb118"])
def test_xa_rows_are_delivered_at_xa_commit(
    kind: str,
    request: pytest.FixtureRequest,
    new_database: Callable[[Server], str],
    make_daemon: MakeDaemon,
    source: Source,
    nothing_left: list[Server],
    tmp_path: Path,
) -> None:
    server: Server = request.getfixturevalue(kind)
    nothing_left.append(server)
    a, b = new_database(server), new_database(server)
    session(server, "FLUSH BINARY LOGS")
    begins = server.binlogs()[-1][0]
    for database in (a, b):
        server.execute(TABLE, TABLE.replace("TABLE t", "TABLE gone"), database=database)
    daemon = make_daemon({"a": source(server, a), "both": source(server, a, b)})
    daemon.start()
    readers = {name: Reader(daemon, name).open() for name in ("a", "both")}

    session(
        server,
        *xa(
            XID,
            insert(f"{a}.t", 1, 500),
            f"UPDATE {a}.t SET name = 'prepared', amount = amount + 1 WHERE id < 100",
            "SAVEPOINT s",
            insert(f"{b}.gone", 1, 9),
            "ROLLBACK TO SAVEPOINT s",
            insert(f"{b}.t", 1, 1200),
        ),
    )
    session(server, *xa("'gone'", insert(f"{a}.gone", 1, 50)))
    session(server, insert(f"{a}.t", 5000, 3), "FLUSH BINARY LOGS", insert(f"{b}.t", 5000, 3))
    for name, reader in readers.items():
        reader.read_to(server)
        tables = [f"{database}.t" for database in (a, b)[: 1 + (name == "both")]]
        held = [list(table) for table in replay(reader, *tables).values()]
        assert held == [[5000, 5001, 5002]] * len(tables)
    assert prepared(daemon) == 2
    # Two consumers begin between prepare and commit: one on a connection that knows the prepared transactions, and one
    # on a connection of its own.
    daemon.settings["consumers"]["between"] = source(server, a)
    daemon.settings["consumers"]["late"] = source(server, a, user="late")
    daemon.restart(kill=True)
    for name in ("between", "late"):
        daemon.api.until_state(name, "streaming")
    readers["between"] = Reader(daemon, "between").open()

    session(server, f"XA COMMIT {XID}")
    committed = server.binlog_position()
    session(server, "XA ROLLBACK 'gone'", insert(f"{a}.t", 6000, 3))
    session(
        server, *xa(XID, f"DELETE FROM {a}.t WHERE id BETWEEN 3 AND 9", end="COMMIT {} ONE PHASE")
    )
    session(server, *xa(XID, f"DELETE FROM {b}.t WHERE id > 1000"), f"XA COMMIT {XID}")
    for reader in readers.values():
        reader.open().read_to(server)
    error = daemon.api.until_state("late", "failed")["last_error"]
    assert f"XA COMMIT {XID_LOGGED}, of which no XA PREPARE was read" in error
    assert "move the consumer before the transaction's XA PREPARE" in error
    assert len([t for t in readers["between"].transactions if (t.file, t.offset) == committed]) == 1
    assert replay(readers["a"], f"{a}.t") == {f"{a}.t": selected(server, a)}
    found = replay(readers["both"], f"{a}.t", f"{b}.t")
    assert found == {f"{database}.t": selected(server, database) for database in (a, b)}

    whole = [t for t in readers["both"].transactions if (t.file, t.offset) == committed]
    assert len(whole) == 1, "the transaction lies at its XA COMMIT"
    texts = [printed(server, chunk, tmp_path) for chunk in readers["both"].chunks]
    assert not any("XA " in text for text in texts)
    got = sum((rows_printed(text, a, b) for text in texts), Counter())
    files = [name for name, _ in server.binlogs() if name >= begins]
    assert got == rows_printed(server.mysqlbinlog("-v", *files, remote=True).stdout, a, b)
    assert sum(got.values()) > 1200
    until(lambda: forgotten(server, a, readers, daemon), "what all have acknowledged is forgotten")
    if kind == "mysql97":
        executed = GtidSet.parse(str(server.execute("SELECT @@GLOBAL.gtid_executed")[0][0]))
        assert GtidSet.parse(readers["a"].position["gtid"]) == executed
