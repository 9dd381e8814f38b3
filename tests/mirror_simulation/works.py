"""Executes the works of the rules, each at once: on the log, the Delta tables and the control table."""

from __future__ import annotations

from collections import Counter

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.rules.effects import (
    AskTable,
    ChangeTable,
    ClearCopy,
    CommitRows,
    CompareKeyRange,
    CompareVersions,
    Effect,
    EndVersions,
    MoveFolders,
    ReadKeyRange,
    ReadLog,
    RepairRows,
    StoreRecords,
    WriteVersions,
)
from spark_sink.mirror.rules.events import (
    CopyCleared,
    EntriesRead,
    Event,
    FoldersMoved,
    HistoryWritten,
    LogLost,
    RowsCommitted,
    Stored,
    TableAsked,
    TableChanged,
)
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.values.entries import first_lsn
from spark_sink.mirror.values.names import copy_folder
from tests.mirror_simulation.choices import Choices
from tests.mirror_simulation.control import Control
from tests.mirror_simulation.folders import FileMover, FolderMover, source_folder
from tests.mirror_simulation.judge import Judge
from tests.mirror_simulation.lake import Lake, LakeTable
from tests.mirror_simulation.log import Rows
from tests.mirror_simulation.proofs import Proofs

_ALL = 1 << 30


class Works:
    """`by_files`: folders move as in an object store; `registers`: id of the table that the catalog registers next, ""
    for none."""

    def __init__(self, choices: Choices, lake: Lake, control: Control, judge: Judge) -> None:
        self._choices, self._lake, self._control, self._judge = choices, lake, control, judge
        self.by_files = False
        self.registers = ""
        self.proofs = Proofs(lake)

    def do(self, effect: Effect, *, killed: bool = False) -> Event:
        """Do the work of an effect. Returns the event that answers the effect. `killed`: True if the job is killed
        during this work; a move is then done only in part, other works are done completely. Raises BinlogError."""
        match effect:
            case StoreRecords():
                return self._store(effect)
            case ReadLog():
                return self._read(effect)
            case MoveFolders():
                return self._move(effect, killed=killed)
            case WriteVersions() | EndVersions() | CompareVersions():
                self._write_history(effect)
                return HistoryWritten(effect.run)
            case ReadKeyRange():
                return self.proofs.read(effect)
            case CompareKeyRange():
                return self.proofs.compare(effect)
            case RepairRows():
                return self._repair(effect)
        return self._use_table(effect)

    def _repair(self, effect: RepairRows) -> Event:
        answer = self.proofs.repair(effect)
        if answer.keys:
            self._judge.proofs.repaired(effect)
            self._judge.values.shows(self._lake.folders[effect.record.lies_at], effect.record.name)
        return answer

    def _use_table(self, effect: Effect) -> Event:
        match effect:
            case AskTable():
                facts = self._lake.facts(effect.folder, effect.table_id, rows=effect.rows)
                return TableAsked(effect.run, facts)
            case ChangeTable():
                return TableChanged(effect.run, self._lake.change(effect.record, effect.change))
            case CommitRows():
                self._lake.commit(
                    effect.record, effect.rows.entries, exact=effect.exact, snapshot=effect.snapshot
                )
                self._judge.values.committed(effect)
                self._judge.tables.table(self._control.records[effect.record.table_id])
                return RowsCommitted(effect.run)
            case ClearCopy():
                self._lake.folders.pop(copy_folder(effect.table_id), None)
                return CopyCleared(effect.run)
        raise AssertionError(f"not known: {effect}")

    def _read(self, effect: ReadLog) -> Event:
        log, after, before = self._lake.log, effect.after, effect.before
        appends = self._choices.appends()
        lost = log.lost_behind(after, before)
        if lost is None:
            return EntriesRead(effect.run, log.read(after, before, effect.tables, appends))
        error = BinlogError(ErrorKind.TARGET_FILES, f"append {lost} is lost")
        entries = log.read(after, first_lsn(lost), effect.tables, _ALL)
        return LogLost(effect.run, error, lost, lost, entries)

    def _store(self, effect: StoreRecords) -> Event:
        self._judge.stores(effect)
        written = self._control.store(effect.records, effect.watermark, effect.proofs)
        self._judge.stored(effect)
        self.registers = self._choices.registered(effect.records) or self.registers
        return Stored(effect.run, written)

    def _move(self, effect: MoveFolders, *, killed: bool) -> Event:
        moving, existing, choices = effect.moving, effect.existing, self._choices
        waits = {record.table_id: source_folder(record) for record in moving}
        if self.by_files:
            works = choices.moved_tables(len(moving)) if killed else _ALL
            refused, step = FileMover(self._lake, existing).move(moving, works)
            return FoldersMoved(effect.run, refused, waits, step)
        steps = choices.renamed_folders() if killed else _ALL
        refused = FolderMover(self._lake, existing, steps).move(moving)
        return FoldersMoved(effect.run, refused, waits)

    def _write_history(self, effect: WriteVersions | EndVersions | CompareVersions) -> None:
        record = effect.record
        new = LakeTable(record.table_id, ())
        history = self._lake.folders.setdefault(record.folder, new)
        lsn = effect.rows.lsn if isinstance(effect, WriteVersions) else effect.lsn
        if lsn <= history.version:
            return
        match effect:
            case WriteVersions():
                entries = effect.rows.entries
                self._lake.write_versions(record.name, history, entries, exact=effect.exact)
            case EndVersions():
                history.rows.clear()
            case CompareVersions(mirrored=mirrored):
                history.rows = self._rows_at(mirrored, lsn)
        if (
            not self._lake.values.unmasked
        ):  # a history has the rows that its table had under other names
            self._judge.values.shows(history, record.name)
        history.commit(lsn)

    def _rows_at(self, record: TableRecord | None, lsn: int) -> Rows:
        """Returns the rows that the Delta table of a record had at `lsn`."""
        table = None if record is None else self._lake.folders.get(record.lies_at)
        if record is None or table is None or table.owner != record.table_id:
            return Counter()
        return Counter(table.rows_at(lsn))
