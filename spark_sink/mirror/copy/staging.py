"""The folder that a copy fills. The executors read chunks (ranges of the key), and the copy appends the chunks in
groups, each group once.

A group's commit records `(copy id, number of the group)` as its application id and version, so a group that is written
twice is skipped. If another job has written the group, the group may end at another key, so the copy then continues
from the state that the folder shows. The commit's user metadata records where the next group begins. So the folder
itself shows how far a copy is, and a copy that was killed continues after the last group. The state of a copy is stored
only in these commits.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from delta.tables import DeltaTable

from dispatcher.model.position import Position
from spark_sink.mirror.copy.chunk_reader import ChunkReading, Destination, read_chunks, write_chunks
from spark_sink.mirror.copy.pace import OtherJobError
from spark_sink.mirror.lake.data_file import stored_columns, write_files
from spark_sink.mirror.lake.delta_commit import DeltaTransaction
from spark_sink.mirror.lake.delta_log import forget_table, newest_commit
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.tables.delta import MirroredTable
from spark_sink.source.schemas import spark_schema
from spark_sink.source.table_rows.chunks import Bound
from spark_sink.source.table_rows.text_rows import TextDecoder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_KEY = "binlog-dispatcher/copy"

Batches: TypeAlias = "Sequence[pa.RecordBatch]"


@dataclass(frozen=True, slots=True)
class StagedCopy:
    """How far a copy is. `group`: the last group that was appended, 0 = none; `upper`: the last key that was copied;
    `layout`: a hash of the columns with which the copy began; `read_all`: True if all rows were read; `executed`: R as
    JSON, set after all rows were read; `rows_estimated`: the estimated rows of the whole table; `seconds`: the time
    between the first and the last group, which `state` computes."""

    group: int = 0
    upper: Bound | None = None
    layout: str = ""
    chunks: int = 0
    rows: int = 0
    bytes: int = 0
    read_all: bool = False
    executed: str = ""
    rows_estimated: int = 0
    seconds: float = 0.0

    @property
    def position(self) -> Position | None:
        return Position.from_json(self.executed) if self.executed else None


class StagingTable:
    """The Delta table of one copy. `copy_id`: the id of the copy, different for each copy of a table; `iceberg`: True
    if Iceberg's readers have to read the table's files."""

    def __init__(
        self, spark: SparkSession, table: MirroredTable, copy_id: str, *, iceberg: bool = False
    ) -> None:
        self._spark, self.table, self.copy_id, self._iceberg = spark, table, copy_id, iceberg
        self._writer = uuid.uuid4().hex
        self._written = 0  # the last group that this object has written

    def state(self) -> StagedCopy | None:
        """Returns how far the copy is; None if there is no table, or the table belongs to another copy."""
        if not self.table.exists(self._spark):
            return None
        newest: StagedCopy | None = None
        rows = size = 0
        first = last = None
        for commit in DeltaTable.forPath(self._spark, self.table.path).history().collect():
            value = _metadata(commit["userMetadata"])
            if value.get(_KEY) != self.copy_id:
                continue
            first, last = commit["timestamp"], last or commit["timestamp"]
            added = _size_of(commit.asDict())
            rows, size = rows + added[0], size + added[1]
            if newest is None:  # the newest commit comes first
                upper = value["upper"]
                newest = StagedCopy(
                    value["group"],
                    None if upper is None else tuple(upper),
                    value["layout"],
                    value["chunks"],
                    read_all=value["read_all"],
                    executed=value["executed"],
                    rows_estimated=value["rows_estimated"],
                )
        if newest is None or first is None or last is None:
            return None
        seconds = (last - first).total_seconds()
        return replace(newest, rows=rows, bytes=size, seconds=seconds)

    def create(self, schema: pa.Schema) -> None:
        """Make an empty table in the folder, and delete the folder's previous content."""
        FileSystem(self._spark).delete(self.table.path)
        forget_table(self._spark, self.table.path)
        self.table.create(self._spark, spark_schema(schema), iceberg=self._iceberg)

    def append(self, rows: ChunkReading | Batches, state: StagedCopy) -> tuple[int, int]:
        """Append the rows of the group `state.group`: rows of chunks, which the executors read, or rows that the driver
        has read. The commit records `state`. Returns (rows, bytes) of the group. Raises `OtherJobError`."""
        transaction = DeltaTransaction(self._spark, self.table.path)
        recorded = max(0, transaction.recorded(self.app_id))
        if recorded == state.group:
            return self._newest(state)  # an earlier attempt has failed after its commit
        if recorded != state.group - 1:
            raise self._other_job()
        if self._written:
            self._own_commit(recorded)
        folder = FileSystem(self._spark).local(self.table.path)
        columns = stored_columns(transaction.metadata()["fields"])
        if folder is None or columns is None:
            return self._append_by_spark(rows, state)
        # Write the files without Spark's own writer, which takes three times as long.
        destination = Destination(folder, columns, self._spark.version)
        if isinstance(rows, ChunkReading):
            lines = self.chunk_files(rows, destination).collect()
            actions = [json.loads(line["action"]) for line in lines]
        else:
            actions = list(write_files(folder, rows, columns, self._spark.version))
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
        """Returns (rows, bytes) of the newest group, if this object has written it as `state` says."""
        commit = self._own_commit(state.group)
        self._written = state.group
        return _size_of(commit)

    def _own_commit(self, group: int) -> dict[str, Any]:
        """Returns the newest commit. Raises `OtherJobError` unless this object has written it with this group."""
        commit = newest_commit(self._spark, self.table.path)
        metadata = _metadata(commit.get("userMetadata"))
        if (metadata.get("writer"), metadata.get("group")) != (self._writer, group):
            raise self._other_job()
        return commit

    def _other_job(self) -> OtherJobError:
        return OtherJobError(f"another job copies {self.table.label}, too")

    def _metadata(self, state: StagedCopy) -> dict[str, Any]:
        return {
            _KEY: self.copy_id,
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
        return f"{_KEY}/{self.copy_id}"

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

    def _numbers(self, reading: ChunkReading) -> DataFrame:
        count = len(reading.statements)
        return self._spark.range(0, count, 1, count)

    def _local_rows(self, batches: Batches) -> DataFrame:
        import pyarrow as pa  # noqa: PLC0415

        if not batches:
            return self._spark.createDataFrame([], self.table.columns(self._spark))
        schema = spark_schema(batches[0].schema)
        return self._spark.createDataFrame(pa.Table.from_batches(batches).combine_chunks(), schema)


def _size_of(commit: Mapping[str, Any]) -> tuple[int, int]:
    """Returns (rows, bytes) of a group, from the `commitInfo` of the group's commit."""
    metadata, metrics = _metadata(commit["userMetadata"]), commit["operationMetrics"] or {}
    rows = metadata.get("rows", metrics.get("numOutputRows", 0))
    return int(rows), int(metadata.get("bytes", metrics.get("numOutputBytes", 0)))


def _metadata(text: str | None) -> dict[str, Any]:
    """Returns the user metadata of a commit, {} if another program wrote it."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
