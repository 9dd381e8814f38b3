"""The test kills each process of a mirror at each named point, under a load of DML, DDL and swaps of tables.

In the end all tables are equal, and the mirror's log contains each change of the server's binlog once. The test
restarts the job, as systemd would. The environment variable `CRASH_KILLS` is the number of kills, and `CRASH_SEED` the
seed of their order, which the test prints.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest

from tests.daemon.harness import until
from tests.mirror.ddl_history import Change, History
from tests.mirror.harness import TIMEOUT_S, MirrorJob, meanwhile
from tests.mirror.lake import log_rows
from tests.servers import Server
from tests.servers.server import Instance

DATABASE = "shop"
CHANGES_PER_KILL = 6

# Statements that make the job pass a point; `{n}` is the number of the kill.
_ROWS = ("INSERT INTO steady VALUES ({n}, {n}) ON DUPLICATE KEY UPDATE v = {n}",)
_RENAME = (
    "INSERT INTO _swapped_gho VALUES ({n}, {n})",
    "RENAME TABLE swapped TO _swapped_del, _swapped_gho TO swapped, _swapped_del TO _swapped_gho",
    "INSERT INTO swapped VALUES ({n}, {n}) ON DUPLICATE KEY UPDATE v = {n}",
)
_COPY = (
    "ALTER TABLE copied ADD COLUMN d{n} DATETIME DEFAULT CURRENT_TIMESTAMP",
    "UPDATE copied SET v = {n} WHERE id < 50",
)
_WIDE = (
    "INSERT INTO wide VALUES ({n}, REPEAT('x', 600000))",
)  # workers write this row into the log and decode it
POINTS = {
    "log_appended": _ROWS,
    "before_apply": _ROWS,
    "step_committed": _ROWS,
    "control_written": _RENAME,
    "inside_rename": _RENAME,
    "copy_begun": _COPY,
    "group_staged": _COPY,
    "copy_read": _COPY,
    "before_swap_in": _COPY,
    "folder_in_place": _COPY,
    "after_swap_in": _COPY,
}
IN_OBJECT_STORES = {"file_moved": _RENAME}
PUBLISHING = {"iceberg_written": _ROWS, "iceberg_committed": _ROWS}
_TABLES = (
    "CREATE TABLE steady (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE swapped (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE _swapped_gho LIKE swapped",
    "CREATE TABLE copied (id INT PRIMARY KEY, v INT, t VARCHAR(300))",
    "CREATE TABLE wide (id INT PRIMARY KEY, t MEDIUMTEXT)",
    "INSERT INTO copied WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900)"
    " SELECT i, i, REPEAT('t', 200) FROM n",
)


@dataclass
class Crashes:
    """The kills of one test. The job runs before and after each kill."""

    job: MirrorJob
    server: Instance
    changes: Iterator[Change]
    number: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    statement: threading.Lock = field(default_factory=threading.Lock)

    def kill(self, name: str) -> None:
        n = next(self.number)
        with meanwhile(self._change):
            if (statements := (POINTS | IN_OBJECT_STORES | PUBLISHING).get(name)) is not None:
                self._at_point(name, statements, n)
            else:
                others: dict[str, Callable[[int], None]] = {
                    "decoding": partial(self._worker, "decoding"),
                    "slice_written": partial(self._worker, "slice_written"),
                    "daemon": self._daemon,
                    "server": self._server,
                    "checkpoint_deleted": self._checkpoint_deleted,
                    "checkpoint_restored": self._checkpoint_restored,
                }
                others[name](n)

    def _change(self) -> None:
        """Execute changes of the history."""
        for change in itertools.islice(self.changes, CHANGES_PER_KILL):
            for statement in change.statements:
                self.execute(statement)

    def execute(self, *statements: str) -> None:
        with (
            self.statement
        ):  # a server that is killed between statements has executed a known number of them
            self.server.execute(*statements, database=DATABASE)

    def _lead_to(self, statements: tuple[str, ...], n: int) -> None:
        self.execute(*(statement.format(n=n) for statement in statements))

    def _at_point(self, point: str, statements: tuple[str, ...], n: int) -> None:
        armed = self.job.kills / point
        armed.touch()
        self._lead_to(statements, n)
        assert self.job.process is not None
        assert self.job.process.wait(TIMEOUT_S) == -signal.SIGKILL, self.job.log
        assert not armed.exists()
        self.job.start(DATABASE, now=False)

    def _worker(self, point: str, n: int) -> None:
        """Kill the Python worker of an executor; the job continues."""
        armed = self.job.kills / point
        armed.touch()
        self._lead_to(_WIDE, n)
        until(lambda: not armed.exists(), f"a worker is killed at {point}", timeout_s=TIMEOUT_S)
        assert self.job.process is not None
        assert self.job.process.poll() is None, self.job.log

    def _daemon(self, n: int) -> None:
        self._lead_to(_ROWS, n)
        self.job.daemon.restart(kill=True)

    def _server(self, n: int) -> None:
        self._lead_to(_COPY, n)
        with self.statement:
            self.server.restart(kill=True)

    def _checkpoint_deleted(self, n: int) -> None:
        self._kill_job()
        self._lead_to(_ROWS, n)
        shutil.rmtree(self.job.target / "_binlog" / "checkpoints")
        self.job.start(DATABASE, now=False)

    def _checkpoint_restored(self, n: int) -> None:
        """Restore a checkpoint from before the job's last run."""
        checkpoints, kept = self.job.target / "_binlog" / "checkpoints", self.job.home / "kept"
        self._kill_job()
        if kept.exists():
            shutil.rmtree(checkpoints)
            shutil.move(kept, checkpoints)
        else:
            shutil.copytree(checkpoints, kept)
        self._lead_to(_ROWS, n)
        self.job.start(DATABASE, now=False)

    def _kill_job(self) -> None:
        assert self.job.process is not None
        # The checkpoint does not exist before the query runs.
        checkpoints = self.job.target / "_binlog" / "checkpoints"
        until(checkpoints.exists, "the query has a checkpoint", timeout_s=TIMEOUT_S)
        os.killpg(self.job.process.pid, signal.SIGKILL)
        self.job.process.wait(TIMEOUT_S)


