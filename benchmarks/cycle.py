"""Measures one cycle of a reader: poll, read, acknowledge (which the next poll does). `python -m benchmarks.cycle`.

A daemon, started by its command line, reads a real server. Three things are measured:

* the daemon's CPU time for a cycle. First the log is queued. Then a reader reads it, one transaction at a time, so the
  daemon only answers. If `perf` is installed, also the instructions in user space, which vary less than times;
* the latency from the commit, whose time is in the GTID event, to the last byte at the reader, while one program writes
  at a given rate; and the daemon's CPU time in this period;
* the start: the seconds and CPU seconds until `/readyz` answers, with compiled kernels.

CPU times and instructions can be compared on a busy machine; latencies and seconds can be compared only on a quiet
machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Protocol

import pymysql
from rich.console import Console
from rich.table import Table

from benchmarks.processes import cpu_seconds
from dispatcher.binlog.event.header import HEADER_SIZE
from dispatcher.binlog.event.record import parse_record
from dispatcher.binlog.event.types import EventType
from tests.daemon.harness import Api, Daemon, events, tip_seq, until
from tests.daemon.pair import until_leads
from tests.servers import Instance, start_server

_USER, _PASSWORD, _DATABASE, CONSUMER = "cycle", "cycle", "cycle", "cycle"
_RECEIVE_BYTES = 1 << 16
_WARM_CYCLES = 200
_WAIT_MS = 1000
_INSERT = "INSERT INTO t (customer, note) VALUES (%s, 'a note of a customer')"

Json = dict[str, Any]


# -- a reader that costs little itself ------------------------------------------------------------------------


class Connection:
    """One HTTP connection that is kept alive. It understands only those parts of HTTP that the daemon uses."""

    def __init__(self, port: int, consumer: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._path = f"/v1/consumers/{consumer}"
        self._port = port

    def fileno(self) -> int:
        return self._socket.fileno()

    def call(self, name: str, body: Json) -> bytes:
        self.send(name, body)
        return self.answer(name)

    def send(self, name: str, body: Json) -> None:
        data = json.dumps(body, separators=(",", ":")).encode()
        head = (
            f"POST {self._path}/{name} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + data)

    def answer(self, name: str) -> bytes:
        """Returns the body of the answer to the call that was sent."""
        received = bytearray()
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._receive()
        head = bytes(received[:end]).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        while len(received) < end + 4 + length:
            received += self._receive()
        body = bytes(received[end + 4 :])
        if head.split(b" ", 2)[1] != b"200":
            raise SystemExit(f"{name}: {body.decode()}")
        return body

    def _receive(self) -> bytes:
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise SystemExit("the daemon has closed the connection")
        return data

    def close(self) -> None:
        self._socket.close()


class Cycle(Protocol):
    """Acknowledges the previous range, waits for the next range, and returns (end of the range, bytes of the range)."""

    def __call__(self, session: int, after: Json, **bounds: Any) -> tuple[Json, bytes]: ...


class Polled:
    """A cycle of two calls: `poll`, then `binlog`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __call__(self, session: int, after: Json, **bounds: Any) -> tuple[Json, bytes]:
        call = self._connection.call
        answer = json.loads(call("poll", {"session": session, "after": after, **bounds}))
        if not answer["transactions"]:
            return answer["end"], b""
        span = {"session": session, "start": after, "end": answer["end"]}
        return answer["end"], call("binlog", span)


