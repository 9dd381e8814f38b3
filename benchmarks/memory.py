"""Measures the largest resident memory of the daemon in bad conditions, and compares it with a limit.

* idle: a daemon with one consumer
* stuck: 32 consumers without readers, with queues of 16 MiB and a log that is larger than the queues
* one transaction of 2 GB, and one of 1 GB that the server has compressed: each is larger than its queue, so it goes
  to disk
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from benchmarks.daemon import MeasuredDaemon, consumer
from benchmarks.figures import Run
from benchmarks.logs import BLOBS, BULK, DATABASES, server_with, transactions_of
from tests.servers import Instance

PART = "memory"
_CONSUMER = "bench"
_STUCK_CONSUMERS = 32
_QUEUE_BYTES = 16 << 20
_IDLE_TARGET_MB = 130.0
_SHARE_OF_LIMITS, _BASE_MB = 1.25, 200.0
_SETTLE_S = 10.0
_LARGE_ROWS, _COMPRESSED_ROWS = 2000, 1000  # of 1 MB


def measure(run: Run) -> None:
    _measure_stuck(run)
    _measure_large(run, "a transaction of 2 GB", "P9 large", _LARGE_ROWS, compressed=False)
    _measure_large(
        run, "a compressed transaction of 1 GB", "P9 compressed", _COMPRESSED_ROWS, compressed=True
    )


def _bound_mb(queues: int) -> float:
    return queues * _QUEUE_BYTES / 1e6 * _SHARE_OF_LIMITS + _BASE_MB


def _measure_stuck(run: Run) -> None:
    rows = max(1, round(BULK.rows(full=run.full) * run.scale))
    with server_with(BULK, rows) as (server, log):
        with MeasuredDaemon({_CONSUMER: consumer(server.port, DATABASES)}) as daemon:
            daemon.until_streaming()
            time.sleep(_SETTLE_S)
            idle_mb = run.series(PART, "", "idle", "resident", "MB", [daemon.resident_bytes / 1e6])
        run.target("P9 idle", "resident memory, idle", idle_mb, "<=", _IDLE_TARGET_MB, "MB")
        settings = {
            f"stuck_{number:02}": consumer(
                server.port,
                DATABASES,
                start={"file": log.file, "offset": 4},
                max_bytes_in_binlog_queue=_QUEUE_BYTES,
                max_milliseconds_to_wait_in_binlog_queue=1000,
            )
            for number in range(_STUCK_CONSUMERS)
        }
        with MeasuredDaemon(settings) as daemon:
            daemon.until_quiet()
            time.sleep(_SETTLE_S)
            queued = sum(row["unacknowledged_bytes"] for row in daemon.rows())
            run.series(PART, BULK.name, "32 stuck consumers", "queued", "MB", [queued / 1e6])
            peak_mb = run.series(
                PART, BULK.name, "32 stuck consumers", "peak", "MB", [daemon.peak_bytes / 1e6]
            )
    run.target(
        "P9 stuck", "peak memory, 32 stuck consumers", peak_mb, "<=", _bound_mb(_STUCK_CONSUMERS),
        "MB",
    )  # fmt: skip


def _measure_large(run: Run, what: str, name: str, rows: int, *, compressed: bool) -> None:
    count = max(1, round(rows * run.scale))
    with ExitStack() as stack:
        server, _ = stack.enter_context(server_with(BLOBS, 1))
        reading = consumer(server.port, BLOBS.databases, max_bytes_in_binlog_queue=_QUEUE_BYTES)
        daemon = stack.enter_context(MeasuredDaemon({_CONSUMER: reading}))
        daemon.until_streaming()
        readers = stack.enter_context(daemon.readers([{"consumer": _CONSUMER, "after": None}]))
        daemon.reset_peak()
        _write_one(server, count, compressed=compressed)
        found = readers.read(transactions_of(server))
        peak_mb = daemon.peak_bytes / 1e6
    run.series(PART, "", what, "delivered", "MB", [found["bytes"] / 1e6])
    run.series(PART, "", what, "peak", "MB", [peak_mb])
    run.target(name, f"peak memory, {what}", peak_mb, "<=", _bound_mb(1), "MB")


def _write_one(server: Instance, rows: int, *, compressed: bool) -> None:
    """Write one transaction with this number of rows of 1 MB."""
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION binlog_transaction_compression = {int(compressed)}")
        for number in range(rows):
            cursor.execute(
                f"INSERT INTO {BLOBS.databases[0]}.t VALUES"
                f" ({number + 1_000_000}, REPEAT(UNHEX(SHA2({number}, 256)), 31250))"
            )
        connection.commit()
