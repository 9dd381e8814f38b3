"""Executes works (`rules.effects`) on the Delta tables of mirrored tables: reads facts that a Delta table records,
changes a Delta table, and commits rows. An lsn is the number of an entry of the mirror's log.

A change that has an lsn is committed only once: Delta skips a commit whose lsn is not newer than the recorded lsn. So
each work can be repeated after a crash or a failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BooleanType, StructField, StructType

from dispatcher.model.errors import BinlogError
from spark_sink.mirror.lake.damage import naming_damage
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.rules.effects import AskTable, ChangeTable, CommitRows
from spark_sink.mirror.rules.executed import Snapshot
from spark_sink.mirror.rules.plan import RowRun
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.table_work import (
    NO_TABLE_ID,
    AddMetadata,
    ChangeColumns,
    DeleteRows,
    DeltaFacts,
    MakeTable,
    ReplaceColumns,
)
from spark_sink.mirror.tables import schema_changes
from spark_sink.mirror.tables.delta import MirroredTable, StepSession
from spark_sink.mirror.tables.quarantine import Quarantine
from spark_sink.mirror.tables.steps import Decoding, RowLayout, RowStep
from spark_sink.mirror.tables.table_checks import require_schema, require_table
from spark_sink.mirror.values.entries import LogEntry
from spark_sink.mirror.values.names import aside_folder, quoted
from spark_sink.mirror.values.policies import ApplyOptions, MetadataColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_sink.mirror.log.binlog_log import BinlogLog


def mirrored_table(target: str, record: TableRecord) -> MirroredTable:
    """Returns the Delta table of a record, at its present path."""
    path = f"{target.rstrip('/')}/{record.lies_at}"
    return MirroredTable(record.table_id, path, record.label)


@dataclass(frozen=True, slots=True)
class TableWorks:
    """The works of one consumer. Several threads may call the methods, each thread with its own session.

    All methods raise `BinlogError` for a fault of the table's data or of its Delta table, with TARGET_FILES if files of
    this table or of the log are lost. After any other exception, the work can be repeated.
    """

    consumer: str
    options: ApplyOptions
    binlog_log: BinlogLog

    def ask(self, session: StepSession, work: AskTable) -> DeltaFacts:
        """Returns the facts about the Delta table in the folder. If there is no Delta table, these are: lsn -1, no
        owner, no rows."""
        spark = session.spark
        path = f"{self.options.target.rstrip('/')}/{work.folder}"
        table = MirroredTable(work.table_id, path, work.folder)
        with _naming_damage(spark, table):
            empty = table.is_empty(spark) if work.rows else None
            owner = table.owner(spark)
            if not owner and table.exists(spark):
                owner = NO_TABLE_ID
            return DeltaFacts(table.version(spark), empty, owner)

    # -- changes ---------------------------------------------------------------------------------------------

    def change(self, session: StepSession, work: ChangeTable) -> str:
        """Returns "" if the change was made. Otherwise returns why existing rows cannot follow the change; then nothing
        was changed."""
        spark, table = session.spark, self._table(work.record)
        with _naming_damage(spark, table):
            match work.change:
                case MakeTable(entry=entry, replaces=replaces):
                    columns = self._columns(work.record, entry)
                    feed = self.options.policy(work.record.name).feed
                    self._delete_aside(spark, work.record)
                    iceberg = self.options.iceberg is not None
                    if replaces and table.exists(spark):
                        table.take_over(spark, columns, feed=feed, iceberg=iceberg)
                        return ""
                    table.create(spark, columns, feed=feed, iceberg=iceberg)
                    require_schema(spark, table, columns)
                case ReplaceColumns(entry=entry):
                    table.replace_schema(spark, self._columns(work.record, entry))
                case AddMetadata(entry=entry):
                    self._add_metadata(spark, table, work.record, entry)
                case DeleteRows():
                    self._delete_rows(session, table, work.change)
                case ChangeColumns(lsn=lsn, change=change):
                    session.expect(0, table.size_bytes(spark))
                    iceberg = self.options.iceberg is not None or table.is_for_iceberg(spark)
                    return schema_changes.execute(
                        spark, table.path, table.app_id, lsn, change, iceberg=iceberg
                    )
        return ""

    def _delete_aside(self, spark: SparkSession, record: TableRecord) -> None:
        """Delete the folder to which the table was moved aside, unless the table's rows are in this folder. Such a
        folder stays behind if a table is dropped while its place is taken. A later move of the table would mix the
        files of both folders."""
        aside = aside_folder(record.table_id)
        if record.lies_at != aside:
            FileSystem(spark).delete(f"{self.options.target.rstrip('/')}/{aside}")

    def _columns(self, record: TableRecord, entry: LogEntry) -> StructType:
        """Returns the columns that the Delta table of `record` has for the rows of `entry`."""
        policy = self.options.policy(record.name)
        layout = RowLayout.of(RowRun((entry,)), self.options.invalid_dates, policy)
        return layout.stored_columns(policy)

    def _add_metadata(
        self, spark: SparkSession, table: MirroredTable, record: TableRecord, entry: LogEntry
    ) -> None:
        wanted = self.options.policy(record.name).extra
        existing = set(table.columns(spark).names)
        columns = self._columns(record, entry)
        if added := [c for c in columns if c.name in wanted and c.name not in existing]:
            table.add_columns(spark, StructType(added))

    @staticmethod
    def _delete_rows(session: StepSession, table: MirroredTable, change: DeleteRows) -> None:
        spark, deleted = session.spark, MetadataColumn.DELETED
        session.expect(0, table.size_bytes(spark))
        if not change.marked:
            table.empty(session, change.lsn)
        elif table.exists(spark):
            # A row has no metadata if a copy has read it, or if it is older than the setting of soft deletes. The
            # column is then missing, or NULL.
            if deleted not in table.columns(spark).names:
                table.add_columns(spark, StructType([StructField(deleted, BooleanType())]))
            name = quoted(deleted)
            table.update(session, change.lsn, {name: F.lit(True)}, f"NOT coalesce({name}, false)")

    # -- rows ------------------------------------------------------------------------------------------------

    def commit(self, session: StepSession, work: CommitRows) -> int:
        """Commit the rows of the work's run under the run's lsn. Returns how many invalid values became NULL."""
        table = self._table(work.record)
        with _naming_damage(session.spark, table):
            try:
                step = self._step(session, table, work)
                return step.commit(session, self.binlog_log, Quarantine(self.options.target))
            except BinlogError:
                raise
            except Exception:
                # If a file of the log or of the table is lost, raise the error for this file in place of the exception,
                # because the work is repeated after any other exception.
                lsns = [entry.lsn for entry in work.rows.entries]
                self.binlog_log.require_files(self.consumer, lsns)
                require_table(session.spark, table)
                raise

    def _step(self, session: StepSession, table: MirroredTable, work: CommitRows) -> RowStep:
        options, policy = self.options, self.options.policy(work.record.name)
        layout = RowLayout.of(work.rows, options.invalid_dates, policy)
        layout.stored_columns(
            policy
        )  # raises if a column of the table has the name of a metadata column
        if policy.feed:
            table.feed_changes(session.spark)
        return RowStep(
            work.record,
            table,
            work.rows,
            layout,
            policy,
            Decoding(options.invalid_dates, policy.all_versions, policy.rules),
            work.exact,
            None if work.snapshot is None else Snapshot(*work.snapshot),
        )

    def _table(self, record: TableRecord) -> MirroredTable:
        return mirrored_table(self.options.target, record)


@contextmanager
def _naming_damage(spark: SparkSession, table: MirroredTable) -> Iterator[None]:
    with naming_damage(partial(FileSystem, spark), table.path):
        yield
