"""Times as both outputs show them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(micros: int) -> str:
    """Microseconds since 1970 as ISO 8601 in UTC; "" for 0, by which servers mean "not known"."""
    seconds, fraction = divmod(micros, 1_000_000)
    return f"{seconds_text(seconds)[:-1]}.{fraction:06}Z" if micros else ""


@lru_cache(4096)
def seconds_text(seconds: int) -> str:
    """Likewise for seconds."""
    if not seconds:
        return ""
    try:
        return (_EPOCH + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{seconds} s since 1970Z"
