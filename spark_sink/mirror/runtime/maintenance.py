"""Maintains the mirror's Delta tables: writes checkpoints, compacts files, deletes old files, and drops old days of the
log.

One thread of the applier executes maintenance while other threads execute steps. If a step conflicts with a compaction,
the step is repeated. The thread uses the records as they were at the beginning of its round, and posts the changes that
it makes to the rules of the consumer. A table of at least `DELETION_VECTORS_FROM_BYTES` gets deletion vectors, so that
a MERGE of few rows writes few rows. Smaller tables get none, because deletion vectors double the time of a MERGE on
them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from delta.tables import DeltaTable

from spark_sink.mirror.lake import delta_log
from spark_sink.mirror.lake.checkpoints import Checkpoints
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.rules.events import VectorsEnabled
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.upkeep import (
    READ_S,
    days_to_forget,
    needs_compaction,
    needs_compaction_soon,
)
from spark_sink.mirror.runtime.busy_folders import BusyFolders
from spark_sink.mirror.tables.delta import MirroredTable, StepSession
from spark_sink.mirror.tables.table_works import mirrored_table
from spark_sink.mirror.values.faults import in_one_line, is_conflict
from spark_sink.mirror.values.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_sink.mirror.values.policies import ApplyOptions

log = logging.getLogger("spark_sink.mirror")
DELETION_VECTORS_FROM_BYTES = 64 << 20
VACUUM_EVERY_S = 24 * 3600.0
CHECKPOINTS_EVERY_S = 60.0
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"


def _bound_listing(session: SparkSession) -> None:
    """Limit the number of tasks in which VACUUM lists folders to four times Spark's default parallelism. Spark's own
    limit is 10,000 tasks; with 10,000 tasks, a folder of ten files took two minutes on two processors. A user's setting
    is not changed."""
    context = session.sparkContext
    if not context.getConf().contains(_LISTING_TASKS):
        session.conf.set(_LISTING_TASKS, str(4 * context.defaultParallelism))


@dataclass(frozen=True, slots=True)
class MaintainedTables:
    """The tables and histories of one consumer. `needed`: the lsn (number of an entry) after which the consumer's log
    is still needed."""

    consumer: str
    records: tuple[TableRecord, ...]
    needed: int

    def growing(self, target: str) -> Iterator[tuple[TableRecord, MirroredTable]]:
        """Yields the live tables and histories, with their Delta tables. Tables whose folder is being moved are left
        out."""
        for record in self.records:
            if record.is_live and record.folder and record.move is None:
                yield record, mirrored_table(target, record)


@dataclass
class Maintenance:
    """The maintenance of one application. `post`: passes an event to the rules of a consumer."""

    spark: SparkSession
    options: ApplyOptions
    control: ControlTable
    post: Callable[[str, VectorsEnabled], None]
    busy: BusyFolders
    _due: float = field(default_factory=time.monotonic)
    _vacuumed: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._checkpoints_due = self._due + CHECKPOINTS_EVERY_S
        self._due += self.options.maintenance_s
        self._session = StepSession(self.spark)
        _bound_listing(self._session.spark)
        self._log = BinlogLog(self.spark, self.options.target)
        self._checkpoints = Checkpoints(self._session.spark)

    def is_due(self) -> bool:
        return time.monotonic() >= min(self._due, self._checkpoints_due)

    def run(self, consumers: Sequence[MaintainedTables]) -> None:
        """Execute the maintenance that is due. Logs a failure. The next round repeats the failed part."""
        if time.monotonic() >= self._checkpoints_due:
            self._checkpoints_due = time.monotonic() + CHECKPOINTS_EVERY_S
            self._write_checkpoints(consumers)
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self.options.maintenance_s
            self._maintain_all(consumers)

    def _write_checkpoints(self, consumers: Sequence[MaintainedTables]) -> None:
        for label, path in (("log", self._log.path), ("control table", self.control.path)):
            self._guarded(label, partial(self._checkpoints.write, path, READ_S))
        for tables in consumers:
            for record, table in tables.growing(self.options.target):
                write = partial(self._write_checkpoint, record, table)
                self._guarded(record.label, partial(self._in_place, record, write))

    def _write_checkpoint(self, record: TableRecord, table: MirroredTable) -> None:
        """Write a checkpoint if one is due. Then many commits were made, which may have left many small files."""
        if self._checkpoints.write(table.path, 3600.0 * self.options.delta_log_hours):
            self._compact(record, table, needs_compaction_soon)

    def _maintain_all(self, consumers: Sequence[MaintainedTables]) -> None:
        for tables in consumers:
            self._guarded(f"{tables.consumer}: log", partial(self._maintain_log, tables))
            for record, table in tables.growing(self.options.target):
                maintain = partial(self._maintain, record, table)
                self._guarded(record.label, partial(self._in_place, record, maintain))
        self._guarded("log", partial(self._vacuum, self._log.path))
        self._guarded("control table", self._compact_control)

    def _in_place(self, record: TableRecord, work: Callable[[], object]) -> None:
        """Call a function for the table in the folder of `record`. The folder does not move during the call."""
        with self.busy.sharing(record.folder):
            work()

    def _guarded(self, label: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - maintenance never ends the mirror
            if not is_conflict(error):
                log.warning("maintenance: %s: %s", label, in_one_line(error))

    def _compact_control(self) -> None:
        removed = self.control.compact()
        log.debug("maintenance: %d rows of the control table deleted", removed)
        self._vacuum(self.control.path)

    def _vacuum(self, path: str) -> None:
        """Delete files that Delta no longer needs, once a day for each table. The next round repeats a VACUUM that has
        failed."""
        now = time.monotonic()
        if (last := self._vacuumed.get(path)) is not None and now < last + VACUUM_EVERY_S:
            return
        if delta_log.delta_version(self._session.spark, path) >= 0:
            DeltaTable.forPath(self._session.spark, path).vacuum()
        self._vacuumed[path] = now

    def _maintain(self, record: TableRecord, table: MirroredTable) -> None:
        spark = self._session.spark
        size = self._compact(record, table, needs_compaction)
        # A RENAME may have given the folder to another table since the round began.
        lacks = not record.deletion_vectors and size >= DELETION_VECTORS_FROM_BYTES
        # Iceberg's readers would return the rows that a deletion vector deletes.
        lacks = lacks and self.options.iceberg is None and not table.is_for_iceberg(spark)
        if lacks and table.owner(spark) == record.table_id:
            log.info("maintenance: %s: %d MiB, deletion vectors on", record.label, size >> 20)
            spark.sql(
                f"ALTER TABLE delta.{quoted(table.path)}"
                " SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
            )
            self.post(record.consumer, VectorsEnabled(record.table_id))
        self._vacuum(table.path)

    def _compact(
        self, record: TableRecord, table: MirroredTable, is_needed: Callable[[int, int], bool]
    ) -> int:
        """Compact the table if `is_needed(size in bytes, number of files)`. Returns the size in bytes."""
        spark = self._session.spark
        size, files = delta_log.table_size(spark, table.path)
        if is_needed(size, files):
            log.info("maintenance: %s: compacting %d files", record.label, files)
            DeltaTable.forPath(spark, table.path).optimize().executeCompaction()
        return size

    def _maintain_log(self, tables: MaintainedTables) -> None:
        """Drop the days of the log that no table needs any more, except the newest `log_days`; compact the remaining
        days."""
        days = self._log.days(tables.consumer)
        today = datetime.now(UTC).date()
        before = days_to_forget(days, tables.needed, today, self.options.log_days)
        if any(day < before for day in days):
            self._log.forget(tables.consumer, before)
            log.info("maintenance: %s: the log before %s is deleted", tables.consumer, before)
        self._log.compact(tables.consumer)
