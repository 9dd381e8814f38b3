"""The base class of the tasks that execute the actions of `next_action` (`rules.table_work`) on one table. Pure."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from spark_sink.mirror.rules.effects import AskTable, ChangeTable, CommitRows, Stepped
from spark_sink.mirror.rules.events import Answer, TableAsked, TableChanged
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.table_work import (
    Action,
    ApplyRows,
    Ask,
    ChangeColumns,
    ChangeDelta,
    DeleteRows,
    DeltaChange,
    MakeTable,
    Save,
    refused,
)
from spark_sink.mirror.rules.tasks.task import Task


class TableTask(Task):
    """Executes the actions of `next_action` on one table."""

    @abstractmethod
    def save(self, record: TableRecord, why: str) -> None:
        """Write the record that follows from an action."""

    def applied(self, record: TableRecord, rows: int, run: int) -> None:
        """Called when the work `run` has committed the rows of an action."""
        self.failures = 0
        self.state.effects.append(Stepped(run, record, rows))

    def ask(self, record: TableRecord, action: Ask) -> None:
        def asked(answer: Answer) -> None:
            assert isinstance(answer, TableAsked)
            # The answer to an `Ask` without `rows` does not show whether the table is empty.
            self.state.facts[record.table_id, action.folder] = answer.facts

        self.begin(
            [record.table_id],
            lambda run: AskTable(run, record.table_id, action.folder, action.rows),
            asked,
        )

    def change(self, record: TableRecord, action: ChangeDelta) -> None:
        """Change the Delta table of `record`, then save the action's record."""

        def changed(answer: Answer) -> None:
            assert isinstance(answer, TableChanged)
            if answer.refused:
                self.refuse(record, action.change, answer.refused)
                return
            self._learn_change(action)
            self.save(action.then, action.why)

        self.begin(
            [record.table_id], lambda run: ChangeTable(run, action.then, action.change), changed
        )

    def refuse(self, record: TableRecord, change: DeltaChange, reason: str) -> None:
        """Write the record of a table whose existing rows cannot follow `change`. `reason`: why not."""
        assert isinstance(change, ChangeColumns)
        situation = self.state.situation(record.name)
        self.save(refused(record, reason, change.lsn, situation), "copy needed")

    def _learn_change(self, action: ChangeDelta) -> None:
        state, then = self.state, action.then
        match action.change:
            case DeleteRows(lsn=lsn) | ChangeColumns(lsn=lsn):
                state.committed(then, lsn)
            case MakeTable():
                known = state.facts_of(then)
                state.learn(then, replace(known, owner=then.table_id, empty=None))

    def commit(self, action: ApplyRows) -> None:
        def committed(answer: Answer) -> None:
            self.state.committed(action.record, action.run.lsn)
            self.applied(action.record, action.run.rows, answer.run)

        self.begin(
            [action.record.table_id],
            lambda run: CommitRows(run, action.record, action.run, action.exact, action.snapshot),
            committed,
        )

    def take(self, record: TableRecord, action: Action) -> None:
        """Execute an action, other than `Done` and `Leave`, on the table of `record`."""
        match action:
            case Ask():
                self.ask(record, action)
            case Save():
                self.save(action.record, action.why)
            case ChangeDelta():
                self.change(record, action)
            case ApplyRows():
                self.commit(action)
