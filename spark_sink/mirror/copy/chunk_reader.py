"""The part of a copy that runs on the executors. They read chunks (ranges of the table's key) and, if the target is on
a local file system, write the rows to files. Every Python worker of a copy loads this module, so the module imports
only what it needs for this."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dispatcher.binlog.decode.arrow.invalid import InvalidCell
from dispatcher.binlog.table_map.column_types import Column, InvalidDates
from dispatcher.mysql.login import Endpoint
from spark_sink.mirror.lake.data_file import StoredColumn, require_folder, write_files
from spark_sink.source.table_rows.session import ResultColumn, RowReader, open_session
from spark_sink.source.table_rows.text_rows import TextDecoder

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ChunkReading:
    """What the executors need to read chunks. `endpoint` contains the database password. The password reaches the
    executors only inside the serialized function; no text of a plan or of an error shows the password."""

    endpoint: Endpoint
    label: str
    columns: tuple[Column, ...]
    invalid_dates: InvalidDates
    expected: tuple[ResultColumn, ...]
    statements: tuple[str, ...] = field(repr=False)
    key: tuple[str, ...] = ()

    def strict(self) -> ChunkReading:
        """Returns a reading for which an invalid value is an error."""
        return replace(self, columns=tuple(replace(c, nulls_invalid=False) for c in self.columns))


def read_chunks(
    reading: ChunkReading,
    numbers: Iterator[pa.RecordBatch],
    found: Callable[[pa.RecordBatch, Sequence[InvalidCell]], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the chunks with these numbers. Runs on the executors. Raises `BinlogError`. `found`: see
    `TextDecoder`."""
    decoder = TextDecoder(reading.columns, reading.label, reading.invalid_dates, found)
    for batch in numbers:
        for number in batch.column("id").to_pylist():
            with closing(open_session(reading.endpoint)) as connection:
                reader = RowReader(connection, reading.endpoint.label)
                yield from reader.batches(reading.statements[number], decoder, reading.expected)


def find_invalid(
    reading: ChunkReading, numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the invalid values of the chunks with these numbers. Runs on the executors. Raises `BinlogError`."""
    from spark_sink.mirror.tables.quarantine import of_rows  # noqa: PLC0415 - loads Spark

    values: list[pa.RecordBatch] = []

    def found(rows: pa.RecordBatch, cells: Sequence[InvalidCell]) -> None:
        values.append(of_rows(rows, cells, reading.key))

    for _ in read_chunks(reading, numbers, found):
        yield from values
        values.clear()


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the executors write the files of a table. `folder`: a path of a local file system, or of a file system that
    all executors share."""

    folder: str
    columns: tuple[StoredColumn, ...]
    spark_version: str


def write_chunks(
    reading: ChunkReading, destination: Destination, numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of the chunks with these numbers to files, and yield Delta's `add` actions of these files as
    `action`. Runs on the executors. Raises `BinlogError`; its kind is SETTINGS if an executor does not share the
    driver's folder."""
    import pyarrow as pa  # noqa: PLC0415

    require_folder(destination.folder)
    rows = read_chunks(reading, numbers)
    columns, version = destination.columns, destination.spark_version
    for action in write_files(destination.folder, rows, columns, version):
        yield pa.RecordBatch.from_pydict({"action": [json.dumps(action)]})
