"""Converts rows of MySQL's text protocol to Arrow, with the types and values that the decoder of binlogs returns
(`docs/types.md`).

A `TextDecoder` is constructed from a table's columns, as `column_definition` describes them. Its `select_list` is for a
session with the variables of `session.SESSION`; it selects each column in a form that determines the stored value
exactly. Text is in the column's character set, as in the binlog, so both decoders use the same conversion tables.
TIMESTAMP values are in UTC. A FLOAT is selected in an expression, because the server shows only six digits of a FLOAT
column.

The kernels of `text_kernels` find and convert the cells, so no Python code runs per cell.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dispatcher.binlog.charset import transcode
from dispatcher.binlog.charset.collations import BINARY, charset_of, conversion_of
from dispatcher.binlog.decode.arrow import arrow_buffers
from dispatcher.binlog.decode.arrow.arrow_types import arrow_type, value_type
from dispatcher.binlog.decode.arrow.invalid import Invalid, InvalidCell, invalid_rows
from dispatcher.binlog.decode.arrow.masks import masked
from dispatcher.binlog.decode.columns import column_decoders
from dispatcher.binlog.decode.columns.column_decoders import Bytes, Decoded, Long, Offsets
from dispatcher.binlog.table_map import inet
from dispatcher.binlog.table_map.column_types import LABEL_TYPES, Column, InvalidDates, Type
from dispatcher.model.errors import BinlogError
from spark_sink.source.table_rows import text_kernels

DecodeText = Callable[[Bytes, Offsets, Offsets], Decoded]

# For each integer type: the greatest magnitude of a negative number, and the greatest other number. `parse_integers`
# compares both as unsigned integers.
_RANGES: dict[tuple[int, bool], tuple[int, int]] = {
    (code, unsigned): (0, (1 << bits) - 1) if unsigned else (1 << bits - 1, (1 << bits - 1) - 1)
    for code, bits in ((Type.TINY, 8), (Type.SHORT, 16), (Type.INT24, 24), (Type.LONG, 32), (Type.LONGLONG, 64))
    for unsigned in (False, True)
}  # fmt: skip
_YEAR_RANGE = (0, 2155)
_SET_RANGE = (0, (1 << 64) - 1)
_FORMS: dict[int, int] = {
    Type.DATE: text_kernels.DATE,
    Type.DATETIME2: text_kernels.DATETIME,
    Type.TIMESTAMP2: text_kernels.DATETIME,
    Type.TIME2: text_kernels.TIME,
}
# In these character sets, MySQL 5.6 writes an invalid value of an ENUM, and the comma between members of a SET, as one
# byte.
_WIDE_CHARSETS = frozenset(("ucs2", "utf16", "utf16le", "utf32"))


class TextDecoder:
    """Decodes the rows of one table. `schema`: the table's columns in Arrow, all nullable; `select_list`: the
    expressions to SELECT."""

    def __init__(
        self,
        columns: Sequence[Column],
        label: str,
        invalid_dates: InvalidDates = InvalidDates.NULL,
        found: Callable[[pa.RecordBatch, Sequence[InvalidCell]], None] | None = None,
    ) -> None:
        """`found`: called for each batch of rows in which invalid cells became NULL, with the batch and these cells.

        Raises `BinlogError` UNSUPPORTED_TYPE, which names table and column."""
        self.label, self._found = label, found
        self.columns = tuple(columns)
        self.schema = pa.schema(
            [pa.field(c.name, arrow_type(c, label, invalid_dates)) for c in columns]
        )
        self.select_list = ", ".join(map(select_expression, columns))
        self._decoders = [
            _text_decoder(column, value_type(column, invalid_dates), invalid_dates)
            for column in columns
        ]

    def decode(self, buf: Bytes, at: Offsets, size: Offsets) -> pa.RecordBatch:
        """Returns the rows. `at`, `size`: offset and length of each cell in `buf`, of the shape (columns, rows).

        Raises `BinlogError` INVALID_VALUE, which names table and column.
        """
        arrays, cells = [], list[InvalidCell]()
        for i in range(len(self.columns)):
            try:
                values, mask = self._decoded(i, buf, at[i], size[i], cells), self.columns[i].mask
                arrays.append(values if mask is None else masked(values, mask))
            except Invalid as error:
                raise BinlogError(
                    error.kind,
                    f"table {self.label}, column {self.columns[i].name!r}: {error.why}",
                    where="rows that the server sent for a copy",
                    remedy=error.remedy,
                ) from None
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if cells and self._found is not None:
            self._found(rows, cells)
        return rows

    def _decoded(
        self, column: int, buf: Bytes, at: Offsets, size: Offsets, cells: list[InvalidCell]
    ) -> pa.Array:
        """Decode a column. If invalid cells may become NULL, add them to `cells`; else raise `Invalid`."""
        decode, definition = self._decoders[column], self.columns[column]
        try:
            return decode(buf, at, size).array
        except Invalid:
            if not definition.nulls_invalid:
                raise
        kept, sizes = at.copy(), size.copy()
        for row, why in invalid_rows(lambda part: decode(buf, at[part], size[part]), len(at)):
            kept[row], sizes[row] = -1, 0
            data = b"" if definition.mask else buf[at[row] : at[row] + size[row]].tobytes()
            cells.append(InvalidCell(definition.name, row, why, data))
        return decode(buf, kept, sizes).array


def quoted_name(name: str) -> str:
    """Returns `name` quoted for SQL."""
    return "`" + name.replace("`", "``") + "`"


def select_expression(column: Column) -> str:
    """Returns the SQL expression whose result, as text, determines the stored value of a column exactly."""
    name = quoted_name(column.name)
    if column.type in (Type.FLOAT, Type.DOUBLE):
        # The server writes the result of a multiplication with all digits, and writes -0 with its sign.
        return f"{name} * 1e0"
    return f"CAST({name} AS UNSIGNED)" if _as_number(column) else name


def _as_number(column: Column) -> bool:
    """True if an ENUM or SET is selected as a number. The decoder then takes the labels from information_schema. False
    if a label contains `?`, because information_schema may show `?` in place of characters that it cannot show."""
    return (
        column.type in LABEL_TYPES
        and charset_of(column.charset) in _WIDE_CHARSETS
        and not any("?" in label for label in column.labels)
    )


def _text_decoder(  # noqa: C901, PLR0911 - one return per type
    column: Column, target: pa.DataType, invalid_dates: InvalidDates
) -> DecodeText:
    if (column.type, column.unsigned) in _RANGES:
        limits = _limits(_RANGES[column.type, column.unsigned])
        return lambda buf, at, size: _integers(buf, at, size, limits, target)
    if column.type in _FORMS:
        if target == pa.string():
            return lambda buf, at, size: _values(buf, at, size, target)
        form, strict = _FORMS[column.type], invalid_dates is InvalidDates.ERROR
        return lambda buf, at, size: _temporals(buf, at, size, form, target, strict)
    match column.type:
        case Type.YEAR:
            return _years
        case Type.FLOAT | Type.DOUBLE:
            return lambda buf, at, size: _floats(buf, at, size, target)
        case Type.NEWDECIMAL:
            if pa.types.is_decimal(target):
                return lambda buf, at, size: _decimals(buf, at, size, target)
            return _decimal_texts
        case Type.GEOMETRY:
            return lambda buf, at, size: column_decoders.geometry_structs(
                *adjacent(buf, at, size), at >= 0
            )
        case Type.VECTOR:
            return lambda buf, at, size: column_decoders.vector_lists(
                *adjacent(buf, at, size), at >= 0
            )
        case Type.ENUM | Type.SET if _as_number(column):
            decode = _numbered_enums if column.type == Type.ENUM else _numbered_sets
            return lambda buf, at, size: decode(buf, at, size, column.labels)
        case Type.ENUM | Type.SET if column.charset == BINARY:
            return _binary_labels
        case Type.BIT | Type.JSON:
            return lambda buf, at, size: _values(buf, at, size, target)
    if column.declared in inet.SIZES or column.charset == BINARY:
        return lambda buf, at, size: _values(buf, at, size, target)
    charset = conversion_of(column.charset)
    return lambda buf, at, size: _texts(buf, at, size, charset)


def _limits(limits: tuple[int, int]) -> tuple[np.uint64, np.uint64]:
    return np.uint64(limits[0]), np.uint64(limits[1])


def _parsed(
    buf: Bytes, at: Offsets, size: Offsets, limits: tuple[np.uint64, np.uint64]
) -> NDArray[np.int64]:
    values = np.empty(len(at), dtype=np.int64)
    if (row := text_kernels.parse_integers(buf, at, size, *limits, values)) >= 0:
        raise Invalid(row, "a number that is invalid for the column's type")
    return values


def _integers(
    buf: Bytes,
    at: Offsets,
    size: Offsets,
    limits: tuple[np.uint64, np.uint64],
    target: pa.DataType,
) -> Decoded:
    values = _parsed(buf, at, size, limits)
    if pa.types.is_decimal(target):  # BIGINT UNSIGNED: the 64 bits are the low half
        wide = np.zeros((len(at), 2), dtype=np.int64)
        wide[:, 0] = values
        values = wide
    return Decoded(arrow_buffers.fixed(target, values, at >= 0))


def _years(buf: Bytes, at: Offsets, size: Offsets) -> Decoded:
    values = _parsed(buf, at, size, _limits(_YEAR_RANGE))
    # YEAR(2) of old tables is shown with two digits; 70 to 99 mean 1970 to 1999.
    short = (size == 2) & (values < 100)
    values = np.where(short, np.where(values < 70, values + 2000, values + 1900), values)
    return Decoded(arrow_buffers.fixed(pa.int16(), values, at >= 0))


def _floats(buf: Bytes, at: Offsets, size: Offsets, target: pa.DataType) -> Decoded:
    texts = _values(buf, at, size, pa.string()).array
    try:
        doubles = texts.cast(pa.float64())
    except pa.ArrowInvalid:
        raise Invalid(0, "a number that is invalid for the column's type") from None
    if target == pa.float64():
        return Decoded(doubles)
    data = doubles.buffers()[1]
    values = np.frombuffer(data, dtype=np.float64, count=len(at)) if data else np.empty(0)
    with np.errstate(over="ignore"):
        bits = values.astype(np.float32).view(np.uint32)
    return Decoded(arrow_buffers.fixed(target, bits, at >= 0))


def _decimals(buf: Bytes, at: Offsets, size: Offsets, target: pa.DataType) -> Decoded:
    out = np.empty((len(at), 2), dtype=np.uint64)
    row = text_kernels.parse_decimals(buf, at, size, target.scale, target.precision, out)
    if row >= 0:
        raise Invalid(row, "an invalid DECIMAL")
    return Decoded(arrow_buffers.fixed(target, out, at >= 0))


def _decimal_texts(buf: Bytes, at: Offsets, size: Offsets) -> Decoded:
    at, size = at.copy(), size.copy()
    text_kernels.strip_zeros(buf, at, size)
    return _values(buf, at, size, pa.string())


def _temporals(
    buf: Bytes, at: Offsets, size: Offsets, form: int, target: pa.DataType, strict: bool
) -> Decoded:
    values, valid = np.empty(len(at), dtype=np.int64), np.empty(len(at), dtype=np.bool_)
    if (row := text_kernels.parse_temporals(buf, at, size, form, values, valid)) >= 0:
        raise Invalid(row, "an invalid date or time of day")
    array = arrow_buffers.fixed(target, values, valid)
    invalid = array.null_count - int(np.count_nonzero(at < 0))
    if strict and invalid:
        raise Invalid(
            0, "an invalid date (such as '0000-00-00')", remedy=column_decoders.INVALID_DATE
        )
    return Decoded(array, invalid)


def adjacent(buf: Bytes, at: Offsets, size: Offsets) -> tuple[Long, Bytes]:
    """Concatenate the cells. Returns (offsets, data)."""
    offsets = np.empty(len(at) + 1, dtype=np.int64)
    text_kernels.cell_offsets(size, offsets)
    data = np.empty(offsets[-1], dtype=np.uint8)
    text_kernels.copy_cells(buf, at, size, offsets, data)
    return offsets, data


def _array(offsets: Long, data: Bytes, at: Offsets, target: pa.DataType) -> Decoded:
    column_decoders.check_text_size(offsets)
    return Decoded(arrow_buffers.varying(target, offsets.astype(np.int32), data, at >= 0))


def _values(buf: Bytes, at: Offsets, size: Offsets, target: pa.DataType) -> Decoded:
    offsets, data = adjacent(buf, at, size)
    if target == pa.string() and (row := transcode.to_utf8("utf8mb4", data, offsets)[0]) >= 0:
        raise Invalid(row, "bytes that are not valid UTF-8")
    return _array(offsets, data, at, target)


def _texts(buf: Bytes, at: Offsets, size: Offsets, charset: str) -> Decoded:
    offsets, data = adjacent(buf, at, size)
    row, offsets, data = transcode.to_utf8(charset, data, offsets)
    if row >= 0:
        raise Invalid(row, f"bytes that are not valid {charset}")
    return _array(offsets, data, at, pa.string())


def _binary_labels(buf: Bytes, at: Offsets, size: Offsets) -> Decoded:
    """Returns labels of the character set `binary`, with one character per byte, as `transcode.label` decodes them from
    the log."""
    offsets, data = adjacent(buf, at, size)
    raw, cuts = data.tobytes(), offsets.tolist()
    texts = [raw[a:b].decode("latin-1").encode() for a, b in itertools.pairwise(cuts)]
    offsets, data = column_decoders.concatenate(texts)
    return _array(offsets, data, at, pa.string())


def _numbered_enums(buf: Bytes, at: Offsets, size: Offsets, labels: Sequence[str]) -> Decoded:
    numbers = _parsed(buf, at, size, _limits((0, len(labels))))
    indices = arrow_buffers.fixed(pa.int64(), numbers, at >= 0)
    return Decoded(arrow_buffers.string_array(["", *labels]).take(indices))


def _numbered_sets(buf: Bytes, at: Offsets, size: Offsets, labels: Sequence[str]) -> Decoded:
    numbers = _parsed(buf, at, size, _limits(_SET_RANGE))
    return column_decoders.set_texts(numbers.view(np.uint64), labels, at >= 0)
