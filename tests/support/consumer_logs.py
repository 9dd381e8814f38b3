"""What the log of one consumer holds."""

from __future__ import annotations

from dispatcher.stream.consumer_log import ConsumerLog


def open_bytes(log: ConsumerLog) -> int:
    """Returns the number of bytes of the transaction that is not complete yet."""
    return log._end - log.committed
