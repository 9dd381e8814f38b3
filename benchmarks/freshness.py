"""Measures how old the rows are that readers get. Marker rows (see `benchmarks.markers`) are written at a fixed rate,
and the time from the commit of each to four places is measured:

* a reader of the daemon, which polls and acknowledges over HTTP
* the mirror's log
* the Delta table
* the current snapshot of an Iceberg table, which another mirror job writes. That job has the shortest interval between
  two snapshots of a table, and this interval is a part of the measured times

All four times begin with the commit time in the transaction's GTID event. The rates are rows per second in all tables
together, in transactions of 100 rows; half of them insert rows, half update these rows. The highest rate is searched by
doubling and bisection: a rate is kept if the age of the newest row in the tables does not grow while it is written, see
`is_kept`. Server, writer, daemon, reader and the job share the machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, quantiles
from typing import Any

from benchmarks.arrivals import Arrivals, wait_for
from benchmarks.figures import Run
from benchmarks.marker_readers import HTTP, following
from benchmarks.markers import (
    COLUMNS,
    ROWS_IN_TRANSACTION,
    Load,
    Writer,
    loading,
    table_name,
    written,
)
from tests.daemon.harness import PASSWORD, Daemon
from tests.mirror.harness import COPY_GRANTS, COPY_USER, MirrorJob
from tests.servers import Instance, start_server

PART = "freshness"
RATES = (1_000, 10_000, 30_000)
RATE = 10_000  # for other numbers of tables, and for Iceberg
TABLES = 10
TABLE_COUNTS = (1, 100, 1_000)
READER, LOG, TABLE, SNAPSHOT = "reader", "log", "Delta table", "Iceberg snapshot"
PLACES = (READER, LOG, TABLE, SNAPSHOT)
PERCENTILES = (50, 95, 99)
KEPT = "highest rate that does not fall behind"
SEARCHED = f"the highest kept rate, {TABLES} tables"
CAUGHT_UP = "until all rows are in the tables, after the load"
WRITTEN = "written"
INTERVAL_S = 1  # between two snapshots of an Iceberg table; the least that the setting allows
_SECONDS, _SEARCH_SECONDS, _WARM_S = 20.0, 14.0, 4.0
_STEPS, _CLOSE = 4, 1.25  # of the search, which ends when the two rates are as close as this
_GROWTH = 0.1  # seconds in a second
_REACHED = 0.95  # the share of a rate that the writer must reach
_USER, _TIMEOUT_S = "bench", 900.0
_CONSUMER, _ICEBERG, _READER = "delta", "iceberg", "reader"


def subject(rate: int, tables: int, *, iceberg: bool = False) -> str:
    """Returns the subject of a series: "10,000 rows/s, 10 tables"."""
    more = f", Iceberg each {INTERVAL_S} s" if iceberg else ""
    return f"{rate:,} rows/s, {tables:,} table{'s' if tables > 1 else ''}{more}"


def quantity(place: str, percent: int) -> str:
    return f"commit to {place}, p{percent}"


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of each marker: when it was committed, and the seconds until it was in each place. `rate`: the
    rows/s that were written; `caught_up_s`: from the last commit until all markers were in their tables."""

    rate: float
    markers: list[int]
    commits: list[float]
    to: dict[str, list[float]]
    caught_up_s: float


def is_kept(rate: int, found: Measured) -> bool:
    """Whether the writer reached the rate, and the age of the newest row in the tables did not grow by more than a
    tenth of a second in each second. If it grows faster, the mirror applies at most about nine tenths of the rows."""
    growth = linear_regression(found.commits, found.to[TABLE]).slope
    return found.rate >= _REACHED * rate and growth <= _GROWTH


def search(keeps: Callable[[int], bool], kept: int, missed: int | None) -> int:
    """Returns the highest rate that is known to be kept, after a few steps of doubling and bisection. `kept`, `missed`:
    what is known already; 0 and None for nothing."""
    for _ in range(_STEPS):
        if missed is not None and missed <= _CLOSE * kept:
            break
        rate = 2 * kept if missed is None else (kept + missed) // 2
        if keeps(rate):
            kept = rate
        else:
            missed = rate
    return kept


