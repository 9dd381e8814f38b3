"""The task that executes a step of a queue on the table that has the queue's name. A step is one item, or adjacent
entries of rows. Pure.

What happens when the step fails:

* a fault of the table's data: the task applies the step's entries one by one, and stops the table at the entry that
  fails; other tables continue;
* a conflict with another writer of the Delta table: after each of the first 8 conflicts in succession, the step is
  repeated after a short pause;
* any other failure: the step is repeated with backoff. After `REPORTED_AFTER` failures, the table's record shows the
  error.
"""

from __future__ import annotations

from dispatcher.model.errors import BinlogError
from spark_sink.mirror.rules.events import Failure
from spark_sink.mirror.rules.mirror_state import MirrorState
from spark_sink.mirror.rules.plan import RowRun, StatementItem, Work
from spark_sink.mirror.rules.retries import recovered
from spark_sink.mirror.rules.table_queue import QueuedStep
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.table_work import Done, Leave, Save, next_action
from spark_sink.mirror.rules.tasks.table_task import TableTask
from spark_sink.mirror.rules.tasks.task import table_failed
from spark_sink.mirror.rules.transitions import faulted
from spark_sink.mirror.schema.statements import CreateTable
from spark_sink.mirror.values.names import TableName


class StepTask(TableTask):
    """`step`: the step that `TableQueues.start` returned. At its end, the task returns the step to the queues, as done
    or for another attempt."""

    def __init__(self, state: MirrorState, step: QueuedStep) -> None:
        super().__init__(state)
        self.step = step
        self.name: TableName = step.names[0]
        self._began = state.now
        self._rows = 0
        self._stood = False

    def go(self) -> None:
        state, work = self.state, self.step.work
        record = state.find(self.name, work.lsn)
        if record is not None and not state.is_free(record.table_id):
            return
        # If the log had lost the entries of a table, the table has no record, and may have been renamed since then.
        # This task creates no record for the former name: later entries, which have the new name, create the table's
        # record.
        if self._stood or (record is None and state.is_named_later(self.name, work.lsn)):
            self._finish(record)
            return
        context = state.context(self.name)
        try:
            action = next_action(self.name, record, state.facts_of(record), work, context)
        except BinlogError as fault:
            self._fault(fault)
            return
        match action:
            case Done():
                if isinstance(work, RowRun) and record is not None and not self._rows:
                    self._was_committed(record)
                self._finish(record)
            case Leave():
                assert record is not None
                state.leave(record, work.lsn)
                self._finish(record)
            case Save(record=first) if record is None:
                self.save(first, action.why)
            case _:
                assert record is not None, "a table without a record has no Delta table"
                self.take(record, action)

    def save(self, record: TableRecord, why: str) -> None:
        self.state.update(record, why)

    def applied(self, record: TableRecord, rows: int, run: int) -> None:
        super().applied(record, rows, run)
        self._rows = rows

    def _finish(self, record: TableRecord | None) -> None:
        """End the task, after the step was applied or left in the log."""
        state = self.state
        state.counts.pop(self.name, None)
        if record is not None and recovered(record) != record:
            state.save(recovered(record), why="its steps are applied again")
        pause = state.options.policy(self.name).interval_s if self._rows else 0.0
        state.queues.done(self.step, self._began + pause if pause else 0.0)
        self.ended = True

    def _was_committed(self, record: TableRecord) -> None:
        """End the step if its rows are already committed: by a job that has ended, or by a work that was reported as
        failed."""
        if record.is_live and self.step.work.lsn > record.from_lsn:
            self.state.doubt_rows(record)

    # -- failures --------------------------------------------------------------------------------------------

    def failed(self, failure: Failure) -> None:
        if failure.fault is not None:
            self._fault(failure.fault)
            return
        state = self.state
        wait_s = table_failed(state, self.name, self.step.work.lsn, failure)
        state.queues.again(self.step, state.now + wait_s)
        self.ended = True

    def _fault(self, fault: BinlogError) -> None:
        """Stop the table at the first entry with a fault. If the step has several entries, schedule it again with one
        entry. The entry with the fault is left in the log, even if the table is already stopped or copied."""
        state, work = self.state, self.step.work
        if isinstance(work, RowRun) and len(work.entries) > 1:
            state.queues.again(self.step, state.now, alone=True)
            self.ended = True
            return
        record = state.find(self.name, work.lsn)
        if record is not None:
            if record.is_live or (record.is_dropped and _makes_table(work)):
                state.save(faulted(recovered(record), fault, work.lsn), why=f"at lsn {work.lsn}")
            state.leave(record, work.lsn)
        self._stood = self.wants_turn = True


def _makes_table(work: Work) -> bool:
    """True if `work` shows that the server has a table with the name again."""
    if isinstance(work, StatementItem):
        return any(isinstance(effect, CreateTable) for effect in work.effects)
    return isinstance(work, RowRun)
