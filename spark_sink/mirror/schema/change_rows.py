"""Converts the changes of one table to rows of one schema, even if the columns of the table have changed between them.
Pure functions on Arrow data, which run on the executors.

Columns are matched by name. A column that has had several types gets a type that represents the values of all these
types exactly. If there is no such type, `joint_row` raises an error: a changelog that converted numbers to text, or
rounded them, would not show the changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dispatcher.binlog.decode.arrow.arrow_types import NAMES
from dispatcher.model.errors import BinlogError, ErrorKind

STATEMENT_OP, GAP_OP = "ddl", "gap"
_DECIMAL_DIGITS_MAX = 38
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}


@dataclass(frozen=True, slots=True)
class LayoutRows:
    """The rows of a table in one layout. `first`, `last`: numbers of the first and the last entry with this layout."""

    row: pa.StructType
    first: int
    last: int


def changelog_schema(row: pa.StructType) -> pa.Schema:
    """Returns the schema of a changelog of rows of the type `row`.

    `lsn`, `position`: the number of the entry in the log, and the number of the change within this entry; the pair
    orders all changes; `transaction_end`: True for the last change that a transaction makes to this table; `op`:
    insert, update, delete, `ddl` for a statement that concerns the table (`query` is its text), or `gap` if the server
    had purged changes at this place; the other columns are those of `arrow_types.change_schema`.
    """
    return pa.schema(
        [
            pa.field("lsn", pa.int64(), nullable=False),
            pa.field("position", pa.int64(), nullable=False),
            pa.field("epoch", pa.int64()),
            pa.field("seq", pa.int64()),
            pa.field("ordinal", pa.int64()),
            pa.field("gtid", pa.string()),
            pa.field("file", pa.string()),
            pa.field("pos", pa.int64()),
            pa.field("committed_at", pa.timestamp("us", "UTC")),
            pa.field("transaction_end", pa.bool_(), nullable=False),
            pa.field("op", pa.string(), nullable=False),
            pa.field("query", pa.string()),
            pa.field("before_absent", NAMES),
            pa.field("after_absent", NAMES),
            pa.field("before", row),
            pa.field("after", row),
        ]
    )


def joint_row(layouts: Sequence[LayoutRows], label: str) -> pa.StructType:
    """Returns a type that can represent the rows of all layouts. The type has the newest layout's columns first, then
    the columns that no longer exist.

    Raises `BinlogError` UNSUPPORTED_CHANGE for a column whose types have no common type. `label`: database.table.
    """
    newest_first = sorted(layouts, key=lambda layout: layout.last, reverse=True)
    by_name: dict[str, tuple[pa.Field, LayoutRows]] = {}
    for layout in newest_first:
        for field in layout.row:
            # Names are compared without regard to case, as the servers do.
            newer, at = by_name.get(field.name.lower(), (field, layout))
            common = common_type(newer.type, field.type)
            if common is None:
                raise _no_common_type(label, field, newer.type, layout, at)
            by_name[field.name.lower()] = newer.with_type(common), at
    return pa.struct([field for field, _ in by_name.values()])


def _no_common_type(
    label: str, field: pa.Field, newer_type: pa.DataType, older: LayoutRows, newer: LayoutRows
) -> BinlogError:
    return BinlogError(
        ErrorKind.UNSUPPORTED_CHANGE,
        f"column {field.name!r} of table {label} is {field.type} up to entry {older.last} and {newer_type} from entry"
        f" {newer.first} on, and no type holds the values of both",
        remedy=f"read the changelog in two parts: up to entry {newer.first} (--to {newer.first}), and from there"
        f" (--from {newer.first})",
    )


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Returns a type that represents all values of both types exactly; None if there is none."""
    if one.equals(other):
        return one
    if pa.types.is_floating(one) and pa.types.is_floating(other):
        return pa.float64()
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return one if one.bit_width > other.bit_width else other
    numbers = _digits(one), _digits(other)
    if None in numbers:
        return None
    whole, scale = (max(parts) for parts in zip(*filter(None, numbers), strict=True))
    digits = whole + scale
    return pa.decimal128(digits, scale) if digits <= _DECIMAL_DIGITS_MAX else None


def _digits(kind: pa.DataType) -> tuple[int, int] | None:
    """Returns how many digits an exact numeric type has before and after the decimal point; None for other types."""
    if pa.types.is_integer(kind):
        return _INTEGER_DIGITS[kind.bit_width], 0
    if pa.types.is_decimal(kind):
        return kind.precision - kind.scale, kind.scale
    return None


def change_rows(
    batches: Iterable[pa.RecordBatch], lsn: int, schema: pa.Schema, *, goes_on: bool
) -> Iterator[pa.RecordBatch]:
    """Yields the changes of one entry, with the columns of `schema` (a `changelog_schema`). `batches`: the decoded
    entry.

    `goes_on`: True if the entry's last transaction continues in the table's next entry.
    """
    position = 0
    held: pa.RecordBatch | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        if held is not None:
            yield _rows(held, lsn, position, schema, batch.column("seq")[0].as_py())
            position += held.num_rows
        held = batch
    if held is not None:
        following = held.column("seq")[-1].as_py() if goes_on else None
        yield _rows(held, lsn, position, schema, following)


def _rows(
    changes: pa.RecordBatch, lsn: int, position: int, schema: pa.Schema, following: int | None
) -> pa.RecordBatch:
    """Returns the rows of `changes`. `following`: the `seq` of the change after these; None if that change belongs to
    another transaction."""
    count = changes.num_rows
    seq = changes.column("seq").to_numpy()
    ends = np.append(seq[1:] != seq[:-1], seq[-1] != following)
    made = {
        "lsn": pa.array(np.full(count, lsn, np.int64)),
        "position": pa.array(np.arange(position, position + count, dtype=np.int64)),
        "transaction_end": pa.array(ends),
        "query": pa.nulls(count, pa.string()),
    }
    columns = [
        made[field.name] if field.name in made else as_rows(changes.column(field.name), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def as_rows(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Converts values to another type. In a struct, a column that the values lack becomes NULL."""
    if values.type.equals(kind):
        return values
    if not pa.types.is_struct(kind):
        return values.cast(kind)
    names = {field.name.lower(): i for i, field in enumerate(values.type)}
    # `StructArray.field` ignores the validity and the offset of a slice; `flatten` applies both.
    fields = values.flatten()
    columns = [
        fields[names[field.name.lower()]].cast(field.type)
        if field.name.lower() in names
        else pa.nulls(len(values), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=values.is_null())
