"""Measures the Spark source: a real server, a daemon and Spark on this machine, from MySQL's log to Spark's rows.

* first batch: how long the first stream of a fresh Spark session takes, from `load` to its end, compared with a Python
  source that does nothing (`benchmarks.source_start`).
* rate: the rate at which a stream delivers each form of the rows to Spark's sink `noop`, which drops each row; a real
  sink takes additional time. The consumer is moved to the beginning of the log when the query starts, so MySQL and the
  daemon work at the same time. The log is read twice. The first pass, and the first batch of the second pass, are left
  out: in this time Python workers start, and the JVM compiles most of its code. The processor time of each process for
  a million rows, and the times of Spark's phases of a batch, are measured, too.
* phases: the processor time to fetch, to decode, and to write Arrow's stream format, for the same slices, which this
  process reads one after another without Spark.

Processor times vary less than rates on a machine that does other work. The typed form contains only the rows of one of
the two databases; the rates count the rows that Spark gets.

`python -m benchmarks.source [ROWS [BATCH_BYTES]]`
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxBytes

import spark_sink
from benchmarks.figures import Run
from benchmarks.logs import DATABASES, GeneratedLog, generate_bulk, prepare
from benchmarks.processes import DescendantsMeter, cpu_seconds_of_process, run_module
from benchmarks.spark import jvm_pid, read_stream, spark_session
from spark_sink.source import rows
from spark_sink.source.data_source import BinlogDataSource
from spark_sink.source.options import SourceOptions
from spark_sink.source.readers.stream_reader import BinlogStreamReader
from spark_sink.source.slices import Slice, read_bytes
from tests.daemon.harness import PASSWORD, Daemon
from tests.servers import Instance, start_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PART = "Spark source"
ROWS = 1_000_000
BATCH_BYTES = 32 << 20  # half of the default limit of a queue, as in the source's default
ROWS_IN_TRANSACTION = 1000  # as `generate_bulk` writes them
FIRST_ROWS = 1000
START_ROUNDS = 3
FORMS: Mapping[str, Mapping[str, str]] = {
    "raw": {"raw": "true"},
    "json": {},
    "typed": {"table": f"{DATABASES[0]}.t"},
}


@dataclass(frozen=True, slots=True)
class Rate:
    """Results of a form of the rows, without the first batch. `cpu_s`: processor seconds of each process for a million
    rows; `batch_s`: seconds of each of Spark's phases in a batch."""

    form: str
    rows: int
    rows_per_s: float
    cpu_s: dict[str, float]
    batch_s: dict[str, float]


@dataclass(frozen=True, slots=True)
class FirstBatch:
    """Seconds of the first stream of a fresh session; `floor`: of a Python data source that does nothing."""

    floor_s: float
    ours_s: float
    floor_cpu_s: float
    ours_cpu_s: float


@dataclass(frozen=True, slots=True)
class Phases:
    """Processor seconds for a million rows, if slices are read one after another without Spark."""

    form: str
    fetch_s: float
    decode_s: float
    to_arrow_s: float


@dataclass(frozen=True, slots=True)
class Figures:
    log: GeneratedLog
    first_batches: list[FirstBatch]
    rates: list[Rate]
    phases: list[Phases]


@dataclass(frozen=True, slots=True)
class Parts:
    """The processes that run. The daemon has the consumer `first`, and for each form `rate_FORM` and `phases_FORM`."""

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
    """Run all measurements. `say` prints which one begins."""
    with ExitStack() as stack:
        server = stack.enter_context(start_server("mysql97", "--innodb-buffer-pool-size=512M"))
        server.add_user("bench", PASSWORD)
        prepare(server)
        say("writing a history")
        log = generate_bulk(server, rows_count)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bd-bench-")))
        server.execute(
            "CREATE DATABASE bench_first",
            "CREATE TABLE bench_first.t (id INT PRIMARY KEY, name VARCHAR(20))",
        )
        daemon = Daemon(home / "daemon", _settings(server))
        stack.callback(daemon.close)
        daemon.start()
        parts = Parts(server, daemon, batch_bytes)
        for name in daemon.settings["consumers"]:
            daemon.api.until_state(name, "streaming")
        first_batches = _first_batches(parts, say)
        spark = stack.enter_context(spark_session(home))
        spark_sink.register(spark)
        rates = []
        for form in FORMS:
            say(f"a stream of {form} rows")
            rates.append(_rate(spark, parts, form))
        phases = []
        for form in FORMS:
            say(f"phases of {form} rows")
            phases.append(_phases(parts, form))
        return Figures(log, first_batches, rates, phases)


def _settings(server: Instance) -> dict[str, Any]:
    shared = {"mysql": f"bench@{server.host}:{server.port}", "password": PASSWORD}
    consumers: dict[str, Any] = {"first": {**shared, "databases": ["bench_first"]}}
    for form in FORMS:
        databases = list(DATABASES[:1] if form == "typed" else DATABASES)
        for use in ("rate", "phases"):
            consumers[f"{use}_{form}"] = {**shared, "databases": databases}
    return {"consumers": consumers}


