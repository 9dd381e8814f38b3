"""One daemon for very many servers, each of which writes 1 KB/s. The servers are fakes; each has one consumer.

No reader runs, because `benchmarks.cycle` measures the cost of readers' calls. When all connections stream, the
benchmark measures the daemon's memory, and its CPU time in some seconds, which include surveys of the servers.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.daemon import MeasuredDaemon, consumer
from benchmarks.figures import Run
from benchmarks.processes import CommandFailed

PART = "many sources"
BYTES_PER_SECOND = 1000
_CPU_TARGET, _MEMORY_TARGET_MB = 0.5, 1000.0
_STREAM_TIMEOUT_S = 600.0


def measure(run: Run) -> None:
    counts = (100, 1000) if run.full else (100,)
    for count in counts:
        cores, megabytes = _measure_one(
            max(1, round(count * run.scale)), 60.0 if run.full else 10.0
        )
        name = f"{count:,} sources"
        run.series(PART, "", name, "CPU", "cores", [cores])
        run.series(PART, "", name, "resident memory", "MB", [megabytes])
        if count == 1000:
            run.target("P12 CPU", "1,000 sources of 1 KB/s, cores", cores, "<", _CPU_TARGET)
            run.target(
                "P12 memory", "1,000 sources of 1 KB/s, memory", megabytes, "<", _MEMORY_TARGET_MB,
                "MB",
            )  # fmt: skip


def _measure_one(count: int, seconds: float) -> tuple[float, float]:
    """Returns (cores, MB)."""
    with _servers() as port:
        consumers = {}
        for number in range(count):
            name = f"source_{number:04}"
            consumers[name] = {
                **consumer(port, ["shop"]),
                "mysql": f"{name}@127.0.0.1:{port}",
                "max_bytes_in_binlog_queue": "1MiB",
            }
        with MeasuredDaemon(consumers) as daemon:
            daemon.until_streaming(_STREAM_TIMEOUT_S)
            time.sleep(5.0)  # until the daemon has finished the work of its start
            before, began = daemon.cpu_s, time.monotonic()
            time.sleep(seconds)
            cores = (daemon.cpu_s - before) / (time.monotonic() - began)
            for row in daemon.rows():
                if row["state"] != "streaming" or not row["unacknowledged_bytes"]:
                    raise CommandFailed(f"{row['name']} is {row['state']}, {row['last_error']}")
            return cores, daemon.resident_bytes / 1e6


@contextmanager
def _servers() -> Iterator[int]:
    command = [sys.executable, "-m", "benchmarks.fake_servers", str(BYTES_PER_SECOND)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()
