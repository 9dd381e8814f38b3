"""The mirror's log: a Delta table that holds what the consumers delivered, one append per micro-batch.

An append holds the entries of one batch of one consumer, of all tables, and last the position that the batch ends
with. It is numbered, and records its number in its commit (`txnAppId` of the consumer, `txnVersion`), so the log knows
its own end, and a number is appended once. A run of a consumer's query begins with `claim`, which appends one entry
under the next number: every later append of an older run is refused. The checkpoint of the query decides nothing.

Payloads of at most `INLINE_BYTES` are in a column of their own, so that `entries` reads no large ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from spark_sink.mirror.entries import (
    INLINE_BYTES,
    EntryKind,
    LogEnd,
    LogEntry,
    append_of,
    first_lsn,
    last_lsn,
)
from spark_sink.mirror.jvm import delta_version, txn_version

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FOLDER = "_binlog/log"
_LAST_COMMIT = "spark.databricks.delta.lastCommitVersionInSession"
_CONCURRENT = "DELTA_CONCURRENT_TRANSACTION"


_COLUMNS = (
    ("lsn", "bigint"),
    ("kind", "string"),
    ("database", "string"),
    ("table", "string"),
    ("layout", "string"),
    ("epoch", "bigint"),
    ("first_seq", "bigint"),
    ("last_seq", "bigint"),
    ("rows", "bigint"),
    ("inserts", "bigint"),
    ("updates", "bigint"),
    ("deletes", "bigint"),
    ("table_map", "binary"),
    ("payload_bytes", "bigint"),
    ("small_payload", "binary"),
    ("payload", "binary"),
    ("query", "string"),
    ("sql_mode", "bigint"),
    ("file", "string"),
    ("pos", "bigint"),
    ("committed_at", "timestamp"),
    ("position", "string"),
    ("gap", "boolean"),
    ("run", "string"),
    ("consumer", "string"),
    ("day", "date"),
)
_PROPERTIES = {
    "delta.dataSkippingStatsColumns": "lsn",
    "delta.enableDeletionVectors": "false",
}
_DEFAULTS: dict[str, Any] = {
    "database": "",
    "table": "",
    "layout": "",
    "epoch": 0,
    "first_seq": 0,
    "last_seq": 0,
    "rows": 0,
    "inserts": 0,
    "updates": 0,
    "deletes": 0,
    "table_map": b"",
    "payload_bytes": 0,
    "query": "",
    "sql_mode": 0,
    "file": "",
    "pos": 0,
    "gap": False,
}


class BinlogLog:
    """The log of a target. One object may be used by several threads, of which one appends for a consumer."""

    def __init__(self, spark: SparkSession, target: str) -> None:
        """`target`: folder of the mirror, any path that Spark can write. The table is created by the first `claim`."""
        self._spark = spark
        self.path = f"{target.rstrip('/')}/{FOLDER}"
        self._runs: dict[str, str] = {}
        self._seen = -1

    # -- writing ---------------------------------------------------------------------------------------------

    def claim(self, consumer: str) -> LogEnd:
        """Begin a run of the consumer's query. Returns the number of this claim, and where the log ends.

        The batches of the run are appended with the following numbers. Raises `BinlogError` SESSION_FENCED if another
        job claims the consumer at the same time.
        """
        self._create()
        number = max(0, txn_version(self._spark, self.path, _app_id(consumer))) + 1
        run = str(uuid.uuid4())
        claimed = self._spark.range(1).select(
            F.lit(first_lsn(number)).alias("lsn"), F.lit(EntryKind.CLAIM.value).alias("kind")
        )
        self._write(claimed, consumer, number, run)
        self._runs[consumer] = run
        end = self.end(consumer)
        return LogEnd(number, end.position if end else None)

    def append(self, batch: DataFrame, consumer: str, number: int) -> None:
        """Append a micro-batch of the raw source, in one Spark job.

        Raises `BinlogError` SESSION_FENCED if another job has claimed the consumer: nothing was appended then, and the
        batch must not be acknowledged.
        """
        size = F.coalesce(F.length("payload"), F.lit(0)).cast("bigint")
        small = size <= INLINE_BYTES
        rows = batch.select(
            (F.lit(first_lsn(number)) + F.col("entry")).alias("lsn"),
            *(name for name in batch.columns if name not in ("entry", "payload")),
            size.alias("payload_bytes"),
            F.when(small, F.col("payload")).alias("small_payload"),
            F.when(~small, F.col("payload")).alias("payload"),
        )
        self._write(rows, consumer, number, self._runs[consumer])

    def _create(self) -> None:
        if DeltaTable.isDeltaTable(self._spark, self.path):
            return
        table = DeltaTable.createIfNotExists(self._spark).location(self.path)
        for name, kind in _COLUMNS:
            table = table.addColumn(name, kind)
        table = table.partitionedBy("consumer", "day")
        for key, value in _PROPERTIES.items():
            table = table.property(key, value)
        table.execute()

    def _write(self, rows: DataFrame, consumer: str, number: int, run: str) -> None:
        session = rows.sparkSession
        session.conf.unset(_LAST_COMMIT)
        added = {
            "run": F.lit(run),
            "consumer": F.lit(consumer),
            "day": F.lit(datetime.now(UTC).date()),
        }
        try:
            (
                rows.withColumns(added)
                .write.format("delta")
                .mode("append")
                .option("txnAppId", _app_id(consumer))
                .option("txnVersion", str(number))
                .option("compression", "zstd")
                .save(self.path)
            )
        except PySparkException as error:
            if error.getCondition() == _CONCURRENT:
                raise _claimed(consumer, number) from None
            raise
        # Delta skips an append whose number is recorded already, without an error.
        if session.conf.get(_LAST_COMMIT, None) is None:
            raise _claimed(consumer, number)

    # -- reading ---------------------------------------------------------------------------------------------

    def end(self, consumer: str) -> LogEnd | None:
        """Returns the number of the consumer's last append and its newest END entry; None if it has no append."""
        if not DeltaTable.isDeltaTable(self._spark, self.path):
            return None
        number = txn_version(self._spark, self.path, _app_id(consumer))
        if number < 1:
            return None
        appends = 64
        while True:
            first = max(0, number - appends)
            newest = (
                self._of(consumer, F.col("lsn") >= first_lsn(first))
                .where(F.col("kind") == EntryKind.END.value)
                .select(F.max_by("position", "lsn"))
                .collect()[0][0]
            )
            if newest is not None:
                return LogEnd(number, Position.from_json(newest))
            if first == 0:
                return LogEnd(number, None)
            appends *= 64

    def last_append(self, consumer: str) -> int:
        """Returns the number of the consumer's last append, 0 if there is none; cheap, without a Spark job."""
        return max(0, txn_version(self._spark, self.path, _app_id(consumer)))

    def changed(self) -> bool:
        """True if the log has a newer Delta version than at the last call of `entries`."""
        return delta_version(self._spark, self.path) > self._seen

    def entries(
        self,
        consumer: str,
        after: int,
        *,
        appends_max: int = 16,
        before: int | None = None,
        tables: Collection[tuple[str, str]] | None = None,
    ) -> list[LogEntry]:
        """Returns the consumer's entries with lsn > `after`, in order, of at most `appends_max` appends.

        `before`: only entries with a smaller lsn; `tables`: of the row changes only those of these tables, (database,
        table). Statements and END entries are always included, claims never are. An empty list means that there is
        nothing newer.
        """
        self._seen = max(self._seen, delta_version(self._spark, self.path))
        if self._seen < 0:
            return []
        while True:
            last = last_lsn(append_of(after) + appends_max)
            wanted = (F.col("lsn") > after) & (F.col("lsn") <= last)
            if found := self._read(consumer, wanted, before, tables):
                return found
            newer = self._of(consumer, F.col("lsn") > last)
            first = newer.where(F.col("kind") != EntryKind.CLAIM.value).agg(F.min("lsn"))
            lsn = first.collect()[0][0]
            if lsn is None or (before is not None and lsn >= before):
                return []
            after = lsn - 1

    def _read(
        self,
        consumer: str,
        wanted: Column,
        before: int | None,
        tables: Collection[tuple[str, str]] | None,
    ) -> list[LogEntry]:
        rows = self._of(consumer, wanted).where(F.col("kind") != EntryKind.CLAIM.value)
        if before is not None:
            rows = rows.where(F.col("lsn") < before)
        if tables is not None:
            of_table = F.lit(False)
            for database, table in tables:
                of_table |= (F.col("database") == database) & (F.col("table") == table)
            rows = rows.where((F.col("kind") != EntryKind.ROWS.value) | of_table)
        names = [name for name, _ in _COLUMNS if name not in ("payload", "run", "consumer", "day")]
        found = [_entry(row) for row in rows.select(*names).toArrow().to_pylist()]
        return sorted(found, key=lambda entry: entry.lsn)

    def payloads(self, spark: SparkSession, consumer: str, lsns: Sequence[int]) -> DataFrame:
        """Returns `lsn`, `payload` of row changes, as a frame of `spark`; it holds one row for each of `lsns`."""
        between = F.col("lsn").between(min(lsns), max(lsns))
        return (
            self._of(consumer, between, spark)
            .where(F.col("lsn").isin(list(lsns)))
            .select("lsn", F.coalesce("small_payload", "payload").alias("payload"))
        )

    def _of(self, consumer: str, wanted: Column, spark: SparkSession | None = None) -> DataFrame:
        frame = (spark or self._spark).read.format("delta").load(self.path)
        return frame.where(F.col("consumer") == consumer).where(wanted)

    # -- retention -------------------------------------------------------------------------------------------

    def forget(self, consumer: str, before: date) -> None:
        """Drop the consumer's days before a day; of the day of its newest END entry and later ones nothing."""
        newest = (
            self._of(consumer, F.col("kind") == EntryKind.END.value)
            .agg(F.max("day"))
            .collect()[0][0]
        )
        if newest is None:
            return
        day = min(before, newest)
        DeltaTable.forPath(self._spark, self.path).delete(
            (F.col("consumer") == consumer) & (F.col("day") < F.lit(day))
        )


def _app_id(consumer: str) -> str:
    return f"binlog-dispatcher/log/{consumer}"


def _claimed(consumer: str, number: int) -> BinlogError:
    return BinlogError(
        ErrorKind.SESSION_FENCED,
        f"another job has claimed append {number} of the log, so this one stops writing it",
        where=f"consumer {consumer}",
        remedy="run one mirror job per consumer and target",
    )


def _entry(row: dict[str, Any]) -> LogEntry:
    values = {
        name: default if row[name] is None else row[name] for name, default in _DEFAULTS.items()
    }
    position = row["position"]
    return LogEntry(
        lsn=row["lsn"],
        kind=EntryKind(row["kind"]),
        payload=row["small_payload"],
        committed_at=row["committed_at"],
        position=None if position is None else Position.from_json(position),
        **values,
    )
