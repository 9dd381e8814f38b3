"""Measures the mirror: a real server, the daemon and the job as a user starts them, on local Delta tables.

* log: how fast the mirror appends a long log of the server to its own log. The first append is left out, because Spark
  and its Python processes start in this time.
* warm step: how long after the insertion of one row into each of five tables all five Delta tables contain their row.
* load: 10,000 rows/s over five tables; how long a transaction takes from its commit to the log, and to its table.
* copy: a table of ten columns whose rows are in no binlog, and the CPU time of the job and its workers meanwhile.

The time of a commit is the time of its file in Delta's log. One session writes all transactions, so the `seq` of a
transaction, its number in the server's history, identifies it.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from pymysql.cursors import Cursor

from benchmarks.figures import Relation, Run
from benchmarks.logs import DATABASES, generate_bulk, prepare
from benchmarks.processes import DescendantsMeter
from dispatcher.model.gtid import GtidSet
from tests.daemon.harness import PASSWORD, Daemon, until
from tests.mirror.harness import COPY_GRANTS, COPY_USER, MirrorJob
from tests.servers import Instance, start_server

TABLES = 5
ROWS_IN_TRANSACTION = 100
ROWS_PER_SECOND = 10_000
ROUNDS = 8
TIMEOUT_S = 900.0
LOAD_DATABASE = "bench_load"
COLUMNS = (
    "id BIGINT AUTO_INCREMENT PRIMARY KEY, customer INT NOT NULL, name VARCHAR(60), price DECIMAL(12,2), weight DOUBLE,"
    " created DATETIME(3), changed TIMESTAMP(6) NULL, quantity INT UNSIGNED, state ENUM('new','paid','sent'),"
    " note VARCHAR(200)"
)


@dataclass(frozen=True, slots=True)
class Figures:
    """Rates in rows/s, times in seconds."""

    log_rows_per_s: float
    log_rows: int
    warm_step_s: float
    load_rows_per_s: float
    to_log_p50_s: float
    to_table_p50_s: float
    to_table_p99_s: float
    caught_up_s: float
    copy_rows_per_s: float
    copy_rows_per_cpu_s: float
    copy_rows: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A Delta commit: when it was made (seconds since 1970), and the version that it records (-1: none)."""

    at: float
    version: int


def commits_of(table: Path) -> list[Commit]:
    """Returns the commits of a Delta table that have an action `txn`, oldest first."""
    found = []
    for file in sorted(table.glob("_delta_log/*.json")):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        versions = [action["txn"]["version"] for action in actions if "txn" in action]
        if versions:
            found.append(Commit(file.stat().st_mtime, versions[0]))
    return found


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the log with rows of a table."""

    lsn: int
    table: str
    first_seq: int
    last_seq: int
    rows: int


def entries_of(target: Path) -> list[Entry]:
    """Returns the log's entries of kind `rows`, by lsn."""
    names = ["lsn", "kind", "table", "first_seq", "last_seq", "rows"]
    files = [str(path) for path in (target / "_binlog" / "log").rglob("*.parquet")]
    if not files:
        return []
    table = ds.dataset(files, format="parquet").to_table(columns=names)
    rows = [row for row in table.to_pylist() if row.pop("kind") == "rows"]
    return sorted((Entry(**row) for row in rows), key=lambda entry: entry.lsn)


@dataclass
class Writer:
    """Writes transactions in one session. `at`: when each was committed, by its seq."""

    cursor: Cursor
    at: dict[int, tuple[float, str]] = field(default_factory=dict)
    seq: int = 0

    def begin(self) -> None:
        self.cursor.execute("SELECT @@GLOBAL.gtid_executed")
        row = self.cursor.fetchone()
        assert row is not None
        self.seq = len(GtidSet.parse(str(row[0]).replace("\n", "")))

    def write(self, statement: str, table: str) -> None:
        self.cursor.execute(statement)
        self.seq += 1
        self.at[self.seq] = time.time(), table

    def insert(self, table: str, rows: int) -> None:
        row = "(7, 'customer', 12.25, 1.5, NOW(3), NOW(6), 3, 'paid', 'a note of some length for this row')"
        columns = "customer, name, price, weight, created, changed, quantity, state, note"
        values = ", ".join([row] * rows)
        self.write(f"INSERT INTO {LOAD_DATABASE}.{table} ({columns}) VALUES {values}", table)

    def update(self, table: str, first: int, rows: int) -> None:
        where = f"id BETWEEN {first} AND {first + rows - 1}"
        statement = f"UPDATE {LOAD_DATABASE}.{table} SET quantity = quantity + 1 WHERE {where}"
        self.write(statement, table)


@dataclass(frozen=True, slots=True)
class Latencies:
    """The seconds from the commit of each transaction that has arrived."""

    to_log: list[float]
    to_table: list[float]
    missing: int


