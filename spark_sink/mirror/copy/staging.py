"""Writes the folder that a copy fills. The executors read chunks (ranges of the key). The copy appends the chunks in
groups, each group once.

A group's commit records the copy's id as application id, and the number of the group as version, so Delta skips a group
that is written twice. If another job has written the group, it may end at another key; the copy then continues from the
state that the folder shows. The commit's user metadata records where the next group begins. So the folder itself shows
how far a copy is, and a copy that was killed continues after the last group. The state of a copy is stored only in
these commits.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from delta.tables import DeltaTable

from spark_sink.mirror.copy.chunk_reader import (
    ChunkReading,
    Destination,
    find_invalid,
    read_chunks,
    write_chunks,
)
from spark_sink.mirror.copy.pace import OtherJobError
from spark_sink.mirror.copy.staged_copy import (
    KEY,
    StagedCopy,
    metadata_of,
    newest_state,
    size_of,
)
from spark_sink.mirror.lake.data_file import stored_columns, write_files
from spark_sink.mirror.lake.delta_commit import DeltaTransaction
from spark_sink.mirror.lake.delta_log import forget_table, newest_commit
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.tables.delta import MirroredTable
from spark_sink.mirror.tables.quarantine import found_schema
from spark_sink.source.schemas import spark_schema
from spark_sink.source.table_rows.text_rows import TextDecoder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Batches: TypeAlias = "Sequence[pa.RecordBatch]"


class StagingTable:
    """The Delta table of one copy. `copy_id`: the id of the copy, different for each copy of a table; `iceberg`: True
    if Iceberg's readers have to read the table's files."""

    def __init__(
        self, spark: SparkSession, table: MirroredTable, copy_id: str, *, iceberg: bool = False
    ) -> None:
        self.spark, self.table, self.copy_id, self._iceberg = spark, table, copy_id, iceberg
        self._writer = uuid.uuid4().hex
        self._written = 0  # the last group that this object has written

    def state(self) -> StagedCopy | None:
        """Returns how far the copy is; None if its Delta table does not exist or belongs to another copy."""
        if not self.table.exists(self.spark):
            return None
        history = DeltaTable.forPath(self.spark, self.table.path).history().collect()
        commits = (
            (row["timestamp"], row["userMetadata"], row["operationMetrics"] or {})
            for row in history
        )
        return newest_state(commits, self.copy_id)

    def create(self, schema: pa.Schema) -> None:
        """Make an empty table in the folder, and delete the folder's previous content."""
        FileSystem(self.spark).delete(self.table.path)
        forget_table(self.spark, self.table.path)
        self.table.create(self.spark, spark_schema(schema), iceberg=self._iceberg)

    def append(self, rows: ChunkReading | Batches, state: StagedCopy) -> tuple[int, int]:
        """Append the rows of the group `state.group`: rows of chunks, which the executors read, or rows that the driver
        has read. The commit records `state`. Returns (rows, bytes) of the group. Raises `OtherJobError`."""
        transaction = DeltaTransaction(self.spark, self.table.path)
        recorded = max(0, transaction.recorded(self.app_id))
        if recorded == state.group:
            return self._newest(state)  # an earlier attempt has failed after its commit
        if recorded != state.group - 1:
            raise self._other_job()
        if self._written:
            self._own_commit(recorded)
        folder = FileSystem(self.spark).local(self.table.path)
        columns = stored_columns(transaction.metadata()["fields"])
        if folder is None or columns is None:
            return self._append_by_spark(rows, state)
        # Write the files without Spark's own writer, which takes three times as long.
        destination = Destination(folder, columns, self.spark.version)
        if isinstance(rows, ChunkReading):
            lines = self.chunk_files(rows, destination).collect()
            actions = [json.loads(line["action"]) for line in lines]
        else:
            actions = list(write_files(folder, rows, columns, self.spark.version))
        written = sum(json.loads(action["stats"])["numRecords"] for action in actions)
        size = sum(action["size"] for action in actions)
        metadata = self._metadata(state) | {"rows": written, "bytes": size}
        recording = self.app_id, state.group
        transaction.commit(actions, recorded=recording, user_metadata=json.dumps(metadata))
        self._written = state.group
        return written, size

    def _append_by_spark(self, rows: ChunkReading | Batches, state: StagedCopy) -> tuple[int, int]:
        frame = self.chunk_rows(rows) if isinstance(rows, ChunkReading) else self._local_rows(rows)
        writer = frame.write.format("delta").mode("append").option("txnAppId", self.app_id)
        writer = writer.option("txnVersion", str(state.group))
        metadata = json.dumps(self._metadata(state))
        writer.option("userMetadata", metadata).save(self.table.path)
        return self._newest(state)

    def _newest(self, state: StagedCopy) -> tuple[int, int]:
        """Returns (rows, bytes) of the newest commit. Raises `OtherJobError` unless this object has made this commit,
        with the group of `state`."""
        commit = self._own_commit(state.group)
        self._written = state.group
        return size_of(commit["userMetadata"], commit["operationMetrics"] or {})

    def _own_commit(self, group: int) -> dict[str, Any]:
        """Returns the newest commit. Raises `OtherJobError` unless this object has made this commit, with the group
        `group`."""
        commit = newest_commit(self.spark, self.table.path)
        metadata = metadata_of(commit.get("userMetadata"))
        if (metadata.get("writer"), metadata.get("group")) != (self._writer, group):
            raise self._other_job()
        return commit

    def _other_job(self) -> OtherJobError:
        return OtherJobError(f"another job copies {self.table.label}, too")

    def _metadata(self, state: StagedCopy) -> dict[str, Any]:
        return {
            KEY: self.copy_id,
            "group": state.group,
            "writer": self._writer,
            "upper": state.upper,
            "layout": state.layout,
            "chunks": state.chunks,
            "read_all": state.read_all,
            "executed": state.executed,
            "rows_estimated": state.rows_estimated,
        }

    @property
    def app_id(self) -> str:
        return f"{KEY}/{self.copy_id}"

    def chunk_files(self, reading: ChunkReading, destination: Destination) -> DataFrame:
        """Returns the `add` actions of the files that executors write with the rows of the chunks, one task per
        chunk."""
        write = partial(write_chunks, reading, destination)
        return self._numbers(reading).mapInArrow(write, "action STRING")

    def chunk_rows(self, reading: ChunkReading) -> DataFrame:
        """Returns the rows of the chunks, which executors read, one task per chunk."""
        schema = TextDecoder(reading.columns, reading.label, reading.invalid_dates).schema
        read = partial(read_chunks, reading)
        return self._numbers(reading).mapInArrow(read, spark_schema(schema))

    def invalid_values(self, reading: ChunkReading) -> pa.Table:
        """Returns the invalid values of the chunks, with the schema `found_schema`; executors read the chunks again."""
        find = partial(find_invalid, reading)
        rows = self._numbers(reading).mapInArrow(find, spark_schema(found_schema()))
        return rows.toArrow().cast(found_schema())

    def _numbers(self, reading: ChunkReading) -> DataFrame:
        count = len(reading.statements)
        return self.spark.range(0, count, 1, count)

    def _local_rows(self, batches: Batches) -> DataFrame:
        import pyarrow as pa  # noqa: PLC0415

        if not batches:
            return self.spark.createDataFrame([], self.table.columns(self.spark))
        schema = spark_schema(batches[0].schema)
        return self.spark.createDataFrame(pa.Table.from_batches(batches).combine_chunks(), schema)