_OTHERS = (
    "decoding",
    "slice_written",
    "daemon",
    "server",
    "checkpoint_deleted",
    "checkpoint_restored",
)
EVERYTHING = (*POINTS, *_OTHERS)


def _binlog(server: Server) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """Reads the server's log with the server's own tool. Returns the content for the database: rows by table and kind,
    and statements."""
    rows: Counter[tuple[str, str]] = Counter()
    statements: Counter[str] = Counter()
    change = re.compile(
        rf"^### (INSERT INTO|UPDATE|DELETE FROM) `{DATABASE}`\.`([^`]+)`$", re.MULTILINE
    )
    for file, _ in server.binlogs():
        text = server.mysqlbinlog(
            "--verbose", "--base64-output=decode-rows", file, remote=True
        ).stdout
        rows.update((found[2], found[1].split()[0].lower()) for found in change.finditer(text))
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SHOW BINLOG EVENTS IN '{file}'")
            for _, _, kind, _, _, info in cursor.fetchall():
                if kind == "Query" and str(info).startswith(f"use `{DATABASE}`; "):
                    query = str(info).removeprefix(f"use `{DATABASE}`; ")
                    statements[re.sub(r" /\* xid=\d+ \*/$", "", query)] += 1
    return rows, statements


def require_each_change_once(job: MirrorJob) -> None:
    expected_rows, expected_statements = _binlog(job.server)
    job.fetch()
    logged = log_rows(job.target, DATABASE)
    rows: Counter[tuple[str, str]] = Counter()
    last: dict[str, int] = {}
    for entry in logged:
        if entry["kind"] == "rows":
            for kind in ("insert", "update", "delete"):
                rows[entry["table"], kind] += entry[f"{kind}s"]
            assert entry["first_seq"] >= last.get(entry["table"], 0), entry
            last[entry["table"]] = entry["last_seq"]
    assert +rows == expected_rows
    statements = Counter(entry["query"] for entry in logged if entry["kind"] == "statement")
    assert {q: n for q, n in statements.items() if "DATABASE" not in q} == expected_statements


def play(
    job: MirrorJob,
    names: list[str],
    seed: int,
    tables: int = 4,
    also: Callable[[], None] = lambda: None,
) -> None:
    """Run the job under a load, kill processes at the points with these names, and end the job when the mirror is
    equal. `also`: waits for further conditions before the job is ended."""
    server = job.server
    assert isinstance(server, Instance)
    history = History(seed, tables, recopies=False)
    server.execute(*_TABLES, database=DATABASE)
    for change in history.creation():
        server.execute(*change.statements, database=DATABASE)
    job.start(DATABASE, now=False)
    crashes = Crashes(job, server, history.changes(1 << 30))
    for name in names:
        crashes.kill(name)
    job.until_equal(DATABASE)
    require_each_change_once(job)
    job.until_complete(DATABASE)
    also()
    assert job.stop() == 0, job.log


@pytest.mark.rotate(2, of="jobs of Spark")
def test_processes_are_killed_at_some_points(job: MirrorJob) -> None:
    play(job, ["inside_rename", "group_staged", "server"], seed=5, tables=2)


@pytest.mark.deep
@pytest.mark.timeout(7200)
def test_processes_are_killed_at_every_point(job: MirrorJob) -> None:
    seed = int(os.environ.get("CRASH_SEED") or random.SystemRandom().randrange(1 << 31))
    kills = int(os.environ.get("CRASH_KILLS", "54"))
    print(f"\nCRASH_SEED={seed} CRASH_KILLS={kills}")
    chance = random.Random(seed)
    names: list[str] = []
    while len(names) < kills:
        names += chance.sample(EVERYTHING, len(EVERYTHING))
    play(job, names[:kills], seed)
