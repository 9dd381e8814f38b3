"""Executes works (`rules.effects`) on the histories of one consumer. Each work applies a part of the log to a history's
Delta table. The part ends with an entry (rows of a table, or a statement).

Changed rows come from the log, entry by entry, so no version is missing. This module does not compute what a statement
does to rows. When this module reaches a statement, the mirror has already executed it on the mirrored table, and one
version of the mirrored table's Delta table contains the rows as they were directly after the statement
(`mirrored_rows`). This module compares these rows with the current versions. Rows that are equal keep their version.

Each work is committed once: like a step of a mirrored table, the commit records the lsn, the number of the entry.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dispatcher.binlog.decode import delivered
from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.history.history_table import HistoryTable
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.effects import CompareVersions, EndVersions, WriteVersions
from spark_sink.mirror.rules.plan import RowRun
from spark_sink.mirror.rules.renames import folder_of
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.tables.delta import StepSession
from spark_sink.mirror.tables.steps import RowLayout
from spark_sink.mirror.tables.table_works import mirrored_table
from spark_sink.mirror.tables.time_travel import mirrored_rows
from spark_sink.mirror.values.entries import append_of, first_lsn
from spark_sink.mirror.values.policies import ApplyOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_sink.mirror.lake.control_table import ControlTable
    from spark_sink.mirror.log.binlog_log import BinlogLog

log = logging.getLogger("spark_sink.mirror")

MOMENT_APPENDS = 64  # how many appends `_moment` searches for the time of a transaction


@dataclass(frozen=True, slots=True)
class HistorySteps:
    """Executes the works of one consumer. Each method raises `BinlogError` for rows that cannot be in a history."""

    consumer: str
    options: ApplyOptions
    binlog_log: BinlogLog
    control: ControlTable

    def write(self, session: StepSession, work: WriteVersions) -> None:
        """Write the versions that follow from the changes of a run of entries."""
        from spark_sink.mirror.history.row_versions import row_versions  # noqa: PLC0415 - loads numpy

        record, run, dates = work.record, work.rows, self.options.invalid_dates
        policy = self.options.policy(record.name)
        layout = RowLayout.of(run, dates, policy)
        if not layout.key:
            raise BinlogError(
                ErrorKind.UNSUPPORTED_CHANGE,
                f"table {layout.table_map.label} has no key, so versions of its rows cannot be told apart",
                where=f"lsn {run.entries[0].lsn}",
                remedy=f"give the table a primary key, then {remedies.of_history(record.label)}",
            )
        table = self._fitted(session.spark, record, layout.columns)
        decoded = (
            (
                lsn,
                delivered.decode_table(
                    payload,
                    invalid_dates=dates,
                    all_versions=policy.all_versions,
                    ruled=policy.rules.table_map,
                ),
            )
            for lsn, payload in self._payloads(session, run)
        )
        lines: pa.Table = row_versions(decoded, layout.row, layout.key, exact=work.exact)
        session.expect(run.payload_bytes, table.table.size_bytes(session.spark))
        table.commit(session, run.lsn, lines, layout.key)
        log.info("%s: %s: %d changes", record.consumer, record.label, run.rows)

    def _payloads(self, session: StepSession, run: RowRun) -> Iterator[tuple[int, bytes]]:
        large = [entry.lsn for entry in run.entries if entry.payload is None]
        payloads = self.binlog_log.local_payloads(self.consumer, large) if large else {}
        if payloads is None:
            rows = self.binlog_log.payloads(session.spark, self.consumer, large).collect()
            payloads = {row["lsn"]: bytes(row["payload"]) for row in rows}
        for entry in run.entries:
            yield entry.lsn, payloads[entry.lsn] if entry.payload is None else entry.payload

    def end(self, session: StepSession, work: EndVersions) -> None:
        """End all current versions."""
        self._end_all(session, work.record, work.lsn, work.at or datetime.now(UTC))

    def compare(self, session: StepSession, work: CompareVersions) -> None:
        """Change the current versions to the rows that the mirrored table had at an lsn. If the mirrored table did not
        exist, end all current versions."""
        spark, record, mirrored, lsn = session.spark, work.record, work.mirrored, work.lsn
        at = work.at or self._moment(lsn)
        rows = None
        if mirrored is not None and mirrored.folder:
            policy = self.options.policy(record.name)
            rows = mirrored_rows(spark, mirrored_table(self.options.target, mirrored), policy, lsn)
        if rows is None:
            self._end_all(session, record, lsn, at)
        else:
            session.expect(0, -1)
            self._fitted(spark, record, rows.schema).compare(session, lsn, rows, at)
        log.info("%s: %s: compared with the table at lsn %d", record.consumer, record.label, lsn)

    def _end_all(self, session: StepSession, record: TableRecord, lsn: int, at: datetime) -> None:
        history = self._table(record)
        # The folder may belong to another table. Then the history has no version yet.
        if history.table.owner(session.spark) == record.table_id:
            history.end_all(session, lsn, at)

    def _moment(self, lsn: int) -> datetime:
        """Returns the time at which the newest transaction up to `lsn` was committed; the present time if none of the
        last `MOMENT_APPENDS` appends has a transaction."""
        after = max(0, first_lsn(append_of(lsn) - MOMENT_APPENDS)) - 1
        entries = self.binlog_log.entries(
            self.consumer, after, appends_max=MOMENT_APPENDS + 1, before=lsn + 1
        )
        times = [entry.committed_at for entry in entries if entry.committed_at is not None]
        return max(times, default=datetime.now(UTC))

    # -- Delta tables ------------------------------------------------------------------------------------------

    def _fitted(
        self, spark: SparkSession, record: TableRecord, columns: StructType
    ) -> HistoryTable:
        """Create or change the history's Delta table so that it has these columns of the mirrored rows. Returns the
        history table."""
        table = self._table(record)
        self._require_own(spark, record, table)
        table.fit(spark, columns)
        return table

    def _require_own(self, spark: SparkSession, record: TableRecord, history: HistoryTable) -> None:
        """Raises `BinlogError` if the folder of a history belongs to another table."""
        table = history.table
        is_mirrored = any(
            r.consumer == self.consumer and not r.is_dropped and folder_of(r.name) == record.folder
            for r in self.control.records().values()
        )
        if is_mirrored or (table.exists(spark) and table.owner(spark) != record.table_id):
            reason = (
                "the table of this name is mirrored"
                if is_mirrored
                else "another Delta table is there"
            )
            raise BinlogError(
                ErrorKind.UNSUPPORTED_CHANGE,
                f"the history {record.label} cannot be made: {reason}",
                where=table.path,
                remedy="rename or move that table, or leave the history out of the settings of the mirror, then"
                f" {remedies.of_history(record.label)}",
            )

    def _table(self, record: TableRecord) -> HistoryTable:
        table = mirrored_table(self.options.target, record)
        return HistoryTable(table, iceberg=self.options.iceberg is not None)
