"""A task lets several works be executed, one after the other, until the task ends. A work is an effect that a thread
executes and answers. Pure.

`Mirror` calls `go` when no work of the task is running, and the task's pause is over. `go` reads the records, which may
have changed since its last call. Then it begins one work, changes records, or ends the task. If the task has to wait,
`go` does nothing. A task keeps as little state as possible, so that after a crash a new task can continue from the
records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from spark_sink.mirror.rules.effects import Effect
from spark_sink.mirror.rules.events import Answer, Failure, WorkFailed
from spark_sink.mirror.rules.mirror_state import MirrorState
from spark_sink.mirror.rules.retries import (
    CONFLICTS_MAX,
    REPORTED_AFTER,
    backoff_s,
    failing,
    says_so,
)
from spark_sink.mirror.values.names import TableName, table_label


class Task(ABC):
    """`run`: number of the work that runs, None if none runs; `failures`: the number of failures in succession;
    `not_before`: the end of the task's pause; `wants_turn`: True if `go` must be called once more, because it has made
    progress without a work."""

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
        """Called when the task's work has failed. Decides how the task continues."""

    # -- works -----------------------------------------------------------------------------------------------

    def begin(
        self,
        table_ids: Sequence[str],
        effect: Callable[[int], Effect],
        then: Callable[[Answer], None],
    ) -> None:
        """Begin a work on the tables `table_ids`. `effect`: returns the effect for the work's number; `then`: gets the
        answer."""
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
        """Begin the pause after a failure. Returns its length in seconds."""
        self.failures += 1
        wait_s = pause_s(self.state.options.retry_first_s, self.failures, failure)
        self.not_before = self.state.now + wait_s
        return wait_s


def table_failed(state: MirrorState, name: TableName, lsn: int, failure: Failure) -> float:
    """Count a failure of the entry `lsn` of a table. Returns how many seconds to wait before the next attempt."""
    state.counts[name] += 1
    count = state.counts[name]
    record = state.find(name, lsn)
    is_known = record is not None and not state.is_busy(record.table_id)
    if count >= REPORTED_AFTER and record is not None and is_known and not says_so(record):
        state.save(failing(record, lsn, failure.text))
    wait_s = pause_s(state.options.retry_first_s, count, failure)
    state.note_retry(failure, wait_s, table_label(name))
    return wait_s


def pause_s(first_s: float, failures: int, failure: Failure) -> float:
    """Returns how many seconds a task waits after `failures` failures in succession. After a conflict, the time is
    short as long as there are at most `CONFLICTS_MAX` failures. Otherwise, the time doubles with each failure."""
    if failure.conflict and failures <= CONFLICTS_MAX:
        return first_s * failures
    return backoff_s(first_s, failures)