class _Mirror:
    """A job that mirrors the databases of one consumer. `last`: the newest marker. The reader may get a range again, so
    all jobs number their markers together."""

    def __init__(
        self, server: Instance, daemon: Daemon, job: MirrorJob, consumer: str, last: int
    ) -> None:
        self.server = server
        self.daemon = daemon
        self.job = job
        self.consumer = consumer
        self.last = last

    @contextmanager
    def tables(self, count: int) -> Iterator[tuple[str, Arrivals]]:
        """Make a database with tables, each of which the mirror has created. Yields its name and its arrivals."""
        database = f"{self.consumer}_{count}"
        self.server.execute(f"CREATE DATABASE {database}")
        with self.server.connect() as connection, connection.cursor() as cursor:
            connection.autocommit(True)
            for number in range(count):
                cursor.execute(f"CREATE TABLE {database}.{table_name(number)} ({COLUMNS})")
            writer = Writer(cursor, database, self.last)
            for number in range(count):
                writer.insert(table_name(number), 2)
        self.last = writer.number
        arrivals = Arrivals(self.job, database)
        arrivals.until(writer.at, _TIMEOUT_S)
        yield database, arrivals

    def measure(
        self, database: str, arrivals: Arrivals, tables: int, rate: int, seconds: float
    ) -> Measured:
        """Write a load, and wait until all of it has arrived. The first seconds are not measured."""
        per_second = rate / ROWS_IN_TRANSACTION
        load = Load(tables, ROWS_IN_TRANSACTION, per_second, seconds, self.last)
        daemon = HTTP, "127.0.0.1", self.daemon.port, "", ""
        with (
            following(*daemon, [_READER]) as reader,
            loading(self.server, _USER, PASSWORD, database, load) as process,
        ):
            done = written(process)
            seen = {one.marker: one for one in reader.until(done.last)}
        markers = range(self.last + 1, done.last + 1)
        self.last = done.last
        arrivals.until(markers, _TIMEOUT_S)
        begin = seen[markers[0]].commit_us / 1e6 + min(_WARM_S, seconds / 4)
        in_tables, in_log = arrivals.tables, arrivals.log
        measured = [seen[marker] for marker in markers if seen[marker].commit_us / 1e6 >= begin]
        to = {
            READER: [one.ms / 1e3 for one in measured],
            LOG: [in_log[one.marker].at - one.commit_us / 1e6 for one in measured],
            TABLE: [in_tables[one.marker].at - one.commit_us / 1e6 for one in measured],
        }
        ended = seen[done.last].commit_us / 1e6
        return Measured(
            done.transactions * ROWS_IN_TRANSACTION / done.seconds,
            [one.marker for one in measured],
            [one.commit_us / 1e6 for one in measured],
            to,
            max(in_tables[marker].at for marker in markers) - ended,
        )


def measure(run: Run) -> None:
    with ExitStack() as stack:
        stack.callback(_targets, run)  # also if many tables take too long
        server = stack.enter_context(start_server("mysql97", "--innodb-buffer-pool-size=512M"))
        server.add_user(_USER, PASSWORD)
        server.execute(f"GRANT INSERT, UPDATE, SELECT ON *.* TO {_USER}@'%'")
        server.add_user(COPY_USER, PASSWORD, *COPY_GRANTS)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bd-bench-")))
        consumers = {
            name: {
                "mysql": f"{_USER}@{server.host}:{server.port}",
                "password": PASSWORD,
                "databases": [f"{name}_*"],
                "start": "earliest",
                "max_bytes_in_binlog_queue": "128MiB",
            }
            for name in (_CONSUMER, _ICEBERG)
        }
        consumers[_READER] = {
            **consumers[_CONSUMER],
            "databases": [f"{_CONSUMER}_*", f"{_ICEBERG}_*"],
        }
        daemon = Daemon(home / "daemon", {"consumers": consumers})
        stack.callback(daemon.close)
        daemon.start()
        catalog = {"type": "sql", "uri": f"sqlite:///{home}/catalog.db"}
        times = f"interval_seconds: {INTERVAL_S}, snapshot_hours: 1"
        settings = (
            'catalog: "{database}.{table}"\n'
            f"iceberg: {{{times}, catalog: {{type: sql, uri: '{catalog['uri']}'}}}}\n"
        )
        with _mirror(server, daemon, home, _ICEBERG, settings) as mirror:
            _measure_iceberg(run, mirror, catalog)
        with _mirror(server, daemon, home, _CONSUMER, after=mirror.last) as mirror:
            _measure_rates(run, mirror)
            for count in _counts(run.scale):
                with mirror.tables(count) as (database, arrivals):
                    found = mirror.measure(database, arrivals, count, RATE, _seconds(run))
                    _record(run, subject(RATE, count), found)


