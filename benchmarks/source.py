"""Measures the Spark source: a real server, a daemon and Spark on this machine, from MySQL's log to Spark's rows.

* first batch: how long the first stream of a fresh Spark session takes, from `load` to its end.
* rate: each form of the rows as a stream into Spark's sink `noop`. The consumer is moved to the beginning of the log
  when the query starts, so that MySQL and the daemon work at the same time. The first batch is left out. Besides the
  rate: the processor time of each process for a million rows.
* phases: the same slices, read one after another in this process, without Spark: the processor time to fetch, to
  decode, and to write Arrow's stream format.

Processor times vary less than rates on a machine that does other work. The typed form has the rows of one of the two
databases; the rates count the rows that Spark gets.

`python -m benchmarks.source [ROWS [BATCH_BYTES]]`
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxBytes

from benchmarks.figures import Run
from benchmarks.logs import DATABASES, GeneratedLog, generate_bulk, prepare
from spark_sink.source import rows
from spark_sink.source.data_source import BinlogDataSource, BinlogStreamReader
from spark_sink.source.options import SourceOptions
from spark_sink.source.slices import Slice, read_bytes
from tests.daemon.harness import PASSWORD, Daemon
from tests.servers import Instance, start_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PART = "Spark source"
ROWS = 1_000_000
BATCH_BYTES = 16 << 20  # a quarter of the queue's default limit, which is the source's default
ROWS_IN_TRANSACTION = 1000  # of `generate_bulk`
FIRST_ROWS = 1000
TIMEOUT_S = 600
FORMS: Mapping[str, Mapping[str, str]] = {
    "raw": {"raw": "true"},
    "json": {},
    "typed": {"table": f"{DATABASES[0]}.t"},
}
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Rate:
    """`rows_per_s`: without the first batch; `cpu_s`: processor seconds of each process for a million rows."""

    form: str
    rows: int
    rows_per_s: float
    cpu_s: dict[str, float]


@dataclass(frozen=True, slots=True)
class Phases:
    """Processor seconds for a million rows, of slices that are read one after another without Spark."""

    form: str
    fetch_s: float
    decode_s: float
    to_arrow_s: float


@dataclass(frozen=True, slots=True)
class Figures:
    log: GeneratedLog
    first_batch_s: float
    rates: list[Rate]
    phases: list[Phases]


@dataclass(frozen=True, slots=True)
class Parts:
    """What runs. The daemon has two consumers for each form, `rate_FORM` and `phases_FORM`, and `first`."""

    server: Instance
    daemon: Daemon
    batch_bytes: int

    def options(self, consumer: str, form: str) -> dict[str, str]:
        return {
            "url": f"http://127.0.0.1:{self.daemon.port}",
            "consumer": consumer,
            "startingOffsets": "earliest",
            "maxBytesPerTrigger": str(self.batch_bytes),
            **FORMS[form],
        }


def measure(rows_count: int, batch_bytes: int, say: Callable[[str], None]) -> Figures:
    """Run all of it. `say` is told what begins."""
    with ExitStack() as stack:
        server = stack.enter_context(start_server("mysql97", "--innodb-buffer-pool-size=512M"))
        server.add_user("bench", PASSWORD)
        prepare(server)
        say("writing a history")
        log = generate_bulk(server, rows_count)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bd-bench-")))
        server.execute("CREATE DATABASE bench_first")
        daemon = Daemon(home / "daemon", _settings(server))
        stack.callback(daemon.close)
        daemon.start()
        parts = Parts(server, daemon, batch_bytes)
        for name in daemon.settings["consumers"]:
            daemon.api.until_state(name, "streaming")
        spark = stack.enter_context(_spark(home))
        say("the first batch")
        first_batch_s = _first_batch(spark, parts)
        rates = []
        for form in FORMS:
            say(f"a stream of {form} rows")
            rates.append(_rate(spark, parts, form, log.rows // (2 if form == "typed" else 1)))
        phases = []
        for form in FORMS:
            say(f"phases of {form} rows")
            phases.append(_phases(parts, form))
        return Figures(log, first_batch_s, rates, phases)


def _settings(server: Instance) -> dict[str, Any]:
    shared = {"mysql": f"bench@{server.host}:{server.port}", "password": PASSWORD}
    consumers: dict[str, Any] = {"first": {**shared, "databases": ["bench_first"]}}
    for form in FORMS:
        databases = list(DATABASES[:1] if form == "typed" else DATABASES)
        for use in ("rate", "phases"):
            consumers[f"{use}_{form}"] = {**shared, "databases": databases}
    return {"consumers": consumers}


@contextmanager
def _spark(home: Path) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf: dict[str, Any] = {
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.checkpointLocation": str(home / "checkpoints"),
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.python.authenticate.socketTimeout": "120s",
    }
    session = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _stream(spark: SparkSession, options: dict[str, str]) -> list[Any]:
    """Read up to the end of the log. Returns Spark's reports of the batches."""
    frame = spark.readStream.format("binlog").options(**options).load()
    query = frame.writeStream.format("noop").trigger(availableNow=True).start()
    if not query.awaitTermination(TIMEOUT_S):
        raise SystemExit(f"the stream has not ended after {TIMEOUT_S} s")
    return [report for report in query.recentProgress if report.numInputRows]


