"""Columns of decoded rows as the outputs show them: SQL literals, and columns of which the log tells too little.

A literal stands on one line: control characters, quotes and backslashes are escaped. TIMESTAMP values are in UTC and
say so. Whole columns are rendered at a time.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dispatcher.binlog.charset import transcode
from dispatcher.binlog.decode import arrow_buffers
from dispatcher.binlog.decode.json_render import base64_strings, decimal_strings, escaped
from dispatcher.binlog.kernel.bytes import I32, U8
from dispatcher.binlog.kernel.jit import njit
from dispatcher.binlog.table_map.column_types import Column, Type
from dispatcher.inspect.entry import Table

_HEX = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)
_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_INSTANTS = (Type.TIMESTAMP2, Type.TIMESTAMP_OLD)
# MySQL's escapes; it has none for the other control characters, which mysqlbinlog shows like \x1b.
_ESCAPES = {chr(code): f"\\x{code:02x}" for code in (*range(0x20), 0x7F)} | {
    "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0", "\x1a": "\\Z",
}  # fmt: skip


def literals(values: pa.Array, column: Column, number: int, table: Table) -> pa.Array:
    """Returns the values of a column as SQL literals: `12.50`, `'it\\'s'`, `0xFF00`; null where they are null.

    `number`: the column's index. A column of unknown character set is text where it is UTF-8; one of unknown sign is
    shown in both readings.
    """
    shown = _literals(values, column)
    if number in table.no_charset and pa.types.is_binary(values.type):
        return pc.coalesce(_literals(_utf8_or_null(values), column), shown)
    return _both_signs(values, shown) if number in table.no_sign else shown


def _literals(values: pa.Array, column: Column) -> pa.Array:
    kind = values.type
    if column.type in (Type.TIME2, Type.TIME_OLD) and pa.types.is_integer(kind):
        return _quoted(_fraction(_times(values), column))
    # A DECIMAL with more digits than Arrow's type is a string already.
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if is_number or (column.type == Type.NEWDECIMAL and pa.types.is_string(kind)):
        return values.cast(pa.string())
    if pa.types.is_string(kind):
        return _quoted(escaped(values, "'", _ESCAPES), " UTC'" if column.type in _INSTANTS else "'")
    if pa.types.is_timestamp(kind):
        shown = _fraction(values.view(pa.timestamp("us")).cast(pa.string()), column)
        return _quoted(shown, " UTC'" if kind.tz else "'")
    if pa.types.is_date(kind):
        return _quoted(values.cast(pa.string()))
    if pa.types.is_decimal128(kind):
        return decimal_strings(values)
    if pa.types.is_binary(kind):
        return _hexadecimal(values)
    return pa.array([_literal(value) for value in values.to_pylist()], pa.string())


def _quoted(texts: pa.Array, end: str = "'") -> pa.Array:
    return pc.binary_join_element_wise("'", texts, end, "")


def _times(values: pa.Array) -> pa.Array:
    """Microseconds as MySQL shows a TIME: `-838:59:59`, `12:34:56.789012`."""
    size = pc.abs(values)
    parts = []
    for unit, limit, width in (
        (3_600_000_000, None, 2),
        (60_000_000, 60, 2),
        (1_000_000, 60, 2),
        (1, 1_000_000, 6),
    ):
        number = pc.divide(size, unit)
        if limit is not None:
            number = pc.subtract(number, pc.multiply(pc.divide(number, limit), limit))
        parts.append(pc.utf8_lpad(number.cast(pa.string()), width, "0"))
    sign = pc.if_else(pc.less(values, 0), "-", "")
    return pc.binary_join_element_wise(
        sign, parts[0], ":", parts[1], ":", parts[2], ".", parts[3], ""
    )


def _fraction(texts: pa.Array, column: Column) -> pa.Array:
    """Cuts texts that end in microseconds to the number of digits that the column has."""
    digits = column.meta if column.type in (Type.TIMESTAMP2, Type.DATETIME2, Type.TIME2) else 0
    return pc.utf8_slice_codeunits(texts, 0, digits - 6 if digits else -7) if digits < 6 else texts


def _hexadecimal(values: pa.Array) -> pa.Array:
    cuts, source = arrow_buffers.cuts_of(values)
    sizes = np.diff(cuts).astype(np.int64)
    ends = np.zeros(len(cuts), dtype=np.int64)
    np.cumsum(2 * sizes + 2, out=ends[1:])
    if ends[-1] > 0x7FFFFFFF:
        raise pa.ArrowCapacityError("more than 2 GiB of text in one batch")
    out_offsets = ends.astype(np.int32)
    out = np.empty(ends[-1], dtype=np.uint8)
    write_hexadecimal(source, cuts, out_offsets, out)
    texts = arrow_buffers.varying(pa.string(), out_offsets, out, arrow_buffers.valid_of(values))
    return pc.replace_substring_regex(texts, "^0x$", "''") if (sizes == 0).any() else texts


@njit
def write_hexadecimal(data: U8, offsets: I32, out_offsets: I32, out: U8) -> None:
    """Write each value as `0x` and two digits per byte."""
    for i in range(len(offsets) - 1):
        o = out_offsets[i]
        out[o] = 48
        out[o + 1] = 120
        o += 2
        for k in range(offsets[i], offsets[i + 1]):
            out[o] = _HEX[data[k] >> 4]
            out[o + 1] = _HEX[data[k] & 15]
            o += 2


def _literal(value: object) -> str | None:
    """GEOMETRY (a dict of SRID and WKB) and VECTOR (a list of floats)."""
    if value is None:
        return None
    if isinstance(value, dict):
        return f"ST_GeomFromWKB(0x{value['wkb'].hex().upper()}, {value['srid']})"
    if isinstance(value, list):
        return f"[{','.join(np.format_float_positional(np.float32(n), trim='-') for n in value)}]"
    return repr(value)


def _both_signs(values: pa.Array, shown: pa.Array) -> pa.Array:
    """`-1 (4294967295)` for a column whose sign the log does not tell."""
    if values.type not in _BITS or not pc.any(pc.less(values, 0)).as_py():
        return shown
    bits = _BITS[values.type]
    texts = [
        text if value is None or value >= 0 else f"{text} ({value + (1 << bits)})"
        for value, text in zip(values.to_pylist(), shown.to_pylist(), strict=True)
    ]
    return pa.array(texts, pa.string())


def _utf8_or_null(values: pa.Array) -> pa.Array:
    """Bytes as strings; null where they are not UTF-8."""
    cuts, data = arrow_buffers.cuts_of(values)
    offsets = (cuts - cuts[0]).astype(np.int64)
    if transcode.invalid_utf8(data[cuts[0] : cuts[-1]], offsets, 0xFF) < 0:
        return values.view(pa.string())
    return pa.array([_decoded(value) for value in values.to_pylist()], pa.string())


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def with_texts(image: pa.StructArray, table: Table) -> pa.StructArray:
    """Returns the image for JSON: columns of unknown character set as text where they are UTF-8, else as base64."""
    if image.null_count == len(image):
        return image
    arrays = [image.field(i) for i in range(image.type.num_fields)]
    for i in table.no_charset:
        if pa.types.is_binary(arrays[i].type):
            arrays[i] = pc.coalesce(_utf8_or_null(arrays[i]), base64_strings(arrays[i]))
    names = [field.name for field in image.type]
    mask = image.is_null() if image.null_count else None
    return pa.StructArray.from_arrays(arrays, names=names, mask=mask)
