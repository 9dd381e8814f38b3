"""Measures what readers of one server cost: 1, 8 and 32 readers, each of which reads the whole log.

* at the server: each reader has a replication connection of its own, as most programs that read a server's log have
* through the front: the same program reads from the daemon, which has one replication connection for all
* over HTTP: readers of the daemon's consumers, which acknowledge each range durably

While rows are written at a fixed rate, the benchmark measures the CPU time of the server and the daemon, the bytes that
the server sends, and how long a marker takes from its commit to the readers. Logins and starts are not counted, nor are
the markers of the first second. *No readers* shows what only writing costs.

All programs share the machine. So the CPU time of the readers, which are Python programs, delays the markers. The
readers `at the server` and `through the front` are the same program, so these two ways can be compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import quantiles
from typing import NamedTuple

from benchmarks.daemon import MeasuredDaemon, consumer
from benchmarks.figures import Run
from benchmarks.logs import PASSWORD, USER
from benchmarks.marker_readers import DUMP, HTTP, following
from benchmarks.markers import COLUMNS, Load, loading, table_name, written
from benchmarks.processes import cpu_seconds
from tests.servers import Instance, start_server
from tests.servers.ports import free_port

PART = "cost of readers"
READERS = (1, 8, 32)
NONE, SERVER, FRONT, OVER_HTTP = "no readers", "at the server", "through the front", "over HTTP"
WAYS = (SERVER, FRONT, OVER_HTTP)
TRANSACTIONS_PER_SECOND, ROWS = 200, 10
SERVER_CPU = ("the server's CPU", "% of a core")
SENT = ("bytes that the server sends", "MB/s")
DAEMON_CPU = ("the daemon's CPU", "% of a core")
WRITTEN = ("transactions written", "1/s")
P50, P99 = ("commit to readers, p50", "ms"), ("commit to readers, p99", "ms")
_DATABASE, _TABLES = "bench_readers", 4
_FULL_S, _QUICK_S, _WARM_S = 10.0, 3.0, 1.0
_ROUNDS = 3


def subject(count: int, way: str) -> str:
    """Returns the subject of a series: "8 readers at the server"."""
    return f"{count} reader{'s' if count > 1 else ''} {way}"


class _Work(NamedTuple):
    """What the server and the daemon have done so far."""

    server_s: float
    sent: int
    daemon_s: float

    @classmethod
    def now(cls, server: Instance, daemon: MeasuredDaemon | None) -> _Work:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Bytes_sent'")
            sent = int(cursor.fetchall()[0][1])
        return cls(cpu_seconds(server.pid), sent, daemon.cpu_s if daemon is not None else 0.0)


def measure(run: Run) -> None:
    seconds = max(2.0, (_FULL_S if run.full else _QUICK_S) * run.scale)
    cases = [("", 0), *((way, count) for count in READERS for way in WAYS)]
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    with start_server("mysql97", "--innodb-buffer-pool-size=256M") as server:
        server.add_user(USER, PASSWORD)
        server.execute(
            f"CREATE DATABASE {_DATABASE}",
            f"GRANT INSERT, UPDATE ON {_DATABASE}.* TO {USER}@'%'",
            *(f"CREATE TABLE {_DATABASE}.{table_name(n)} ({COLUMNS})" for n in range(_TABLES)),
        )
        marker = 0
        for _ in range(_ROUNDS if run.full else 1):
            for way, count in cases:
                load = Load(_TABLES, ROWS, TRANSACTIONS_PER_SECOND, seconds + _WARM_S, marker)
                marker, measured = _measure(server, load, way, count)
                for (quantity, unit), value in measured.items():
                    found[subject(count, way) if count else NONE, quantity, unit].append(value)
    for (name, quantity, unit), rounds in found.items():
        run.series(PART, "", name, quantity, unit, rounds)


def _measure(
    server: Instance, load: Load, way: str, count: int
) -> tuple[int, dict[tuple[str, str], float]]:
    """Returns the last marker, and the figures."""
    with ExitStack() as stack:
        daemon, arguments = stack.enter_context(_connected(server, way, count))
        readers = stack.enter_context(following(*arguments)) if count else None
        if daemon is not None:
            daemon.until_quiet()
        before = _Work.now(server, daemon)
        done = written(stack.enter_context(loading(server, USER, PASSWORD, _DATABASE, load)))
        seen = readers.until(done.last) if readers is not None else []
        spent = [b - a for a, b in zip(before, _Work.now(server, daemon), strict=True)]
    found = {
        WRITTEN: done.transactions / done.seconds,
        SERVER_CPU: 100 * spent[0] / done.seconds,
        SENT: spent[1] / done.seconds / 1e6,
    }
    if daemon is not None:
        found[DAEMON_CPU] = 100 * spent[2] / done.seconds
    warm = load.after + round(_WARM_S * load.per_second)
    if times := [one.ms for one in seen if one.marker > warm]:
        ordered = quantiles(times, n=100)
        found |= {P50: ordered[49], P99: ordered[98]}
    return done.last, found


@contextmanager
def _connected(
    server: Instance, way: str, count: int
) -> Iterator[tuple[MeasuredDaemon | None, tuple[str, str, int, str, str, list[str]]]]:
    """Yields the daemon, if the readers read from one, and the arguments of `following`."""
    server.execute("FLUSH BINARY LOGS")
    file = server.binlog_position()[0]
    if way not in (FRONT, OVER_HTTP):
        yield None, (DUMP, server.host, server.port, PASSWORD, file, [USER] * count)
        return
    names = [f"reader_{number:02}" for number in range(count)]
    port = free_port()
    front = {"front": {"listen": f"127.0.0.1:{port}"}} if way == FRONT else {}
    with MeasuredDaemon(
        dict.fromkeys(names, consumer(server.port, [_DATABASE])), **front
    ) as daemon:
        daemon.until_streaming()
        if way == FRONT:
            yield daemon, (DUMP, "127.0.0.1", port, PASSWORD, file, names)
        else:
            yield daemon, (HTTP, "127.0.0.1", daemon.port, "", "", names)
