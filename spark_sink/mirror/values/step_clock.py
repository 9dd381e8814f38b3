"""Measures the time of each phase of a step. Pure except for the clock.

A step of rows has four phases. `read`: the applier reads and decodes the log's payloads. `plan`: the applier computes
what has to be changed, or does work that belongs to no other phase. `write`: the applier writes files, or runs a Spark
job that also commits. `commit`: the driver commits without a Spark job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum


class StepPhase(StrEnum):
    """A phase of a step, as the module describes."""

    READ = "read"
    PLAN = "plan"
    WRITE = "write"
    COMMIT = "commit"


class StepClock:
    """Adds up the time of each phase of one step. Used by one thread at a time. Tests replace `clock` (seconds,
    monotonic)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Sets all times to zero and begins a step in the phase `plan`."""
        self._seconds = dict.fromkeys(StepPhase, 0.0)
        self._phase, self._since = StepPhase.PLAN, self._clock()

    @contextmanager
    def phase(self, phase: StepPhase) -> Iterator[None]:
        """Add the time within this context to the phase, without the time of contexts nested inside."""
        outer = self._phase
        self._enter(phase)
        try:
            yield
        finally:
            self._enter(outer)

    def seconds(self) -> dict[StepPhase, float]:
        """Returns the time of each phase since `begin`. The sum of these times is the time since `begin`."""
        self._enter(self._phase)
        return dict(self._seconds)

    def _enter(self, phase: StepPhase) -> None:
        now = self._clock()
        self._seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now
