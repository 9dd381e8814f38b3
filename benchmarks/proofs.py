"""`python -m benchmarks.proofs [--seconds N] [--rounds N]`: measures what the comparison of tables with the server
costs by default.

A job mirrors five tables, one of them large. First it compares nothing, then it compares with default settings, then
as fast as it can, which shows what a row costs. Each time it runs without and with load: 500 rows/s over the five
tables. The program prints the CPU time of the server and of the job, as a share of one core, the rows that were
compared, and how long a transaction takes from its commit to its table. With `--rounds`, it measures only this time, in
alternating rounds without comparisons and with default settings, because this time depends on the age of the job and
the size of the tables.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.arrivals import Arrivals
from benchmarks.markers import COLUMNS, ROWS_IN_TRANSACTION, Writer
from benchmarks.mirror import LOAD_DATABASE, TABLES
from tests.daemon.harness import PASSWORD, Daemon, until
from tests.mirror.harness import COPY_GRANTS, COPY_USER, MirrorJob
from tests.servers import Instance, start_server
from tests.servers.ports import free_port

ROWS = 400_000
TRANSACTIONS_PER_SECOND = 5
TIMEOUT_S = 900.0
OFF = "prove: {rows_per_second: 0}\n"
FULL = "prove: {rows_per_second: 1000000, share_of_time: 1, every_seconds: 1}\n"
METRICS = f"127.0.0.1:{free_port()}"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU times as shares of one core; `compared`: rows per second; `fresh_s`: median time from commit to table."""

    server: float
    job: float
    compared: float
    fresh_s: float

    def __str__(self) -> str:
        fresh = f", {self.fresh_s:.2f} s from commit to table" if self.fresh_s else ""
        return (
            f"server {100 * self.server:.2f} %, job {100 * self.job:.2f} % of a core,"
            f" {self.compared:.0f} rows/s compared{fresh}"
        )


def cpu_s(pid: int) -> float:
    """Returns the CPU time of a process and of its children that have ended."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    fields = text[text.rindex(")") + 2 :].split()
    return sum(map(int, fields[11:15])) / _TICKS


def cpu_of_group_s(group: int) -> float:
    """Returns the CPU time of all processes of a group."""
    total = 0.0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if os.getpgid(int(folder.name)) == group:
                    total += cpu_s(int(folder.name))
            except (ProcessLookupError, FileNotFoundError):
                continue  # it has ended
    return total


def is_serving(job: MirrorJob) -> bool:
    assert job.process is not None
    assert job.process.poll() is None, job.log
    try:
        return compared_rows() >= 0
    except OSError:
        return False


def compared_rows() -> float:
    """Returns how many rows the running job has read to compare them."""
    with urllib.request.urlopen(f"http://{METRICS}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found = re.findall(r"^binlog_mirror_proof_rows_total\{.*\} (.*)$", text, re.MULTILINE)
    return sum(map(float, found))


def measured(server: Instance, job: MirrorJob, seconds: float, writer: Writer | None) -> Cost:
    """Measure for `seconds`. `writer`: None for no load."""
    assert server.process is not None
    assert job.process is not None
    before = cpu_s(server.process.pid), cpu_of_group_s(job.process.pid), compared_rows()
    began = time.monotonic()
    number = 0
    while time.monotonic() < began + seconds:
        if writer is not None:
            writer.insert(f"t{number % TABLES}", ROWS_IN_TRANSACTION)
            number += 1
        due = began + (number / TRANSACTIONS_PER_SECOND if writer else seconds)
        time.sleep(max(0.0, due - time.monotonic()))
    took = time.monotonic() - began
    after = cpu_s(server.process.pid), cpu_of_group_s(job.process.pid), compared_rows()
    server_share, job_share, compared = ((b - a) / took for a, b in zip(before, after, strict=True))
    return Cost(server_share, job_share, compared, _fresh_s(job, writer) if writer else 0.0)


def _fresh_s(job: MirrorJob, writer: Writer) -> float:
    arrivals = Arrivals(job, LOAD_DATABASE)
    arrivals.until(writer.at, TIMEOUT_S)
    found = arrivals.tables
    return statistics.median(found[marker].at - at for marker, at in writer.at.items())


@contextmanager
def mirrored() -> Iterator[tuple[Instance, MirrorJob, Writer]]:
    """A server with five tables, `ROWS` rows in the first, and a job that has not started. The writer writes to the
    server."""
    with ExitStack() as stack:
        server = stack.enter_context(start_server("mysql97"))
        server.add_user("bench", PASSWORD)
        server.add_user(COPY_USER, PASSWORD, *COPY_GRANTS)
        server.execute(f"CREATE DATABASE {LOAD_DATABASE}")
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bd-bench-")))
        consumer = {
            "mysql": f"bench@{server.host}:{server.port}",
            "password": PASSWORD,
            "databases": [LOAD_DATABASE],
            "start": "earliest",
        }
        daemon = Daemon(home / "daemon", {"consumers": {"load": consumer}})
        stack.callback(daemon.close)
        daemon.start()
        (home / "kills").mkdir()
        job = MirrorJob(server, daemon, home, home / "kills", stack, quick=False)
        connection = stack.enter_context(server.connect())
        connection.autocommit(True)
        cursor = connection.cursor()
        for number in range(TABLES):
            cursor.execute(f"CREATE TABLE {LOAD_DATABASE}.t{number} ({COLUMNS})")
        writer = Writer(cursor, LOAD_DATABASE)
        for _ in range(ROWS // 1000):
            writer.insert("t0", 1000)
        job.settings = f"metrics: {METRICS}\n{OFF}"
        job.start("load", now=False)
        _fresh_s(job, writer)
        assert job.stop() == 0, job.log
        yield server, job, writer


def begin(server: Instance, job: MirrorJob, writer: Writer, settings: str, seconds: float) -> None:
    """Start the job with these settings, and let it apply a load for `seconds`, so that its code is compiled."""
    job.settings = f"metrics: {METRICS}\n{settings}"
    job.start("load", now=False)
    until(partial(is_serving, job), "the job serves metrics", timeout_s=TIMEOUT_S)
    measured(server, job, seconds, writer.begin())


def measure(seconds: float, say: Callable[[str], None]) -> None:
    with mirrored() as (server, job, writer):
        for label, settings in (("off", OFF), ("by default", ""), ("without a limit", FULL)):
            begin(server, job, writer, settings, seconds / 3)
            say(f"prove {label}, no load: {measured(server, job, seconds, None)}")
            loaded = measured(server, job, seconds, writer.begin())
            say(f"prove {label}, 500 rows/s: {loaded}")
            assert job.stop() == 0, job.log


def compare_freshness(seconds: float, rounds: int, say: Callable[[str], None]) -> None:
    found: dict[str, list[float]] = {"off": [], "by default": []}
    with mirrored() as (server, job, writer):
        for number in range(rounds):
            for label in list(found)[:: -1 if number % 2 else 1]:  # off, on, on, off, off, on
                begin(server, job, writer, OFF if label == "off" else "", seconds / 3)
                loaded = measured(server, job, seconds, writer.begin())
                found[label].append(loaded.fresh_s)
                say(f"prove {label}, 500 rows/s: {loaded}")
                assert job.stop() == 0, job.log
    off, default = (statistics.median(times) for times in found.values())
    say(
        f"from commit to table, off / by default: {off:.2f} s / {default:.2f} s = {off / default:.2f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--rounds", type=int, default=0)
    options = parser.parse_args()
    say = partial(print, flush=True)
    if options.rounds:
        compare_freshness(options.seconds, options.rounds, say)
    else:
        measure(options.seconds, say)
