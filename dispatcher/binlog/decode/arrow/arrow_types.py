"""The Arrow types of columns and of decoded changes.

`docs/types.md` lists the Arrow type of each MySQL type; `column_type` implements that list. Spark reads these types
without a cast: no unsigned integers (each becomes the next wider type), no dictionaries, times in microseconds.

This module loads no kernels: the driver of a stream needs only the schema, and importing numba takes longer than all
other imports of the driver.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dispatcher.binlog.charset.charsets import CONVERTIBLE
from dispatcher.binlog.charset.collations import BINARY, charset_of
from dispatcher.binlog.table_map import inet
from dispatcher.binlog.table_map.column_types import (
    COMPRESSED_TYPES,
    META_BYTES,
    Column,
    InvalidDates,
    MaskForm,
    Type,
)
from dispatcher.model.errors import BinlogError, ErrorKind

DECIMAL128_DIGITS = 38

INTEGERS: dict[tuple[int, bool], tuple[int, pa.DataType]] = {
    (Type.TINY, False): (1, pa.int8()),
    (Type.SHORT, False): (2, pa.int16()),
    (Type.INT24, False): (3, pa.int32()),
    (Type.LONG, False): (4, pa.int32()),
    (Type.LONGLONG, False): (8, pa.int64()),
    (Type.TINY, True): (1, pa.int16()),
    (Type.SHORT, True): (2, pa.int32()),
    (Type.INT24, True): (3, pa.int32()),
    (Type.LONG, True): (4, pa.int64()),
    (Type.LONGLONG, True): (8, pa.decimal128(20, 0)),
}
"""Maps the column type, and True if unsigned, to the bytes of a cell and the Arrow type."""

_DATETIME, _INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")
DATES: dict[int, pa.DataType] = {
    Type.DATE: pa.date32(),
    Type.NEWDATE: pa.date32(),
    Type.DATETIME2: _DATETIME,
    Type.DATETIME_OLD: _DATETIME,
    Type.TIMESTAMP2: _INSTANT,
    Type.TIMESTAMP_OLD: _INSTANT,
}
TIMES = (Type.TIME2, Type.TIME_OLD)
TEXTS = (Type.STRING, Type.VARCHAR, Type.VAR_STRING, Type.BLOB, *COMPRESSED_TYPES)
GEOMETRY = pa.struct([pa.field("srid", pa.int64()), pa.field("wkb", pa.binary())])
VECTOR = pa.list_(pa.field("element", pa.float32()))
_OTHERS: dict[int, pa.DataType] = {
    **dict.fromkeys(TIMES, pa.int64()),
    Type.FLOAT: pa.float32(),
    Type.DOUBLE: pa.float64(),
    Type.YEAR: pa.int16(),
    Type.JSON: pa.string(),
    Type.BIT: pa.binary(),
    Type.GEOMETRY: GEOMETRY,
    Type.VECTOR: VECTOR,
}

NAMES = pa.list_(pa.field("element", pa.string()))
"""The type of a list of column names."""

ENVELOPE = (
    pa.field("epoch", pa.int64(), nullable=False),
    pa.field("seq", pa.int64(), nullable=False),
    pa.field("ordinal", pa.int64(), nullable=False),
    pa.field("gtid", pa.string()),
    pa.field("file", pa.string()),
    pa.field("pos", pa.int64()),
    pa.field("committed_at", _INSTANT),
    pa.field("database", pa.string()),
    pa.field("table", pa.string()),
    pa.field("op", pa.string()),
    pa.field("before_absent", NAMES),
    pa.field("after_absent", NAMES),
)

NEWEST_ENVELOPE = (*ENVELOPE[:-2], pa.field("absent", NAMES))
"""`ENVELOPE` for changes with one image of each row: the image after the change, or for a deletion the image before
it."""


class Unsupported(Exception):
    """A column whose values have no Arrow type. `str()`: the column's type, such as `TYPED_ARRAY`."""


