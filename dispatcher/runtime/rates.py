"""How fast dispatchers read: events and bytes per second, between two samples at least a second apart.

After a gap of more than `RATE_WINDOW_S` between two samples the rate is 0: an average over hours says nothing about
now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dispatcher.dispatch.client import Client
from dispatcher.dispatch.dispatcher import Dispatcher

RATE_WINDOW_S = 10.0

Rate = tuple[float, float]


@dataclass(slots=True)
class _Sample:
    dispatcher: Dispatcher
    at: float
    events: int
    bytes: int
    rate: Rate = (0.0, 0.0)

    def rate_at(self, now: float) -> Rate:
        passed = now - self.at
        if passed >= 1.0:
            events, bytes_ = self.dispatcher.events, self.dispatcher.bytes
            self.rate = (0.0, 0.0)
            if passed <= RATE_WINDOW_S:
                self.rate = (events - self.events) / passed, (bytes_ - self.bytes) / passed
            self.at, self.events, self.bytes = now, events, bytes_
        return self.rate


class Rates:
    """The rates of all dispatchers, by object, because a number is used again."""

    def __init__(self) -> None:
        self._samples: dict[
            int, _Sample
        ] = {}  # by id of the dispatcher; the sample keeps it alive, so that no other object gets its id

    def sample(self, clients: Iterable[Client], now: float) -> Callable[[Dispatcher], Rate]:
        """Return a function for the rates as of `now` (s of a monotonic clock)."""
        alive = [d for client in clients for d in client.dispatchers.values()]
        self._samples = {
            id(d): self._samples.get(id(d)) or _Sample(d, now, d.events, d.bytes) for d in alive
        }

        def rate(dispatcher: Dispatcher) -> Rate:
            sample = self._samples.get(id(dispatcher))  # None: it began after `now`
            return sample.rate_at(now) if sample is not None else (0.0, 0.0)

        return rate
