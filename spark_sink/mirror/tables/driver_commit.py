"""Commits small steps in the driver, without a Spark job.

A job takes a second even for a few rows, and a MERGE runs two jobs. So the driver reads the files that may contain the
keys of the events (changes of rows, see `keyed`), and writes one new file. This file contains the rows of the events,
and those rows of the old files that the events do not replace. The driver commits the new file with a transaction of
Delta. If another writer has changed one of the read files meanwhile, the commit fails with a conflict, as the commit of
a MERGE would.

Spark commits the steps of tables with nested columns, or with features that only Delta's own writer implements, and
steps that would read more than the limits of this module.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from spark_sink.mirror.lake import data_file
from spark_sink.mirror.lake.damage import lost_files, why_lost
from spark_sink.mirror.lake.delta_commit import DeltaTransaction, write_file
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.rules.table_work import missing_table
from spark_sink.mirror.tables import keyed
from spark_sink.mirror.tables.delta import FEED_PROPERTY, TABLE_ID_PROPERTY
from spark_sink.mirror.values.iceberg_types import COMPATIBLE
from spark_sink.mirror.values.step_clock import StepClock, StepPhase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_sink.mirror.tables.delta import MirroredTable

FILES_MAX = 200  # the most files of a table
READ_BYTES_MAX = 64 << 20  # the most compressed bytes of the files that are read
UNPACKED_BYTES_MAX = 512 << 20  # the most bytes of the rows in these files
READ_ROWS_MAX = 2_000_000
# Only one step at a time may read more bytes than this, because a step holds all rows that it reads in the driver's
# memory.
READ_ALONE_BYTES = 16 << 20
# If a table has at least so many files, a commit that rewrites one file also joins the small files.
JOINED_FROM_FILES = 8
SMALL_FILE_BYTES = 1 << 20
# Properties of a table that do not concern its data files.
_PROPERTIES = {
    "delta.checkpointInterval",
    "delta.columnMapping.maxColumnId",
    "delta.columnMapping.mode",
    "delta.deletedFileRetentionDuration",
    "delta.enableDeletionVectors",
    COMPATIBLE,  # the driver's own files have field ids and timestamps of 64 bits
    "delta.enableTypeWidening",
    "delta.logRetentionDuration",
    "delta.minReaderVersion",
    "delta.minWriterVersion",
    "delta.universalFormat.iceberg.atomicConversion.supported",
}

_large_step = threading.Lock()


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of the table. `action`: its `add` action; `stats`: its statistics, in which numbers with a point are
    `Decimal`."""

    action: Mapping[str, Any]
    stats: Mapping[str, Any]

    @property
    def size(self) -> int:
        return int(self.action["size"])

    @property
    def rows(self) -> int:
        return int(self.stats.get("numRecords", READ_ROWS_MAX))

    @property
    def removal(self) -> dict[str, Any]:
        names = ("path", "partitionValues", "size", "stats", "tags")
        kept = {name: value for name in names if (value := self.action.get(name)) is not None}
        now = {
            "deletionTimestamp": int(time.time() * 1000),
            "dataChange": True,
            "extendedFileMetadata": True,
        }
        return kept | now