def column_type(column: Column, invalid_dates: InvalidDates) -> pa.DataType:
    """Returns the Arrow type of a column's values after masking. Raises `Unsupported`."""
    kind = value_type(column, invalid_dates)
    if column.mask is None or column.mask.form is MaskForm.NULL:
        return kind
    if pa.types.is_nested(kind):
        raise Unsupported(
            f"{Type(column.type).name} with the mask {column.mask.form}; only null is possible"
        )
    return pa.string()


def value_type(column: Column, invalid_dates: InvalidDates) -> pa.DataType:
    """Returns the Arrow type of a column's values before masking. Raises `Unsupported`."""
    if (column.type, column.unsigned) in INTEGERS:
        return INTEGERS[column.type, column.unsigned][1]
    if column.type in DATES:
        return pa.string() if invalid_dates is InvalidDates.TEXT else DATES[column.type]
    if column.type in _OTHERS:
        return _OTHERS[column.type]
    match column.type:
        case Type.NEWDECIMAL:
            precision, scale = column.meta >> 8, column.meta & 0xFF
            return (
                pa.decimal128(precision, scale) if precision <= DECIMAL128_DIGITS else pa.string()
            )
        case Type.ENUM | Type.SET if not column.labels:
            raise Unsupported(f"{Type(column.type).name} without readable labels")
        case Type.ENUM | Type.SET:
            return pa.string()
    if column.declared in inet.SIZES:
        return pa.string()
    if column.type in TEXTS:
        return _text_type(column)
    code = column.type
    raise Unsupported(Type(code).name if code in META_BYTES else f"code {code}")


def _text_type(column: Column) -> pa.DataType:
    """Returns the Arrow type of CHAR, VARCHAR, TEXT and their binary forms, even if MariaDB compressed them. Raises
    `Unsupported`."""
    if column.charset == BINARY:
        return pa.binary()
    name = charset_of(column.charset) if column.charset else "unknown"
    if name not in CONVERTIBLE:
        raise Unsupported(f"text in character set {name}")
    return pa.string()


def arrow_type(
    column: Column, table: str = "", invalid_dates: InvalidDates = InvalidDates.NULL
) -> pa.DataType:
    """Returns the Arrow type of a column's values; `table` is for messages.

    Raises `BinlogError` UNSUPPORTED_TYPE with table, column and type.
    """
    try:
        return column_type(column, invalid_dates)
    except Unsupported as error:
        raise unsupported(column, table, error) from None


def unsupported(column: Column, table: str, error: Unsupported) -> BinlogError:
    """Returns the error UNSUPPORTED_TYPE. `table`: the table's name, or ""."""
    place = f"table {table}, column {column.name!r}" if table else f"column {column.name!r}"
    return BinlogError(ErrorKind.UNSUPPORTED_TYPE, f"{place}: {error}")


def images_schema(fields: Sequence[pa.Field]) -> pa.Schema:
    """Returns the schema of changes whose images have these fields."""
    row = pa.struct(fields)
    return pa.schema([*ENVELOPE, pa.field("before", row), pa.field("after", row)])


def newest_schema(fields: Sequence[pa.Field]) -> pa.Schema:
    """Returns the schema of changes with one image of each row, the column `row`, whose struct has these fields."""
    return pa.schema([*NEWEST_ENVELOPE, pa.field("row", pa.struct(fields))])


def change_schema(
    columns: Sequence[Column], table: str = "", invalid_dates: InvalidDates = InvalidDates.NULL
) -> pa.Schema:
    """The schema of decoded changes: `epoch`, `seq`, `ordinal` int64 not null; `gtid`, `file` string; `pos` int64;
    `committed_at` timestamp('us', 'UTC'); `database`, `table`, `op` ('insert', 'update', 'delete') string;
    `before_absent`, `after_absent` list of the names of the columns that the image lacks (null if it lacks none);
    `before`, `after` struct of the table's columns (null if the operation has no such image), each field nullable.

    Raises `BinlogError` UNSUPPORTED_TYPE or METADATA_MISSING, which names the column; `table` is for messages.
    """
    if not all(column.name for column in columns):
        raise BinlogError(ErrorKind.METADATA_MISSING, f"no column names for table {table}")
    return images_schema([pa.field(c.name, arrow_type(c, table, invalid_dates)) for c in columns])
