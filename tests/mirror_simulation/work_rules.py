"""Assertions about each work of the rules: when the work may begin, and which stored facts it needs.

A work on a table may begin only if the table's record is stored, so that after a crash the record shows where to
continue. Works on one table run one after the other, but a copy may run at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from spark_sink.mirror.rules.effects import (
    AskTable,
    ChangeTable,
    ClearCopy,
    CommitRows,
    CompareVersions,
    CopyTable,
    Effect,
    EndVersions,
    MoveFolders,
    RepairRows,
    StoreRecords,
    WriteVersions,
)
from spark_sink.mirror.rules.events import Event, FoldersMoved
from spark_sink.mirror.rules.mirror import Mirror
from spark_sink.mirror.rules.states import CatchingUp, Creating, Replaying
from spark_sink.mirror.rules.table_record import Request, TableRecord
from spark_sink.mirror.values.names import TableName, copy_folder
from tests.mirror_simulation.control import Control
from tests.mirror_simulation.copies import Copy


class WorkRules:
    """`excluded`: names whose tables the settings exclude; `stopping`: True if the job has to end; `ended`: True if the
    job no longer applies the consumer; `asked`: requests that the rules have received, by table id; `lost_sight_of`:
    ids of tables whose move has not ended, so that the place of their folders is not known."""

    def __init__(self, control: Control, excluded: set[TableName]) -> None:
        self._control, self._excluded = control, excluded
        self.stopping = self.ended = False
        self.asked: Mapping[str, Request] = {}
        self.lost_sight_of: set[str] = set()

    def begins(
        self, effect: Effect, running: Iterable[Effect], decided: Mapping[str, TableRecord]
    ) -> None:
        """Check a work that begins. `running`: the other running works; `decided`: the records in memory of the
        rules."""
        assert not self.ended, "a work begins although the consumer has ended"
        record = getattr(effect, "record", None)
        left_out = isinstance(record, TableRecord) and record.name in self._excluded
        assert not left_out, "a work of a table that the settings leave out"
        # Moves of folders that a crash has interrupted are completed.
        may_end = isinstance(effect, StoreRecords | MoveFolders)
        assert may_end or not self.stopping, "a work begins while the job ends"
        copied = _copied(effect)
        for other in running:
            both = _used(effect) & _used(other)
            assert not both, f"two works run on the table {min(both)}"
            assert copied is None or copied != _copied(other), "two copies of one table run"
            assert not (isinstance(effect, StoreRecords) and isinstance(other, StoreRecords)), (
                "two stores run"
            )
        for table_id in _used(effect):
            asked = self.asked.get(table_id)
            is_answered = asked is None or decided[table_id].handled == asked.id
            # A move that has begun must end before.
            may_begin = is_answered or isinstance(effect, MoveFolders)
            assert may_begin, "a work begins although a request waits"
            is_known = table_id not in self.lost_sight_of or isinstance(effect, MoveFolders)
            assert is_known, "a work of a table that lies somewhere"
            durable = _relied_on(self._control.records[table_id])
            assert durable == _relied_on(decided[table_id]), "a work before its record is stored"
        match effect:
            case RepairRows(record=record):
                as_stored = _relied_on(self._control.records[record.table_id])
                assert as_stored == _relied_on(record), "a repair for another record"
            case CommitRows(record=record):
                as_live = _as_live(self._control.records[record.table_id])
                assert _relied_on(as_live) == _relied_on(record), "rows for another record"
            case ClearCopy(table_id=table_id):
                deleted = self._control.records[table_id]
                is_needed = deleted.lies_at == copy_folder(table_id)
                may_delete = isinstance(deleted.state, Creating) and not is_needed
                assert may_delete, "a copy is deleted that is needed"
            case CopyTable(record=record):
                state = self._control.records[record.table_id].state
                assert state == record.state, "a copy before its record is stored"

    def starts(self) -> None:
        """Handle the start of a job, which knows neither earlier requests nor the progress of moves."""
        self.asked = {}
        moving = (r for r in self._control.records.values() if r.move is not None)
        self.lost_sight_of = {record.table_id for record in moving}

    def answered(self, effect: Effect, answer: Event) -> None:
        """Check the answer of a work, which the rules get."""
        if isinstance(effect, MoveFolders):
            ids = {record.table_id for record in effect.moving}
            self.lost_sight_of |= ids
            if isinstance(answer, FoldersMoved):
                in_place = ids if answer.step is None else answer.refused.keys()
                self.lost_sight_of -= in_place

    def copies(self, running: Iterable[Copy], decided: Mapping[str, TableRecord]) -> None:
        """Assert that after a step the rules have stopped each copy whose table has another state now, and all copies
        if the job ends."""
        for copy in running:
            record = copy.effect.record
            goes_on = decided[record.table_id].state == record.state and not self.stopping
            assert copy.stop or goes_on or self.ended, "a copy goes on that nothing needs"

    def ends(self, mirror: Mirror) -> None:
        """Assert that a stopped job ends only after all its decisions are stored."""
        state = mirror.state
        assert not (state.unsaved or state.saving), "a job ends, and has not stored a record"
        is_told = self._control.applied >= state.watermark()
        assert is_told, "a job ends, and has not stored how far everything is applied"

    def done(self, effect: Effect) -> None:
        """Handle that the work is done."""
        records = self._control.records
        match effect:
            case CommitRows(record=record):
                durable = records[record.table_id]
                is_placed = durable.folder or isinstance(durable.state, Replaying)
                assert is_placed, "rows before the record names the folder"
            case MoveFolders(moving=moving):
                for record in moving:
                    durable = records[record.table_id]
                    same = (durable.folder, durable.move) == (record.folder, record.move)
                    assert same, "a folder moves before its record says so"
            case WriteVersions() | EndVersions() | CompareVersions():
                durable = records[effect.record.table_id]
                assert durable.folder, "a version before the record names the folder"


def _used(effect: Effect) -> set[str]:
    """Returns the ids of the tables that no other work may use while this work runs."""
    match effect:
        case AskTable(table_id=table_id):
            return {table_id}
        case CompareVersions(record=record, mirrored=mirrored):
            return {record.table_id, *([mirrored.table_id] if mirrored else [])}
        case ChangeTable() | CommitRows() | RepairRows() | WriteVersions() | EndVersions():
            return {effect.record.table_id}
        case MoveFolders(moving=moving):
            return {record.table_id for record in moving}
    return set()


def _copied(effect: Effect) -> str | None:
    """Returns the id of the table whose copy a work makes or deletes."""
    match effect:
        case ClearCopy(table_id=table_id):
            return table_id
        case CopyTable(record=record):
            return record.table_id
    return None


def _relied_on(record: TableRecord) -> tuple[object, ...]:
    # The Delta table of a history itself contains the lsn up to which entries are applied.
    from_lsn = None if record.history else record.from_lsn
    place = (record.name, record.folder, record.move)
    return (*place, record.state, record.signature, record.epoch, from_lsn)


def _as_live(record: TableRecord) -> TableRecord:
    """Returns the record that decides how rows are applied to its table. For a record with a replay, this is the record
    as it will be when the replay has ended."""
    match record.state:
        case Replaying(goal=goal):
            return replace(record, state=goal, folder=copy_folder(record.table_id), move=None)
        case CatchingUp(goal=goal):
            return replace(record, state=goal)
    return record
