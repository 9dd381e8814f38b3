"""Divides a table into ranges (chunks) of its key. This module does not compare key values; only the server does.

A bound is the key of a row, written as SQL literals that have exactly the key's values: numbers as the server wrote
them, text as bytes in the column's character set, so that the server compares by the column's collation. A range
contains all rows that are after one bound, in the order of the key, up to and including another bound. For a key of
several columns, the comparison is a chain of OR, because every server uses the index for such a chain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dispatcher.binlog.charset.collations import BINARY
from dispatcher.binlog.table_map import inet
from dispatcher.binlog.table_map.column_types import LABEL_TYPES, Column, Type
from spark_sink.source.table_rows.source_table import SourceTable
from spark_sink.source.table_rows.text_rows import quoted_name

Bound = tuple[str, ...]
"""One literal per key column."""

_NUMBERS = frozenset(
    (Type.TINY, Type.SHORT, Type.INT24, Type.LONG, Type.LONGLONG, Type.NEWDECIMAL, Type.YEAR, Type.BIT, *LABEL_TYPES)
)  # fmt: skip
_FLOATS = frozenset((Type.FLOAT, Type.DOUBLE))
_TIMES = frozenset((Type.DATE, Type.TIME2, Type.DATETIME2, Type.TIMESTAMP2))
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?\Z")
_TIME = re.compile(r"[0-9:. -]{4,32}\Z")
_ADDRESS = re.compile(r"[0-9a-fA-F:.-]{2,64}\Z")
_HEX = re.compile(r"([0-9A-Fa-f]{2})*\Z")

ROWS_MIN, ROWS_MAX = 1_000, 1_000_000


@dataclass(frozen=True, slots=True)
class Chunk:
    """A range of a table: the rows after `lower`, up to and including `upper`. None in place of a bound sets no
    limit."""

    lower: Bound | None
    upper: Bound | None


def chunk_rows(source: SourceTable, bytes_max: int, rows_max: int = ROWS_MAX) -> int:
    """Returns the number of rows that a chunk of about `bytes_max` bytes has, by the server's estimate of the row
    size."""
    rows = bytes_max // max(source.row_bytes, 16)
    return max(1, min(max(rows, ROWS_MIN), rows_max))


def operand(column: Column) -> str:
    """Returns the SQL expression that compares a key column in the order of its index."""
    name = quoted_name(column.name)
    # In a comparison with a number, a SET would be converted to a DOUBLE, which has 53 bits.
    return f"CAST({name} AS UNSIGNED)" if column.type in LABEL_TYPES else name


def key_expression(column: Column) -> str:
    """Returns the expression to SELECT so that `key_literal` can write a key column's value."""
    name = quoted_name(column.name)
    if column.type in LABEL_TYPES:
        return operand(column)
    if column.type == Type.BIT:
        return f"{name} + 0"
    if column.type in _FLOATS:
        return f"{name} * 1e0"
    if column.declared in inet.SIZES:
        return f"CAST({name} AS CHAR)"
    return name if column.type in _NUMBERS or column.type in _TIMES else f"HEX({name})"


def key_literal(column: Column, charset: str, text: str) -> str:
    """Returns the SQL literal of a key value. `charset`: the column's character set, by the server's name.

    Raises ValueError if the text is no value of the column's type.
    """
    if column.type in _NUMBERS or column.type in _FLOATS:
        if not _NUMBER.match(text):
            raise ValueError(f"{text[:40]!r} instead of a number")
        # The exponent makes the literal a DOUBLE; without it the literal would be a DECIMAL.
        return f"{text}e0" if column.type in _FLOATS and "e" not in text else text
    if column.type in _TIMES or column.declared in inet.SIZES:
        pattern = _TIME if column.type in _TIMES else _ADDRESS
        if not pattern.match(text):
            raise ValueError(f"{text[:40]!r} instead of a value of column {column.name!r}")
        return f"'{text}'"
    if not _HEX.match(text):
        raise ValueError(f"{text[:40]!r} instead of hexadecimal digits")
    introducer = "" if column.charset == BINARY else f"_{charset} "
    return f"{introducer}X'{text}'"


def range_condition(key: Sequence[Column], chunk: Chunk) -> str:
    """Returns the SQL condition that selects a chunk's rows; "" if the chunk has no limits."""
    limits = []
    if chunk.lower is not None:
        limits.append(_beyond(key, chunk.lower, ">", last=">"))
    if chunk.upper is not None:
        limits.append(_beyond(key, chunk.upper, "<", last="<="))
    return " AND ".join(limits)


def _beyond(key: Sequence[Column], bound: Bound, comparison: str, last: str) -> str:
    """Returns a condition like `(a > 1) OR (a = 1 AND b > 2) ...`. `last`: the comparison operator of the last
    column."""
    operands = [operand(column) for column in key]
    terms = []
    for i, name in enumerate(operands):
        equal = [f"{operands[j]} = {bound[j]}" for j in range(i)]
        sign = last if i == len(key) - 1 else comparison
        terms.append(f"({' AND '.join([*equal, f'{name} {sign} {bound[i]}'])})")
    return f"({' OR '.join(terms)})"


def boundary_query(
    source: SourceTable, lower: Bound | None, rows: int, upper: Bound | None = None
) -> str:
    """Returns a query for the key of the row that is `rows` rows after `lower`. The query returns no row if that row is
    after `upper`. The server reads only the index."""
    key = source.key_columns
    columns = ", ".join(map(key_expression, key))
    order = ", ".join(quoted_name(column.name) for column in key)
    condition = range_condition(key, Chunk(lower, upper))
    where = f" WHERE {condition}" if condition else ""
    return f"SELECT {columns} FROM {source.from_clause}{where} ORDER BY {order} LIMIT 1 OFFSET {rows - 1}"


def bound_of(source: SourceTable, texts: Sequence[str]) -> Bound:
    """Returns the bound for a row that `boundary_query` has selected. Raises ValueError if a text is no value of its
    column's type."""
    return tuple(
        key_literal(source.columns[i], source.charsets[i], text)
        for i, text in zip(source.key, texts, strict=True)
    )


def chunk_query(source: SourceTable, select_list: str, chunk: Chunk) -> str:
    condition = range_condition(source.key_columns, chunk)
    where = f" WHERE {condition}" if condition else ""
    return f"SELECT {select_list} FROM {source.from_clause}{where}"
