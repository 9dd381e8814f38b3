"""Changes tables without end, and builds a copy of the tables only from the delivered changes.

`Churn` inserts, updates and deletes in tables of some databases, in small and large transactions, until the test stops
it or its server ends. `Copy` applies the changes that a reader receives to a copy of these tables, and asserts that
each change fits the copy: an inserted row did not exist, and a changed or deleted row equals the event's before image.
So it detects a lost, repeated or misplaced transaction at once. `check` compares the copy with the server's tables.
"""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pymysql
from pymysql.constants import CR, ER
from pymysql.cursors import Cursor

from dispatcher.binlog.decode import delivered
from tests.daemon.conftest import MakeDaemon
from tests.daemon.harness import (
    DEADLINE_S,
    PASSWORD,
    Daemon,
    Json,
    Problem,
    Reader,
    tip_seq,
    until,
)
from tests.servers import Server
from tests.support.repeated import repeated

_TABLE = "CREATE TABLE IF NOT EXISTS `{}`.{} (id INT PRIMARY KEY, n INT, t VARCHAR(1000))"
_NAMES = ("churn",)

Row = tuple[Any, ...]


def create(
    server: Server, databases: Iterable[str], tables: Iterable[str] = _NAMES, *, session: str = ""
) -> None:
    """Create the tables of a `Churn`. `session`: a statement with which the session begins."""
    for database in databases:
        server.execute(
            *((session,) if session else ()),
            f"CREATE DATABASE IF NOT EXISTS `{database}`",
            *(_TABLE.format(database, table) for table in tables),
        )


class Churn:
    """`written`: the number of committed transactions. `pause_s`: the pause between two transactions. `session`: a
    statement with which the session begins."""

    def __init__(
        self,
        server: Server,
        databases: list[str],
        *,
        tables: tuple[str, ...] = _NAMES,
        seed: int = 0,
        rows: int = 3,
        text: int = 200,
        pause_s: float = 0,
        session: str = "",
    ) -> None:
        self.server = server
        self._session = session
        self.places = [f"`{database}`.{table}" for database in databases for table in tables]
        self.rows = rows
        self.text = text
        self.pause_s = pause_s
        self.written = 0
        self._rng = random.Random(seed)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="churn")

    def _run(self) -> None:
        try:
            with closing(self.server.connect()) as connection, connection.cursor() as cursor:
                if self._session:
                    cursor.execute(self._session)
                self._ids = {place: _last_id(cursor, place) for place in self.places}
                while not self._stopping.is_set():
                    cursor.execute("BEGIN")
                    for _ in range(self._rng.choice((1, 1, 2, 4))):
                        cursor.execute(self._statement())
                    cursor.execute("COMMIT")
                    self.written += 1
                    self._stopping.wait(self.pause_s)
        except pymysql.MySQLError:
            pass  # a test has killed the server

    def _statement(self) -> str:
        rng = self._rng
        place = rng.choice(self.places)
        last = self._ids[place]
        if last > 10 and rng.random() < 0.4:
            first = rng.randint(max(1, last - 200), last)
            where = f"WHERE id BETWEEN {first} AND {first + rng.randrange(self.rows)}"
            if rng.random() < 0.7:
                return f"UPDATE {place} SET n = n + 1 {where}"
            return f"DELETE FROM {place} {where}"
        count = rng.randint(1, self.rows)
        letter = rng.choice("abcdefgh")
        values = ", ".join(
            f"({n}, {rng.randrange(1000)}, REPEAT('{letter}', {rng.randrange(self.text)}))"
            for n in range(last + 1, last + 1 + count)
        )
        self._ids[place] = last + count
        return f"INSERT INTO {place} VALUES {values}"

    def until_written(self, more: int) -> None:
        """Wait for this many more transactions."""
        wanted = self.written + more
        until(lambda: self.written >= wanted, f"{more} more transactions are written")

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


@contextmanager
def churn(server: Server, databases: list[str], **more: Any) -> Iterator[Churn]:
    """Run a `Churn` until the block ends. The tables must exist."""
    made = Churn(server, databases, **more)
    made._thread.start()
    try:
        yield made
    finally:
        made.stop()


def _last_id(cursor: Cursor, place: str) -> int:
    cursor.execute(f"SELECT COALESCE(MAX(id), 0) FROM {place}")
    row = cursor.fetchone()
    assert row is not None
    return int(row[0])


