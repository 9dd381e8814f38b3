"""Ranges of a key whose order the mirror knows, as conditions on columns of Spark and of Arrow. Pure.

The server compares a text by the collation of its column, so the mirror cannot decide whether a text is in a range. It
can decide this for whole numbers, DECIMAL, DATE, and bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dispatcher.binlog.charset.collations import BINARY
from dispatcher.binlog.table_map.column_types import Column, Type
from spark_sink.source.table_rows.chunks import Bound, Chunk
from spark_sink.source.table_rows.source_table import SourceTable

_NUMBERS = (Type.TINY, Type.SHORT, Type.INT24, Type.LONG, Type.LONGLONG, Type.NEWDECIMAL, Type.YEAR)
_BYTES = (Type.STRING, Type.VARCHAR)


def has_known_order(source: SourceTable, schema: pa.Schema) -> bool:
    """True if all columns of the table's key have a known order. `schema`: the table's columns in Arrow."""
    return all(_is_ordered(source.columns[i], schema.field(i).type) for i in source.key)


def _is_ordered(column: Column, kind: pa.DataType) -> bool:
    if column.declared:
        return False
    if column.type in _NUMBERS:
        return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))
    if column.type == Type.DATE:
        return bool(pa.types.is_date(kind))
    return bool(column.type in _BYTES and column.charset == BINARY and pa.types.is_binary(kind))


def bound_values(bound: Bound, kinds: Sequence[pa.DataType]) -> list[Any]:
    """Returns the values of a bound's literals. `kinds`: the types of the key's columns. Raises ValueError for a date
    that is not valid."""
    return [_value(text, kind) for text, kind in zip(bound, kinds, strict=True)]


def _value(text: str, kind: pa.DataType) -> Any:
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_date(kind):
        return date.fromisoformat(text.strip("'"))
    return bytes.fromhex(text[len("X'") : -1])


def in_range(
    chunk: Chunk,
    columns: Sequence[Any],
    kinds: Sequence[pa.DataType],
    literal: Callable[[Any, int], Any],
) -> Any | None:
    """Returns the condition that a row is in the range; None if the range contains all rows.

    `columns`: the key's columns, of Spark or of Arrow, whose operators make conditions; `literal`: returns the constant
    for a value and the index of its column in the key.
    """

    def constants(bound: Bound) -> list[Any]:
        return [literal(value, i) for i, value in enumerate(bound_values(bound, kinds))]

    condition = None
    if chunk.lower is not None:
        condition = _beyond(columns, constants(chunk.lower))
    if chunk.upper is not None:
        inside = ~_beyond(columns, constants(chunk.upper))
        condition = inside if condition is None else condition & inside
    return condition


def _beyond(columns: Sequence[Any], values: Sequence[Any]) -> Any:
    """Returns the condition that a key is after a bound, like `(a > 1) | ((a == 1) & (b > 2))`."""
    *before, last = range(len(columns))
    condition = columns[last] > values[last]
    for i in reversed(before):
        condition = (columns[i] > values[i]) | ((columns[i] == values[i]) & condition)
    return condition
