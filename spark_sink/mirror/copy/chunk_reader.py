"""The part of a copy that executors do: they read chunks, and write their files if the target is on a local file
system. This module imports only what this work needs, since every Python worker loads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dispatcher.binlog.table_map.column_types import Column, InvalidDates
from dispatcher.source.mysql.login import Endpoint
from spark_sink.mirror.lake.data_file import StoredColumn, require_folder, write_files
from spark_sink.table_rows.session import ResultColumn, RowReader, open_session
from spark_sink.table_rows.text_rows import TextDecoder

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ChunkReading:
    """What the executors need to read chunks. The endpoint holds the password. The password is sent in the serialized
    function only; no text of a plan or of an error shows it."""

    endpoint: Endpoint
    label: str
    columns: tuple[Column, ...]
    invalid_dates: InvalidDates
    expected: tuple[ResultColumn, ...]
    statements: tuple[str, ...] = field(repr=False)


def read_chunks(
    reading: ChunkReading, numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the chunks whose numbers are given. Runs on the executors. Raises `BinlogError`."""
    decoder = TextDecoder(reading.columns, reading.label, reading.invalid_dates)
    for batch in numbers:
        for number in batch.column("id").to_pylist():
            with closing(open_session(reading.endpoint)) as connection:
                reader = RowReader(connection, reading.endpoint.label)
                yield from reader.batches(reading.statements[number], decoder, reading.expected)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the files of a table are written. `folder`: a local path, or one that all executors share."""

    folder: str
    columns: tuple[StoredColumn, ...]
    spark_version: str


def write_chunks(
    reading: ChunkReading, destination: Destination, numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of the chunks whose numbers are given, and yield the `add` actions of their files as `action`.
    Runs on the executors. Raises `BinlogError`, SETTINGS if an executor does not share the driver's folder."""
    import pyarrow as pa  # noqa: PLC0415

    require_folder(destination.folder)
    rows = read_chunks(reading, numbers)
    columns, version = destination.columns, destination.spark_version
    for action in write_files(destination.folder, rows, columns, version):
        yield pa.RecordBatch.from_pydict({"action": [json.dumps(action)]})
