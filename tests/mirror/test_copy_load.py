"""Copies of many rows under load. The test kills the job twice and alters a table; no statement except the ALTER waits
for a lock.

The environment variable `COPY_ROWS` is the total number of rows of all tables.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field

import pytest

from tests.daemon.harness import until
from tests.mirror.harness import MirrorJob
from tests.mirror.lake import control_rows, is_copied, table_states
from tests.servers import Server

DATABASE = "shop"
WAIT_S = 3000.0
_SEED_ROWS = 1000
_COLUMNS = (
    "id INT AUTO_INCREMENT PRIMARY KEY, a BIGINT, b DECIMAL(12,2), c DATETIME(6), d VARCHAR(60),"
    " e ENUM('x','y','z')"
)


def _fill(server: Server, tables: list[str], rows: int) -> None:
    """Create tables with at least `rows` rows each. The log does not contain these rows."""
    names = "a, b, c, d, e"
    values = "i * 7919, i / 4, '2026-01-01' + INTERVAL i SECOND, CONCAT('grün ', i), ELT(1 + i % 3, 'x', 'y', 'z')"
    for table in tables:
        statements = [
            "SET sql_log_bin = 0",
            "SET cte_max_recursion_depth = 10000",
            f"CREATE TABLE {table} ({_COLUMNS})",
            f"INSERT INTO {table} ({names}) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
            f" WHERE i < {_SEED_ROWS}) SELECT {values} FROM n",
        ]
        made = _SEED_ROWS
        while made < rows:
            more = min(made, rows - made)
            statements.append(
                f"INSERT INTO {table} ({names}) SELECT {names} FROM {table} LIMIT {more}"
            )
            made += more
        server.execute(*statements, database=DATABASE)


@dataclass
class Load:
    """One session that changes rows of all tables. It is the only session that changes rows, so its statements never
    wait for each other."""

    server: Server
    tables: list[str]
    rows: int
    statements: int = 0
    slowest_s: float = 0.0
    waits: set[str] = field(default_factory=set)
    failures: list[BaseException] = field(default_factory=list)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def running(self) -> Iterator[None]:
        stop = threading.Event()
        threads = [threading.Thread(target=run, args=(stop,)) for run in (self._write, self._watch)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not self.failures

    def alter(self, statement: str) -> None:
        """Execute a statement while the load holds no lock."""
        with self._turn:
            self.server.execute(statement, database=DATABASE)

    def _write(self, stop: threading.Event) -> None:
        chance = random.Random(1)
        try:
            with closing(self.server.connect(DATABASE)) as connection:
                connection.autocommit(True)
                for table in itertools.cycle(self.tables):
                    if stop.wait(0.02):
                        return
                    some = f"WHERE id = {chance.randrange(1, self.rows + 1)}"
                    statement = chance.choice(
                        (
                            f"UPDATE {table} SET a = a + 1, c = c + INTERVAL 1 SECOND {some}",
                            f"DELETE FROM {table} {some}",
                            f"INSERT INTO {table} (a, b, d) VALUES (1, 2.5, 'new'), (2, NULL, '')",
                        )
                    )
                    with self._turn, connection.cursor() as cursor:
                        began = time.monotonic()
                        cursor.execute(statement)
                        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                    self.statements += 1
        except BaseException as error:
            self.failures.append(error)
            raise

    def _watch(self, stop: threading.Event) -> None:
        """Record which statements wait for a lock of a table or its definition."""
        with closing(self.server.connect()) as connection:
            while not stop.wait(0.05):
                with connection.cursor() as cursor:
                    cursor.execute(
                        "SELECT info FROM information_schema.processlist WHERE state LIKE 'Waiting for % lock'"
                    )
                    self.waits.update(str(info) for (info,) in cursor.fetchall())


def _row_lock_waits(server: Server) -> int:
    ((_, value),) = server.execute("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'")
    return int(value)


def _copying(job: MirrorJob) -> list[str]:
    """Returns the tables whose rows the job is reading."""
    states = table_states(job.target, DATABASE).items()
    return [row["table"] for _, row in states if row["state"] == "copying" and not is_copied(row)]


def _kill_while_copying(job: MirrorJob) -> None:
    (job.kills / "group_staged").touch()
    assert job.process is not None
    assert job.process.wait(WAIT_S) == -signal.SIGKILL, job.log
    job.start(DATABASE, now=False)


@pytest.mark.deep
@pytest.mark.timeout(2 * 3600)
def test_copies_under_load(job: MirrorJob) -> None:
    rows = int(os.environ.get("COPY_ROWS", "5000000"))
    tables = [f"t{n}" for n in range(20)]
    _fill(job.server, tables, rows // len(tables))
    job.copy_settings = ", max_bytes_in_chunk: 1MiB"
    waits_before = _row_lock_waits(job.server)
    load = Load(job.server, tables, rows // len(tables))
    began = time.monotonic()
    with load.running():
        job.start(DATABASE, now=False)
        for _ in range(2):
            _kill_while_copying(job)
        altered = until(lambda: _copying(job), "a table is copied", timeout_s=WAIT_S)[0]
        alteration = f"ALTER TABLE {altered} ADD COLUMN more INT DEFAULT 7"
        load.alter(alteration)

        def all_complete() -> bool:
            assert job.process is not None
            with suppress(subprocess.TimeoutExpired):  # check the tables once a second
                assert job.process.wait(1) is None, job.log
            states = table_states(job.target, DATABASE)
            return len(states) == len(tables) and not job.standing(DATABASE)

        until(all_complete, "all tables are copied", timeout_s=WAIT_S)
    seconds = time.monotonic() - began
    assert _row_lock_waits(job.server) == waits_before
    # An ALTER TABLE waits until no statement reads the table. No other statement waits.
    assert load.waits <= {alteration}
    assert job.stop() == 0, job.log
    assert job.run(DATABASE) == 0, job.log
    assert job.differences(DATABASE) == []
    job.verify(DATABASE, timeout_s=WAIT_S)
    begun = [row for row in control_rows(job.target) if row["state"] == "copying"]
    assert {row["table"] for row in begun} == set(tables)
    print(
        f"\n{rows} rows copied in {seconds:.0f} s with two kills, beside {load.statements} statements,"
        f" the slowest of which took {load.slowest_s:.2f} s"
    )