def _first_batch(spark: SparkSession, parts: Parts) -> float:
    values = ", ".join(f"({n}, 'row {n}')" for n in range(FIRST_ROWS))
    parts.server.execute(
        "CREATE TABLE bench_first.t (id INT PRIMARY KEY, name VARCHAR(20))",
        f"INSERT INTO bench_first.t VALUES {values}",
    )
    options = parts.options("first", "json")
    began = time.monotonic()
    del options["startingOffsets"]
    found = sum(report.numInputRows for report in _stream(spark, options))
    took_s = time.monotonic() - began
    if found != FIRST_ROWS + 1:
        raise SystemExit(f"the first batch has {found} rows, not {FIRST_ROWS} and a statement")
    return took_s


def _rate(spark: SparkSession, parts: Parts, form: str, rows_count: int) -> Rate:
    """`rows_count`: how many rows the form has of the log."""
    before = _processor_s(parts)
    reports = _stream(spark, parts.options(f"rate_{form}", form))
    used = {name: seconds - before[name] for name, seconds in _processor_s(parts).items()}
    if len(reports) < 2:
        raise SystemExit(f"the {form} rows are one batch: take more rows, or smaller batches")
    counted = sum(_rows_in(report, form) for report in reports[1:])
    seconds = sum(report.batchDuration for report in reports[1:]) / 1000
    cpu_s = {name: spent / rows_count * 1e6 for name, spent in used.items()}
    return Rate(form, rows_count, counted / seconds, cpu_s)


def _rows_in(report: Any, form: str) -> int:
    """Returns the rows of changes in a batch. Those of Spark are entries if they are raw."""
    if form != "raw":
        return int(report.numInputRows)
    (source,) = report.sources
    first, last = (json.loads(text)["seq"] for text in (source.startOffset, source.endOffset))
    return int(last - first) * ROWS_IN_TRANSACTION


def _processor_s(parts: Parts) -> dict[str, float]:
    """Returns the processor seconds of each process so far. `Python`: Spark's Python processes."""
    from pyspark import SparkContext  # noqa: PLC0415

    gateway: Any = SparkContext._gateway  # noqa: SLF001 - pyspark does not tell which process it started
    jvm = gateway.proc.pid
    return {
        "MySQL": _of_process(parts.server.pid),
        "daemon": _of_process(parts.daemon.pid),
        "Python": _of_descendants(jvm),
        "JVM": _of_process(jvm, ended=False),
    }


