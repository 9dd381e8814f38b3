"""Converts decoded columns to the values of Debezium's MySQL connector with its default settings.

`docs/read.md` lists the values that differ. The test is tests/front/clients/test_debezium_lines.py.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dispatcher.binlog.decode.arrow import arrow_buffers
from dispatcher.binlog.decode.arrow.arrow_types import DATES
from dispatcher.binlog.decode.changes.json_render import decimal_words
from dispatcher.binlog.table_map.column_types import Column, MaskForm, Type

_MILLIS = 3  # a DATETIME with more fractional digits is a number of microseconds
_SECONDS_END, _MICROS_END = 19, 26  # in `2024-01-31 10:00:00.000000`
_WORDS = 16  # bytes of a decimal128
_POINT, _POINT_SIZE, _X_AT = (
    1,
    21,
    5,
)  # the kind of a geometry; WKB of a point: byte order, kind, x, y


def debezium_image(image: pa.StructArray, columns: tuple[Column, ...]) -> pa.StructArray:
    """Returns the rows of `before` or `after` with Debezium's values. `image`: one field for each column."""
    children = [_converted(image.field(i), column) for i, column in enumerate(columns)]
    names = [field.name for field in image.type]
    return _struct(names, children, image)


def _struct(names: list[str], children: list[pa.Array], rows: pa.Array) -> pa.StructArray:
    """Returns structs that are null where `rows` are null."""
    fields = [pa.field(name, child.type) for name, child in zip(names, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=rows.is_null())


def _converted(values: pa.Array, column: Column) -> pa.Array:
    if column.mask is not None and column.mask.form is not MaskForm.NULL:
        return values
    match column.type:
        case Type.LONGLONG if column.unsigned:
            low = np.ascontiguousarray(decimal_words(values)[:, 0]).view(np.int64)
            return arrow_buffers.fixed(pa.int64(), low, arrow_buffers.valid_of(values))
        case Type.NEWDECIMAL:
            return _unscaled(values)
        case Type.BIT if column.meta == 1:
            return pc.not_equal(values, pa.scalar(b"\0"))
        case Type.BIT:
            return pc.binary_reverse(values)
        case Type.GEOMETRY:
            return _geometries(values, has_point=column.geometry == _POINT)
    if column.type not in DATES:
        return values
    # An invalid date is NULL here. If the column is NOT NULL, Debezium shows the epoch in its place.
    dates, epoch = _dates(values, column)
    return dates if column.nullable else pc.fill_null(dates, epoch)


def _dates(values: pa.Array, column: Column) -> tuple[pa.Array, int | str]:
    """Returns the values of a DATE, DATETIME or TIMESTAMP column, and the epoch in the same form."""
    digits, kind = column.meta, DATES[column.type]
    if kind == pa.date32():
        return values.cast(pa.int32()), 0
    if kind.tz is None:
        micros = values.cast(pa.int64())
        return micros if digits > _MILLIS else pc.divide(micros, 1000), 0
    plain = values.view(pa.timestamp("us")).cast(pa.string())  # faster than a cast with a time zone
    texts = pc.binary_replace_slice(plain, 10, 11, "T")
    end = _SECONDS_END + (digits + 1 if digits else 0)
    return pc.binary_replace_slice(texts, end, _MICROS_END, "Z"), "1970-01-01T00:00:00Z"


def _unscaled(values: pa.Array) -> pa.Array:
    """Returns DECIMALs without their points, as big-endian two's complement of as few bytes as possible."""
    if pa.types.is_string(values.type):
        return pa.array([text and _unscaled_text(text) for text in values.to_pylist()], pa.binary())
    big = np.ascontiguousarray(decimal_words(values)).view(np.uint8)[:, ::-1]
    negative = big[:, 0] >= 128
    others = big != np.where(negative, 255, 0).astype(np.uint8)[:, None]
    others[:, -1] = True
    start = others.argmax(axis=1)
    lacks_sign = (big[np.arange(len(big)), start] >= 128) != negative
    start -= lacks_sign
    valid = arrow_buffers.valid_of(values)
    if valid is not None:
        start[~valid] = _WORDS
    offsets = np.zeros(len(big) + 1, dtype=np.int32)
    np.cumsum(_WORDS - start, out=offsets[1:])
    data = big[np.arange(_WORDS) >= start[:, None]]
    return arrow_buffers.varying(pa.binary(), offsets, data, valid)


def _unscaled_text(text: str) -> bytes:
    number = int(text.replace(".", ""))
    bits = (number if number >= 0 else ~number).bit_length() + 1  # with the sign
    return number.to_bytes((bits + 7) // 8, "big", signed=True)


def _geometries(values: pa.StructArray, *, has_point: bool) -> pa.StructArray:
    """Returns geometries in which the SRID 0 is replaced by null. The geometry of a POINT also has x and y."""
    srid, wkb = values.field("srid"), values.field("wkb")
    srid = pc.if_else(pc.equal(srid, 0), None, srid)
    if not has_point:
        return _struct(["wkb", "srid"], [wkb, srid], values)
    offsets, data = arrow_buffers.cuts_of(wkb)
    found = np.diff(offsets) == _POINT_SIZE
    at = offsets[:-1][found][:, None] + np.arange(_X_AT, _POINT_SIZE)
    numbers = np.zeros((len(values), 2))
    numbers[found] = np.ascontiguousarray(data[at]).view("<f8")
    x, y = (pa.array(numbers[:, i], mask=~found) for i in range(2))
    return _struct(["x", "y", "wkb", "srid"], [x, y, wkb, srid], values)
