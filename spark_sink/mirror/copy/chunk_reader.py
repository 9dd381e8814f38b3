"""What the executors do of a copy: read chunks. It imports only what that needs, since every Python worker loads it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dispatcher.binlog.table_map.column_types import Column, InvalidDates
from dispatcher.source.mysql.login import Endpoint
from spark_sink.mirror.copy.session import ResultColumn, RowReader, open_session
from spark_sink.mirror.copy.text_rows import TextDecoder

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ChunkReading:
    """What the executors need to read chunks. The endpoint holds the password; it travels in the serialized function
    only, and no text of a plan or of an error shows it."""

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
