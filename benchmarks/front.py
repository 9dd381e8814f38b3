"""Measures how fast clients of MySQL's protocol receive a log through the front, compared with the server itself.

* One client: `mysqlbinlog --raw` copies a log file that the server has written before. Its consumer reads all
  databases. *Read again*: the queue, of the default size, is empty when the client logs in. So the daemon searches for
  the client's position, opens a temporary connection, and reads the file while the client reads. *From the queue*: the
  queue already contains the whole file. The times are those of the whole program, with its start and its login.
* 1, 10 and 32 clients at the same time, which only receive. At the server, each client has a dump of its own. At the
  front, each client reads a consumer of its own; the consumers share the one connection of a daemon that was started
  for this round, and the queues already contain the log. The server's CPU time and bytes are counted from a time before
  the daemon starts, so they include the login of the daemon. The CPU time that an idle server takes is subtracted.

In separate rounds, the benchmark asks for `/livez` all the time while a client reads. No pause of the event loop was
longer than the longest wait for an answer. These rounds do not count for the rates, because the requests take a share
of the two cores.
"""

from __future__ import annotations

import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Self

from benchmarks import tools
from benchmarks.cycle import Connection
from benchmarks.daemon import Json, MeasuredDaemon, consumer
from benchmarks.figures import Run
from benchmarks.logs import PASSWORD, USER, GeneratedLog
from benchmarks.processes import CommandFailed, Usage, cpu_seconds, run_module
from tests.servers import Instance
from tests.servers.ports import free_port

PART = "front"
SERVER, AGAIN, QUEUED = "the server", "the front, read again", "the front, from the queue"
_AGAIN, _QUEUED = "again", "queued"  # consumers
CLIENTS = (1, 10, 32)
# By the number of clients: the largest permitted ratio of the server's costs, clients at the front ÷ clients at the
# server.
_SHARES = {10: 0.15, 32: 0.1}
_RATE_TARGET = 0.7
_ASK_EVERY_S = 0.02
_IDLE_S = 5.0


def measure(run: Run, server: Instance, log: GeneratedLog) -> None:
    _measure_one(run, server, log)
    _measure_many(run, server, log)


@contextmanager
def _fronted(consumers: dict[str, Json]) -> Iterator[tuple[MeasuredDaemon, int]]:
    """A daemon and the port of its front. The front acknowledges late, so sent transactions stay in the queues while
    these have room."""
    port = free_port()
    front = {"listen": f"127.0.0.1:{port}", "acknowledge_after_seconds": 3600}
    with MeasuredDaemon(consumers, front=front) as daemon:
        daemon.until_streaming()
        yield daemon, port


def _consumer(server: Instance, log: GeneratedLog, start: str) -> Json:
    """A consumer whose queue has room for the whole log."""
    room = 2 * log.bytes + (64 << 20)
    return consumer(server.port, log.databases, start=start, max_bytes_in_binlog_queue=room)


# -- one client -----------------------------------------------------------------------------------------------


class _RawRun(NamedTuple):
    """The times of one run of `mysqlbinlog --raw`. `cpu_s`: the CPU time of the daemon; `all_cpu_s`: the CPU time of
    the server, the daemon and the client."""

    wall_s: float
    cpu_s: float
    all_cpu_s: float


@dataclass
class _Spent:
    """The times of the runs of one subject. `longest_ms`: the longest wait for `/livez` in each round that asks for
    it."""

    runs: list[_RawRun] = field(default_factory=list)
    longest_ms: list[float] = field(default_factory=list)


