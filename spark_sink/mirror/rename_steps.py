"""Executes the step of a statement that renames tables, when all tables that it concerns have reached it.

The records change in one commit of the control table; then the folders follow, see `renames`. What the statement does
beside, such as the columns of an ALTER TABLE ... RENAME TO, is done before, table by table.
"""

from __future__ import annotations

import logging

from spark_sink.mirror.control import TableRecord
from spark_sink.mirror.delta import StepSession
from spark_sink.mirror.directory import TableDirectory
from spark_sink.mirror.names import TableName
from spark_sink.mirror.plan import RenameBarrier
from spark_sink.mirror.processor import Processor, TableNeedsCopyError
from spark_sink.mirror.renames import FolderMover, records_after
from spark_sink.mirror.statements import RenameTables
from spark_sink.mirror.transitions import after_effect

log = logging.getLogger("spark_sink.mirror")


class RenameSteps:
    """Of one consumer."""

    def __init__(self, directory: TableDirectory, processor: Processor, mover: FolderMover) -> None:
        self._directory, self._processor, self._mover = directory, processor, mover

    def execute(self, session: StepSession, barrier: RenameBarrier) -> None:
        """Rename tables. It can be repeated after a crash at any point."""
        directory = self._directory
        found = {name: directory.find(name, barrier.lsn) for name in barrier.names}
        tables = {name: record for name, record in found.items() if record is not None}
        done = [line[0] for r in directory.records() for line in r.detail.get("names", ())]
        if barrier.lsn in done:
            self._mover.finish_moves()
            return
        with directory.exclusive(*(record.table_id for record in tables.values())):
            # Tables that are stopped or copied may have changed until here.
            tables = {name: directory.record(r.table_id) for name, r in tables.items()}
            changed = self._changed(session, barrier, tables)
            directory.save(*changed.values())
            self._mover.finish_moves()
        for record in changed.values():
            log.info("%s: %s: renamed at lsn %d", directory.consumer, record.label, barrier.lsn)

    def _changed(
        self, session: StepSession, barrier: RenameBarrier, tables: dict[TableName, TableRecord]
    ) -> dict[str, TableRecord]:
        """Returns the records that the statement changes, by table id."""
        changed: dict[str, TableRecord] = {}
        for effect in barrier.effects:
            if isinstance(effect, RenameTables):
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
