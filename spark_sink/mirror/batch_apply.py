"""Applies a batch of the raw stream to Delta tables: decode on the executors, keep the last event of each key, and
MERGE once per step of a table.

The batch is fetched once and persisted, since it is read several times. The driver sees which tables and statements it
holds (`plan`), never a row. The rows of each step are decoded on the executors into the table's own types, reduced to
the last event of each key, and merged under the step's version (`target`). Tables are independent of each other and run
in parallel; the steps of one table run in order.

The batch ends, and Spark writes its commit log, after the last commit of the last table. If the job is killed before,
the whole batch comes again, and the version of each step tells whether it was committed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror import batch_keyed as keyed
from spark_sink.mirror import batch_plan as plan
from spark_sink.mirror.batch_delta import BatchSession, BatchTable, Version
from spark_sink.mirror.names import folder_name, name_of_folder
from spark_sink.mirror.statements import MirrorAction, changes_of
from spark_sink.source.rows import spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("spark_sink.mirror")

BROADCAST_BYTES_MAX = 8 << 20


class Mirror:
    """The `foreachBatch` function of one consumer. `failure`: why the last batch failed, for the job's message."""

    def __init__(
        self,
        spark: SparkSession,
        consumer: str,
        target: str,
        *,
        parallel: int = 2,
        invalid_dates: InvalidDates = InvalidDates.NULL,
    ) -> None:
        """`target`: folder of the Delta tables, any path that Spark can write; `parallel`: tables merged at a time;
        `invalid_dates`: the value for an invalid date.
        """
        self._invalid_dates = invalid_dates
        self._spark = spark
        self._consumer = consumer
        self._target = target.rstrip("/")
        self._tables: dict[plan.TableName, BatchTable] = {}
        self._tables_lock = threading.Lock()
        self._sessions: SimpleQueue[BatchSession] = SimpleQueue()
        self._parallel = parallel
        for _ in range(parallel):
            self._sessions.put(BatchSession(spark.newSession()))
        self._busy = threading.Lock()
        self.failure: BaseException | None = None

    def __call__(self, batch: DataFrame, number: int) -> None:
        with self._busy:
            try:
                self.apply(batch, number)
            except BinlogError as error:
                self.failure = error
                raise
            except Exception as error:  # noqa: BLE001 - the job logs it, in one line
                self.failure = error
                # Spark matches the text of this exception with a regular expression that overflows the JVM's stack
                # if the text is long, such as the trace of a failed Spark job.
                what = f"batch {number}: {type(error).__name__}"
                raise BinlogError(ErrorKind.INTERNAL, what, where=self._consumer) from None

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no batch is running, since stopping a query does not stop its `foreachBatch`.

        Returns False after the timeout.
        """
        if not self._busy.acquire(timeout=timeout_s):
            return False
        self._busy.release()
        return True

    def apply(self, batch: DataFrame, number: int) -> None:
        """Apply all steps of the batch to the target."""
        began = time.monotonic()
        batch = batch.persist()
        try:
            entries = _entries(batch)
            steps = plan.steps(entries, changes_of, self._in_target)
            self._run_all(batch, steps)
        finally:
            batch.unpersist()
        if entries:
            log.info(
                "%s: batch %d: %d rows of %d tables, %d statements, to seq %d, in %.1f s",
                self._consumer,
                number,
                sum(entry.rows for entry in entries),
                len({(entry.database, entry.table) for entry in entries if not entry.ddl}),
                sum(1 for entry in entries if entry.ddl),
                max(entry.last_seq for entry in entries),
                time.monotonic() - began,
            )

    # -- tables in parallel, steps in order ------------------------------------------------------------------

    def _run_all(self, batch: DataFrame, steps: dict[plan.TableName, list[plan.Step]]) -> None:
        if not steps:
            return
        with ThreadPoolExecutor(
            self._parallel, thread_name_prefix=f"mirror-{self._consumer}"
        ) as pool:
            tasks = [
                pool.submit(self._run, batch, table, table_steps)
                for table, table_steps in steps.items()
            ]
        # The pool has waited for all tasks, so no thread still writes after the batch has failed.
        for task in tasks:
            task.result()

    def _run(self, batch: DataFrame, name: plan.TableName, steps: list[plan.Step]) -> None:
        table = self._table(name)
        session = self._sessions.get()
        try:
            for step in steps:
                if table.has(session, Version(step.epoch, step.seq)):
                    continue
                if isinstance(step, plan.RowRun):
                    self._rows(batch, table, session, step)
                else:
                    _statement(table, session, step)
        finally:
            self._sessions.put(session)

    def _table(self, name: plan.TableName) -> BatchTable:
        with self._tables_lock:
            if name not in self._tables:
                path = "/".join((self._target, *map(folder_name, name)))
                self._tables[name] = BatchTable(self._consumer, *name, path)
            return self._tables[name]

    def _in_target(self, database: str) -> Iterable[str]:
        # pyspark has no API for file systems; Spark itself gets them this way.
        jvm: Any = self._spark._jvm  # noqa: SLF001
        spark_session: Any = self._spark._jsparkSession  # noqa: SLF001
        path = jvm.org.apache.hadoop.fs.Path("/".join((self._target, folder_name(database))))
        system = path.getFileSystem(spark_session.sessionState().newHadoopConf())
        if not system.exists(path):
            return []
        return sorted(
            name_of_folder(status.getPath().getName()) for status in system.listStatus(path)
        )

    # -- one step --------------------------------------------------------------------------------------------

    def _rows(
        self, batch: DataFrame, table: BatchTable, session: BatchSession, run: plan.RowRun
    ) -> None:
        layout = TableMap.parse(run.table_map)
        place = f"consumer {self._consumer}, seq {run.seq}"
        if not layout.key:
            raise BinlogError(
                ErrorKind.UNSUPPORTED_CHANGE,
                f"table {table.label} has no primary key, so its rows cannot be told apart",
                where=place,
                remedy="give the table a primary key, or leave it out of the consumer's tables",
            )
        changes = delivered.change_schema(layout.columns, table.label, self._invalid_dates)
        key = [layout.columns[i].name for i in layout.key]
        columns = _own_columns(changes, layout)
        anew = table.fit(session, columns, place)
        entries = batch.where(F.col("entry").isin(run.entries))
        events = _last_events(entries, changes, key, self._invalid_dates)
        version = Version(run.epoch, run.seq)
        session.expect(run.payload_bytes + (0 if anew else table.size_bytes(session)))
        if anew:
            table.write(version, events.where("NOT deleted").select("row.*"), columns)
            return
        if run.payload_bytes <= BROADCAST_BYTES_MAX:
            events = F.broadcast(events)
        table.merge(session, version, events, key, columns)


def _own_columns(changes: pa.Schema, layout: TableMap) -> StructType:
    """Returns the table's columns with their own nullability; in `changes` every field is nullable."""
    (after,) = (field.dataType for field in spark_schema(changes) if field.name == "after")
    assert isinstance(after, StructType)
    return StructType(
        [
            StructField(field.name, field.dataType, column.nullable)
            for field, column in zip(after, layout.columns, strict=True)
        ]
    )


