"""Executes the steps of the histories of one consumer on their Delta tables."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from dispatcher.binlog.decode import delivered
from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.history.history_records import HistoryRecords
from spark_sink.mirror.history.history_table import HistoryTable
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.plan import RowRun
from spark_sink.mirror.rules.renames import folder_of
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.tables.delta import MirroredTable, StepSession
from spark_sink.mirror.tables.steps import RowLayout
from spark_sink.mirror.tables.time_travel import mirrored_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_sink.mirror.log.binlog_log import BinlogLog

log = logging.getLogger("spark_sink.mirror")


@dataclass(frozen=True, slots=True)
class DeltaHistorySteps:
    """See `histories.HistorySteps`. Each raises `BinlogError` for rows of which there can be no history."""

    records: HistoryRecords
    binlog_log: BinlogLog

    def recorded(self, session: StepSession, record: TableRecord) -> int:
        return self._table(record).table.version(session.spark) if record.folder else -1

    def rows(self, session: StepSession, record: TableRecord, run: RowRun, *, exact: bool) -> None:
        from spark_sink.mirror.history.row_versions import row_versions  # noqa: PLC0415 - loads numpy

        dates = self.records.options.invalid_dates
        layout = RowLayout.of(run, dates, self.records.options.policy(record.name).omitted)
        if not layout.key:
            raise BinlogError(
                ErrorKind.UNSUPPORTED_CHANGE,
                f"table {layout.table_map.label} has no key, so versions of its rows cannot be told apart",
                where=f"lsn {run.entries[0].lsn}",
                remedy=f"give the table a primary key, then {remedies.of_history(record.label)}",
            )
        table = self._fitted(session.spark, record, layout.columns)
        decoded = (
            (lsn, delivered.decode_table(payload, invalid_dates=dates))
            for lsn, payload in self._payloads(session, run)
        )
        lines: pa.Table = row_versions(decoded, layout.row, layout.key, exact=exact)
        session.expect(run.payload_bytes, table.table.size_bytes(session.spark))
        table.commit(session, run.lsn, lines, layout.key)
        log.info("%s: %s: %d changes", record.consumer, record.label, run.rows)

    def _payloads(self, session: StepSession, run: RowRun) -> Iterator[tuple[int, bytes]]:
        large = [entry.lsn for entry in run.entries if entry.payload is None]
        consumer = self.records.directory.consumer
        found = self.binlog_log.local_payloads(consumer, large) if large else {}
        if found is None:
            rows = self.binlog_log.payloads(session.spark, consumer, large).collect()
            found = {row["lsn"]: bytes(row["payload"]) for row in rows}
        for entry in run.entries:
            yield entry.lsn, found[entry.lsn] if entry.payload is None else entry.payload

    def end_all(self, session: StepSession, record: TableRecord, lsn: int, at: datetime) -> None:
        if record.folder:
            self._table(record).end_all(session, lsn, at)

    def compare(self, session: StepSession, record: TableRecord, lsn: int, at: datetime) -> None:
        directory, spark = self.records.directory, session.spark
        mirrored = directory.find(record.name, lsn + 1)
        # Its folder is not moved meanwhile.
        with directory.exclusive(*([] if mirrored is None else [mirrored.table_id])):
            mirrored = directory.find(record.name, lsn + 1)
            rows = None
            if mirrored is not None and mirrored.folder:
                policy = self.records.options.policy(record.name)
                rows = mirrored_rows(spark, directory.table(mirrored), policy, lsn)
            if rows is None:
                self.end_all(session, record, lsn, at)
                return
            session.expect(0, -1)
            self._fitted(spark, record, rows.schema).compare(session, lsn, rows, at)

    def _fitted(
        self, spark: SparkSession, record: TableRecord, columns: StructType
    ) -> HistoryTable:
        """Returns the history's Delta table, which has these columns of rows.

        The record names the folder from when the table is there, and before its first version is: a record without a
        folder is that of a history without versions.
        """
        folder = folder_of(record.shown_name)
        table = self._table(replace(record, folder=folder))
        self._require_own(spark, record, folder, table.table)
        table.fit(spark, columns)
        self.records.change(record.name, lambda now: replace(now, folder=folder))
        return table

    def _require_own(
        self, spark: SparkSession, record: TableRecord, folder: str, table: MirroredTable
    ) -> None:
        """Raises `BinlogError` if a folder is that of another table."""
        names = [name for name in self.records.directory.names() if folder_of(name) == folder]
        if names or (table.exists(spark) and table.owner(spark) != record.table_id):
            what = "the table of this name is mirrored" if names else "another Delta table is there"
            raise BinlogError(
                ErrorKind.UNSUPPORTED_CHANGE,
                f"the history {record.label} cannot be made: {what}",
                where=table.path,
                remedy="rename or move that table, or leave the history out of the settings of the mirror, then"
                f" {remedies.of_history(record.label)}",
            )

    def _table(self, record: TableRecord) -> HistoryTable:
        return HistoryTable(self.records.directory.table(record))