def _stat(pid: int) -> list[str]:
    """Returns the fields of proc(5)'s stat behind the name: state, ppid, ..."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def _of_process(pid: int, *, ended: bool = True) -> float:
    """Processor seconds of a process; `ended`: and of its children that have ended."""
    used = _stat(pid)[11:15] if ended else _stat(pid)[11:13]
    return sum(map(int, used)) / _TICKS


def _of_descendants(pid: int) -> float:
    seconds = 0.0
    for child in _descendants(pid):
        try:
            seconds += _of_process(child)
        except OSError:
            continue  # has ended meanwhile, so its parent counts it
    return seconds


def _descendants(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
            except OSError:
                continue  # has ended
    found, new = [], [pid]
    while new:
        new = [child for child, parent in parents.items() if parent in new]
        found += new
    return found


def _phases(parts: Parts, form: str) -> Phases:
    parsed = SourceOptions.parse(parts.options(f"phases_{form}", form))
    schema = BinlogDataSource(parts.options(f"phases_{form}", form)).schema()
    assert not isinstance(schema, str)
    reader = BinlogStreamReader(parsed, schema)
    reader.prepareForTriggerAvailableNow()
    spent = {"fetch": 0.0, "decode": 0.0, "to_arrow": 0.0}
    count, at = 0, reader.initialOffset()
    warm = False
    while (end := reader.latestOffset(at, ReadMaxBytes(parts.batch_bytes))) != at:
        for part in reader.partitions(at, end):
            assert isinstance(part, Slice)
            took = _slice_phases(parsed, schema, part)
            if warm:  # the first slice loads kernels
                for name, seconds in took.items():
                    spent[name] += seconds
                count += (part.end.position.seq - part.start.position.seq) * ROWS_IN_TRANSACTION
            warm = True
        at = end
    reader.stop()
    million = count / len(DATABASES if form == "typed" else "x") / 1e6
    return Phases(form, *(seconds / million for seconds in spent.values()))


def _slice_phases(options: SourceOptions, schema: Any, part: Slice) -> dict[str, float]:
    began = time.process_time()
    part, data = read_bytes(options, part)
    fetched = time.process_time()
    batches = list(rows.read_slice(options, schema, part, data))
    decoded = time.process_time()
    if batches:
        with pa.ipc.new_stream(pa.MockOutputStream(), batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    written = time.process_time()
    return {
        "fetch": fetched - began,
        "decode": decoded - fetched,
        "to_arrow": written - decoded,
    }


def measure_part(run: Run) -> None:
    """The part of `make bench`."""
    found = measure(max(10_000, round(ROWS * run.scale)), BATCH_BYTES, run.say)
    run.series(PART, "", "a new session", "the first batch", "s", [found.first_batch_s])
    run.target(
        f"{PART} start", "the first batch of a new session", found.first_batch_s, "<", 3, "s"
    )
    for rate in found.rates:
        what = f"{rate.form} rows"
        run.series(PART, "", what, "from MySQL to Spark", "rows/s", [rate.rows_per_s])
        run.target(f"{PART} {rate.form}", what, rate.rows_per_s, ">=", 1_000_000, "rows/s")
        for name, seconds in rate.cpu_s.items():
            run.series(PART, "", f"{what}, {name}", "processor time for 1 M rows", "s", [seconds])
    for phases in found.phases:
        spent = (phases.fetch_s, phases.decode_s, phases.to_arrow_s)
        for name, seconds in zip(("fetch", "decode", "to Arrow"), spent, strict=True):
            subject = f"{phases.form} rows, {name}"
            run.series(PART, "", subject, "processor time for 1 M rows", "s", [seconds])


def printed(figures: Figures) -> list[tuple[str, str, str]]:
    """Returns what is printed: (what, measured, target)."""
    lines = [("first batch of a fresh session", f"{figures.first_batch_s:.2f} s", "< 3 s")]
    for rate in figures.rates:
        spent = ", ".join(f"{name} {seconds:.2f}" for name, seconds in rate.cpu_s.items())
        measured = f"{rate.rows_per_s:,.0f} rows/s; processor s for 1 M rows: {spent}"
        lines.append((f"stream, {rate.form}", measured, ">= 1,000,000 rows/s"))
    for phases in figures.phases:
        measured = (
            f"processor s for 1 M rows: fetch {phases.fetch_s:.2f}, decode {phases.decode_s:.2f},"
            f" to Arrow {phases.to_arrow_s:.2f}"
        )
        lines.append((f"phases in one process, {phases.form}", measured, ""))
    return lines


def main(arguments: list[str]) -> None:
    count, batch_bytes = (*map(int, arguments), *(ROWS, BATCH_BYTES)[len(arguments) :])
    figures = measure(count, batch_bytes, lambda what: print(f"... {what}", flush=True))
    print(
        f"{figures.log.rows:,} rows in {figures.log.bytes / 1e6:.0f} MB, batches of {batch_bytes:,} bytes"
    )
    for what, measured, target in printed(figures):
        print(f"{what:34} {measured}" + (f"  (target {target})" if target else ""))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main(sys.argv[1:])
