"""Builds a decoder for each column, which decodes the cells of a batch to an Arrow array.

A decoder is built once per layout from the column's definition: sizes, labels, character set. It decodes the cells of a
whole batch at once. Python runs once per value only for MariaDB's compressed columns (zlib) and for changes of JSON,
and once per distinct value for SET, UUID and INET.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dispatcher.binlog.charset import transcode
from dispatcher.binlog.charset.collations import BINARY, conversion_of
from dispatcher.binlog.decode.arrow import arrow_buffers
from dispatcher.binlog.decode.arrow.arrow_types import (
    DECIMAL128_DIGITS,
    GEOMETRY,
    INTEGERS,
    VECTOR,
    column_type,
    value_type,
)
from dispatcher.binlog.decode.arrow.invalid import Invalid, InvalidCell
from dispatcher.binlog.decode.columns import cells, temporals
from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.decode.jsonb import json_partial, jsonb
from dispatcher.binlog.kernel.short_copy import BLOCK
from dispatcher.binlog.table_map import inet
from dispatcher.binlog.table_map.column_types import (
    COMPRESSED_TYPES,
    Column,
    InvalidDates,
    Type,
    cell_width,
    decimal_groups,
)
from dispatcher.model.errors import ErrorKind

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int32]
Long = NDArray[np.int64]

INVALID_DATE = "correct the date on the server, or let such dates become NULL or text"
_DATE_FORMS: dict[int, int] = {
    Type.DATE: temporals.DATE,
    Type.NEWDATE: temporals.DATE,
    Type.DATETIME2: temporals.DATETIME2,
    Type.DATETIME_OLD: temporals.DATETIME_OLD,
    Type.TIMESTAMP2: temporals.TIMESTAMP2,
    Type.TIMESTAMP_OLD: temporals.TIMESTAMP_OLD,
}
_FLOAT_WIDTHS: dict[int, int] = {Type.FLOAT: 4, Type.DOUBLE: 8}
_TIME_FORMS: dict[int, int] = {Type.TIME2: temporals.TIME2, Type.TIME_OLD: temporals.TIME_OLD}


@dataclass(frozen=True, slots=True)
class Decoded:
    """`array`: one value per row. `invalid_dates`: number of dates that are null in `array`, but not NULL in MySQL.
    `invalid`: the other cells that are null in `array`, but not NULL in MySQL. Their columns have the rule
    `nulls_invalid`."""

    array: pa.Array
    invalid_dates: int = 0
    invalid: tuple[InvalidCell, ...] = ()


Decode = Callable[[Bytes, Offsets], Decoded]


def column_decoder(column: Column, invalid_dates: InvalidDates) -> tuple[pa.DataType, Decode]:
    """Return the Arrow type of a column's values after masking, and a decoder that returns the values before masking.
    The decoder may raise `Invalid`. Raises `Unsupported`."""
    decoder = _decoder(column, value_type(column, invalid_dates), invalid_dates)
    return column_type(column, invalid_dates), decoder


def _decoder(column: Column, target: pa.DataType, invalid_dates: InvalidDates) -> Decode:
    kind = column.type
    if (kind, column.unsigned) in INTEGERS:
        width, _ = INTEGERS[kind, column.unsigned]
        return lambda buf, at: _integers(buf, at, width, not column.unsigned, target)
    if kind in _FLOAT_WIDTHS:
        width = _FLOAT_WIDTHS[kind]
        return lambda buf, at: _integers(buf, at, width, False, target)
    if kind in _DATE_FORMS:
        return _date_decoder(column, target, invalid_dates)
    if kind in _TIME_FORMS:
        form = _TIME_FORMS[kind]
        return lambda buf, at: _dates(buf, at, form, column.meta, target, False)
    if make := _OTHERS.get(kind):
        return make(column, target)
    if column.declared in inet.SIZES:
        return _address_decoder(column.declared, -cell_width(kind, column.meta))
    return _text_decoder(column, target)


def shown_bytes(column: Column, buf: Bytes, start: int) -> bytes:
    """Returns the bytes of a cell, without their length. For a date, returns the text that the server shows, if there
    is one."""
    if column.type in _DATE_FORMS:
        at = np.array([start], dtype=np.int32)
        try:
            text = _date_texts(buf, at, _DATE_FORMS[column.type], column.meta).array[0].as_py()
        except Invalid:
            pass
        else:
            return str(text).encode()
    width = cell_width(column.type, column.meta)
    if width < 0:
        length = int.from_bytes(buf[start : start - width].tobytes(), "little")
        start, width = start - width, length
    return buf[start : start + width].tobytes()


def _read_integers(buf: Bytes, at: Offsets, width: int, signed: bool) -> Long:
    out = np.empty(len(at), dtype=np.int64)
    cells.integers(buf, at, width, signed, out)
    return out


def _integers(buf: Bytes, at: Offsets, width: int, signed: bool, target: pa.DataType) -> Decoded:
    values = _read_integers(buf, at, width, signed)
    if pa.types.is_decimal(target):  # BIGINT UNSIGNED: the 64 bits are the low half of 128 bits
        wide = np.zeros((len(at), 2), dtype=np.int64)
        wide[:, 0] = values
        values = wide
    return Decoded(arrow_buffers.fixed(target, values, at >= 0))


def _years(buf: Bytes, at: Offsets) -> Decoded:
    values = _read_integers(buf, at, 1, False)
    return Decoded(arrow_buffers.fixed(pa.int16(), np.where(values > 0, values + 1900, 0), at >= 0))


def _dates(
    buf: Bytes, at: Offsets, form: int, digits: int, target: pa.DataType, strict: bool
) -> Decoded:
    values, valid = np.empty(len(at), dtype=np.int64), np.empty(len(at), dtype=np.bool_)
    row = temporals.temporals(buf, at, form, digits, values, valid)
    if row >= 0:
        raise Invalid(row, "an invalid time of day")
    array = arrow_buffers.fixed(target, values, valid)
    invalid = array.null_count - int(np.count_nonzero(at < 0))
    if strict and invalid:
        row = int(np.flatnonzero(~valid & (at >= 0))[0])
        raise Invalid(row, "an invalid date (such as '0000-00-00')", remedy=INVALID_DATE)
    return Decoded(array, invalid)


def _date_decoder(column: Column, target: pa.DataType, invalid_dates: InvalidDates) -> Decode:
    form = _DATE_FORMS[column.type]
    if invalid_dates is InvalidDates.TEXT:
        return lambda buf, at: _date_texts(buf, at, form, column.meta)
    strict = invalid_dates is InvalidDates.ERROR
    return lambda buf, at: _dates(buf, at, form, column.meta, target, strict)


def _date_texts(buf: Bytes, at: Offsets, form: int, digits: int) -> Decoded:
    offsets, out = np.zeros(len(at) + 1, dtype=np.int64), np.empty(26 * len(at), dtype=np.uint8)
    if (row := temporals.temporal_texts(buf, at, form, digits, offsets, out)) >= 0:
        raise Invalid(row, "an invalid time of day")
    return _varying(at, offsets, out[: offsets[-1]].copy(), pa.string())


def _decimal_decoder(column: Column, target: pa.DataType) -> Decode:
    precision, scale = column.meta >> 8, column.meta & 0xFF
    layout = decimal_groups(precision, scale)
    groups = np.array([(size, 10**digits) for size, digits in layout], dtype=np.int64)
    cell_size = int(groups[:, 0].sum())

    def numbers(buf: Bytes, at: Offsets) -> Decoded:
        out = np.empty((len(at), 2), dtype=np.uint64)
        if (row := cells.read_decimals(buf, at, groups, out)) >= 0:
            raise Invalid(row, "an invalid DECIMAL")
        return Decoded(arrow_buffers.fixed(target, out, at >= 0))

    def numerals(buf: Bytes, at: Offsets) -> Decoded:
        offsets = np.zeros(len(at) + 1, dtype=np.int32)
        out = np.empty(len(at) * (precision + 3), dtype=np.uint8)
        if (
            row := cells.read_decimal_texts(buf, at, precision, scale, cell_size, offsets, out)
        ) >= 0:
            raise Invalid(row, "an invalid DECIMAL")
        return Decoded(
            arrow_buffers.varying(pa.string(), offsets, out[: offsets[-1]].copy(), at >= 0)
        )

    return numbers if precision <= DECIMAL128_DIGITS else numerals


def _enum_decoder(column: Column, target: pa.DataType) -> Decode:  # noqa: ARG001
    # An invalid value has the number 0, and the server shows it as ''.
    labels = arrow_buffers.string_array(["", *column.labels])

    def decode(buf: Bytes, at: Offsets) -> Decoded:
        numbers = _read_integers(buf, at, column.meta, False)
        if len(numbers) and numbers.max() >= len(labels):
            raise Invalid(int(numbers.argmax()), "an ENUM number without a label")
        return Decoded(labels.take(arrow_buffers.fixed(pa.int64(), numbers, at >= 0)))

    return decode


def _set_decoder(column: Column, target: pa.DataType) -> Decode:  # noqa: ARG001
    def decode(buf: Bytes, at: Offsets) -> Decoded:
        numbers = _read_integers(buf, at, column.meta, False).view(np.uint64)
        return set_texts(numbers, column.labels, at >= 0)

    return decode


def set_texts(
    numbers: NDArray[np.uint64], labels: Sequence[str], valid: NDArray[np.bool_]
) -> Decoded:
    """Returns the texts of SET values. `numbers`: the values, with one bit per label. Raises `Invalid`."""
    # There are few distinct values, so build the text of each distinct value only once.
    distinct, index = np.unique(numbers, return_inverse=True)
    if len(distinct) and int(distinct[-1]) >= 1 << len(labels):
        raise Invalid(int(numbers.argmax()), "a SET member without a label")
    members = [
        ",".join(label for bit, label in enumerate(labels) if value >> bit & 1)
        for value in distinct.tolist()
    ]
    indices = arrow_buffers.fixed(pa.int64(), index.astype(np.int64), valid)
    return Decoded(arrow_buffers.string_array(members).take(indices))


def gather_values(buf: Bytes, at: Offsets, prefix: int, least: int) -> tuple[Long, Bytes]:
    """Concatenate the values of the cells. Returns (offsets, data)."""
    offsets = np.empty(len(at) + 1, dtype=np.int64)
    cells.lengths(buf, at, prefix, least, offsets)
    data = np.empty(offsets[-1] + BLOCK, dtype=np.uint8)
    cells.copy_values(buf, at, prefix, offsets, data)
    return offsets, data[: offsets[-1]]


def _strings(buf: Bytes, at: Offsets, prefix: int, least: int, target: pa.DataType) -> Decoded:
    offsets, data = gather_values(buf, at, prefix, least)
    return _varying(at, offsets, data, target)


def _text_decoder(column: Column, target: pa.DataType) -> Decode:
    """Returns the decoder of CHAR, VARCHAR, TEXT and their binary forms, even if MariaDB compressed them."""
    prefix = -cell_width(column.type, column.meta)
    # A row image omits the trailing zero bytes of BINARY(n); SELECT shows them.
    least = column.meta if column.type == Type.STRING and column.charset == BINARY else 0
    compressed, binary = column.type in COMPRESSED_TYPES, column.charset == BINARY
    charset = conversion_of(column.charset)

    def decode(buf: Bytes, at: Offsets) -> Decoded:
        offsets, data = gather_values(buf, at, prefix, least)
        if compressed:
            offsets, data = _uncompressed(offsets, data)
        if binary:
            return _varying(at, offsets, data, target)
        row, offsets, data = transcode.to_utf8(charset, data, offsets)
        if row >= 0:
            raise Invalid(row, f"bytes that are not valid {charset}")
        return _varying(at, offsets, data, target)

    return decode


def _uncompressed(offsets: Long, data: Bytes) -> tuple[Long, Bytes]:
    """Decompress values of MariaDB's compressed columns. Raises `Invalid`.

    A value is empty, or begins with a header byte. After header 0, the plain value follows. In any other header, the
    low three bits are the size in bytes of the field that follows: the length of the plain value (big-endian). After
    this field follows the compressed value, in zlib's format, or as raw deflate if bit 3 of the header is set. Source:
    MariaDB source, sql/field_comp.cc.
    """
    raw = data.tobytes()
    values = []
    for row, (start, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):  # fmt: skip
        values.append(b"" if start == end else _value(raw[start:end], row))
    return concatenate(values)


def _value(cell: bytes, row: int) -> bytes:
    header, size = cell[0], cell[0] & 7
    if header == 0:
        return cell[1:]
    if header & 0xF0 != 0x80 or not 1 <= size <= 4 or len(cell) <= size:
        raise Invalid(row, "a compressed value with an unknown header")
    length = int.from_bytes(cell[1 : 1 + size], "big")
    reader = zlib.decompressobj(-15 if header & 8 else 15)
    try:
        value = reader.decompress(cell[1 + size :], length + 1)
    except zlib.error as error:
        raise Invalid(row, f"a compressed value that cannot be read: {error}") from None
    if len(value) != length or not reader.eof:
        raise Invalid(row, "a compressed value whose length is not that which its header says")
    return value


def concatenate(values: Iterable[bytes]) -> tuple[Long, Bytes]:
    """Returns (offsets, data) of the concatenated values."""
    parts = list(values)
    offsets = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return offsets, np.frombuffer(b"".join(parts), dtype=np.uint8)


def _address_decoder(kind: str, prefix: int) -> Decode:
    size = inet.SIZES[kind]

    def decode(buf: Bytes, at: Offsets) -> Decoded:
        offsets, data = gather_values(buf, at, prefix, size)
        lengths = np.diff(offsets)
        if (long := np.flatnonzero(lengths > size)).size:
            raise Invalid(int(long[0]), f"an invalid {kind.upper()}")
        if not len(data):
            return Decoded(pa.nulls(len(at), pa.string()))
        distinct, index = np.unique(data.reshape(-1, size), axis=0, return_inverse=True)
        shown = arrow_buffers.string_array(
            [inet.address_text(kind, value.tobytes()) for value in distinct]
        )
        lines = np.zeros(len(at), dtype=np.int64)
        lines[at >= 0] = index.ravel()
        return Decoded(shown.take(arrow_buffers.fixed(pa.int64(), lines, at >= 0)))

    return decode


_JSON_PREFIX = 4


def _documents(buf: Bytes, at: Offsets) -> Decoded:
    return _json_texts(*gather_values(buf, at, _JSON_PREFIX, 0), at >= 0)


def _json_texts(offsets: Long, data: Bytes, valid: NDArray[np.bool_]) -> Decoded:
    return Decoded(jsonb.json_strings(data, offsets, valid))


def decode_partial_json(buf: Bytes, at: Offsets, before: Offsets) -> Decoded:
    """Decode JSON cells of after-images. Some of the cells contain only the changes to the before-image's cell. Raises
    `Invalid`."""
    changed = at <= row_walk.DIFF
    parts = []
    for row, (cell, old) in enumerate(zip(at.tolist(), before.tolist(), strict=True)):
        if not changed[row]:
            parts.append(_cell(buf, cell) if cell >= 0 else b"")
            continue
        if old == row_walk.ABSENT:
            raise Invalid(
                row,
                "a change of JSON without the value that it changes",
                kind=ErrorKind.ROW_IMAGE,
                remedy="SET PERSIST binlog_row_value_options='', or binlog_row_image=FULL, on the server and for every"
                " session, then copy the table afresh",
            )
        if old < 0:
            raise Invalid(row, "a change of JSON to a value that is NULL")
        try:
            parts.append(
                json_partial.apply_diffs(_cell(buf, old), _cell(buf, row_walk.cell_offset(cell)))
            )
        except json_partial.CannotApply as error:
            raise Invalid(row, error.why) from None
    return _json_texts(*concatenate(parts), changed | (at >= 0))


def _cell(buf: Bytes, at: int) -> bytes:
    size = int.from_bytes(buf[at : at + _JSON_PREFIX].tobytes(), "little")
    return buf[at + _JSON_PREFIX : at + _JSON_PREFIX + size].tobytes()


def _geometries(buf: Bytes, at: Offsets, prefix: int) -> Decoded:
    return geometry_structs(*gather_values(buf, at, prefix, 0), at >= 0)


def geometry_structs(offsets: Long, data: Bytes, valid: NDArray[np.bool_]) -> Decoded:
    """Decode adjacent geometries: the SRID, four bytes, then the well-known binary form. Raises `Invalid`.

    INSERT IGNORE stores an empty cell in a NOT NULL column if the statement supplies no value (MySQL 5.6, MariaDB).
    SELECT shows the cell as ''. For such a cell, the decoder returns SRID 0 and an empty form.
    """
    lengths = np.diff(offsets)
    present = valid & (lengths > 0)
    if (short := np.flatnonzero(present & (lengths < 4))).size:
        raise Invalid(int(short[0]), "an invalid geometry")
    head = offsets[:-1][present][:, None] + np.arange(4)
    srid = np.zeros(len(valid), dtype=np.int64)
    srid[present] = np.ascontiguousarray(data[head]).view("<u4").ravel()
    rest = np.ones(len(data), dtype=np.bool_)
    rest[head.ravel()] = False
    wkb_offsets = offsets.copy()
    wkb_offsets[1:] -= 4 * np.cumsum(present)
    check_text_size(offsets)
    wkb = arrow_buffers.varying(pa.binary(), wkb_offsets.astype(np.int32), data[rest], valid)
    children = [arrow_buffers.fixed(pa.int64(), srid, valid), wkb]
    validity = [arrow_buffers.bitmap(valid)]
    return Decoded(pa.Array.from_buffers(GEOMETRY, len(valid), validity, children=children))


def _vectors(buf: Bytes, at: Offsets, prefix: int) -> Decoded:
    return vector_lists(*gather_values(buf, at, prefix, 0), at >= 0)


def vector_lists(offsets: Long, data: Bytes, valid: NDArray[np.bool_]) -> Decoded:
    """Decode adjacent vectors: little-endian floats of four bytes. Raises `Invalid`."""
    if (odd := np.flatnonzero(np.diff(offsets) % 4)).size:
        raise Invalid(int(odd[0]), "an invalid VECTOR")
    check_text_size(offsets)
    elements = arrow_buffers.fixed(pa.float32(), data.view(np.uint32))
    buffers = [arrow_buffers.bitmap(valid), pa.py_buffer((offsets // 4).astype(np.int32))]
    return Decoded(pa.Array.from_buffers(VECTOR, len(valid), buffers, children=[elements]))


def _varying(at: Offsets, offsets: Long, data: Bytes, target: pa.DataType) -> Decoded:
    check_text_size(offsets)
    return Decoded(arrow_buffers.varying(target, offsets.astype(np.int32), data, at >= 0))


def check_text_size(offsets: Long) -> None:
    """Raise `Invalid` for values that Arrow's 32-bit offsets cannot address."""
    if offsets[-1] > 0x7FFFFFFF:
        raise Invalid(len(offsets) - 2, "more than 2 GiB of text in one batch")


def _bit_decoder(column: Column, target: pa.DataType) -> Decode:
    width = cell_width(column.type, column.meta)
    return lambda buf, at: _strings(buf, at, 0, width, target)


_OTHERS: dict[int, Callable[[Column, pa.DataType], Decode]] = {
    Type.YEAR: lambda column, target: _years,  # noqa: ARG005
    Type.NEWDECIMAL: _decimal_decoder,
    Type.JSON: lambda column, target: _documents,  # noqa: ARG005
    Type.BIT: _bit_decoder,
    Type.GEOMETRY: lambda column, target: partial(_geometries, prefix=column.meta),  # noqa: ARG005
    Type.VECTOR: lambda column, target: partial(_vectors, prefix=column.meta),  # noqa: ARG005
    Type.ENUM: _enum_decoder,
    Type.SET: _set_decoder,
}
