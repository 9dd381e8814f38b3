"""The fixed limits of the API, and a counter of open requests. The other limits are in the settings (`api`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from dispatcher.model.errors import ErrorKind, UserError

HEADER_BYTES_MAX = 1 << 15  # request line and headers of a request
HEADERS_MAX = 100  # per request
PIPELINED_MAX = 16  # requests of a connection that wait while an earlier one is processed
LINGER_BYTES_MAX = 1 << 22  # of a body that still arrives after its request was answered
TLS_CLOSE_S = 1.0  # for a client's part of the end of a connection, when the daemon ends


class Slots:
    """Counts the open requests of one kind per consumer, and refuses more than `maximum`."""

    def __init__(self, kind: str, maximum: int, setting: str) -> None:
        """`kind`: plural, for messages; `setting`: the key that sets the limit."""
        self._kind = kind
        self._setting = setting
        self.maximum = maximum
        self._open: Counter[str] = Counter()

    def open(self, consumer: str) -> int:
        return self._open[consumer]

    def acquire(self, consumer: str) -> None:
        """Count one more. Raises UserError (TOO_MANY_REQUESTS); otherwise the caller must call `release`."""
        if self._open[consumer] >= self.maximum:
            raise UserError(
                ErrorKind.TOO_MANY_REQUESTS,
                f"consumer {consumer} has {self.maximum} open {self._kind}, the limit of {self._setting}",
            )
        self._open[consumer] += 1

    def release(self, consumer: str) -> None:
        self._open[consumer] -= 1
        if not self._open[consumer]:
            del self._open[consumer]

    @contextmanager
    def hold(self, consumer: str) -> Iterator[None]:
        self.acquire(consumer)
        try:
            yield
        finally:
            self.release(consumer)