def _measure_one(run: Run, server: Instance, log: GeneratedLog) -> None:
    consumers = {
        _AGAIN: consumer(server.port, log.databases),
        _QUEUED: _consumer(server, log, "latest"),
    }
    spent: dict[str, _Spent] = defaultdict(_Spent)
    with _fronted(consumers) as (daemon, port):
        end = daemon.rows()[0]["acknowledged"]
        programs = {
            SERVER: partial(tools.raw, server.host, server.port, log),
            AGAIN: partial(tools.raw, server.host, port, log, _AGAIN),
            QUEUED: partial(tools.raw, server.host, port, log, _QUEUED),
        }
        for number in range(run.rounds + 1):
            for subject, program in programs.items():
                _empty_queue(daemon, end)
                found = _run_raw(daemon, server, program)
                _empty_queue(daemon, end)
                longest_ms = _longest_answer_ms(daemon, program)
                if number:  # the first round fills the queue, and warms caches
                    spent[subject].runs.append(found)
                    spent[subject].longest_ms.append(longest_ms)
    _record_one(run, log, spent)


def _empty_queue(daemon: MeasuredDaemon, end: Json) -> None:
    """Acknowledge everything for the consumer that reads again."""
    with closing(Connection(daemon.port, _AGAIN)) as reader:
        reader.call("session", {"after": end})


def _run_raw(daemon: MeasuredDaemon, server: Instance, program: Callable[[], Usage]) -> _RawRun:
    daemon.until_quiet()
    daemon_s, server_s = daemon.cpu_s, cpu_seconds(server.pid)
    usage = program()
    daemon_s, server_s = daemon.cpu_s - daemon_s, cpu_seconds(server.pid) - server_s
    return _RawRun(usage.wall_s, daemon_s, usage.cpu_s + daemon_s + server_s)


def _longest_answer_ms(daemon: MeasuredDaemon, program: Callable[[], Usage]) -> float:
    daemon.until_quiet()
    with _Pulse(daemon.port) as pulse:
        program()
    return pulse.longest_s * 1e3


def _record_one(run: Run, log: GeneratedLog, spent: dict[str, _Spent]) -> None:
    rates = {
        subject: run.series(
            PART, log.name, subject, "mysqlbinlog --raw", "MB/s",
            [log.bytes / each.wall_s / 1e6 for each in found.runs],
        )
        for subject, found in spent.items()
    }  # fmt: skip
    for subject, found in spent.items():
        if subject != SERVER:
            run.series(
                PART,
                log.name,
                subject,
                "the daemon's CPU for a GB",
                "s",
                _per_gb(log, (each.cpu_s for each in found.runs)),
            )
        run.series(
            PART,
            log.name,
            subject,
            "all programs' CPU for a GB",
            "s",
            _per_gb(log, (each.all_cpu_s for each in found.runs)),
        )
        quantity = "longest answer of /livez meanwhile"
        run.series(PART, log.name, subject, quantity, "ms", found.longest_ms)
    for name, subject in (("P18", AGAIN), ("P19", QUEUED)):
        run.target(
            f"{name} {log.name}", f"{subject} ÷ {SERVER}, mysqlbinlog --raw",
            rates[subject] / rates[SERVER], ">=", _RATE_TARGET,
        )  # fmt: skip


def _per_gb(log: GeneratedLog, values: Iterable[float]) -> list[float]:
    return [value / log.bytes * 1e9 for value in values]


class _Pulse:
    """Asks a daemon for `/livez` all the time, and records the longest wait for an answer."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/livez"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self.longest_s = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._ended.wait(_ASK_EVERY_S):
            asked = time.perf_counter()
            with urllib.request.urlopen(self._url, timeout=60) as answer:
                answer.read()
            self.longest_s = max(self.longest_s, time.perf_counter() - asked)


# -- many clients ----------------------------------------------------------------------------------------------


class _ServerMeter:
    """Counts the bytes that a server has sent since the meter was made, and the server's CPU seconds, without those of
    an idle server (`idle_share` of a core)."""

    def __init__(self, server: Instance, idle_share: float) -> None:
        self._server = server
        self._idle_share = idle_share
        self._before = self._now()

    def spent(self) -> tuple[float, int]:
        seconds, cpu_s, sent = (
            now - before for now, before in zip(self._now(), self._before, strict=True)
        )
        return max(cpu_s - self._idle_share * seconds, 0.0), int(sent)

    def _now(self) -> tuple[float, float, float]:
        """Returns the time, the server's CPU seconds, and the bytes that it has sent."""
        with self._server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Bytes_sent'")
            sent = int(cursor.fetchall()[0][1])
        return time.perf_counter(), cpu_seconds(self._server.pid), sent