def _first_batches(parts: Parts, say: Callable[[str], None]) -> list[FirstBatch]:
    """Measure the first batch of each source, in several rounds, each in a new Spark session."""
    found = []
    for number in range(START_ROUNDS):
        say(f"the first batch of a new session, round {number + 1} of {START_ROUNDS}")
        floor = run_module("source_start", "floor")
        first = number * FIRST_ROWS
        values = ", ".join(f"({n}, 'row {n}')" for n in range(first, first + FIRST_ROWS))
        parts.server.execute(f"INSERT INTO bench_first.t VALUES {values}")
        options = parts.options("first", "json")
        del options["startingOffsets"]
        ours = run_module("source_start", "binlog", json.dumps(options))
        if ours["rows"] < FIRST_ROWS:
            raise SystemExit(f"the first batch has {ours['rows']} rows, not {FIRST_ROWS}")
        found.append(FirstBatch(floor["seconds"], ours["seconds"], floor["cpu_s"], ours["cpu_s"]))
    return found


def _rate(spark: SparkSession, parts: Parts, form: str) -> Rate:
    options = parts.options(f"rate_{form}", form)
    before: list[dict[str, float]] = []

    with DescendantsMeter(jvm_pid()) as python:

        def first_batch_ended() -> None:
            before.append(processor_s(parts, python))

        read_stream(spark, "binlog", options)
        reports = read_stream(spark, "binlog", options, first_batch_ended)
        after = processor_s(parts, python)
    if len(reports) < 2:
        raise SystemExit(f"the {form} rows are one batch: take more rows, or smaller batches")
    counted = sum(_rows_in(report, form) for report in reports[1:])
    seconds = sum(report.batchDuration for report in reports[1:]) / 1000
    cpu_s = {name: (spent - before[0][name]) / counted * 1e6 for name, spent in after.items()}
    batch_s = _mean_phases(reports[1:])
    return Rate(form, counted, counted / seconds, cpu_s, batch_s)


def _mean_phases(reports: list[Any]) -> dict[str, float]:
    """Returns the seconds that a batch took on average, by Spark's phases."""
    names = [name for name in reports[0].durationMs if name != "triggerExecution"]
    return {
        name: sum(report.durationMs.get(name, 0) for report in reports) / len(reports) / 1000
        for name in names
    }


def _rows_in(report: Any, form: str) -> int:
    """Returns the number of changed rows in a batch. In the raw form, Spark's rows are entries."""
    if form != "raw":
        return int(report.numInputRows)
    (source,) = report.sources
    first, last = (json.loads(text)["seq"] for text in (source.startOffset, source.endOffset))
    return int(last - first) * ROWS_IN_TRANSACTION


def processor_s(parts: Parts, python: DescendantsMeter) -> dict[str, float]:
    """Returns the processor seconds of each process so far. `Python`: Spark's Python processes."""
    jvm = jvm_pid()
    return {
        "MySQL": cpu_seconds_of_process(parts.server.pid),
        "daemon": cpu_seconds_of_process(parts.daemon.pid),
        "Python": python.cpu_s(),
        "JVM": cpu_seconds_of_process(jvm, ended_children=False),
    }


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
    """Measure the Spark source, as a part of `make bench`."""
    found = measure(max(10_000, round(ROWS * run.scale)), round(BATCH_BYTES * run.scale), run.say)
    starts = found.first_batches
    ours = run.series(PART, "", "a new session", "the first batch", "s", [s.ours_s for s in starts])
    name = "a source that does nothing"
    floor = run.series(PART, "", name, "the first batch", "s", [s.floor_s for s in starts])
    what = "the first batch of a new session, over Spark's own start"
    run.target(f"{PART} start", what, ours - floor, "<", 3, "s")
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
    """Returns the lines to print, as (what, measured, target)."""
    lines = []
    for start in figures.first_batches:
        measured = (
            f"{start.ours_s:.2f} s, a source that does nothing {start.floor_s:.2f} s; processor s: "
            f"{start.ours_cpu_s:.2f}, {start.floor_cpu_s:.2f}"
        )
        lines.append(("first batch of a fresh session", measured, "< 3 s over the other"))
    for rate in figures.rates:
        spent = ", ".join(f"{name} {seconds:.2f}" for name, seconds in rate.cpu_s.items())
        measured = f"{rate.rows_per_s:,.0f} rows/s; processor s for 1 M rows: {spent}"
        lines.append((f"stream, {rate.form}", measured, ">= 1,000,000 rows/s"))
        spent = ", ".join(f"{name} {seconds:.3f}" for name, seconds in rate.batch_s.items())
        lines.append((f"a batch, {rate.form}", f"s: {spent}", ""))
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
