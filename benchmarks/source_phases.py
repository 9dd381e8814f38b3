"""Measures the phases of the Spark source: the time of a million rows from MySQL's log to Spark's sink `noop`.

One Spark session reads one table of the log `bulk` several times: in each form of the rows, with batches and slices of
several sizes. The first pass of a form is left out, because the JVM compiles most of its code in this pass. For each
other pass the program prints the rate and two lists of seconds for a million rows: the wall time of each of Spark's
phases; and the processor time of MySQL, the daemon, Spark's Python processes, and the JVM's threads by their task.

`python -m benchmarks.source_phases [ROWS [FORM ...]]`
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import spark_sink
from benchmarks.logs import DATABASES, generate_bulk, prepare
from benchmarks.processes import DescendantsMeter, cpu_seconds_of_process
from benchmarks.spark import jvm_pid, read_stream, spark_session
from tests.daemon.harness import PASSWORD, Daemon
from tests.servers import Instance, start_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1_000_000
MIB = 1 << 20
BATCHES_MIB = (16, 64, 256)
SLICES = (1, 2, 4)
QUEUE_BYTES = 512 * MIB
FORMS: Mapping[str, Mapping[str, str]] = {"json": {}, "typed": {"table": f"{DATABASES[0]}.t"}}
# Tasks by the beginning of a thread's name. Other threads, and threads that have ended, count as "JVM else".
JVM_THREADS = {
    "Executor task": "JVM tasks",
    "C1 Compiler": "JVM compiler",
    "C2 Compiler": "JVM compiler",
    "GC Thread": "JVM memory",
    "G1 ": "JVM memory",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A way to read the log."""

    form: str
    batch_mib: int
    slices: int

    def __str__(self) -> str:
        return f"{self.form}, batches of {self.batch_mib} MiB in {self.slices} slices"


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over the log. `cpu_s`: processor seconds for a million rows; `phases_s`: the seconds of each of Spark's
    phases, summed over all batches."""

    case: Case
    rows: int
    batches: int
    seconds: float
    cpu_s: Mapping[str, float]
    phases_s: Mapping[str, float]

    def lines(self) -> Iterator[str]:
        million = self.rows / 1e6
        cpu_s = sum(self.cpu_s.values())
        yield (
            f"{self.case}: {self.batches} batches, {self.rows / self.seconds:,.0f} rows/s,"
            f" {cpu_s:.2f} s of processor time for 1 M rows: at most {2 / cpu_s:.2f} M rows/s on two cores"
        )
        yield "  processor: " + ", ".join(f"{name} {s:.2f}" for name, s in self.cpu_s.items())
        yield "  wall for 1 M rows: " + ", ".join(
            f"{name} {s / million:.2f}" for name, s in self.phases_s.items()
        )


class Bench:
    """A server with the log, a daemon, and a Spark session."""

    def __init__(self, spark: SparkSession, server: Instance, daemon: Daemon) -> None:
        self._spark, self._server, self._daemon = spark, server, daemon

    def run(self, case: Case) -> Pass:
        options = {
            "url": f"http://127.0.0.1:{self._daemon.port}",
            "consumer": case.form,
            "startingOffsets": "earliest",
            "maxBytesPerTrigger": f"{case.batch_mib}MiB",
            "maxPartitions": str(case.slices),
            **FORMS[case.form],
        }
        with DescendantsMeter(jvm_pid()) as python:
            before, threads = self._processes_s(python), threads_s(jvm_pid())
            began = time.monotonic()
            reports = read_stream(self._spark, "binlog", options)
            seconds = time.monotonic() - began
            after = self._processes_s(python)
        jvm = spent_by_threads(threads, threads_s(jvm_pid()))
        spent = {name: after[name] - before[name] for name in after}
        jvm["JVM else"] = spent.pop("JVM") - sum(jvm.values())
        rows = sum(report.numInputRows for report in reports)
        cpu_s = {name: s / rows * 1e6 for name, s in (spent | jvm).items()}
        phases: Counter[str] = Counter()
        for report in reports:
            for name, ms in report.durationMs.items():
                phases[name] += ms / 1000
        del phases["triggerExecution"]
        phases["query start"] = seconds - sum(report.batchDuration for report in reports) / 1000
        return Pass(case, rows, len(reports), seconds, cpu_s, phases)

    def _processes_s(self, python: DescendantsMeter) -> dict[str, float]:
        jvm = jvm_pid()
        return {
            "MySQL": cpu_seconds_of_process(self._server.pid),
            "daemon": cpu_seconds_of_process(self._daemon.pid),
            "Python": python.cpu_s(),
            "JVM": cpu_seconds_of_process(jvm, ended_children=False),
        }


def threads_s(pid: int) -> dict[int, tuple[str, float]]:
    """Returns the names and the processor seconds of a process's threads."""
    found = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            head, _, fields = (thread / "stat").read_text("utf-8").rpartition(")")
        except FileNotFoundError:
            continue  # has ended
        ticks = sum(map(int, fields.split()[11:13]))
        found[int(thread.name)] = head.partition("(")[2], ticks / os.sysconf("SC_CLK_TCK")
    return found


def spent_by_threads(
    before: Mapping[int, tuple[str, float]], after: Mapping[int, tuple[str, float]]
) -> dict[str, float]:
    """Returns the processor seconds of the threads that still run, by their task."""
    spent = dict.fromkeys(JVM_THREADS.values(), 0.0)
    for thread, (name, seconds) in after.items():
        for prefix, what in JVM_THREADS.items():
            if name.startswith(prefix):
                spent[what] += seconds - before.get(thread, (name, 0.0))[1]
    return spent


@contextmanager
def bench(rows: int, say: Callable[[str], None]) -> Iterator[Bench]:
    """A server with a log of this number of rows, a daemon with a consumer for each form, and a Spark session."""
    with ExitStack() as stack:
        server = stack.enter_context(start_server("mysql97", "--innodb-buffer-pool-size=256M"))
        server.add_user("bench", PASSWORD)
        prepare(server)
        say("writing a history")
        generate_bulk(server, rows)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bd-bench-")))
        shared = {
            "mysql": f"bench@{server.host}:{server.port}",
            "password": PASSWORD,
            "max_bytes_in_binlog_queue": QUEUE_BYTES,
        }
        consumers: dict[str, Any] = {
            form: {**shared, "databases": list(DATABASES[:1] if form == "typed" else DATABASES)}
            for form in FORMS
        }
        daemon = Daemon(home / "daemon", {"consumers": consumers})
        stack.callback(daemon.close)
        daemon.start()
        for name in consumers:
            daemon.api.until_state(name, "streaming")
        spark = stack.enter_context(spark_session(home))
        spark_sink.register(spark)
        yield Bench(spark, server, daemon)


def cases(forms: list[str]) -> Iterator[Case]:
    for form in forms:
        for batch_mib in BATCHES_MIB:
            for slices in SLICES:
                yield Case(form, batch_mib, slices)


def main(arguments: list[str]) -> None:
    rows = int(arguments[0]) if arguments else ROWS
    with bench(rows, lambda what: print(f"... {what}", flush=True)) as bench_:
        warm = ""
        for case in cases(arguments[1:] or list(FORMS)):
            if case.form != warm:
                bench_.run(replace(case, batch_mib=16, slices=4))
                warm = case.form
            for line in bench_.run(case).lines():
                print(line, flush=True)
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main(sys.argv[1:])
