"""Executes the work of one table: what the record and the log's entry say, on the table's Delta table.

Order of writes, on which repeating after a crash relies:

* rows: the Delta table is created, then the record gets folder and columns, then the rows are committed under their
  lsn. Creating can be repeated; the lsn tells whether the rows are there.
* statement: first the Delta table, under the statement's lsn, then the record with `from_lsn` = that lsn. Between the
  two the statement comes again, Delta skips it, and the record is written.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from dispatcher.model.errors import BinlogError
from dispatcher.model.position import Position
from spark_sink.log_lines import log_event
from spark_sink.mirror.lake.damage import naming_damage
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.executed import Snapshot
from spark_sink.mirror.rules.plan import GapItem, LostItem, RowRun, StatementItem, UnclearItem, Work
from spark_sink.mirror.rules.renames import folder_of
from spark_sink.mirror.rules.table_record import LIVE, TableRecord, TableState
from spark_sink.mirror.rules.transitions import (
    DeltaWork,
    Situation,
    Transition,
    after_effect,
    after_gap,
    conflicting,
    copied_again,
    needs_copy,
    stopped,
    unknown_rows,
    without_entries,
)
from spark_sink.mirror.schema.signature import Signature, difference, new_columns
from spark_sink.mirror.tables import schema_changes
from spark_sink.mirror.tables.delta import MirroredTable, StepSession
from spark_sink.mirror.tables.directory import TableDirectory
from spark_sink.mirror.tables.steps import RowLayout, RowStep
from spark_sink.mirror.tables.table_checks import (
    require_free,
    require_same_history,
    require_schema,
    require_table,
    unclear_statement,
)
from spark_sink.mirror.values.entries import LogEntry
from spark_sink.mirror.values.names import TableName, quoted
from spark_sink.mirror.values.policies import (
    ApplyOptions,
    Deletes,
    MetadataColumn,
    UnfollowedChange,
)

if TYPE_CHECKING:
    from spark_sink.mirror.log.binlog_log import BinlogLog

log = logging.getLogger("spark_sink.mirror")


class TableNeedsCopyError(Exception):
    """The rows of a table are not known any more. `record`: what `before` becomes in place of applying the work."""

    def __init__(self, before: TableRecord, record: TableRecord) -> None:
        super().__init__(record.reason)
        self.before, self.record = before, record


class Processor:
    """Of one consumer. Several threads may call it, for different tables.

    `server`: the server that the log was read from, for the records of new tables.
    """

    def __init__(
        self,
        directory: TableDirectory,
        binlog_log: BinlogLog,
        options: ApplyOptions,
    ) -> None:
        self._directory = directory
        self._log = binlog_log
        self._options = options
        self.server = ""

    def situation(self, name: TableName) -> Situation:
        options = self._options
        return Situation(
            self._directory.consumer,
            self.server,
            options.policy(name),
            options.can_copy,
            options.invalid_dates,
        )

    # -- work as it comes ------------------------------------------------------------------------------------

    def execute(self, session: StepSession, name: TableName, work: Work) -> int:
        """Execute the work of the table that has the name at the work's lsn. Returns how many rows were applied.

        Raises `BinlogError` if the work cannot be applied to this table.
        """
        record = self._directory.find(name, work.lsn)
        path = self._directory.full_path(folder_of(name) if record is None else record.folder)
        try:
            with naming_damage(partial(FileSystem, session.spark), path):
                return self._execute(session, name, record, work)
        except TableNeedsCopyError as error:
            self.write(error.before, error.record, "copy needed")
            self._directory.skipped(error.record, work.lsn)
        return 0

    def _execute(
        self, session: StepSession, name: TableName, record: TableRecord | None, work: Work
    ) -> int:
        match work:
            case RowRun():
                return self._rows_as_they_come(session, name, record, work)
            case StatementItem():
                self._statement(session, name, record, work)
            case UnclearItem() if record is not None:
                self._unclear(session, record, work)
            case GapItem() if record is not None:
                self._gap(session, record, work)
            case LostItem() if record is not None:
                self._lost(session, record, work)
        return 0

    def write(self, before: TableRecord | None, record: TableRecord, why: str) -> None:
        """Write what is changed of a record, and log it. `before`: None for a new table."""
        level = logging.WARNING if record.state is TableState.STOPPED else logging.INFO
        said = {"consumer": record.consumer, "table": record.label, "state": record.state.value}
        reason = {"reason": record.reason} if record.reason else {}
        log_event(log, "table", said | {"why": why} | reason, level)
        self._updated(before, record)

    def _updated(self, before: TableRecord | None, after: TableRecord) -> TableRecord:
        (newest,) = self._directory.update((before, after))
        return newest

    def _rows_as_they_come(
        self, session: StepSession, name: TableName, record: TableRecord | None, run: RowRun
    ) -> int:
        if record is not None and run.lsn <= self._directory.applied(session.spark, record):
            return 0
        if record is None or record.state is TableState.DROPPED:
            record = self._first_rows(name, record, run.entries[0])
        if record.state not in LIVE and self._directory.skipped(record, run.lsn):
            return 0
        return self.rows(session, self._directory.record(record.table_id), run)

    def _first_rows(
        self, name: TableName, record: TableRecord | None, entry: LogEntry
    ) -> TableRecord:
        unknown = unknown_rows(name, record, entry, self.situation(name))
        if (owner := self._directory.other_owner(name)) is not None:
            way = remedies.of_other_consumer(unknown.label, unknown.consumer)
            reason = f"the target has this table from the consumer {owner.consumer}; {way}"
            unknown = stopped(replace(unknown, folder=""), reason, entry.lsn - 1, entry.lsn)
        self.write(record, unknown, f"first rows at lsn {entry.lsn}")
        return unknown

    def _unclear(self, session: StepSession, record: TableRecord, work: UnclearItem) -> None:
        if work.lsn <= self._directory.applied(session.spark, record):
            return
        if record.state in LIVE or not self._left(record, work.lsn):
            raise unclear_statement(record, work)

    def _left(self, record: TableRecord, lsn: int) -> bool:
        """Leave an entry of a table that is not live in the log. False if the table is live by now."""
        return record.state is TableState.DROPPED or self._directory.skipped(record, lsn)

    def _lost(self, session: StepSession, record: TableRecord, work: LostItem) -> None:
        with self._directory.exclusive(record.table_id):
            record = self._directory.record(record.table_id)
            if work.lsn <= self._directory.applied(session.spark, record):
                return
            if record.state in LIVE:
                reason = remedies.of_fault(work.error, record.label)
                stands = without_entries(record, reason, work.first - 1, work.lsn)
                self.write(record, stands, f"lost entries from lsn {work.first}")
                record = stands
            self._left(record, work.lsn)

    def _gap(self, session: StepSession, record: TableRecord, work: GapItem) -> None:
        with self._directory.exclusive(record.table_id):
            record = self._directory.record(record.table_id)
            if work.lsn <= self._directory.applied(session.spark, record):
                return
            if record.state in LIVE or "lost" in record.detail:
                now = self.situation(record.name)
                self.write(record, after_gap(record, work.entry, now), f"gap before lsn {work.lsn}")
            elif record.state is TableState.COPYING:
                self.write(record, copied_again(record), f"gap before lsn {work.lsn}")
            else:
                self._directory.skipped(record, work.lsn)

    # -- rows ------------------------------------------------------------------------------------------------

    def rows(self, session: StepSession, record: TableRecord, run: RowRun) -> int:
        """Apply the rows of a run that the table does not have yet. Returns their number."""
        rest = run.after(self._directory.applied(session.spark, record))
        if rest is None:
            return 0
        require_same_history(record, rest.entries[0])
        try:
            return self._commit_rows(session, record, rest)
        except (BinlogError, TableNeedsCopyError):
            raise
        except Exception:
            # What is lost is told by its name; anything else is tried again.
            self._log.require_files(record.consumer, [entry.lsn for entry in rest.entries])
            if record.folder:
                require_table(session.spark, self._directory.table(record))
            raise

    def _commit_rows(self, session: StepSession, record: TableRecord, rest: RowRun) -> int:
        policy = self._options.policy(record.name)
        layout = RowLayout.of(rest, self._options.invalid_dates, policy.omitted)
        columns = layout.stored_columns(policy)
        record = self._fitting(session, record, rest, layout, columns)
        record = self._with_metadata(session, record, columns)
        table = self._directory.table(record)
        if policy.feed:
            table.feed_changes(session.spark)
        exact = record.state is TableState.COMPLETE and "exact_from" in record.detail
        step = RowStep(
            record.consumer,
            table,
            rest,
            layout,
            policy,
            self._options.invalid_dates,
            exact and rest.entries[0].lsn > record.detail["exact_from"],
            _snapshot(record),
        )
        try:
            step.commit(session, self._log)
        except Exception:
            self._directory.doubt(record)
            raise
        self._directory.committed(record, rest.lsn)
        return rest.rows

    def _fitting(
        self,
        session: StepSession,
        record: TableRecord,
        run: RowRun,
        layout: RowLayout,
        columns: StructType,
    ) -> TableRecord:
        """Returns the record with a Delta table that has the run's columns."""
        if record.signature:
            if self._directory.layout_checked(record, run.entries[0].layout):
                return record
            self._directory.layout_unchecked(record)
            signature = Signature.from_json(record.signature)
            differs = difference(signature, layout.table_map, self._options.invalid_dates)
            if not differs:
                if "conflict" in record.detail:
                    record = self._updated(record, record.having(conflict=None))
                self._directory.layout_checked(record, run.entries[0].layout)
                return record
            return self._following(session, record, run, layout, differs)
        before = record
        if not record.folder:
            record = replace(record, folder=folder_of(record.name))
            require_free(session.spark, self._directory.table(record), record)
        elif _has_rows(record):
            # Creating it anew would lose its rows.
            require_table(session.spark, self._directory.table(record))
        table = self._directory.table(record)
        feed = self._options.policy(record.name).feed
        table.create(session.spark, columns, feed=feed)
        require_schema(session.spark, table, columns)
        signature = Signature.of_table_map(layout.table_map, self._options.invalid_dates)
        epoch = record.epoch or run.entries[0].epoch
        return self._updated(before, replace(record, signature=signature.to_json(), epoch=epoch))

    def _with_metadata(
        self, session: StepSession, record: TableRecord, columns: StructType
    ) -> TableRecord:
        """Returns the record with a Delta table that has the metadata columns of the policy."""
        wanted = list(self._options.policy(record.name).extra)
        if set(wanted) <= set(record.detail.get("metadata", ())):
            return record
        table = self._directory.table(record)
        existing = set(table.columns(session.spark).names)
        if added := [c for c in columns if c.name in wanted and c.name not in existing]:
            table.add_columns(session.spark, StructType(added))
        return self._updated(record, record.having(metadata=wanted))

    def _following(
        self,
        session: StepSession,
        record: TableRecord,
        run: RowRun,
        layout: RowLayout,
        differs: str,
    ) -> TableRecord:
        lsn = run.entries[0].lsn
        now = self.situation(record.name)
        new = Signature.of_table_map(layout.table_map, self._options.invalid_dates)
        table = self._directory.table(record)
        if (version := record.detail.get("new_column")) is not None:
            change = new_columns(Signature.from_json(record.signature), new, version)
            schema_changes.execute(session.spark, table.path, table.app_id, version, change)
            followed = replace(record, signature=change.signature.to_json())
            return self._updated(record, followed.having(new_column=None))
        if table.is_empty(session.spark):
            columns = layout.stored_columns(now.policy)
            table.replace_schema(session.spark, columns)
            return self._updated(record, replace(record, signature=new.to_json()))
        raise TableNeedsCopyError(record, conflicting(record, differs, lsn, now))

    # -- statements ------------------------------------------------------------------------------------------

    def _statement(
        self, session: StepSession, name: TableName, found: TableRecord | None, item: StatementItem
    ) -> None:
        if found is None:
            self._effects(session, name, None, item)
            return
        with self._directory.exclusive(found.table_id):
            record = self._directory.find(name, item.lsn)
            if record is None or item.lsn > record.from_lsn:
                self._effects(session, name, record, item)

    def _effects(
        self, session: StepSession, name: TableName, record: TableRecord | None, item: StatementItem
    ) -> None:
        before = record
        for effect in item.effects:
            moved = after_effect(name, record, effect, item.entry, self.situation(name))
            record = self.effect(session, record, moved, item.entry)
        if record is None:
            return
        if record != before:
            self.write(before, record, f"{type(item.effects[-1]).__name__} at lsn {item.lsn}")
        elif record.state not in (*LIVE, TableState.DROPPED):
            self._directory.skipped(record, item.lsn)

    def effect(
        self,
        session: StepSession,
        before: TableRecord | None,
        moved: Transition,
        entry: LogEntry,
    ) -> TableRecord | None:
        """Do to the Delta table what a transition says. Returns the record to be written."""
        record = moved.record
        if record is None or not record.folder:
            return record
        if moved.work is DeltaWork.NOTHING and not moved.recopy:
            return record
        table = self._directory.table(record)
        if moved.work is not DeltaWork.DROP and before is not None and _has_rows(before):
            require_table(session.spark, table)
        if moved.recopy and not table.is_empty(session.spark):
            assert before is not None
            now = self.situation(before.name)
            raise TableNeedsCopyError(before, needs_copy(before, moved.recopy, entry.lsn, now))
        try:
            refused = self._change(session, table, moved, entry)
        except Exception:
            self._directory.doubt(record)
            raise
        if refused:
            assert before is not None
            now = self.situation(before.name)
            if now.policy.unfollowed is UnfollowedChange.NEW_COLUMN:
                return replace(before, from_lsn=entry.lsn).having(new_column=entry.lsn)
            raise TableNeedsCopyError(before, needs_copy(before, refused, entry.lsn, now))
        self._directory.committed(record, entry.lsn)
        self._directory.layout_unchecked(record)
        return record

    def _change(
        self, session: StepSession, table: MirroredTable, moved: Transition, entry: LogEntry
    ) -> str:
        """Returns why existing rows do not follow; "" if all is done."""
        assert moved.record is not None
        policy = self._options.policy(moved.record.name)
        soft = policy.deletes is Deletes.SOFT and moved.work is DeltaWork.TRUNCATE
        session.expect(0, table.size_bytes(session.spark))
        match moved.work:
            case DeltaWork.DROP | DeltaWork.TRUNCATE if not soft:
                table.empty(session, entry.lsn)
            case DeltaWork.TRUNCATE if table.exists(session.spark):
                deleted = quoted(MetadataColumn.DELETED)
                table.update(session, entry.lsn, {deleted: F.lit(True)}, f"NOT {deleted}")
            case DeltaWork.SCHEMA:
                assert moved.change is not None
                return schema_changes.execute(
                    session.spark, table.path, table.app_id, entry.lsn, moved.change
                )
        return ""


def _snapshot(record: TableRecord) -> Snapshot | None:
    """Returns the snapshot of a table without a key whose copy the log is replayed on."""
    if "exact" not in record.detail:
        return None
    return Snapshot(*(Position.from_dict(record.detail[name]) for name in ("begin", "executed")))


def _has_rows(record: TableRecord) -> bool:
    """True unless the table is known to have had no rows since it was made; then it may have no Delta table yet."""
    return bool(record.signature) or "exact_from" not in record.detail