@contextmanager
def _mirror(
    server: Instance,
    daemon: Daemon,
    home: Path,
    consumer: str,
    settings: str = "",
    *,
    after: int = 0,
) -> Iterator[_Mirror]:
    folder = home / consumer
    (folder / "kills").mkdir(parents=True)
    with ExitStack() as stack:
        job = MirrorJob(
            server, daemon, folder, folder / "kills", stack, settings=settings, quick=False
        )
        job.start(consumer, now=False)
        yield _Mirror(server, daemon, job, consumer, after)
        job.stop()


def _seconds(run: Run) -> float:
    return max(6.0, _SECONDS * run.scale)


def _counts(scale: float) -> Sequence[int]:
    """The numbers of tables, without the large ones if the suite is only tried."""
    return [count for count in TABLE_COUNTS if count <= max(TABLES, TABLE_COUNTS[-1] * scale)]


def _measure_rates(run: Run, mirror: _Mirror) -> None:
    with mirror.tables(TABLES) as (database, arrivals):
        # Python processes start, and the JVM compiles.
        mirror.measure(database, arrivals, TABLES, RATE, _seconds(run) / 2)
        known: dict[int, Measured] = {}
        for rate in RATES:
            known[rate] = mirror.measure(database, arrivals, TABLES, rate, _seconds(run))
            _record(run, subject(rate, TABLES), known[rate])

        def keeps(rate: int) -> bool:
            seconds = max(6.0, _SEARCH_SECONDS * run.scale)
            known[rate] = mirror.measure(database, arrivals, TABLES, rate, seconds)
            run.say(f"{rate:,} rows/s: {'kept' if is_kept(rate, known[rate]) else 'not kept'}")
            return is_kept(rate, known[rate])

        kept = max((rate for rate in RATES if is_kept(rate, known[rate])), default=0)
        missed = next((rate for rate in RATES if rate > kept), None)
        highest = search(keeps, kept, missed)
    run.series(PART, "", KEPT, f"{TABLES} tables", "rows/s", [highest])
    if highest not in (*RATES, 0):
        _record(run, SEARCHED, known[highest])


def _measure_iceberg(run: Run, mirror: _Mirror, settings: dict[str, str]) -> None:
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - only this part needs it

    with mirror.tables(TABLES) as (database, arrivals):
        catalog: Any = load_catalog("default", **settings)
        mirror.measure(database, arrivals, TABLES, RATE, _seconds(run) / 2)  # warms the job
        found = mirror.measure(database, arrivals, TABLES, RATE, _seconds(run))
        names = [table_name(number) for number in range(TABLES)]
        shown: dict[int, float] = {}

        def are_shown() -> bool:
            shown.update(arrivals.in_snapshots(catalog, names))
            return shown.keys() >= set(found.markers)

        wait_for(are_shown, "all transactions are in snapshots", _TIMEOUT_S)
    found.to[SNAPSHOT] = [
        shown[marker] - at for marker, at in zip(found.markers, found.commits, strict=True)
    ]
    _record(run, subject(RATE, TABLES, iceberg=True), found)


def _record(run: Run, name: str, found: Measured) -> None:
    run.series(PART, "", name, WRITTEN, "rows/s", [found.rate])
    for place, times in found.to.items():
        ordered = quantiles(times, n=100)
        for percent in PERCENTILES:
            value = ordered[percent - 1]
            if place == READER:
                run.series(PART, "", name, quantity(place, percent), "ms", [1000 * value])
            else:
                run.series(PART, "", name, quantity(place, percent), "s", [value])
    run.series(PART, "", name, CAUGHT_UP, "s", [found.caught_up_s])


def _targets(run: Run) -> None:
    """Record the targets. If the writer did not reach the rate, the target was not measured."""
    for name, tables, rate, limit_s in (
        ("10,000 rows/s", TABLES, 10_000, 3),
        ("30,000 rows/s", TABLES, 30_000, 5),
        ("100 tables", 100, 10_000, 5),
    ):
        of = subject(rate, tables)
        is_reached = (run.report.median(PART, "", of, WRITTEN) or 0) >= _REACHED * rate
        value = run.report.median(PART, "", of, quantity(TABLE, 99)) if is_reached else None
        run.target(
            f"freshness {name}", f"commit to Delta table, p99, {of}", value, "<=", limit_s, "s"
        )