class Copy:
    """The tables that a consumer's reader has built from the delivered changes. `problems`: answers that asked the
    reader to retry."""

    def __init__(self, reader: Reader, databases: Iterable[str]) -> None:
        self.reader = reader
        self.tables: dict[str, dict[int, Row]] = {name: {} for name in databases}
        self.transactions = 0
        self.problems: list[str] = []
        self._last_seq = -1

    def step(self, *, wait_ms: int = 100, max_bytes: int | None = None) -> None:
        """Read once. If the daemon is down or asks the reader to retry, the next call retries."""
        try:
            self.transactions += self.reader.step(wait_ms=wait_ms, max_bytes=max_bytes)
        except Problem as problem:
            if problem.status != 503:
                raise
            self.problems.append(problem.kind)
        except (ConnectionError, TimeoutError, http.client.IncompleteRead) as error:
            self.problems.append(type(error).__name__)
        self.apply()

    def reopen(self) -> None:
        """Replace the reader by another reader that begins at the stored position."""
        self.reader = Reader(
            self.reader.daemon, self.reader.consumer, position=self.reader.position
        )
        until(self.reader.open, "a session is opened")

    def begins_anew(self) -> None:
        """Accept a lower seq next, because the consumer was moved to a new epoch."""
        self._last_seq = -1

    def apply(self) -> None:
        for change in self.reader.changes():
            if isinstance(change, delivered.Ddl):
                continue
            for row in change.batch.to_pylist():
                self._change(row)
        for transaction in self.reader.transactions:
            assert transaction.seq > self._last_seq, (transaction.seq, self._last_seq)
            self._last_seq = transaction.seq
        self.reader.chunks.clear()

    def _change(self, row: Json) -> None:
        table = self.tables[row["database"]]
        where = f"{self.reader.consumer}: seq {row['seq']}, {row['op']} {row['database']}"
        if row["before"]:
            before = tuple(row["before"].values())
            found = table.pop(before[0], None)
            assert found == before, f"{where}: {found} is not {before}"
        if row["after"]:
            after = tuple(row["after"].values())
            assert after[0] not in table, f"{where}: {after[0]} was there already"
            table[after[0]] = after

    def read_to(self, wanted: int, *, timeout_s: float = DEADLINE_S) -> None:
        read_all([self], wanted, timeout_s=timeout_s)

    def check(self, server: Server) -> int:
        """Compare with the server's tables, which must not change meanwhile. Returns the number of rows."""
        rows = 0
        for database, table in self.tables.items():
            selected = server.execute(f"SELECT id, n, t FROM `{database}`.churn")
            expected = {row[0]: tuple(row) for row in selected}
            assert table.keys() == expected.keys(), (
                f"{self.reader.consumer}, {database}: lacks {sorted(expected.keys() - table.keys())[:9]},"
                f" has {sorted(table.keys() - expected.keys())[:9]} too many"
            )
            assert table == expected
            rows += len(expected)
        return rows


def new_daemon(make_daemon: MakeDaemon, hosts: str, **more: Any) -> tuple[Daemon, list[Copy]]:
    """Start a daemon with three consumers of the databases `a` and `b` of `hosts`. One consumer has a small queue.
    `more`: further settings of each consumer. Returns the daemon, and a copy for each consumer."""
    consumers = {"a": ["a"], "both": ["a", "b"], "small": ["b"]}
    daemon = make_daemon(
        {
            name: {
                "mysql": f"reader@{hosts}",
                "password": PASSWORD,
                "databases": databases,
                "heartbeat_milliseconds": 300,
                "max_bytes_in_binlog_queue": 20_000 if name == "small" else "64MiB",
                **more,
            }
            for name, databases in consumers.items()
        }
    )
    daemon.start()
    return daemon, [
        Copy(Reader(daemon, name).open(), databases) for name, databases in consumers.items()
    ]


def read_all(copies: Iterable[Copy], wanted: int, *, timeout_s: float = DEADLINE_S) -> None:
    """Read all copies in turn until all are at the seq `wanted`, and acknowledge it."""
    behind = list(copies)
    deadline = time.monotonic() + timeout_s
    while behind:
        for copy in behind:
            copy.step(wait_ms=50 if len(behind) > 1 else 500)
        for copy in behind:
            if copy.reader.position["seq"] >= wanted:
                copy.reader.acknowledge()
        behind = [copy for copy in behind if copy.reader.position["seq"] < wanted]
        if time.monotonic() > deadline:
            where = {c.reader.consumer: c.reader.position["seq"] for c in behind}
            raise AssertionError(f"not at {wanted} within {timeout_s} s: {where}")


def check_all(server: Server, copies: Iterable[Copy]) -> int:
    """Read to the end of the log, and compare everything. Returns the rows of all copies."""
    copies = list(copies)
    read_all(copies, tip_seq(server))
    return sum(copy.check(server) for copy in copies)


@contextmanager
def reading(copies: Iterable[Copy]) -> Iterator[None]:
    """Read all copies in turn until the block ends. Any error is raised at the end of the block."""
    of = list(copies)

    def read() -> None:
        for copy in of:
            copy.step(wait_ms=20)

    with repeated(read, "reading"):
        yield


@contextmanager
def busy(server: Server, database: str, *, pause_s: float = 0.0005) -> Iterator[None]:
    """Let a procedure on the server write to `database`.busy until the block ends."""
    server.execute(
        "CREATE TABLE IF NOT EXISTS busy (id INT AUTO_INCREMENT PRIMARY KEY, t VARCHAR(1000))",
        "DROP PROCEDURE IF EXISTS keep_busy",
        "CREATE PROCEDURE keep_busy() LOOP INSERT INTO busy (t) VALUES (REPEAT('b', 1000));"
        f" DO SLEEP({pause_s}); END LOOP",
        database=database,
    )
    with closing(server.connect(database)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        thread = cursor.fetchall()[0][0]
        ended: list[BaseException] = []

        def run() -> None:
            try:
                cursor.execute("CALL keep_busy()")
            except pymysql.MySQLError as error:
                ended.append(error)

        running = threading.Thread(target=run, name="busy", daemon=True)
        running.start()
        try:
            yield
        finally:
            server.execute(f"KILL {thread}")
            running.join(DEADLINE_S)
        assert not running.is_alive()
        assert ended and ended[0].args[0] in (ER.QUERY_INTERRUPTED, CR.CR_SERVER_LOST), ended