class Read:
    """A cycle of one call: `read`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __call__(self, session: int, after: Json, **bounds: Any) -> tuple[Json, bytes]:
        body = {"session": session, "after": after, **bounds}
        return parse_read(self._connection.call("read", body))


def parse_read(answer: bytes) -> tuple[Json, bytes]:
    """Returns (end of the range, its bytes) of an answer of `read`."""
    line, _, data = answer.partition(b"\n")
    return json.loads(line)["end"], data


CYCLES: dict[str, type[Polled | Read]] = {"poll, binlog": Polled, "read": Read}
BARE = "a call of a server that does nothing"


# -- what a process costs -------------------------------------------------------------------------------------


@contextmanager
def instructions(pid: int) -> Iterator[list[int]]:
    """Count a process's instructions in user space during the block: one number, or none if `perf` cannot count."""
    counted: list[int] = []
    if shutil.which("perf") is None:
        yield counted
        return
    command = ["perf", "stat", "-x,", "-e", "instructions:u", "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as perf:
        # perf does not report when it begins to count, so the first cycles of the block may be missing.
        yield counted
        perf.send_signal(signal.SIGINT)
        assert perf.stderr is not None
        value = perf.stderr.read().split(",", 1)[0]
    if value.isdigit():
        counted.append(int(value))


# -- the CPU time of a cycle ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CycleCost:
    """The cost of a cycle of one transaction: the daemon's CPU milliseconds and instructions (None: not counted)."""

    name: str
    cpu_ms: float
    instructions: int | None


@contextmanager
def queued_cycles(
    daemon: Daemon, server: Instance, name: str, cycles: int
) -> Iterator[Callable[[], None]]:
    """Open a session, and let the daemon queue `cycles` transactions. Yields a function that makes one cycle, which
    reads one transaction."""
    with closing(Connection(daemon.port, CONSUMER)) as connection:
        opened = json.loads(connection.call("session", {"after": None}))
        wanted = opened["position"]["seq"] + _WARM_CYCLES + cycles
        write(server, max(0, wanted - tip_seq(server)))
        _until_queued(daemon.api, wanted)
        step, session, after = CYCLES[name](connection), opened["session"], opened["position"]

        def make_cycle() -> None:
            nonlocal after
            after, data = step(session, after, max_transactions=1, wait_ms=_WAIT_MS)
            assert data, "the log is queued"

        for _ in range(_WARM_CYCLES):
            make_cycle()
        yield make_cycle


def cost_of_cycles(daemon: Daemon, server: Instance, cycles: int) -> list[CycleCost]:
    """Measure each kind of cycle with the same number of transactions, which the daemon has queued before the first
    cycle."""
    costs = []
    for name in CYCLES:
        with (
            queued_cycles(daemon, server, name, cycles) as make_cycle,
            instructions(daemon.pid) as counted,
        ):
            before = cpu_seconds(daemon.pid)
            for _ in range(cycles):
                make_cycle()
            spent = cpu_seconds(daemon.pid) - before
        costs.append(
            CycleCost(name, spent / cycles * 1e3, counted[0] // cycles if counted else None)
        )
    return costs


def times_of_cycles(daemon: Daemon, server: Instance, name: str, cycles: int) -> list[float]:
    """Returns the milliseconds that each of these cycles takes."""
    times = []
    with queued_cycles(daemon, server, name, cycles) as make_cycle:
        for _ in range(cycles):
            began = time.perf_counter()
            make_cycle()
            times.append((time.perf_counter() - began) * 1e3)
    return times


def cost_of_bare_calls(calls: int) -> CycleCost:
    """Measure the cost of a call of `read` to an HTTP server that does nothing, see `benchmarks.bare_server`."""
    command = [sys.executable, "-m", "benchmarks.bare_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            with closing(Connection(port, CONSUMER)) as connection:
                body = {"session": 1, "after": {"gtid": "x" * 40}, "wait_ms": _WAIT_MS}
                for _ in range(_WARM_CYCLES):
                    connection.call("read", body)
                with instructions(server.pid) as counted:
                    before = cpu_seconds(server.pid)
                    for _ in range(calls):
                        connection.call("read", body)
                    spent = cpu_seconds(server.pid) - before
        finally:
            server.terminate()
    return CycleCost(BARE, spent / calls * 1e3, counted[0] // calls if counted else None)


def _until_queued(api: Api, seq: int) -> None:
    """Wait until the daemon has read up to `seq`. The function opens read-only sessions, which do not fence the
    reader."""
    until(lambda: api.session(CONSUMER, read_only=True)["head"]["seq"] >= seq, "all is queued")


def write(server: Instance, transactions: int) -> None:
    with server.connect(_DATABASE) as connection, connection.cursor() as cursor:
        for n in range(transactions):
            cursor.execute(_INSERT, [n])


# -- latency --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from commit to the reader, at `per_s` transactions per second. `cpu_share`: the daemon's CPU seconds
    per second; `cycle_ms`: all CPU milliseconds of the daemon, divided by the number of answers with data."""

    name: str
    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_share: float
    cycle_ms: float


@dataclass(slots=True)
class _Seen:
    """What a reader has received: for each transaction the microseconds from commit to arrival."""

    latency_us: list[int] = field(default_factory=list)
    cycles: int = 0

    def add(self, data: bytes) -> None:
        now_us = time.time_ns() // 1000
        self.cycles += 1
        for code, event in events(data):
            record = parse_record(event[HEADER_SIZE:-4]) if code == EventType.IGNORABLE else None
            if record is not None:
                self.latency_us.append(now_us - record.commit_us)


def latency(daemon: Daemon, server: Instance, name: str, rate: int, seconds: float) -> Latency:
    seen = _Seen()
    with closing(Connection(daemon.port, CONSUMER)) as connection:
        opened = json.loads(connection.call("session", {"after": None}))
        step, session, after = CYCLES[name](connection), opened["session"], opened["position"]
        with start_writer(server, rate, seconds + 2) as writer:
            while not seen.cycles:  # until the writer has begun
                after, data = step(session, after, wait_ms=_WAIT_MS)
                if data:
                    seen.add(data)
            after = _follow(step, session, after, _Seen(), 1.0)  # until all caches are warm
            seen, before, began = _Seen(), cpu_seconds(daemon.pid), time.monotonic()
            _follow(step, session, after, seen, seconds)
            spent, took = cpu_seconds(daemon.pid) - before, time.monotonic() - began
            if writer.wait(60):
                raise SystemExit("the writer has failed")
    ordered = quantiles(seen.latency_us, n=100)
    return Latency(
        name,
        len(seen.latency_us) / took,
        median(seen.latency_us) / 1e3,
        ordered[98] / 1e3,
        spent / took,
        spent / seen.cycles * 1e3,
    )


def _follow(step: Cycle, session: int, after: Json, seen: _Seen, seconds: float) -> Json:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        after, data = step(session, after, wait_ms=_WAIT_MS)
        if data:
            seen.add(data)
    return after


def start_writer(server: Instance, rate: int, seconds: float) -> subprocess.Popen[bytes]:
    """Start a process that writes one-row transactions at a rate."""
    command = [sys.executable, "-m", "benchmarks.cycle", "--write-to", str(server.port)]
    return subprocess.Popen([*command, "--rates", str(rate), "--seconds", str(seconds)])


def write_at_rate(port: int, rate: int, seconds: float) -> None:
    """Write one-row transactions at a rate; see `start_writer`."""
    connection = pymysql.connect(
        host="127.0.0.1",
        port=port,
        user=_USER,
        password=_PASSWORD,
        database=_DATABASE,
        autocommit=True,
    )
    with closing(connection), connection.cursor() as cursor:
        began = time.monotonic()
        for n in range(int(rate * seconds)):
            if (pause_s := began + n / rate - time.monotonic()) > 0:
                time.sleep(pause_s)
            cursor.execute(_INSERT, [n])


# -- the start ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Starts:
    """The times until `/readyz` answers, and the CPU seconds until then, of each start."""

    ready_s: list[float]
    cpu_s: list[float]


def start_times(settings: Json, folder: Path, consumers: int, rounds: int) -> Starts:
    """Start a daemon several times, with a state store that contains its consumers. The first start is not measured,
    because it creates the store and compiles the kernels that are not in the cache."""
    ready, spent = [], []
    with ExitStack() as stack:
        daemon = new_daemon(stack, folder, settings)
        for n in range(rounds + 1):
            began = time.monotonic()
            daemon.start()
            until_leads(daemon)
            if n:
                ready.append(time.monotonic() - began)
                spent.append(cpu_seconds(daemon.pid))
            until_all_stream(daemon.api, consumers)
            daemon.stop()
    return Starts(ready, spent)


def until_all_stream(api: Api, consumers: int) -> None:
    def all_stream() -> bool:
        states = [row["state"] for row in api.get("/v1/binlogs")]
        return len(states) == consumers and set(states) == {"streaming"}

    until(all_stream, "all consumers have positions")


# -- all of it ------------------------------------------------------------------------------------------------


def settings_of(server: Instance, consumers: int, *, tls: bool) -> Json:
    source = {
        "mysql": f"{_USER}@127.0.0.1:{server.port}",
        "password": _PASSWORD,
        "databases": [_DATABASE],
        "start": "latest",
        "tls": {"mode": "preferred" if tls else "disabled"},
    }
    names = [CONSUMER, *(f"{CONSUMER}{n}" for n in range(1, consumers))]
    return {"consumers": dict.fromkeys(names, source)}


@contextmanager
def measured_server() -> Iterator[tuple[Instance, Path]]:
    """A server with the table and the account of these measurements, and a folder for daemons."""
    with start_server("mysql97") as server, tempfile.TemporaryDirectory(prefix="cycle-") as name:
        server.add_user(_USER, _PASSWORD)
        server.execute(
            f"CREATE DATABASE {_DATABASE}",
            f"GRANT INSERT ON {_DATABASE}.* TO {_USER}@'%'",
            f"CREATE TABLE {_DATABASE}.t (id BIGINT AUTO_INCREMENT PRIMARY KEY, customer INT, note VARCHAR(200))",
        )
        yield server, Path(name)


def new_daemon(stack: ExitStack, folder: Path, settings: Json) -> Daemon:
    """Returns a daemon that is not started yet, and that ends when the stack ends. It runs as a new program, not as a
    fork of this process."""
    daemon = Daemon(folder, settings)
    daemon.within = ("env",)
    stack.callback(daemon.close)
    return daemon


@contextmanager
def streaming_daemon(
    server: Instance, folder: Path, *, tls: bool, **sections: Json
) -> Iterator[Daemon]:
    """A daemon with one consumer. `sections`: further settings."""
    with ExitStack() as stack:
        daemon = new_daemon(
            stack, folder / "cycles", {**settings_of(server, 1, tls=tls), **sections}
        )
        daemon.start().until_state(CONSUMER, "streaming")
        yield daemon
        daemon.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cycle", description=__doc__)
    parser.add_argument("--cycles", type=int, default=3000)
    parser.add_argument("--rates", type=int, nargs="*", default=[100, 1000])
    parser.add_argument("--seconds", type=float, default=10, help="for each rate")
    parser.add_argument("--consumers", type=int, nargs="*", default=[1, 1000])
    parser.add_argument("--rounds", type=int, default=5, help="starts for each number of consumers")
    parser.add_argument("--tls", action="store_true", help="TLS between server and daemon")
    parser.add_argument("--write-to", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write_to:
        write_at_rate(options.write_to, options.rates[0], options.seconds)
        return
    console = Console()
    with measured_server() as (server, folder):
        _show_cycles(console, options, server, folder)
        table = Table(title="start until /readyz")
        for column in ("consumers", "seconds", "CPU seconds"):
            table.add_column(column, justify="right")
        for count in options.consumers:
            settings = settings_of(server, count, tls=options.tls)
            starts = start_times(settings, folder / str(count), count, options.rounds)
            table.add_row(
                f"{count:,}", f"{median(starts.ready_s):.2f}", f"{median(starts.cpu_s):.2f}"
            )
        console.print(table)
    console.print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")


def _show_cycles(
    console: Console, options: argparse.Namespace, server: Instance, folder: Path
) -> None:
    with streaming_daemon(server, folder, tls=options.tls) as daemon:
        costs = cost_of_cycles(daemon, server, options.cycles) if options.cycles else []
        if options.cycles:
            costs.append(cost_of_bare_calls(options.cycles))
        measured = [
            latency(daemon, server, name, rate, options.seconds)
            for rate in options.rates
            for name in CYCLES
        ]
    table = Table(title=f"a cycle of one transaction, of {options.cycles:,}")
    for column in ("calls", "CPU ms of the daemon", "instructions"):
        table.add_column(column, justify="left" if column == "calls" else "right")
    for cost in costs:
        counted = "" if cost.instructions is None else f"{cost.instructions:,}"
        table.add_row(cost.name, f"{cost.cpu_ms:.3f}", counted)
    console.print(table)
    table = Table(title="from commit to the reader")
    for column in ("calls", "per s", "p50 ms", "p99 ms", "daemon's CPU", "CPU ms per answer"):
        table.add_column(column, justify="left" if column == "calls" else "right")
    for m in measured:
        table.add_row(
            m.name,
            f"{m.per_s:,.0f}",
            f"{m.p50_ms:.2f}",
            f"{m.p99_ms:.2f}",
            f"{m.cpu_share:.0%}",
            f"{m.cycle_ms:.3f}",
        )
    console.print(table)


if __name__ == "__main__":
    main()
