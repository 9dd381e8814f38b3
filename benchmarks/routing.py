"""Compares the daemon with one HTTP reader to a plain `recv` loop over the same log.

The daemon is started by its command line and has read the log to its end. Each round measures both. First a program
receives the whole dump and does nothing else. Then a reader opens a session at the beginning of the log: the daemon
requests the dump again, verifies, routes and queues it, and the reader fetches everything over HTTP and acknowledges it
durably. On both sides the time begins when there are bytes to read, so no login is included. The ratio is that of the
medians. Neither side uses TLS, which would cost both the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.logs import DATABASES, GeneratedLog, prepare
from tests.servers import Instance, start_server

ROUNDS = 5
_USER, _PASSWORD = "bench", "bench"
_CONSUMER = "bench"
_START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Result:
    """Medians in seconds. `ratio`: wire / daemon; 1 means that the daemon is as fast as the plain loop."""

    log: GeneratedLog
    wire_s: float
    daemon_s: float

    @property
    def ratio(self) -> float:
        return self.wire_s / self.daemon_s


def measure(generate: Callable[[Instance], GeneratedLog], *, rounds: int = ROUNDS) -> Result:
    """Generate a log on a new server, and measure it."""
    with start_server("mysql97") as server:
        server.add_user(_USER, _PASSWORD)
        prepare(server)
        log = generate(server)
        with _daemon(server) as port:
            start, last_seq = _range(port, log)
            wire, daemon = [], []
            for _ in range(rounds):
                wire.append(
                    _run("drain", "127.0.0.1", server.port, _USER, _PASSWORD, log.file)["seconds"]
                )
                read = _run("reader", port, _CONSUMER, json.dumps(start), last_seq)
                if read["bytes"] < log.bytes * 0.9:
                    raise SystemExit(
                        f"the reader got {read['bytes']} bytes of a log of {log.bytes}"
                    )
                daemon.append(read["seconds"])
    return Result(log, median(wire), median(daemon))


def _run(module: str, *arguments: object) -> dict[str, float]:
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    value: dict[str, float] = json.loads(done.stdout)
    return value


def _range(port: int, log: GeneratedLog) -> tuple[dict[str, Any], int]:
    """Returns the position before the log, and the seq after it. It is the newest log, so its end is the server's."""
    acknowledged = _get(port)["acknowledged"]
    start = {**acknowledged, "gtid": log.gtid_before, "file": log.file, "offset": 4}
    start["seq"] = log.seq_before
    return start, acknowledged["seq"]


@contextmanager
def _daemon(server: Instance) -> Iterator[int]:
    """Runs a daemon that has read the server's log to its end; yields its port."""
    with tempfile.TemporaryDirectory(prefix="bd-bench-") as folder:
        port = _free_port()
        config = Path(folder, "dispatcher.yaml")
        config.write_text(
            "consumers:\n"
            f'  {_CONSUMER}: {{mysql: "{_USER}@127.0.0.1:{server.port}", password: {_PASSWORD},\n'
            f"    databases: [{', '.join(DATABASES)}], start: latest, tls: {{mode: disabled}}}}\n"
            f'api: {{listen: "127.0.0.1:{port}"}}\n'
            f"state: {{path: {folder}/state.db}}\n"
            "log: {level: warning}\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "dispatcher", "run", "--config", str(config)]
        )
        try:
            _until_streaming(process, port)
            yield port
        finally:
            process.terminate()
            process.wait(30)


def _until_streaming(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"the daemon ended with {process.returncode}")
        try:
            if _get(port)["state"] == "streaming":
                return
        except urllib.error.URLError:
            pass
        time.sleep(0.05)
    raise SystemExit("the daemon did not start to stream")


def _get(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/binlogs", timeout=10) as answer:
        rows: list[dict[str, Any]] = json.load(answer)
    return rows[0]


def _free_port() -> int:
    import socket  # noqa: PLC0415

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
