"""Writes the entries of a micro-batch into files of the log: in the driver, or on the executors.

A slice is the part of a micro-batch for one task. The process that reads the delivered bytes of a slice also writes
these bytes into a Parquet file. Spark's own source and writer are slower: the source passes each row to the JVM, and
the writer needs a separate job, which takes a second even for one row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

from spark_sink.mirror.values.entries import INLINE_BYTES, first_lsn
from spark_sink.source.options import SourceOptions
from spark_sink.source.slices import Slice, read_bytes
from spark_sink.source.worker_objects import PROCESS_OBJECTS

if TYPE_CHECKING:
    import pyarrow as pa

# The columns of the files. The table also has the columns of its partitions, the consumer and the day.
COLUMNS = (
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
    ("session", "string"),
    ("file", "string"),
    ("pos", "bigint"),
    ("committed_at", "timestamp"),
    ("position", "string"),
    ("gap", "boolean"),
    ("run", "string"),
)
_PAYLOADS = ("small_payload", "payload")
# The limit of payload bytes in a row group. Besides its slice, a worker has these payloads and their pages in memory.
ROW_GROUP_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class LogAppend:
    """An append of the log. `number`: see `binlog_log`; `run`: the id of the query's run, see `append`; `day`: the day
    of the append's partition."""

    consumer: str
    number: int
    run: str
    day: date

    def file(self, name: str) -> str:
        """Returns the path of a file, relative to the log's folder. Readers do not parse the path, because Delta's log
        contains the partition of the file."""
        return f"consumer={quote(self.consumer, safe='')}/day={self.day}/{name}"

    def add_action(self, name: str, size: int, content: FileContent) -> dict[str, Any]:
        """Returns Delta's `add` action for a file. `size` in bytes."""
        from spark_sink.mirror.lake.data_file import add_action  # noqa: PLC0415 - loads numpy and pyarrow

        action = add_action(quote(self.file(name), safe="/="), size, content.statistics)
        return action | {"partitionValues": {"consumer": self.consumer, "day": str(self.day)}}

    def row(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the row of the log's table for `entry`, a row in the schema of the raw stream."""
        row = dict(entry)
        payload = row.pop("payload", None)
        row["lsn"] = first_lsn(self.number) + row.pop("entry")
        row["payload_bytes"] = 0 if payload is None else len(payload)
        row["small_payload" if row["payload_bytes"] <= INLINE_BYTES else "payload"] = payload
        return row | {"run": self.run}


@dataclass(slots=True)
class AppendedRows:
    """Makes the rows of an append from entries. `changes`: the number of changed rows in the entries so far."""

    append: LogAppend
    changes: int = 0

    def of(self, entries: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        for entry in entries:
            self.changes += entry.get("rows") or 0
            yield self.append.row(entry)


@dataclass(frozen=True, slots=True)
class FileContent:
    """The content of a file: its number of rows, and its smallest and largest lsn."""

    rows: int
    first: int
    last: int

    @property
    def statistics(self) -> str:
        bounds = {"minValues": {"lsn": self.first}, "maxValues": {"lsn": self.last}}
        return json.dumps({"numRecords": self.rows} | bounds | {"nullCount": {"lsn": 0}})


def arrow_schema() -> pa.Schema:
    """Returns the schema of the files."""
    import pyarrow as pa  # noqa: PLC0415

    types = {
        "bigint": pa.int64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
    return pa.schema([(name, types[kind]) for name, kind in COLUMNS])


def write_rows(sink: str | IO[bytes], rows: Iterable[Mapping[str, Any]]) -> FileContent | None:
    """Write rows, in the order of their lsn, to a new file. If there are no rows, returns None, and leaves a file
    without rows."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    from spark_sink.source.single_row import single_row  # noqa: PLC0415

    schema = arrow_schema()
    others = [name for name in schema.names if name not in _PAYLOADS]
    count, first, last = 0, -1, -1
    with pq.ParquetWriter(
        sink, schema, compression="zstd", use_dictionary=others, write_statistics=others
    ) as writer:
        held: list[pa.RecordBatch] = []
        size = 0
        for row in rows:
            if held and size + row["payload_bytes"] > ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(held))
                held, size = [], 0
            held.append(single_row(schema, row))
            size += row["payload_bytes"]
            first, last = (row["lsn"] if count == 0 else first), row["lsn"]
            count += 1
        if held:
            writer.write_table(pa.Table.from_batches(held))
    return FileContent(count, first, last) if count else None


def file_in_memory(rows: Iterable[Mapping[str, Any]]) -> tuple[bytes, FileContent] | None:
    """Returns the bytes of a file with the rows, and its `FileContent`; None if there are no rows."""
    sink = BytesIO()
    content = write_rows(sink, rows)
    return None if content is None else (sink.getvalue(), content)


def write_local_file(
    folder: str, append: LogAppend, rows: Iterable[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Write rows into a new file of the log's `folder`. Returns the file's `add` action; None if there are no rows."""
    from spark_sink.mirror.lake.data_file import new_name  # noqa: PLC0415

    name = new_name()
    path = Path(folder, append.file(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    content = write_rows(str(path), rows)
    if content is None:
        path.unlink()
        return None
    return append.add_action(name, path.stat().st_size, content)


def slice_entries(options: SourceOptions, parts: Iterable[Slice]) -> Iterator[dict[str, Any]]:
    """Read slices from the daemon, one after the other. Yields their rows in the schema of the raw stream
    (`spark_sink/source/schemas.py`)."""
    from spark_sink.source.rows import raw_rows  # noqa: PLC0415 - loads numba

    for part in parts:
        yield from raw_rows(*read_bytes(options, part))


def write_slices(
    folder: str,
    append: LogAppend,
    options: SourceOptions,
    parts: Sequence[Slice],
    numbers: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Write the slices of `parts` with these `numbers` into files of the log's `folder`, which all executors share.
    Yields, for each file, its `add` action (`action`) and its number of changed rows (`changes`). Runs on the
    executors. Raises `BinlogError`.
    """
    import pyarrow as pa  # noqa: PLC0415

    from spark_sink.mirror.lake.data_file import require_folder  # noqa: PLC0415

    require_folder(folder)
    for number in _numbers(numbers):
        made = AppendedRows(append)
        rows = made.of(slice_entries(options, [parts[number]]))
        if (action := write_local_file(folder, append, rows)) is not None:
            yield pa.RecordBatch.from_pydict(
                {"action": [json.dumps(action)], "changes": [made.changes]}
            )
    PROCESS_OBJECTS.freeze()


def read_slices(
    append: LogAppend,
    options: SourceOptions,
    parts: Sequence[Slice],
    count: Callable[[int], None],
    numbers: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield the log's rows for the slices of `parts` with these `numbers`. Calls `count` with the number of changed
    rows of each slice. Runs on the executors. Raises `BinlogError`."""
    from spark_sink.source.single_row import single_row  # noqa: PLC0415

    schema = arrow_schema()
    for number in _numbers(numbers):
        made = AppendedRows(append)
        for row in made.of(slice_entries(options, [parts[number]])):
            yield single_row(schema, row)
        count(made.changes)
    PROCESS_OBJECTS.freeze()


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column("id").to_pylist()
