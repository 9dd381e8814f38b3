"""Measures how fast a table's rows get into a sink: nested and flat rows, in Spark's sinks and written by Python
workers.

It uses a real server, a daemon and Spark on this machine. Each way reads the same log. In each of several rounds, the
ways are measured in turn:

* nested and flat rows (`flat=after`) into the sink `noop`, which takes each row and drops it;
* nested and flat rows into Spark's Parquet sink, and flat rows into Parquet files that Python workers write
  (`examples/parquet_history.py`).

The first pass of each way, and the first batch of each other pass, are left out. Compare only ways of one run, because
the rates depend on other load of the machine. The processor time for a million rows depends less on other load.

`python -m benchmarks.source_sinks [ROWS [BATCH_BYTES [ROUNDS]]]`
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

import spark_sink
from benchmarks.figures import Run
from benchmarks.logs import DATABASES, generate_bulk, prepare
from benchmarks.processes import DescendantsMeter
from benchmarks.source import BATCH_BYTES, Parts, processor_s
from benchmarks.spark import jvm_pid, read_stream, spark_session
from examples.parquet_history import append
from spark_sink.source.slice_decoder import SliceDecoder
from tests.daemon.harness import PASSWORD, Daemon
from tests.servers import start_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PART = "Spark source and sinks"
ROWS, ROWS_QUICK = 1_000_000, 400_000
ROUNDS = 3
RATE, PROCESSOR = "from MySQL to the sink", "processor time for 1 M rows"
NESTED: Mapping[str, str] = {"table": f"{DATABASES[0]}.t"}
FLAT: Mapping[str, str] = {**NESTED, "flat": "after", "flatPrefix": "_"}


@dataclass(frozen=True, slots=True)
class Way:
    """`options`: the form of the rows. `parquet`: True if the rows are written to Parquet files; `by_workers`: True if
    Python workers write them."""

    name: str
    options: Mapping[str, str]
    parquet: bool = False
    by_workers: bool = False


WAYS = (
    Way("nested rows, dropped", NESTED),
    Way("flat rows, dropped", FLAT),
    Way("nested rows, Parquet by Spark", NESTED, parquet=True),
    Way("flat rows, Parquet by Spark", FLAT, parquet=True),
    Way("flat rows, Parquet by Python workers", FLAT, parquet=True, by_workers=True),
)


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over the log, without its first batch. `cpu_s`: processor seconds of all processes for a million
    rows."""

    rows: int
    rows_per_s: float
    cpu_s: float


def measure(
    rows: int, batch_bytes: int, rounds: int, say: Callable[[str], None]
) -> dict[str, list[Pass]]:
    """Returns the passes of each way. `say` prints which one begins."""
    with ExitStack() as stack:
        server = stack.enter_context(start_server("mysql97", "--innodb-buffer-pool-size=512M"))
        server.add_user("bench", PASSWORD)
        prepare(server)
        say("writing a history")
        generate_bulk(server, rows)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bd-bench-")))
        account = {"mysql": f"bench@{server.host}:{server.port}", "password": PASSWORD}
        consumer = {**account, "databases": [DATABASES[0]]}
        daemon = Daemon(home / "daemon", {"consumers": {"sinks": consumer}})
        stack.callback(daemon.close)
        daemon.start()
        daemon.api.until_state("sinks", "streaming")
        parts = Parts(server, daemon, batch_bytes)
        spark = stack.enter_context(spark_session(home))
        spark_sink.register(spark)
        found: dict[str, list[Pass]] = {way.name: [] for way in WAYS}
        for number in range(rounds + 1):
            for way in WAYS:
                say(f"{way.name}, {f'round {number} of {rounds}' if number else 'first pass'}")
                measured = _pass(spark, parts, way, home / "written")
                if number:
                    found[way.name].append(measured)
        return found


def _pass(spark: SparkSession, parts: Parts, way: Way, target: Path) -> Pass:
    shutil.rmtree(target, ignore_errors=True)
    options = {
        "url": f"http://127.0.0.1:{parts.daemon.port}",
        "consumer": "sinks",
        "startingOffsets": "earliest",
        "maxBytesPerTrigger": str(parts.batch_bytes),
    }
    form = {"raw": "slices"} if way.by_workers else way.options
    before: list[dict[str, float]] = []
    with DescendantsMeter(jvm_pid()) as python:
        reports = read_stream(
            spark,
            "binlog",
            {**options, **form},
            lambda: before.append(processor_s(parts, python)),
            lambda frame: _sink(way, {**options, **way.options}, target, frame),
        )
        after = processor_s(parts, python)
    if len(reports) < 2:
        raise SystemExit(f"{way.name}: the log is one batch: take more rows, or smaller batches")
    rows = _rows_in(target) if way.by_workers else sum(int(r.numInputRows) for r in reports[1:])
    seconds = sum(report.batchDuration for report in reports[1:]) / 1000
    spent = sum(after.values()) - sum(before[0].values())
    return Pass(rows, rows / seconds, spent / rows * 1e6)


def _sink(way: Way, options: Mapping[str, str], target: Path, frame: DataFrame) -> DataStreamWriter:
    if way.by_workers:
        return frame.writeStream.foreachBatch(append(SliceDecoder(**options), target))
    if way.parquet:
        return frame.writeStream.format("parquet").option("path", str(target))
    return frame.writeStream.format("noop")


def _rows_in(target: Path) -> int:
    """Returns the number of rows in the files of all batches but the first one."""
    _, *others = sorted(target.glob("batch=*"))
    files: list[Any] = [pq.read_metadata(file) for folder in others for file in folder.iterdir()]
    return sum(int(file.num_rows) for file in files)


def measure_part(run: Run) -> None:
    """Measure the sinks, as a part of `make bench`."""
    rows = max(10_000, round((ROWS if run.full else ROWS_QUICK) * run.scale))
    found = measure(rows, round(BATCH_BYTES * rows / ROWS), ROUNDS, run.say)
    for name, passes in found.items():
        run.series(PART, "", name, RATE, "rows/s", [each.rows_per_s for each in passes])
        run.series(PART, "", name, PROCESSOR, "s", [each.cpu_s for each in passes])


def main(arguments: list[str]) -> None:
    given = (*map(int, arguments), *(ROWS, BATCH_BYTES, ROUNDS)[len(arguments) :])
    rows, batch_bytes, rounds = given
    found = measure(rows, batch_bytes, rounds, lambda what: print(f"... {what}", flush=True))
    for name, passes in found.items():
        rates = " ".join(f"{each.rows_per_s:9,.0f}" for each in passes)
        rate, cpu_s = median(p.rows_per_s for p in passes), median(p.cpu_s for p in passes)
        print(f"{name:38} rows/s {rates}  median {rate:9,.0f}  {PROCESSOR} {cpu_s:5.2f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
