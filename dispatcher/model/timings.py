"""Counters and histograms for the daemon's metrics. This module reads no clock: the callers measure the times.

All values only grow, except `StoreTimings.waiting`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

SHORT_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds, in s, for work of the daemon itself."""
DELIVERY_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0)
"""Upper bounds, in s, for times that also depend on servers and readers."""
REQUEST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds, in s, for requests; a poll waits up to 60 s."""


class Durations:
    """A histogram of durations. `bounds`: upper bounds of its ranges in s, ascending. One more range has no bound."""

    __slots__ = ("_counts", "bounds", "sum_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.sum_s = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def add(self, seconds: float) -> None:
        """Count one duration. A negative duration, which results from a clock that was set back, is counted as 0."""
        seconds = max(0.0, seconds)
        self._counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_s += seconds

    def merge(self, other: Durations) -> None:
        """Add the counts of another histogram, which must have the same bounds."""
        assert self.bounds == other.bounds, "histograms with other bounds cannot be added"
        self._counts = [a + b for a, b in zip(self._counts, other._counts, strict=True)]
        self.sum_s += other.sum_s

    def cumulative(self) -> list[int]:
        """Returns for each bound the number of durations up to this bound. The last number counts all durations."""
        return list(accumulate(self._counts))


@dataclass(slots=True)
class ConnectionTimings:
    """The timings of one client. `flush`: from the arrival of the first byte of a buffer until its events are in all
    queues. `delivery`: from the commit on the server until the answer that announces the transaction to a reader.
    `logins`: number of logins that succeeded. `faults`: number of connections that failed or were lost, by kind of
    error."""

    flush: Durations = field(default_factory=lambda: Durations(SHORT_S))
    delivery: Durations = field(default_factory=lambda: Durations(DELIVERY_S))
    logins: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def merge(self, other: ConnectionTimings) -> None:
        self.flush.merge(other.flush)
        self.delivery.merge(other.delivery)
        self.logins += other.logins
        self.faults += other.faults


@dataclass(slots=True)
class StoreTimings:
    """The timings of the state store. `commits`: durations of commits of progress. `errors`: number of calls that
    failed. `waiting`: current number of calls that wait or run."""

    commits: Durations = field(default_factory=lambda: Durations(SHORT_S))
    errors: int = 0
    waiting: int = 0


class RequestTimings:
    """Durations of HTTP requests, by route template and status class, such as ("/v1/binlogs", "2xx")."""

    def __init__(self) -> None:
        self.series: dict[tuple[str, str], Durations] = {}

    def add(self, route: str, status: str, seconds: float) -> None:
        durations = self.series.get((route, status))
        if durations is None:
            durations = self.series[route, status] = Durations(REQUEST_S)
        durations.add(seconds)
