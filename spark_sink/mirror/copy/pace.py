"""Controls how fast a copy reads: it pauses while the server is busy, observes a limit of rows per second, and waits
between attempts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from dispatcher.model.errors import Action, BinlogError
from spark_sink.mirror.copy.server import CopyServer, server_load
from spark_sink.mirror.values.faults import in_one_line
from spark_sink.mirror.values.settings import CopySettings

log = logging.getLogger("spark_sink.copy")

_FAILURES_MAX = 6
_BACKOFF_S, _BACKOFF_MAX_S = 0.5, 30.0
_PAUSE_S = 1.0

Stopping = Callable[[], bool]


def waited(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until a condition is true, for at most `seconds`. Returns False if it did not become true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def wait_for_server(
    server: CopyServer, settings: CopySettings, rows: int, began: float, stopping: Stopping
) -> None:
    """Wait until the copy no longer exceeds the allowed number of rows per second. Then wait until the server is not
    busy.

    `rows`: the number of rows that were copied since `began`, a time of `time.monotonic`.
    """
    if settings.max_rows_per_second:
        due = began + rows / settings.max_rows_per_second
        waited(stopping, max(0.0, due - time.monotonic()))
    threads, lag = (
        settings.pause_above_threads_running,
        settings.pause_above_replica_lag_seconds,
    )
    if not threads and not lag:
        return
    with server.session() as connection:
        while not stopping():
            load = server_load(connection, with_lag=bool(lag))
            busy = bool(threads) and load.threads_running > threads
            if not busy and not (lag and (load.lag_s or 0) > lag):
                return
            log.info("the copy pauses: %s", load)
            waited(stopping, _PAUSE_S)


class OtherJobError(RuntimeError):
    """Another job has written to the folder of a copy since this job began. This job has to read the state of the copy
    from the folder again."""


def retried(run: Callable[[], None], stopping: Stopping) -> None:
    """Call `run`, and call it again after a fault that may be temporary, such as a lost connection or executor."""
    failures = 0
    while True:
        try:
            return run()
        except Exception as error:
            failures += 1
            permanent = isinstance(error, BinlogError) and error.action is not Action.RETRY
            permanent |= isinstance(error, OtherJobError)
            if permanent or failures > _FAILURES_MAX:
                raise
            wait_s = min(_BACKOFF_MAX_S, _BACKOFF_S * 2**failures)
            log.warning("a group is read again in %.1f s: %s", wait_s, in_one_line(error))
            if waited(stopping, wait_s):
                raise
