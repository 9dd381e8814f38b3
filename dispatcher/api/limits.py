"""What one client of the API can take from the daemon: sizes, times, and how much at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dispatcher.model.errors import ErrorKind, UserError

HEADER_BYTES_MAX = 1 << 15  # of a request line and all headers of a request
HEADERS_MAX = 100  # headers of a request
LINGER_BYTES_MAX = 1 << 22  # of a body that is still arriving when its request has been answered


@dataclass(frozen=True, slots=True)
class Limits:
    """As in the settings (`api`): bytes, seconds and counts."""

    connections_max: int = 4096
    polls_max: int = 64  # per consumer
    answers_max: int = 64  # per consumer
    request_bytes_max: int = 1 << 20
    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    write_timeout_s: float = 60.0


class Slots:
    """How many requests of one sort are open for each consumer, at most `maximum`."""

    def __init__(self, sort: str, maximum: int, setting: str) -> None:
        """`sort`: in the plural, for the message; `setting`: the name of the limit."""
        self._sort = sort
        self._setting = setting
        self.maximum = maximum
        self._open: Counter[str] = Counter()

    def open(self, consumer: str) -> int:
        return self._open[consumer]

    def acquire(self, consumer: str) -> None:
        """Raises UserError (TOO_MANY_REQUESTS); else `release` must follow."""
        if self._open[consumer] >= self.maximum:
            raise UserError(
                ErrorKind.TOO_MANY_REQUESTS,
                f"consumer {consumer} has {self.maximum} open {self._sort} ({self._setting})",
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
