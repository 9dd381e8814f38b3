"""A task executes several works, one after the other, until it has ended. Pure.

`go` is called when the task may go on: no work of it runs, and its pause is over. It reads the records, which may have
changed since its last call. Then it begins one work, changes records, ends the task, or waits by doing nothing. A task
keeps as little state as possible, so that after a crash a new task can continue from the records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from spark_sink.mirror.rules.effects import Effect
from spark_sink.mirror.rules.events import Answer, Failure, WorkFailed
from spark_sink.mirror.rules.mirror_state import MirrorState
from spark_sink.mirror.rules.retries import CONFLICTS_MAX, backoff_s


class Task(ABC):
    """`run`: number of the work that runs; `failures`: how many in a row; `not_before`: the end of its pause;
    `wants_turn`: True if the task went on without a work, so `go` has to be called once more."""

    def __init__(self, state: MirrorState) -> None:
        self.state = state
        self.run: int | None = None
        self.ended = False
        self.failures = 0
        self.not_before = 0.0
        self.wants_turn = False
        self._used: tuple[str, ...] = ()
        self._then: Callable[[Answer], None] | None = None

    @abstractmethod
    def go(self) -> None:
        """Begin the next work, or end."""

    @abstractmethod
    def failed(self, failure: Failure) -> None:
        """The work has failed. Decide how the task goes on."""

    # -- works -----------------------------------------------------------------------------------------------

    def begin(
        self,
        table_ids: Sequence[str],
        effect: Callable[[int], Effect],
        then: Callable[[Answer], None],
    ) -> None:
        """Begin a work on tables; `then` gets its answer."""
        self._used, self._then = tuple(table_ids), then
        self.run = self.state.new_run(self._used)
        self.state.effects.append(effect(self.run))

    def answered(self, answer: Answer) -> None:
        self.state.run_ended(self._used)
        self.run, then = None, self._then
        if isinstance(answer, WorkFailed):
            for table_id in self._used:
                self.state.doubt(table_id)
            self.failed(answer.failure)
            return
        assert then is not None
        then(answer)

    def may_go(self) -> bool:
        return not self.ended and self.run is None and self.not_before <= self.state.now

    def pause(self, failure: Failure) -> float:
        """Pause after a failure. Returns for how many seconds."""
        self.failures += 1
        wait_s = pause_s(self.state.options.retry_first_s, self.failures, failure)
        self.not_before = self.state.now + wait_s
        return wait_s


def pause_s(first_s: float, failures: int, failure: Failure) -> float:
    """Returns how long a task waits after so many failures in a row: a short time after a conflict with another writer,
    otherwise a longer time after each failure."""
    if failure.conflict and failures <= CONFLICTS_MAX:
        return first_s * failures
    return backoff_s(first_s, failures)
