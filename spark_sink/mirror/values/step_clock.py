"""Measures the time of each phase of a step. Pure except for the clock.

The phases of a step of rows are: `read`: read the log's payloads and decode them; `plan`: find out what has to be
changed; also all time that belongs to no other phase; `write`: write files, or run a job of Spark with its commit;
`commit`: commit by the driver.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum


class StepPhase(StrEnum):
    """A part of a step."""

    READ = "read"
    PLAN = "plan"
    WRITE = "write"
    COMMIT = "commit"


class StepClock:
    """Used by one thread at a time. Tests replace `clock` (seconds, monotonic)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """A step begins, in the phase `plan`."""
        self._seconds = dict.fromkeys(StepPhase, 0.0)
        self._phase, self._since = StepPhase.PLAN, self._clock()

    @contextmanager
    def phase(self, phase: StepPhase) -> Iterator[None]:
        """Count the time within this context for a phase, without the time of phases inside it."""
        outer = self._phase
        self._enter(phase)
        try:
            yield
        finally:
            self._enter(outer)

    def seconds(self) -> dict[StepPhase, float]:
        """Returns the time of each phase since `begin`; their sum is the time since then."""
        self._enter(self._phase)
        return dict(self._seconds)

    def _enter(self, phase: StepPhase) -> None:
        now = self._clock()
        self._seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now
