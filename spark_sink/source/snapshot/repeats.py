"""Repeats a request to the server after a lost connection. Spark ends a query at the first exception of its source."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from dispatcher.model.errors import Action, BinlogError, ErrorKind

log = logging.getLogger("spark_sink.source")

T = TypeVar("T")

_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.5, 30.0


def with_retries(request: Callable[[], T], timeout_s: float) -> T:
    """Returns what `request` returns. Calls it again after an error that may be temporary, such as a lost connection,
    until `timeout_s` has passed since the first such error. Raises the `BinlogError` of the last call."""
    failing_since: float | None = None
    pause_s = _PAUSE_FIRST_S
    while True:
        try:
            return request()
        except BinlogError as error:
            # If a range is not available, the request itself has already waited for it.
            if error.action is not Action.RETRY or error.kind is ErrorKind.RANGE_UNAVAILABLE:
                raise
            now = time.monotonic()
            failing_since = now if failing_since is None else failing_since
            left_s = failing_since + timeout_s - now
            if left_s <= 0:
                raise
            log.warning(
                "%s: %s; the request is repeated in %.1f s", error.where, error.what, pause_s
            )
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)
