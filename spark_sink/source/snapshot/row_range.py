"""Declares the part of a snapshot's batch that one task reads."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from dispatcher.model.position import Position
from spark_sink.source.snapshot.rules import KeyPart, TableName
from spark_sink.source.table_rows.chunks import Chunk


@dataclass(frozen=True)
class RowRange(InputPartition):
    """A range of a table. A task reads the range's rows in their state at `position`. `key`: the table's key when the
    range was planned; `address`: see `Slice`."""

    number: int
    position: Position
    table: TableName
    key: tuple[KeyPart, ...]
    chunk: Chunk
    address: int = 0