class DriverTable:
    """A table, as one transaction reads it. `columns`: None if the driver must not write the table; `feed`: True if the
    table has a change data feed; `owner`: the id of the mirrored table to which the folder belongs.

    If a commit only adds files, Delta reads the feed from the added files. So the driver can append rows to a table
    with a feed. A commit that removes files needs separate files for the feed, so Spark must make such a commit.
    """

    def __init__(
        self, spark: SparkSession, table: MirroredTable, clock: StepClock | None = None
    ) -> None:
        """`clock`: measures the time of the write and of the commit. Raises `BinlogError` TARGET_FILES if there is no
        table."""
        self._spark, self._table = spark, table
        self._clock = clock or StepClock()
        self._transaction = DeltaTransaction(spark, table.path)
        if self._transaction.version < 0:
            raise missing_table(table.path)
        metadata = self._transaction.metadata()
        self.owner: str = metadata["configuration"].get(TABLE_ID_PROPERTY, "")
        properties = {name for name in metadata["configuration"] if name.startswith("delta.")}
        self.feed = metadata["configuration"].get(FEED_PROPERTY) == "true"
        writable = not metadata["partitionColumns"] and properties <= _PROPERTIES | {FEED_PROPERTY}
        self.columns = data_file.stored_columns(metadata["fields"]) if writable else None

    @property
    def version(self) -> int:
        """The version of the Delta table that the transaction reads."""
        return self._transaction.version

    @property
    def recorded(self) -> int:
        """The recorded lsn of the table's last step in this version; -1 if there is none."""
        return self._transaction.recorded(self._table.app_id)

    def rows(self, bounds: Mapping[str, tuple[object, object]], bytes_max: int) -> pa.Table | None:
        """Returns all rows of the files that may contain rows within the bounds; None if Spark must read these files,
        or if they have more than `bytes_max`. So the result may contain rows outside of the bounds. `bounds`: smallest
        and largest value by column."""
        files = None if self.columns is None else self._files()
        if self.columns is None or files is None:
            return None
        physical = {column.name: column.physical_name for column in self.columns}
        limits = [(physical[name], bounds[name]) for name in bounds.keys() & physical.keys()]
        chosen = [
            file
            for file in files
            if all(data_file.may_hold(file.stats, name, *both) for name, both in limits)
        ]
        if not self._readable(chosen) or sum(file.size for file in chosen) > bytes_max:
            return None
        read, left = [], UNPACKED_BYTES_MAX
        for file in chosen:
            rows = self._read(file, left)
            if rows is None:
                return None
            left -= rows.nbytes
            read.append(rows)
        schema = pa.schema([(column.name, column.kind) for column in self.columns])
        return pa.concat_tables(read) if read else schema.empty_table()

    def append(self, version: int, rows: pa.Table) -> bool:
        """Append rows, whose columns are matched by name. Returns False, and appends nothing, if Spark must do this."""
        stored = self._stored(rows)
        if stored is None:
            return False
        self._commit(version, stored)
        return True

    def replace(self, version: int, keys: pa.Table, rows: pa.Table) -> bool:
        """Delete the rows with these keys, and append `rows`. `keys`: a table with only the columns of the key. Returns
        False, and changes nothing, if Spark must do this."""
        if self.feed:
            return False
        stored, stored_keys = self._stored(rows), self._stored_keys(keys)
        files = self._files()
        if stored is None or stored_keys is None or files is None:
            return False
        candidates = self._candidates(files, stored_keys)
        if not self._readable(candidates):
            return False
        large = sum(file.size for file in candidates) > READ_ALONE_BYTES
        with _large_step if large else nullcontext(), self._clock.phase(StepPhase.WRITE):
            return self._rewrite(version, files, candidates, stored_keys, stored)

    def _rewrite(
        self,
        version: int,
        files: Sequence[TableFile],
        candidates: Sequence[TableFile],
        keys: pa.Table,
        rows: pa.Table,
    ) -> bool:
        """Replace some files by one new file: the candidates that contain one of the keys, and the small files that
        have to be joined. Returns False, and changes nothing, if Spark must do this."""
        changed, kept, left = [], [], UNPACKED_BYTES_MAX
        for file in candidates:
            before = self._read(file, left)
            if before is None:
                return False
            left -= before.nbytes
            remaining = data_file.without_keys(before, keys)
            if remaining.num_rows < before.num_rows or self._is_joined(files, file):
                changed.append(file)
                kept.append(remaining)
        self._commit(version, pa.concat_tables([*kept, rows]), changed, keys.column_names)
        return True

    def _files(self) -> list[TableFile] | None:
        actions = self._transaction.files(FILES_MAX)
        if actions is None:
            return None
        return [
            TableFile(action, json.loads(action.get("stats") or "{}", parse_float=Decimal))
            for action in actions
        ]

    def _candidates(self, files: Sequence[TableFile], keys: pa.Table) -> list[TableFile]:
        """Returns the files that may contain at least one of the keys. If the table has many files, adds the small
        files."""
        assert self.columns is not None
        physical = {column.name: column.physical_name for column in self.columns}
        bounds = {
            physical[name]: limits
            for name in keys.column_names
            if (limits := keyed.key_range(keys.column(name))) is not None
        }
        return [
            file
            for file in files
            if self._is_joined(files, file)
            or all(data_file.may_hold(file.stats, name, *limits) for name, limits in bounds.items())
        ]

    @staticmethod
    def _is_joined(files: Sequence[TableFile], file: TableFile) -> bool:
        return len(files) >= JOINED_FROM_FILES and file.size < SMALL_FILE_BYTES

    @staticmethod
    def _readable(files: Sequence[TableFile]) -> bool:
        if any(file.action.get("deletionVector") for file in files):
            return False
        size, rows = sum(file.size for file in files), sum(file.rows for file in files)
        return size <= READ_BYTES_MAX and rows <= READ_ROWS_MAX

    def _read(self, file: TableFile, bytes_max: int) -> pa.Table | None:
        """Returns a file's rows; None if they have more than `bytes_max`, or only Spark can read them."""
        assert self.columns is not None
        system = FileSystem(self._spark)
        path = unquote(file.action["path"])
        whole = path if ":/" in path or path.startswith("/") else f"{self._table.path}/{path}"
        try:
            if (local := system.local(whole)) is not None:
                return data_file.read_rows(local, self.columns, bytes_max)
            with tempfile.TemporaryDirectory(prefix="binlog-dispatcher-") as folder:
                return data_file.read_rows(system.fetch(whole, folder), self.columns, bytes_max)
        except Exception as error:
            if why := why_lost(system, whole):
                raise lost_files(self._table.path, f"{whole}: {why}") from error
            raise

    def _stored(self, rows: pa.Table) -> pa.Table | None:
        """Returns rows with the table's columns, see `data_file.as_stored`."""
        return None if self.columns is None else data_file.as_stored(rows, self.columns)

    def _stored_keys(self, keys: pa.Table) -> pa.Table | None:
        """Returns the keys with the types of the table's columns; None if the keys do not fit these types, or if equal
        values of such a type can differ in their bytes."""
        stored = self._stored(keys)
        if stored is None or any(pa.types.is_floating(field.type) for field in keys.schema):
            return None
        names = {name.lower() for name in keys.column_names}
        return stored.select([name for name in stored.column_names if name.lower() in names])

    def _commit(
        self,
        version: int,
        rows: pa.Table,
        removed: Sequence[TableFile] = (),
        replaced: Sequence[str] = (),
    ) -> None:
        assert self.columns is not None
        recorded = self._table.app_id, version
        if version <= self._transaction.recorded(self._table.app_id):
            return
        added = []
        if rows.num_rows:
            with self._clock.phase(StepPhase.WRITE):
                content = data_file.parquet_file(rows, self.columns, self._spark.version)
                stats = data_file.statistics(rows, self.columns)
                added = [write_file(self._spark, self._table.path, content, stats)]
        removals = [file.removal for file in removed]
        with self._clock.phase(StepPhase.COMMIT):
            self._transaction.commit(added, removals, recorded, replaced=replaced)
