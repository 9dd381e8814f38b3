"""Rates: events and bytes per second, between two samples at least a second apart.

After a gap of more than `RATE_WINDOW_S` between two samples the rate is 0: an average over hours says nothing about the
present rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

RATE_WINDOW_S = 10.0

Rate = tuple[float, float]


class Counted(Protocol):
    """An object with counters that only grow. A dispatcher counts the events and bytes that it has read; a reader
    counts the transactions (`events`) and bytes that the daemon has sent to it."""

    events: int
    bytes: int


@dataclass(slots=True)
class _Sample:
    counted: Counted
    at: float
    events: int
    bytes: int
    rate: Rate = (0.0, 0.0)

    def rate_at(self, now: float) -> Rate:
        passed = now - self.at
        if passed >= 1.0:
            events, bytes_ = self.counted.events, self.counted.bytes
            self.rate = (0.0, 0.0)
            if passed <= RATE_WINDOW_S:
                self.rate = (events - self.events) / passed, (bytes_ - self.bytes) / passed
            self.at, self.events, self.bytes = now, events, bytes_
        return self.rate


class Rates:
    """The rates of all dispatchers and readers. The keys are the ids of the objects, because the numbers of dispatchers
    are reused."""

    def __init__(self) -> None:
        self._samples: dict[
            int, _Sample
        ] = {}  # by id of the object; the sample refers to the object, so that no other object gets this id

    def latest(self, counted: Counted) -> Rate:
        """The rate at the last sample, 0 if there was none."""
        sample = self._samples.get(id(counted))
        return sample.rate if sample is not None else (0.0, 0.0)

    def sample(self, alive: Iterable[Counted], now: float) -> Callable[[Counted], Rate]:
        """Return a function that returns an object's rate at `now` (s of a monotonic clock). Objects that are not in
        `alive` are forgotten."""
        self._samples = {
            id(one): self._samples.get(id(one)) or _Sample(one, now, one.events, one.bytes)
            for one in alive
        }

        def rate(counted: Counted) -> Rate:
            sample = self._samples.get(id(counted))  # None: the object is newer than the sample
            return sample.rate_at(now) if sample is not None else (0.0, 0.0)

        return rate
