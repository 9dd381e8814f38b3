"""How fast dispatchers read: events and bytes per second, between two looks at least a second apart.

A rate that is older than `RATE_WINDOW_S` is forgotten: nobody looked meanwhile, and an average over hours tells nothing
of now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dispatcher.dispatch.client import Client
from dispatcher.dispatch.dispatcher import Dispatcher

RATE_WINDOW_S = 10.0

Rate = tuple[float, float]


@dataclass(slots=True)
class _Seen:
    dispatcher: Dispatcher
    at: float
    events: int
    bytes: int
    rate: Rate = (0.0, 0.0)

    def look(self, now: float) -> Rate:
        passed = now - self.at
        if passed >= 1.0:
            events, bytes_ = self.dispatcher.events, self.dispatcher.bytes
            recent = passed <= RATE_WINDOW_S
            self.rate = (
                ((events - self.events) / passed, (bytes_ - self.bytes) / passed)
                if recent
                else (0.0, 0.0)
            )
            self.at, self.events, self.bytes = now, events, bytes_
        return self.rate


class Rates:
    """Of all dispatchers, told apart by what they are: a number is used again."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}  # by id of the dispatcher, which is kept alive here

    def look(self, clients: Iterable[Client], now: float) -> Callable[[Dispatcher], Rate]:
        """The rates as of now, s of a monotonic clock."""
        alive = [d for client in clients for d in client.dispatchers.values()]
        self._seen = {
            id(d): self._seen.get(id(d)) or _Seen(d, now, d.events, d.bytes) for d in alive
        }

        def rate(dispatcher: Dispatcher) -> Rate:
            seen = self._seen.get(id(dispatcher))  # not there: it began after the look
            return seen.look(now) if seen is not None else (0.0, 0.0)

        return rate
