"""The task that executes a statement that renames tables, when the queues of all its tables have reached the statement.
Pure.

Order of writes:

1. the statement's other changes to Delta tables, such as the columns of an ALTER TABLE ... RENAME TO. The commits
   record the statement's lsn, its number in the log;
2. all records, in one commit: each gets its new name and folder, and the folder in which the table still is (`move`);
3. the folders: each moves aside (to _binlog/moving), then to its new place;
4. the records without `move`.

After a crash between two of these writes, the statement is read again, and the records show what is left to do: after
the second write, the former names of a table contain the statement's lsn.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

from dispatcher.model.errors import BinlogError
from spark_sink.mirror.rules.events import Failure, FoldersMoved
from spark_sink.mirror.rules.mirror_state import MirrorState
from spark_sink.mirror.rules.omitted import changed_masks, shown_by_name
from spark_sink.mirror.rules.plan import RenameBarrier
from spark_sink.mirror.rules.renames import (
    crossings,
    names_after,
    names_in_the_way,
    names_of_unknown,
    records_after,
)
from spark_sink.mirror.rules.states import CatchingUp, Creating, Dropped, LeftOut, Live, Stopped
from spark_sink.mirror.rules.table_queue import QueuedStep
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.table_work import (
    Ask,
    ChangeDelta,
    DeltaChange,
    Save,
    delta_action,
    has_rows,
    refused,
)
from spark_sink.mirror.rules.tasks.folder_move import begin_move, must_wait
from spark_sink.mirror.rules.tasks.table_task import TableTask
from spark_sink.mirror.rules.tasks.task import pause_s
from spark_sink.mirror.rules.transitions import (
    Transition,
    after_effect,
    faulted,
    masked_anew,
    needs_copy,
    shown_without_mask,
    unknown_rows,
    unsure,
)
from spark_sink.mirror.schema.statements import DropTable, RenameTables, TableEffect
from spark_sink.mirror.values.names import TableName, table_label


@dataclass(frozen=True, slots=True)
class DeltaNeed(Exception):
    """Raised if an action on the Delta table of `record` has to be executed before the records are written."""

    record: TableRecord
    action: Ask | ChangeDelta


class RenameTask(TableTask):
    """`step`: the step that `TableQueues.start` returned. At its end, the task returns the step to the queues, as done
    or for another attempt."""

    def __init__(self, state: MirrorState, step: QueuedStep) -> None:
        super().__init__(state)
        assert isinstance(step.work, RenameBarrier)
        self.step, self.barrier = step, step.work
        self._refused: dict[str, str] = {}  # by table id, why rows cannot follow a change
        self._faults: dict[str, BinlogError] = {}  # by table id, why its Delta table cannot be used
        self._asked: TableRecord | None = (
            None  # the table that the running work uses; None for a move
        )
        self._moved = False
        self._without_place: set[str] = set()
        self._later: set[TableName] = set()

    def go(self) -> None:
        state, lsn = self.state, self.barrier.lsn
        renamed = [r for r in state.tables() if any(lsn == former.until for former in r.names)]
        if renamed:
            self._leave(renamed)
            self._move(renamed)
            return
        tables = self._tables()
        ids = [record.table_id for record in tables.values()]
        if not all(map(state.is_free, ids)):
            return
        try:
            changed = self._changed(dict(tables))
        except DeltaNeed as need:
            self._asked = need.record
            self.take(need.record, need.action)
            return
        self._leave(changed)
        if changed:
            state.save(*changed, why=f"renamed at lsn {lsn}")
            for record in changed:
                state.doubt(
                    record.table_id
                )  # the table's place has changed, or belongs to another table
        if not any(any(lsn == former.until for former in record.names) for record in changed):
            self._finish()

    def save(self, record: TableRecord, why: str) -> None:
        """Does nothing: `go` writes all records together after all Delta tables were changed."""

    def refuse(self, record: TableRecord, _: DeltaChange, reason: str) -> None:
        self._refused[record.table_id] = reason

    def _tables(self) -> dict[TableName, TableRecord]:
        """Returns the tables that the statement concerns, by their names before the statement."""
        found = {name: self.state.find(name, self.barrier.lsn) for name in self.barrier.names}
        known = {name: record for name, record in found.items() if record is not None}
        lsn = self.barrier.lsn
        # If the log had lost this statement when it had to be executed, later statements may already have renamed the
        # tables. The replays of these tables stop at this statement, see `ReplayTask`.
        missed = {n for n, r in known.items() if any(former.until > lsn for former in r.names)}
        self._leave([known[name] for name in missed])
        # After a crash, the entry is read again. By then, the names may belong to tables that were created after the
        # statement.
        self._later = missed | {n for n, record in known.items() if record.from_lsn >= lsn}
        return {
            name: record
            for name, record in known.items()
            if name not in self._later and not isinstance(record.state, LeftOut)
        }

    def _move(self, renamed: list[TableRecord]) -> None:
        state = self.state
        if any(state.is_busy(record.table_id) for record in renamed):
            return
        waiting = self._without_place
        moving = [r for r in renamed if r.move is not None and r.table_id not in waiting]
        if self._moved or not moving:
            self._finish()
            return

        def moved(answer: FoldersMoved) -> None:
            self._moved = answer.step is None
            self._without_place |= answer.refused.keys()

        if not must_wait(state, moving):
            self._asked = None
            begin_move(self, moving, moved)

    def _leave(self, renamed: Sequence[TableRecord]) -> None:
        """Leave the statement in the log for tables that are not live. The replays of these tables apply the
        statement's effects other than the RENAME."""
        for record in renamed:
            if not (record.is_live or record.is_dropped):
                self.state.leave(record, self.barrier.lsn)

    def _finish(self) -> None:
        for name in self.step.names:
            self.state.counts.pop(name, None)
        self.state.queues.done(self.step)
        self.ended = True

    def failed(self, failure: Failure) -> None:
        asked, fault = self._asked, failure.fault
        if asked is not None and fault is not None and asked.table_id not in self._faults:
            self._faults[asked.table_id] = fault  # this table stops; the other tables are renamed
            return
        state, name = self.state, self.step.names[0]
        state.counts[name] += 1
        wait_s = pause_s(state.options.retry_first_s, state.counts[name], failure)
        state.note_retry(failure, wait_s, table_label(name))
        state.queues.again(self.step, state.now + wait_s)
        self.ended = True

    # -- the records afterwards ------------------------------------------------------------------------------

    def _changed(self, tables: dict[TableName, TableRecord]) -> list[TableRecord]:
        """Returns the records that the statement changes. Raises `DeltaNeed`."""
        changed: dict[str, TableRecord] = {}
        for effect in self.barrier.effects:
            if isinstance(effect, RenameTables):
                self._require_rows(tables)
                crossed = self._cross(effect, tables)
                changed |= {record.table_id: record for record in crossed}
                changed |= self._clear_the_way(effect, tables)
                unknown = names_of_unknown(tables, effect.pairs)
                named = [*self._dropped_earlier(changed), *tables.values()]
                changed |= {
                    r.table_id: unsure(r) for r in named if r.is_dropped and r.name in unknown
                }
                records = records_after(tables, effect.pairs, self.barrier.lsn)
                changed |= {record.table_id: self._masked(record) for record in records}
                continue
            # For a table that leaves the mirror, only the deletion of its rows is committed with the statement's lsn.
            leaving = self._leaving()
            for name in (name for name in effect.tables if name not in leaving):
                before = tables.get(name)
                record = self._after(name, before, effect)
                if record is not None and record != before:
                    tables[name] = record
                    changed[record.table_id] = record
        return [self._without_double(record, changed) for record in changed.values()]

    def _masked(self, record: TableRecord) -> TableRecord:
        """Returns the record of a renamed table, whose masks may differ under the new name. If a column would lose its
        mask, the table is stopped. If masks differ in another way, the table needs a copy, because its rows and its
        history must not show what is masked from now on."""
        if record.is_dropped:
            return record
        lsn, after = self.barrier.lsn, self.state.situation(record.name)
        former = next(former.name for former in record.names if former.until == lsn)
        before = self.state.situation(former).policy
        if columns := shown_by_name(record.signature, before, after.policy):
            return shown_without_mask(record, columns, table_label(former), lsn)
        columns = changed_masks(record.signature, after.policy)
        if not (columns and has_rows(record)):
            return record
        reason = f"the settings mask column {columns[0]} in {record.label} in another way"
        return masked_anew(record, reason, lsn, after)

    def _dropped_earlier(self, changed: Container[str]) -> Iterator[TableRecord]:
        """Yields the tables that were dropped before this statement, except those with the ids `changed`. Another table
        may have got the name of such a table since then."""
        for record in self.state.tables():
            is_earlier = record.is_dropped and record.from_lsn < self.barrier.lsn
            if is_earlier and record.table_id not in changed:
                yield record

    def _require_rows(self, tables: dict[TableName, TableRecord]) -> None:
        """Replace, in `tables`, the records of the tables whose rows an earlier attempt at this statement has deleted.
        The settings left out the table's new name at that time, so the attempt deleted the rows. The job then ended
        before it wrote the records, and the settings were changed."""
        altered = {
            n for e in self.barrier.effects if not isinstance(e, RenameTables) for n in e.tables
        }
        for name, record in tables.items():
            has_rows = isinstance(record.state, Live | CatchingUp | Stopped) and record.folder
            if not has_rows or name in altered:
                continue
            if (fault := self._faults.get(record.table_id)) is not None:
                tables[name] = faulted(record, fault, self.barrier.lsn)
                continue
            facts = self.state.facts_of(record)
            if facts.applied is None:
                raise DeltaNeed(record, Ask(record.lies_at))
            if facts.applied >= self.barrier.lsn and name not in self._leaving():
                reason = "its rows were deleted when the settings left it out"
                situation = self.state.situation(name)
                tables[name] = needs_copy(record, reason, self.barrier.lsn - 1, situation)

    def _leaving(self) -> set[TableName]:
        renames = (e for e in self.barrier.effects if isinstance(e, RenameTables))
        excluded = self.state.options.excluded
        return {name for e in renames for name in crossings(e.pairs, excluded).leaving}

    def _without_double(self, record: TableRecord, changed: dict[str, TableRecord]) -> TableRecord:
        """Returns the record; if another record already has its new name, returns `record` marked as dropped. An
        earlier attempt at this statement may have created the other record, when the settings left out the former
        name."""
        others = (r for r in self.state.tables() if r.table_id not in changed and not r.is_dropped)
        if record.is_dropped or all(other.name != record.name for other in others):
            return record
        reason = "another record of this table exists"
        dropped = replace(record, state=Dropped(), folder="", move=None, reason=reason)
        return replace(dropped, from_lsn=max(record.from_lsn, self.barrier.lsn))

    def _after(
        self, name: TableName, before: TableRecord | None, effect: TableEffect
    ) -> TableRecord | None:
        """Returns the record of a table after an effect other than a RENAME."""
        situation = self.state.situation(name)
        moved = after_effect(name, before, effect, self.barrier.entry, situation)
        return self._done(name, before, moved)

    def _done(
        self, name: TableName, before: TableRecord | None, moved: Transition
    ) -> TableRecord | None:
        if before is None:
            return moved.record
        lsn, situation = self.barrier.lsn, self.state.situation(name)
        if (reason := self._refused.get(before.table_id)) is not None:
            return refused(before, reason, lsn, situation)
        fault = self._faults.get(before.table_id)
        stays = moved.record is not None and not moved.record.is_dropped
        if fault is not None and stays:
            return faulted(before, fault, lsn)
        facts = self.state.facts_of(before)
        if before.folder and facts.applied is None:
            raise DeltaNeed(before, Ask(before.lies_at))
        try:
            action = delta_action(before, moved, facts, lsn, self.state.context(name))
        except BinlogError as missing:
            return faulted(before, missing, lsn)
        if isinstance(action, Save):
            return action.record
        if action is not None:
            raise DeltaNeed(before, action)
        return moved.record

    def _cross(
        self, effect: RenameTables, tables: dict[TableName, TableRecord]
    ) -> list[TableRecord]:
        """Returns the records of tables that leave or enter the mirror. Removes from `tables` the tables that the
        statement does not rename within the mirror.

        A table that gets an excluded name is dropped. A table that loses an excluded name has rows that the log lacks,
        so it is treated like a table that is older than the mirror. If it gets the name of a table that leaves the
        mirror, people can read the rows of the leaving table until the copy replaces them.
        """
        crossed = crossings(effect.pairs, self.state.options.excluded)
        changed = {}
        for name in crossed.leaving:
            record = tables.pop(name, None)
            if record is None:
                continue
            arrived = self._arrived(name, record) if name in crossed.arriving else None
            if arrived is None or not isinstance(arrived.state, Creating):
                record = self._left(record)
                if arrived is not None:
                    arrived = self._arrived(name, record)
                else:
                    tables[name] = record  # another table may get this table's folder
            changed[name] = arrived or record
        for name in crossed.arriving:
            if name in self._later or name in changed:
                continue
            former = tables.get(name)
            if former is not None and names_after([name], effect.pairs)[name] != name:
                changed[name] = self._arrived(name, None)  # `former` is renamed, too
                continue
            tables.pop(name, None)
            if former is not None and not former.is_dropped:
                former = self._left(former)  # the server has no such table
            changed[name] = self._arrived(name, former)
        return list(changed.values())

    def _left(self, record: TableRecord) -> TableRecord:
        return self._dropped(record, "renamed to a name that the settings leave out")

    def _clear_the_way(
        self, effect: RenameTables, tables: dict[TableName, TableRecord]
    ) -> dict[str, TableRecord]:
        """Returns, by table id, the records of the tables of `names_in_the_way`. These tables do not exist on the
        server, so their records become dropped."""
        reason = "another table has got its name"
        in_the_way = names_in_the_way(tables, effect.pairs)
        for name in in_the_way:
            tables[name] = self._dropped(tables[name], reason)
        return {tables[name].table_id: tables[name] for name in in_the_way}

    def _dropped(self, record: TableRecord, reason: str) -> TableRecord:
        dropped = self._after(record.name, record, DropTable(record.name))
        assert dropped is not None
        return replace(dropped, reason=reason)

    def _arrived(self, name: TableName, record: TableRecord | None) -> TableRecord:
        entry = self.barrier.entry
        after = unknown_rows(name, record, entry, self.state.situation(name))
        return replace(after, from_lsn=entry.lsn)
