"""A consumer that has not read 1 GB of the log catches up on a side dispatcher, while another consumer follows the end
of the log.

At the same time the server writes 1,000 one-row transactions per second. The rate at which the consumer catches up is
compared with the rate of `recv` of the same file under the same load. The number of transactions that the other
consumer got is compared with the number of transactions that were written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from statistics import median

from benchmarks.daemon import Json, MeasuredDaemon, consumer
from benchmarks.figures import Run
from benchmarks.logs import (
    PASSWORD,
    USER,
    WIDE,
    GeneratedLog,
    prepare_one_by_one,
    server_with,
    transactions_of,
    write_one_by_one,
)
from benchmarks.processes import run_module
from tests.servers import Instance

PART = "catching up"
_LIVE, _BEHIND = "live", "behind"
_LIVE_DATABASE = "bench_live"
_FULL_ROWS, _QUICK_ROWS = 870_000, 40_000  # of about 1.15 KB
_PER_TENTH_SECOND = 100
_RATE_TARGET, _LIVE_TARGET = 0.5, 0.8


def measure(run: Run) -> None:
    rows = max(100, round((_FULL_ROWS if run.full else _QUICK_ROWS) * run.scale))
    with server_with(WIDE, rows) as (server, log):
        with server.connect() as connection, connection.cursor() as cursor:
            prepare_one_by_one((_LIVE_DATABASE,))(cursor)
        settings = {
            _LIVE: consumer(server.port, [_LIVE_DATABASE]),
            _BEHIND: consumer(server.port, log.databases),
        }
        with MeasuredDaemon(settings) as daemon, _load(server):
            daemon.until_streaming()
            with daemon.readers([{"consumer": _LIVE, "after": None}]) as live:
                live.begin()
                _rounds(run, server, log, daemon)


def _rounds(run: Run, server: Instance, log: GeneratedLog, daemon: MeasuredDaemon) -> None:
    wire, ours, kept = [], [], []
    start = daemon.start_of(log)
    for _ in range(3):
        # The server sends the file, and then the rest of the log, which grows. So only the rates can be compared.
        drained = run_module(
            "drain", server.host, server.port, USER, PASSWORD, log.file, timeout_s=300
        )
        wire.append(drained["bytes"] / drained["seconds"] / 1e6)
        before, written = _delivered(daemon), transactions_of(server)
        found = daemon.read([{"consumer": _BEHIND, "after": start}], log.seq_after)
        ours.append(found["bytes"] / found["seconds"] / 1e6)
        kept.append((_delivered(daemon) - before) / (transactions_of(server) - written))
    run.series(PART, WIDE.name, "recv", "rate", "MB/s", wire)
    run.series(PART, WIDE.name, "the consumer behind", "rate", "MB/s", ours)
    run.series(PART, WIDE.name, "the live consumer", "received ÷ written", "", kept)
    run.target("P10 rate", "catching up ÷ recv", median(ours) / median(wire), ">=", _RATE_TARGET)
    run.target(
        "P10 live", "live consumer meanwhile, received ÷ written", median(kept), ">=", _LIVE_TARGET
    )


def _delivered(daemon: MeasuredDaemon) -> int:
    rows: list[Json] = daemon.rows()
    return next(int(row["delivered_transactions"]) for row in rows if row["name"] == _LIVE)


@contextmanager
def _load(server: Instance) -> Iterator[None]:
    """Write `_PER_TENTH_SECOND` transactions of one row each tenth of a second, until the block ends."""
    ending = threading.Event()
    write = write_one_by_one(_LIVE_DATABASE)

    def run() -> None:
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            due = time.monotonic()
            while not ending.wait(max(0.0, due - time.monotonic())):
                write(cursor, _PER_TENTH_SECOND)
                due += 0.1

    thread = threading.Thread(target=run, name="load")
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