def latencies(target: Path, at: dict[int, tuple[float, str]]) -> Latencies:
    """Returns how long each transaction took from its commit to the log, and to its table."""
    appended = {commit.version: commit.at for commit in commits_of(target / "_binlog" / "log")}
    steps = {
        table: commits_of(target / LOAD_DATABASE / table)
        for table in {name for _, name in at.values()}
    }
    to_log, to_table, left = [], [], set(at)
    for entry in entries_of(target):
        covered = [
            seq
            for seq in range(entry.first_seq, entry.last_seq + 1)
            if seq in left and at[seq][1] == entry.table
        ]
        step = next((c for c in steps.get(entry.table, ()) if c.version >= entry.lsn), None)
        if step is None:
            continue
        for seq in covered:
            to_log.append(appended[entry.lsn >> 32] - at[seq][0])
            to_table.append(step.at - at[seq][0])
        left -= set(covered)
    return Latencies(to_log, to_table, len(left))


@contextmanager
def _parts(
    databases: tuple[str, ...], scale: int
) -> Iterator[tuple[Instance, Daemon, Path, ExitStack]]:
    """A server with tables, a daemon that has read nothing yet, and a folder."""
    with ExitStack() as stack:
        server = stack.enter_context(start_server("mysql97", "--innodb-buffer-pool-size=512M"))
        server.add_user("bench", PASSWORD)
        server.add_user(COPY_USER, PASSWORD, *COPY_GRANTS)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bd-bench-")))
        prepare(server)
        server.execute(f"CREATE DATABASE {LOAD_DATABASE}")
        consumers = {
            name: {
                "mysql": f"bench@{server.host}:{server.port}",
                "password": PASSWORD,
                "databases": list(shown),
                "start": "earliest",
                # An append has at most half of this size, so a log of any scale has several appends.
                "max_bytes_in_binlog_queue": f"{32 * scale}MiB",
            }
            for name, shown in (("history", databases), ("load", (LOAD_DATABASE,)))
        }
        daemon = Daemon(home / "daemon", {"consumers": consumers})
        stack.callback(daemon.close)
        yield server, daemon, home, stack


def measure(scale: int, say: Callable[[str], None]) -> Figures:
    """Run all phases. `scale`: 1 for small logs, 4 for those of `make bench`; `say` prints which phase begins."""
    with _parts(DATABASES, scale) as (server, daemon, home, stack):
        say("writing a history")
        history = generate_bulk(server, 250_000 * scale)
        daemon.start()
        log_rows_per_s = _log_stage(server, daemon, home, stack, say)
        job = _job(
            server,
            daemon,
            home / "load",
            stack,
            'tables: {"bench_load.c*": {unknown_tables: copy}}',
        )
        with server.connect() as connection, connection.cursor() as cursor:
            connection.autocommit(True)
            writer = Writer(cursor)
            tables = [f"t{number}" for number in range(TABLES)]
            for table in tables:
                cursor.execute(f"CREATE TABLE {LOAD_DATABASE}.{table} ({COLUMNS})")
            writer.begin()
            job.start("load", now=False)
            say("warm steps")
            warm = _warm_steps(job.target, writer, tables)
            say("a load of 10,000 rows/s")
            loaded, rate, caught_up_s = _load(job.target, writer, tables, 5.0 * (scale + 2))
        say("copying a table")
        copy_rows = 1_000_000 * scale
        copy_rate, copy_rate_of_cpu = _copy(server, job, copy_rows)
        job.stop()
    return Figures(
        log_rows_per_s,
        history.rows,
        warm,
        rate,
        statistics.median(loaded.to_log),
        statistics.median(loaded.to_table),
        statistics.quantiles(loaded.to_table, n=100)[98],
        caught_up_s,
        copy_rate,
        copy_rate_of_cpu,
        copy_rows,
    )


def _job(
    server: Instance, daemon: Daemon, home: Path, stack: ExitStack, settings: str = ""
) -> MirrorJob:
    home.mkdir()
    kills = home / "kills"
    kills.mkdir()
    return MirrorJob(server, daemon, home, kills, stack, settings=f"{settings}\n", quick=False)


def _log_stage(
    server: Instance, daemon: Daemon, home: Path, stack: ExitStack, say: Callable[[str], None]
) -> float:
    say("the history into the log")
    job = _job(server, daemon, home / "history", stack, "stages: log")
    if job.run("history") != 0:
        raise SystemExit(job.log)
    appends = commits_of(job.target / "_binlog" / "log")[1:]  # the first commit is the claim
    first = appends[0]
    rows = sum(e.rows for e in entries_of(job.target) if e.lsn >> 32 > first.version)
    with_rows = [
        c for c in appends if c.version <= max(e.lsn >> 32 for e in entries_of(job.target))
    ]
    return rows / (with_rows[-1].at - first.at)


def _until_applied(target: Path, writer: Writer, seqs: set[int]) -> Latencies:
    """Wait until the transactions are in their tables. Returns their latencies."""
    wanted = {seq: writer.at[seq] for seq in seqs}

    def arrived() -> Latencies | None:
        try:
            found = latencies(target, wanted)
        except (OSError, KeyError, pa.ArrowInvalid):  # a file is being written
            return None
        return None if found.missing else found

    found = until(arrived, "the transactions are in their tables", timeout_s=TIMEOUT_S)
    assert found is not None
    return found