def _statement(table: BatchTable, session: BatchSession, statement: plan.Statement) -> None:
    change = statement.change
    if change.action is MirrorAction.EMPTY:
        table.empty(session, Version(statement.epoch, statement.seq))
    elif not table.is_empty(session):
        raise BinlogError(
            ErrorKind.UNSUPPORTED_CHANGE,
            f"table {table.label}: {change.why or 'the statement'} cannot be applied to the mirrored table:"
            f" {_shortened(statement.query)}",
            where=f"seq {statement.seq}, {statement.place}",
        )


def _shortened(query: str) -> str:
    text = " ".join(query.split())
    return text if len(text) <= 200 else text[:197] + "..."


def _entries(batch: DataFrame) -> list[plan.RawEntry]:
    rows = batch.select(
        F.col("entry").alias("number"),
        F.coalesce("database", F.lit("")).alias("database"),
        F.coalesce("table", F.lit("")).alias("table"),
        F.coalesce("layout", F.lit("")).alias("layout"),
        "epoch",
        "first_seq",
        "last_seq",
        "rows",
        F.coalesce("table_map", F.lit(b"")).alias("table_map"),
        F.coalesce(F.length("payload"), F.lit(0)).alias("payload_bytes"),
        F.coalesce("ddl", F.lit("")).alias("ddl"),
        F.coalesce("sql_mode", F.lit(0)).alias("sql_mode"),
        F.concat_ws(":", "file", "pos").alias("place"),
    ).collect()
    return [plan.RawEntry(**{**row.asDict(), "table_map": bytes(row["table_map"])}) for row in rows]


def _last_events(
    entries: DataFrame, changes: pa.Schema, key: list[str], invalid_dates: InvalidDates
) -> DataFrame:
    """Returns the last event of each key: `key`, `row`, `deleted`."""
    schema = spark_schema(keyed.event_schema(changes, key))
    events = entries.select("payload").mapInArrow(partial(_decode, key, invalid_dates), schema)
    newest = Window.partitionBy(*(F.col("key").getField(name) for name in key)).orderBy(
        F.desc("seq"), F.desc("ordinal"), F.desc("part")
    )
    ranked = events.withColumn("rank", F.row_number().over(newest))
    return ranked.where("rank = 1").select("key", "row", "deleted")


def _decode(
    key: list[str], invalid_dates: InvalidDates, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Decode the payloads of a step into key events. Runs on the executors."""
    for batch in batches:
        for payload in batch.column("payload"):
            for changes in delivered.decode_table(payload.as_py(), invalid_dates=invalid_dates):
                keyed.require_columns(changes, key)
                yield keyed.key_events(changes, key)
