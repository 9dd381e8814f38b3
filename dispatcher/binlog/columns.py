"""Columns of row images to Arrow arrays, a whole batch at a time: no Python runs per cell.

`docs/types.md` says what each MySQL type becomes; `arrow_type` is that table in code. The targets are the types Spark
takes without a cast: no unsigned integers (each goes to the next wider one), no dictionaries, microseconds everywhere.

A date that is none ('0000-00-00', 2024-00-31, year 0) becomes NULL and is counted: no target can hold it, and a table
must not stop being mirrored for it. Everything else that cannot be represented is an error with its offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dispatcher.binlog import arrow, cells
from dispatcher.binlog.charsets import BINARY, DECODED, LATIN1, charset_of
from dispatcher.binlog.table_map import TableMap
from dispatcher.binlog.types import META_BYTES, Column, Type, cell_width, decimal_groups
from dispatcher.model.errors import BinlogError, Kind

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int32]

DECIMAL128_DIGITS = 38

_INTEGERS: dict[tuple[int, bool], tuple[int, pa.DataType]] = {
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
_NAIVE = pa.timestamp("us")
_UTC = pa.timestamp("us", "UTC")
_TEMPORALS: dict[int, tuple[int, pa.DataType]] = {
    Type.DATE: (cells.DATE, pa.date32()),
    Type.NEWDATE: (cells.DATE, pa.date32()),
    Type.DATETIME2: (cells.DATETIME2, _NAIVE),
    Type.DATETIME_OLD: (cells.DATETIME_OLD, _NAIVE),
    Type.TIMESTAMP2: (cells.TIMESTAMP2, _UTC),
    Type.TIMESTAMP_OLD: (cells.TIMESTAMP_OLD, _UTC),
    Type.TIME2: (cells.TIME2, pa.int64()),
    Type.TIME_OLD: (cells.TIME_OLD, pa.int64()),
}
_TEXTS = (Type.STRING, Type.VARCHAR, Type.VAR_STRING, Type.BLOB)


def arrow_type(column: Column, table: str = "") -> pa.DataType:  # noqa: C901, PLR0911 - one return per type
    """The Arrow type of a column's values; `table` is for the message.

    Raises `BinlogError` UNSUPPORTED_TYPE naming table, column and type.
    """
    if known := _INTEGERS.get((column.type, column.unsigned)):
        return known[1]
    if column.type in _TEMPORALS:
        return _TEMPORALS[column.type][1]
    match column.type:
        case Type.FLOAT:
            return pa.float32()
        case Type.DOUBLE:
            return pa.float64()
        case Type.NEWDECIMAL:
            precision, scale = column.meta >> 8, column.meta & 0xFF
            return (
                pa.decimal128(precision, scale) if precision <= DECIMAL128_DIGITS else pa.string()
            )
        case Type.YEAR:
            return pa.int16()
        case Type.BIT:
            return pa.binary()
        case Type.ENUM | Type.SET:
            if not column.labels:
                raise _unsupported(
                    table, column, f"{Type(column.type).name} without readable labels"
                )
            return pa.string()
    if column.type in _TEXTS:
        if column.charset == BINARY:
            return pa.binary()
        charset = charset_of(column.charset)
        if charset in DECODED:
            return pa.string()
        raise _unsupported(
            table, column, f"text in character set {charset if column.charset else 'unknown'}"
        )
    raise _unsupported(table, column, _type_name(column.type))


def _type_name(code: int) -> str:
    return Type(code).name if code in META_BYTES else f"code {code}"


def _unsupported(table: str, column: Column, what: str) -> BinlogError:
    place = f"table {table}, column {column.name!r}" if table else f"column {column.name!r}"
    return BinlogError(Kind.UNSUPPORTED_TYPE, f"{place}: {what}")


@dataclass(frozen=True, slots=True)
class Decoded:
    """`array`: one value a row; `invalid_dates`: cells that are NULL in it though not in MySQL."""

    array: pa.Array
    invalid_dates: int = 0


class TableDecoder:
    """Decodes the cells of one layout. `fields`: its columns in Arrow, all nullable; `widths`: for `rows.walk`."""

    def __init__(self, table_map: TableMap) -> None:
        """Raises `BinlogError` METADATA_MISSING or UNSUPPORTED_TYPE, naming table and column."""
        table_map.require_names()
        self.table_map = table_map
        self.fields = tuple(
            pa.field(c.name, arrow_type(c, table_map.label)) for c in table_map.columns
        )
        self.widths = cell_widths(table_map.columns)
        self._decoders = tuple(map(_decoder, table_map.columns))

    def decode(
        self, buf: Bytes, at: Offsets, base: int, missing: NDArray[np.bool_] | None
    ) -> Decoded:
        """A struct array of the rows' images. `at`: (columns, rows) offsets in `buf`; `base`: where `buf` begins, for
        messages; `missing`: True for rows that have no image, or None where all have."""
        arrays, invalid_dates = [], 0
        for i, decode in enumerate(self._decoders):
            try:
                decoded = decode(buf, at[i])
            except _Invalid as error:
                raise self._error(i, error.why, base + int(at[i, error.row])) from None
            arrays.append(decoded.array)
            invalid_dates += decoded.invalid_dates
        mask = None if missing is None else arrow.booleans(missing)
        return Decoded(
            pa.StructArray.from_arrays(arrays, fields=self.fields, mask=mask), invalid_dates
        )

    def _error(self, column: int, why: str, offset: int) -> BinlogError:
        name = self.table_map.columns[column].name
        return BinlogError(
            Kind.INVALID_VALUE,
            f"table {self.table_map.label}, column {name!r}: {why}",
            where=f"offset {offset}",
        )


def cell_widths(columns: Sequence[Column]) -> NDArray[np.int32]:
    return np.array([cell_width(column.type, column.meta) for column in columns], dtype=np.int32)


class _Invalid(Exception):
    def __init__(self, row: int, why: str) -> None:
        self.row, self.why = row, why


_Decode = Callable[[Bytes, Offsets], Decoded]


def _decoder(column: Column) -> _Decode:  # noqa: PLR0911 - one return per type
    if (column.type, column.unsigned) in _INTEGERS:
        width, target = _INTEGERS[column.type, column.unsigned]
        return lambda buf, at: _integers(buf, at, width, not column.unsigned, target)
    if column.type in _TEMPORALS:
        form, target = _TEMPORALS[column.type]
        return lambda buf, at: _temporals(buf, at, form, column.meta, target)
    match column.type:
        case Type.FLOAT:
            return lambda buf, at: _integers(buf, at, 4, False, pa.float32())
        case Type.DOUBLE:
            return lambda buf, at: _integers(buf, at, 8, False, pa.float64())
        case Type.YEAR:
            return _years
        case Type.NEWDECIMAL:
            return _decimal_decoder(column.meta >> 8, column.meta & 0xFF)
        case Type.ENUM:
            return _enum_decoder(column)
        case Type.SET:
            return _set_decoder(column)
        case Type.BIT:
            width = cell_width(column.type, column.meta)
            return lambda buf, at: _strings(buf, at, 0, width, pa.binary())
    prefix = -cell_width(column.type, column.meta)
    if column.charset == BINARY:
        # BINARY(n) loses its trailing zero bytes in a row image; SELECT shows them.
        least = column.meta if column.type == Type.STRING else 0
        return lambda buf, at: _strings(buf, at, prefix, least, pa.binary())
    charset = charset_of(column.charset)
    if charset == "latin1":
        return lambda buf, at: _latin1(buf, at, prefix)
    greatest = {"ascii": 0x7F, "utf8mb3": 0xEF}.get(charset, 0xFF)
    return lambda buf, at: _utf8(buf, at, prefix, greatest, charset)


def _read_integers(buf: Bytes, at: Offsets, width: int, signed: bool) -> NDArray[np.int64]:
    out = np.empty(len(at), dtype=np.int64)
    cells.integers(buf, at, width, signed, out)
    return out


def _integers(buf: Bytes, at: Offsets, width: int, signed: bool, target: pa.DataType) -> Decoded:
    values = _read_integers(buf, at, width, signed)
    if pa.types.is_decimal(target):  # BIGINT UNSIGNED: the 64 bits are the low half
        wide = np.zeros((len(at), 2), dtype=np.int64)
        wide[:, 0] = values
        values = wide
    return Decoded(arrow.fixed(target, values, at >= 0))


def _years(buf: Bytes, at: Offsets) -> Decoded:
    values = _read_integers(buf, at, 1, False)
    return Decoded(arrow.fixed(pa.int16(), np.where(values > 0, values + 1900, 0), at >= 0))


def _temporals(buf: Bytes, at: Offsets, form: int, digits: int, target: pa.DataType) -> Decoded:
    values, valid = np.empty(len(at), dtype=np.int64), np.empty(len(at), dtype=np.bool_)
    row = cells.temporals(buf, at, form, digits, values, valid)
    if row >= 0:
        raise _Invalid(row, "bytes that are no time of day")
    array = arrow.fixed(target, values, valid)
    return Decoded(array, array.null_count - int(np.count_nonzero(at < 0)))


def _decimal_decoder(precision: int, scale: int) -> _Decode:
    layout = decimal_groups(precision, scale)
    groups = np.array([(size, 10**digits) for size, digits in layout], dtype=np.int64)
    digits = np.array([digits for _, digits in layout], dtype=np.int64)

    def numbers(buf: Bytes, at: Offsets) -> Decoded:
        out = np.empty((len(at), 2), dtype=np.uint64)
        if (row := cells.decimals(buf, at, groups, out)) >= 0:
            raise _Invalid(row, "bytes that are no DECIMAL")
        return Decoded(arrow.fixed(pa.decimal128(precision, scale), out, at >= 0))

    def texts(buf: Bytes, at: Offsets) -> Decoded:
        offsets = np.zeros(len(at) + 1, dtype=np.int32)
        out = np.empty(len(at) * (precision + 3), dtype=np.uint8)
        if (row := cells.decimal_texts(buf, at, groups, digits, scale, offsets, out)) >= 0:
            raise _Invalid(row, "bytes that are no DECIMAL")
        return Decoded(arrow.varying(pa.string(), offsets, out[: offsets[-1]].copy(), at >= 0))

    return numbers if precision <= DECIMAL128_DIGITS else texts


def _enum_decoder(column: Column) -> _Decode:
    labels = arrow.texts(["", *column.labels])  # 0: what an invalid value was stored as

    def decode(buf: Bytes, at: Offsets) -> Decoded:
        numbers = _read_integers(buf, at, column.meta, False)
        if len(numbers) and numbers.max() >= len(labels):
            raise _Invalid(int(numbers.argmax()), "an ENUM number without a label")
        return Decoded(labels.take(arrow.fixed(pa.int64(), numbers, at >= 0)))

    return decode


def _set_decoder(column: Column) -> _Decode:
    limit = 1 << len(column.labels)

    def decode(buf: Bytes, at: Offsets) -> Decoded:
        numbers = _read_set(buf, at, column.meta)
        # Distinct values are few: their texts are made once each.
        distinct, index = np.unique(numbers, return_inverse=True)
        if len(distinct) and int(distinct[-1]) >= limit:
            raise _Invalid(int(numbers.argmax()), "a SET member without a label")
        texts = [
            ",".join(label for bit, label in enumerate(column.labels) if value >> bit & 1)
            for value in distinct.tolist()
        ]
        indices = arrow.fixed(pa.int64(), index.astype(np.int64), at >= 0)
        return Decoded(arrow.texts(texts).take(indices))

    return decode


def _read_set(buf: Bytes, at: Offsets, width: int) -> NDArray[np.uint64]:
    return _read_integers(buf, at, width, False).view(np.uint64)


def _cut(buf: Bytes, at: Offsets, prefix: int, least: int) -> tuple[NDArray[np.int64], Bytes]:
    """(offsets, data) of the values behind each other."""
    offsets = np.empty(len(at) + 1, dtype=np.int64)
    cells.lengths(buf, at, prefix, least, offsets)
    data = np.empty(offsets[-1], dtype=np.uint8)
    cells.copy(buf, at, prefix, offsets, data)
    return offsets, data


def _strings(buf: Bytes, at: Offsets, prefix: int, least: int, target: pa.DataType) -> Decoded:
    offsets, data = _cut(buf, at, prefix, least)
    return _varying(at, offsets, data, target)


def _utf8(buf: Bytes, at: Offsets, prefix: int, greatest: int, charset: str) -> Decoded:
    offsets, data = _cut(buf, at, prefix, 0)
    if (row := cells.invalid_utf8(data, offsets, greatest)) >= 0:
        raise _Invalid(row, f"bytes that are not valid {charset}")
    return _varying(at, offsets, data, pa.string())


def _latin1(buf: Bytes, at: Offsets, prefix: int) -> Decoded:
    offsets, data = _cut(buf, at, prefix, 0)
    if not len(data) or data.max() < 0x80:
        return _varying(at, offsets, data, pa.string())
    out_offsets, out = (
        np.zeros(len(at) + 1, dtype=np.int64),
        np.empty(3 * len(data), dtype=np.uint8),
    )
    cells.to_utf8(data, offsets, _LATIN1_TABLE, out_offsets, out)
    return _varying(at, out_offsets, out[: out_offsets[-1]].copy(), pa.string())


def _varying(at: Offsets, offsets: NDArray[np.int64], data: Bytes, target: pa.DataType) -> Decoded:
    if offsets[-1] > 0x7FFFFFFF:
        raise _Invalid(len(at) - 1, "more than 2 GiB of text in one batch")
    return Decoded(arrow.varying(target, offsets.astype(np.int32), data, at >= 0))


def _latin1_table() -> Bytes:
    table = np.zeros((256, 4), dtype=np.uint8)
    for byte, char in enumerate(LATIN1):
        text = char.encode()
        table[byte, 0] = len(text)
        table[byte, 1 : 1 + len(text)] = tuple(text)
    return table


_LATIN1_TABLE = _latin1_table()
