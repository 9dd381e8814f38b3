"""Measures the mirror: a real server, the daemon and the job as a user starts them, on local Delta tables.

* log: how fast the mirror appends a long log of the server to its own log. The first append is left out, because Spark
  and its Python processes start in this time.
* warm step: the time from the insertion of one row into each of five tables until all five Delta tables contain their
  row.
* copy: a table of ten columns whose rows are in no binlog, and the CPU time of the job and its workers meanwhile.

The time of a commit is the time of its file in Delta's log. `benchmarks.freshness` measures the job under load.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.dataset as ds

from benchmarks.arrivals import Arrivals
from benchmarks.figures import Relation, Run
from benchmarks.logs import DATABASES, generate_bulk, prepare
from benchmarks.markers import COLUMNS, Writer
from benchmarks.processes import DescendantsMeter
from tests.daemon.harness import PASSWORD, Daemon, until
from tests.mirror.harness import COPY_GRANTS, COPY_USER, MirrorJob
from tests.servers import Instance, start_server

TABLES = 5
ROUNDS = 8
TIMEOUT_S = 900.0
LOAD_DATABASE = "bench_load"


@dataclass(frozen=True, slots=True)
class Figures:
    """Rates in rows/s, times in seconds."""

    log_rows_per_s: float
    log_rows: int
    warm_step_s: float
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
            writer = Writer(cursor, LOAD_DATABASE)
            tables = [f"t{number}" for number in range(TABLES)]
            for table in tables:
                cursor.execute(f"CREATE TABLE {LOAD_DATABASE}.{table} ({COLUMNS})")
            job.start("load", now=False)
            say("warm steps")
            warm = _warm_steps(job, writer, tables)
        say("copying a table")
        copy_rows = 1_000_000 * scale
        copy_rate, copy_rate_of_cpu = _copy(server, job, copy_rows)
        job.stop()
    return Figures(
        log_rows_per_s,
        history.rows,
        warm,
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


def _warm_steps(job: MirrorJob, writer: Writer, tables: list[str]) -> float:
    """Returns the median time until a row that was inserted into each table is in all Delta tables."""
    times = []
    arrivals = Arrivals(job, LOAD_DATABASE)
    for number in range(ROUNDS):
        writer.begin()
        for table in tables:
            writer.insert(table, 1)
        arrivals.until(writer.at, TIMEOUT_S)
        # In the first rounds Python processes start, and the JVM compiles.
        if number >= ROUNDS // 2:
            found = arrivals.tables
            times.append(max(found[marker].at - at for marker, at in writer.at.items()))
    return statistics.median(times)


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
COPY, COPY_CPU = "a copy, ten columns", "a copy, ten columns, the job's CPU"


def measure_part(run: Run) -> None:
    """Measure the mirror, as a part of `make bench`."""
    found = measure(4 if run.full else 1, run.say)
    targets: tuple[tuple[str, float, Relation, float, str], ...] = (
        ("rows/s into the log", found.log_rows_per_s, ">=", 200_000, "rows/s"),
        (FEW_ROWS, found.warm_step_s, "<=", 1.2, "s"),
        (COPY, found.copy_rows_per_s, ">=", 250_000, "rows/s"),
        (COPY_CPU, found.copy_rows_per_cpu_s, ">=", 150_000, "rows/s"),
    )
    for what, value, relation, limit, unit in targets:
        run.series(PART, "", "mirror", what, unit, [value])
        run.target(f"mirror {what}", f"mirror: {what}", value, relation, limit, unit)
