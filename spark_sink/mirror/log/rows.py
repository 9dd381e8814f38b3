"""Reads rows of the log's files. Each row is an entry (see `binlog_log`), and `lsn` is its number. The driver itself
reads files on a local file system. For other files, it runs a Spark job, which takes half a second."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.log.slices import COLUMNS, arrow_schema
from spark_sink.source.raw_entries import EntryKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_READ = [name for name, _ in COLUMNS if name not in ("small_payload", "payload", "run")]
_FORMAT = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"))
_UTC = pa.timestamp("us", "UTC")


class LogRows:
    """Reads rows of the log at `path`. `frame` uses the session that its caller gives; the other methods use
    `spark`."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark, self.path = spark, path
        self._system = FileSystem(spark)

    def read(
        self,
        files: Sequence[str],
        after: int,
        last: int,
        payload_bytes_max: int,
        tables: Collection[tuple[str, str]] | None,
    ) -> list[dict[str, Any]]:
        """Returns the rows of `files` (paths in the log) with `after` < lsn <= `last`, except claims.

        `small_payload` is None for payloads of more than `payload_bytes_max`. `tables`: entries with rows are returned
        only for these tables, (database, table).
        """
        dataset = self._local(files)
        if dataset is None:
            table = self._read_by_spark(files, after, last, payload_bytes_max, tables)
        else:
            payload = pc.if_else(
                ds.field("payload_bytes") <= payload_bytes_max,
                ds.field("small_payload"),
                pa.scalar(None, pa.binary()),
            )
            columns = {name: ds.field(name) for name in _READ} | {"small_payload": payload}
            table = dataset.to_table(columns=columns, filter=_chosen(after, last, tables))
            at = table.schema.get_field_index("committed_at")
            table = table.set_column(at, "committed_at", table.column(at).cast(_UTC))
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    def local_payloads(self, files: Sequence[str], lsns: Sequence[int]) -> dict[int, bytes] | None:
        """Returns payloads by their lsn; None if the files are not on a local file system."""
        dataset = self._local(files)
        if dataset is None:
            return None
        payload = pc.coalesce(ds.field("small_payload"), ds.field("payload"))
        chosen = ds.field("lsn").isin(list(lsns))
        table = dataset.to_table(
            columns={"lsn": ds.field("lsn"), "payload": payload}, filter=chosen
        )
        return dict(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def _local(self, files: Sequence[str]) -> ds.Dataset | None:
        local = [self._system.local(f"{self.path}/{file}") for file in files]
        return (
            None
            if None in local
            else ds.dataset([f for f in local if f], format=_FORMAT, schema=arrow_schema())
        )

    def _read_by_spark(
        self,
        files: Sequence[str],
        after: int,
        last: int,
        payload_bytes_max: int,
        tables: Collection[tuple[str, str]] | None,
    ) -> pa.Table:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        rows = self.frame(self._spark, files).where(F.col("lsn").between(after + 1, last))
        rows = rows.where(F.col("kind") != EntryKind.CLAIM.value)
        if tables is not None:
            of_table = F.lit(False)
            for database, table in tables:
                of_table |= (F.col("database") == database) & (F.col("table") == table)
            rows = rows.where((F.col("kind") != EntryKind.ROWS.value) | of_table)
        payload = F.when(F.col("payload_bytes") <= payload_bytes_max, F.col("small_payload"))
        return rows.select(*_READ, payload.alias("small_payload")).toArrow()

    def frame(self, spark: SparkSession, files: Sequence[str]) -> DataFrame:
        reader = spark.read.schema(", ".join(f"`{name}` {kind}" for name, kind in COLUMNS))
        # The paths are those of single files: Spark must not search them for patterns or partitions.
        reader = reader.option("__globPaths__", "false").option("recursiveFileLookup", "true")
        return reader.parquet(*(f"{self.path}/{file}" for file in files))


def _chosen(after: int, last: int, tables: Collection[tuple[str, str]] | None) -> Any:
    lsn, kind = ds.field("lsn"), ds.field("kind")
    chosen = (lsn > after) & (lsn <= last) & (kind != EntryKind.CLAIM.value)
    if tables is None:
        return chosen
    of_table = pc.scalar(False)
    for database, table in tables:
        of_table |= (ds.field("database") == database) & (ds.field("table") == table)
    return chosen & ((kind != EntryKind.ROWS.value) | of_table)
