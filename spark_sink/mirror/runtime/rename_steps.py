"""Executes the step of a statement that renames tables, when all tables that it concerns have reached it.

The records change in one commit of the control table; then the folders follow, see `folder_mover`. What the statement
does beside, such as the columns of an ALTER TABLE ... RENAME TO, is done before, table by table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from spark_sink.mirror.rules.plan import RenameBarrier
from spark_sink.mirror.rules.renames import crossings, records_after
from spark_sink.mirror.rules.table_record import TableRecord, TableState
from spark_sink.mirror.rules.transitions import LEFT_OUT, after_effect, unknown_rows
from spark_sink.mirror.runtime.folder_mover import FolderMover
from spark_sink.mirror.runtime.processor import Processor, TableNeedsCopyError
from spark_sink.mirror.schema.statements import DropTable, RenameTables
from spark_sink.mirror.tables.delta import StepSession
from spark_sink.mirror.tables.directory import TableDirectory
from spark_sink.mirror.values.entries import LogEntry
from spark_sink.mirror.values.names import TableName

log = logging.getLogger("spark_sink.mirror")


class RenameSteps:
    """Of one consumer."""

    def __init__(
        self,
        directory: TableDirectory,
        processor: Processor,
        mover: FolderMover,
        excluded: Callable[[TableName], bool],
    ) -> None:
        """`excluded`: tells whether tables of a name are left out of the mirror."""
        self._directory, self._processor, self._mover = directory, processor, mover
        self._excluded = excluded

    def execute(self, session: StepSession, barrier: RenameBarrier) -> None:
        """Rename tables. It can be repeated after a crash at any point."""
        directory = self._directory
        found = {name: directory.find(name, barrier.lsn) for name in barrier.names}
        tables = {
            name: record
            for name, record in found.items()
            if record is not None and LEFT_OUT not in record.detail
        }
        done = [
            record.table_id
            for record in directory.records()
            if barrier.lsn in (line[0] for line in record.detail.get("names", ()))
        ]
        if done:
            with directory.exclusive(*done):
                self._mover.finish_moves(*done)
            return
        with directory.exclusive(*(record.table_id for record in tables.values())):
            # Tables that are stopped or copied may have changed until here.
            tables = {name: directory.record(r.table_id) for name, r in tables.items()}
            before = {record.table_id: record for record in tables.values()}
            changed = self._changed(session, barrier, tables)
            directory.update(*((before.get(key), after) for key, after in changed.items()))
            if changed:
                self._mover.finish_moves(*changed)
        for record in changed.values():
            log.info("%s: %s: renamed at lsn %d", directory.consumer, record.label, barrier.lsn)

    def _changed(
        self, session: StepSession, barrier: RenameBarrier, tables: dict[TableName, TableRecord]
    ) -> dict[str, TableRecord]:
        """Returns the records that the statement changes, by table id."""
        changed: dict[str, TableRecord] = {}
        for effect in barrier.effects:
            if isinstance(effect, RenameTables):
                crossed = self._cross(session, effect, barrier.entry, tables)
                changed |= {record.table_id: record for record in crossed}
                records = records_after(tables, effect.pairs, barrier.lsn)
                changed |= {record.table_id: record for record in records}
                continue
            for name in effect.tables:
                now = self._processor.situation(name)
                moved = after_effect(name, tables.get(name), effect, barrier.entry, now)
                try:
                    record = self._processor.effect(session, tables.get(name), moved, barrier.entry)
                except TableNeedsCopyError as error:
                    record = error.record
                if record is not None and record != tables.get(name):
                    tables[name] = record
                    changed[record.table_id] = record
        return changed

    def _cross(
        self,
        session: StepSession,
        effect: RenameTables,
        entry: LogEntry,
        tables: dict[TableName, TableRecord],
    ) -> list[TableRecord]:
        """Returns the records of tables that leave the mirror, or come into it, and takes those out of `tables` that
        are not renamed.

        A table that gets an excluded name is dropped. One that loses it has rows that the log does not hold, so it is
        like one that is older than the mirror; if its name was that of a table that leaves, this one's rows can be
        read until the copy is made.
        """
        crossed = crossings(effect.pairs, self._excluded)
        changed = []
        for name in crossed.leaving:
            record = tables.pop(name, None)
            if record is None or record.from_lsn >= entry.lsn:
                continue
            arrived = self._arrived(name, record, entry) if name in crossed.arriving else None
            if arrived is None or arrived.state is not TableState.CREATING:
                record = self._left(session, record, entry)
                if arrived is not None:
                    arrived = self._arrived(name, record, entry)
                else:
                    tables[name] = record  # another table may get its folder
            changed.append(arrived or record)
        for name in crossed.arriving:
            former = tables.get(name)
            if name in crossed.leaving or (former and former.from_lsn >= entry.lsn):
                tables.pop(name, None)
            elif former and former.state is not TableState.DROPPED:
                changed.append(self._arrived(name, None, entry))  # `former` is renamed, too
            else:
                tables.pop(name, None)
                changed.append(self._arrived(name, former, entry))
        return changed

    def _left(self, session: StepSession, record: TableRecord, entry: LogEntry) -> TableRecord:
        now = self._processor.situation(record.name)
        moved = after_effect(record.name, record, DropTable(record.name), entry, now)
        dropped = self._processor.effect(session, record, moved, entry)
        assert dropped is not None
        return replace(dropped, reason="renamed to a name that the settings leave out")

    def _arrived(self, name: TableName, record: TableRecord | None, entry: LogEntry) -> TableRecord:
        after = unknown_rows(name, record, entry, self._processor.situation(name))
        return replace(after, from_lsn=entry.lsn)