def _idle_share(server: Instance) -> float:
    """Returns the share of a core that a server takes without clients."""
    began, before = time.perf_counter(), cpu_seconds(server.pid)
    time.sleep(_IDLE_S)
    return (cpu_seconds(server.pid) - before) / (time.perf_counter() - began)


def at_server(clients: int) -> str:
    """Returns the subject of a series."""
    return f"{clients} clients at the server" if clients > 1 else "1 client at the server"


def at_front(clients: int) -> str:
    return f"{clients} clients at the front" if clients > 1 else "1 client at the front"


def _measure_many(run: Run, server: Instance, log: GeneratedLog) -> None:
    idle_share = _idle_share(server)
    run.series(PART, log.name, "the server", _IDLE_CPU, "% of a core", [100 * idle_share])
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for number in range(run.rounds + 1):
        for clients in CLIENTS:
            for subject, measured in (
                (at_server(clients), _many_at_server(server, log, idle_share, clients)),
                (at_front(clients), _many_at_front(server, log, idle_share, clients)),
            ):
                if number:  # the first round warms caches
                    for (quantity, unit), value in measured.items():
                        found[subject, quantity, unit].append(value)
    medians = {
        (subject, quantity): run.series(PART, log.name, subject, quantity, unit, rounds)
        for (subject, quantity, unit), rounds in found.items()
    }
    for clients, share in _SHARES.items():
        front, own = at_front(clients), at_server(clients)
        for name, quantity in (("CPU", _SERVER_CPU[0]), ("bytes", _SERVER_SENT[0])):
            run.target(
                f"P20 {log.name} {clients} {name}", f"{front} ÷ {own}, {quantity}",
                medians[front, quantity] / medians[own, quantity], "<=", share,
            )  # fmt: skip


_SERVER_CPU, _SERVER_SENT = ("the server's CPU", "s"), ("bytes that the server sends", "MB")
_IDLE_CPU = "CPU without clients"
_DAEMON_CPU, _WALL = ("the daemon's CPU for a GB", "s"), ("login to last byte", "s")


def _many_at_server(
    server: Instance, log: GeneratedLog, idle_share: float, clients: int
) -> dict[tuple[str, str], float]:
    meter = _ServerMeter(server, idle_share)
    seconds = _drain(server.host, server.port, log, [USER] * clients)
    return _spent(meter) | {_WALL: seconds}


def _many_at_front(
    server: Instance, log: GeneratedLog, idle_share: float, clients: int
) -> dict[tuple[str, str], float]:
    each = _consumer(server, log, "earliest")
    names = [f"client_{number}" for number in range(clients)]
    meter = _ServerMeter(server, idle_share)
    with _fronted(dict.fromkeys(names, each)) as (daemon, port):
        daemon.until_quiet()
        before = daemon.cpu_s
        seconds = _drain("127.0.0.1", port, log, names)
        cpu_s = (daemon.cpu_s - before) / (log.bytes * clients) * 1e9
        spent = _spent(meter)
    return spent | {_WALL: seconds, _DAEMON_CPU: cpu_s}


def _drain(host: str, port: int, log: GeneratedLog, users: list[str]) -> float:
    found = run_module("drain_many", host, port, PASSWORD, log.file, *users)
    if found["bytes"] < log.bytes * len(users) * 0.9:
        raise CommandFailed(f"the clients got {found['bytes']} bytes of {len(users)} logs")
    return float(found["seconds"])


def _spent(meter: _ServerMeter) -> dict[tuple[str, str], float]:
    cpu_s, sent = meter.spent()
    return {_SERVER_CPU: cpu_s, _SERVER_SENT: sent / 1e6}
