"""Reads facts about the tables of a target, with Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_sink.mirror.copy.progress import CopyProgress
from spark_sink.mirror.copy.staged_copy import copy_id_of, progress_of
from spark_sink.mirror.copy.staging import StagingTable
from spark_sink.mirror.lake import delta_log
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.lake.table_features import reader_features
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.rules.control_rows import ControlRows
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.tables.delta import MirroredTable
from spark_sink.mirror.tables.table_works import mirrored_table
from spark_sink.mirror.values.names import copy_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkFacts:
    """See `TargetFacts` of `table_lines`."""

    def __init__(self, spark: SparkSession, target: str) -> None:
        self._spark, self._target = spark, target.rstrip("/")
        self._control = ControlTable(spark, target)

    def rows(self) -> ControlRows:
        return self._control.rows()

    def applied(self, record: TableRecord) -> int:
        return mirrored_table(self._target, record).version(self._spark)

    def features(self, record: TableRecord) -> tuple[str, ...]:
        return reader_features(self._spark, mirrored_table(self._target, record).path)

    def copied(self, record: TableRecord) -> CopyProgress | None:
        path = f"{self._target}/{copy_folder(record.table_id)}"
        table = MirroredTable(record.table_id, path, record.label)
        state = StagingTable(self._spark, table, copy_id_of(record)).state()
        return progress_of(state, record.label)

    def waiting(
        self, records: Sequence[TableRecord], applied: Mapping[str, int]
    ) -> dict[str, tuple[int, datetime | None]]:
        spark = self._spark
        path = BinlogLog(spark, self._target).path
        if delta_log.delta_version(spark, path) < 0:
            return {}
        points = [(r.consumer, *r.name, r.table_id, applied[r.table_id]) for r in records]
        names = ["consumer", "database", "table"]
        points_frame = spark.createDataFrame(
            points, "consumer string, database string, table string, table_id string, at long"
        )
        entries = spark.read.format("delta").load(path)
        entries = entries.where((F.col("kind") == "rows") & (F.col("lsn") > min(applied.values())))
        behind = entries.join(F.broadcast(points_frame), names).where("lsn > at")
        oldest = F.unix_micros(F.min("committed_at")).alias("oldest")
        sums = behind.groupBy("table_id").agg(F.sum("rows").alias("rows"), oldest).collect()
        return {row["table_id"]: (int(row["rows"]), _time(row["oldest"])) for row in sums}


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)