def _warm_steps(target: Path, writer: Writer, tables: list[str]) -> float:
    """Returns the median time until a row that was inserted into each table is in all Delta tables."""
    times = []
    for number in range(ROUNDS):
        before = set(writer.at)
        for table in tables:
            writer.insert(table, 1)
        found = _until_applied(target, writer, set(writer.at) - before)
        # In the first rounds Python processes start, and the JVM compiles.
        if number >= ROUNDS // 2:
            times.append(max(found.to_table))
    return statistics.median(times)


def _load(
    target: Path, writer: Writer, tables: list[str], seconds: float
) -> tuple[Latencies, float, float]:
    """Returns the latencies, the rate of writing in rows/s, and the seconds from the end of the load until all of it
    was applied."""
    before = set(writer.at)
    began, number = time.monotonic(), 0
    while (now := time.monotonic()) < began + seconds:
        due = began + number * ROWS_IN_TRANSACTION / ROWS_PER_SECOND
        if now < due:
            time.sleep(due - now)
        table = tables[number % TABLES]
        if number % 10 < TABLES:
            writer.insert(table, ROWS_IN_TRANSACTION)
        else:
            first = 1 + (number // 10) * ROWS_IN_TRANSACTION
            writer.update(table, first, ROWS_IN_TRANSACTION)
        number += 1
    rate = number * ROWS_IN_TRANSACTION / (time.monotonic() - began)
    ended = max(at for at, _ in writer.at.values())
    found = _until_applied(target, writer, set(writer.at) - before)
    last = max(commits_of(target / LOAD_DATABASE / table)[-1].at for table in tables)
    return found, rate, last - ended


def _copy(server: Instance, job: MirrorJob, rows: int) -> tuple[float, float]:
    """Returns (rows/s, rows per CPU second of the job) of a copy. Its time begins with its first group of chunks, and
    ends with the commit of its last group. The CPU time includes the job's own work before and after the copy."""
    assert job.process is not None
    with server.connect(LOAD_DATABASE) as connection, connection.cursor() as cursor:
        connection.autocommit(True)
        cursor.execute("SET SESSION sql_log_bin = 0, cte_max_recursion_depth = 100000000")
        cursor.execute(f"CREATE TABLE copied ({COLUMNS})")
        cursor.execute(
            "INSERT INTO copied WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE"
            f" i < {rows}) SELECT i, i % 100000, CONCAT('customer ', i), i / 7, i * 1.1e0, '2026-01-01' + INTERVAL i"
            " SECOND, '2026-01-01' + INTERVAL i SECOND, i % 4000, 1 + i % 3, CONCAT('note ', i * 7919) FROM n"
        )
        cursor.execute("ANALYZE TABLE copied")
        cursor.fetchall()
        cursor.execute("SET SESSION sql_log_bin = 1")
        with DescendantsMeter(job.process.pid) as meter:
            used = meter.cpu_s()
            cursor.execute("UPDATE copied SET quantity = 0 WHERE id = 1")
            until(
                lambda: job.target.joinpath(LOAD_DATABASE, "copied").exists(),
                "the table is copied",
                timeout_s=TIMEOUT_S,
            )
            used = meter.cpu_s() - used
    commits = sorted((job.target / LOAD_DATABASE / "copied" / "_delta_log").glob("*.json"))
    groups = [file for file in commits if '"binlog-dispatcher/copy/' in file.read_text()]
    return rows / (groups[-1].stat().st_mtime - commits[0].stat().st_mtime), rows / used


PART = "mirror"
FEW_ROWS = f"a row in each of {TABLES} tables, until it is in them"
MANY_ROWS = "commit to table at 10,000 rows/s, p99"


def measure_part(run: Run) -> None:
    """Measure the mirror, as a part of `make bench`."""
    found = measure(4 if run.full else 1, run.say)
    targets: tuple[tuple[str, float, Relation, float, str], ...] = (
        ("rows/s into the log", found.log_rows_per_s, ">=", 200_000, "rows/s"),
        (FEW_ROWS, found.warm_step_s, "<", 3, "s"),
        ("commit to log at 10,000 rows/s, p50", found.to_log_p50_s, "<", 1.5, "s"),
        (MANY_ROWS, found.to_table_p99_s, "<", 5, "s"),
        ("caught up after the load", found.caught_up_s, "<", 5, "s"),
        ("a copy, ten columns", found.copy_rows_per_s, ">=", 250_000, "rows/s"),
        ("a copy, ten columns, the job's CPU", found.copy_rows_per_cpu_s, ">=", 150_000, "rows/s"),
    )
    for what, value, relation, limit, unit in targets:
        run.series(PART, "", "mirror", what, unit, [value])
        run.target(f"mirror {what}", f"mirror: {what}", value, relation, limit, unit)
