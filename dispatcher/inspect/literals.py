"""Decoded columns as SQL literals, a whole column at a time: `12.50`, `'it\\'s'`, `0xFF00`, `'2026-01-02'`.

Each value stands in one line: control characters, quotes and backslashes are escaped. TIMESTAMP is UTC, and says so.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dispatcher.binlog.decode import arrow_buffers
from dispatcher.binlog.decode.json_render import decimal_strings
from dispatcher.binlog.kernel.bytes import I32, U8
from dispatcher.binlog.kernel.jit import njit
from dispatcher.binlog.table_map.column_types import Column, Type

_HEX = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)
_INSTANTS = (Type.TIMESTAMP2, Type.TIMESTAMP_OLD)
_ESCAPES = {10: "n", 13: "r", 9: "t", 0: "0", 26: "Z"}


def literals(values: pa.Array, column: Column) -> pa.Array:
    """Strings, null where null. `column`: whose values they are."""
    kind = values.type
    if column.type in (Type.TIME2, Type.TIME_OLD) and pa.types.is_integer(kind):
        return _quoted(_fraction(_times(values), column))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return values.cast(pa.string())
    if pa.types.is_string(kind):
        # A DECIMAL with more digits than Arrow's is text, too.
        if column.type == Type.NEWDECIMAL:
            return values
        return _quoted(_escaped(values), " UTC'" if column.type in _INSTANTS else "'")
    if pa.types.is_timestamp(kind):
        shown = _fraction(values.view(pa.timestamp("us")).cast(pa.string()), column)
        return _quoted(shown, " UTC'" if kind.tz else "'")
    if pa.types.is_date(kind):
        return _quoted(values.cast(pa.string()))
    if pa.types.is_decimal128(kind):
        return decimal_strings(values)
    return _hex(values) if pa.types.is_binary(kind) else _others(values)


def _quoted(texts: pa.Array, end: str = "'") -> pa.Array:
    return pc.binary_join_element_wise("'", texts, end, "")


def _times(values: pa.Array) -> pa.Array:
    """Microseconds as MySQL shows a TIME: `-838:59:59`, `12:34:56.789012`."""
    size = pc.abs(values)
    parts = []
    for unit, limit, places in (
        (3_600_000_000, None, 2),
        (60_000_000, 60, 2),
        (1_000_000, 60, 2),
        (1, 1_000_000, 6),
    ):
        number = pc.divide(size, unit)
        if limit is not None:
            number = pc.subtract(number, pc.multiply(pc.divide(number, limit), limit))
        parts.append(pc.utf8_lpad(number.cast(pa.string()), places, "0"))
    sign = pc.if_else(pc.less(values, 0), "-", "")
    return pc.binary_join_element_wise(
        sign, parts[0], ":", parts[1], ":", parts[2], ".", parts[3], ""
    )


def _fraction(texts: pa.Array, column: Column) -> pa.Array:
    """Texts that end in microseconds, with as many digits as the column has."""
    digits = column.meta if column.type in (Type.TIMESTAMP2, Type.DATETIME2, Type.TIME2) else 0
    return pc.utf8_slice_codeunits(texts, 0, digits - 6 if digits else -7) if digits < 6 else texts


def _escaped(texts: pa.Array) -> pa.Array:
    """As MySQL reads it; the control characters that have no escape there as \\x1b, as mysqlbinlog shows them."""
    if not pc.any(pc.match_substring_regex(texts, r"['\\\x00-\x1f\x7f]")).as_py():
        return texts
    texts = pc.replace_substring(texts, "\\", "\\\\")
    texts = pc.replace_substring(texts, "'", "\\'")
    if not pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f\x7f]")).as_py():
        return texts
    for code in (*range(0x20), 0x7F):
        if pc.any(pc.match_substring(texts, chr(code))).as_py():
            escape = _ESCAPES.get(code, f"x{code:02x}")
            texts = pc.replace_substring(texts, chr(code), "\\" + escape)
    return texts


def _hex(values: pa.Array) -> pa.Array:
    cuts, source = arrow_buffers.cuts_of(values)
    sizes = np.diff(cuts).astype(np.int64)
    out_offsets = np.zeros(len(cuts), dtype=np.int64)
    np.cumsum(2 * sizes + 2, out=out_offsets[1:])
    if out_offsets[-1] > 0x7FFFFFFF:
        raise pa.ArrowCapacityError("more than 2 GiB of text in one batch")
    narrow = out_offsets.astype(np.int32)
    out = np.empty(out_offsets[-1], dtype=np.uint8)
    hexadecimal(source, cuts, narrow, out)
    texts = arrow_buffers.varying(pa.string(), narrow, out, arrow_buffers.valid_of(values))
    return pc.replace_substring_regex(texts, "^0x$", "''") if (sizes == 0).any() else texts


@njit
def hexadecimal(data: U8, offsets: I32, out_offsets: I32, out: U8) -> None:
    for i in range(len(offsets) - 1):
        o = out_offsets[i]
        out[o] = 48
        out[o + 1] = 120
        o += 2
        for k in range(offsets[i], offsets[i + 1]):
            out[o] = _HEX[data[k] >> 4]
            out[o + 1] = _HEX[data[k] & 15]
            o += 2


def _others(values: pa.Array) -> pa.Array:
    """GEOMETRY (a struct of SRID and WKB) and VECTOR (a list of floats), one by one."""
    return pa.array(
        [None if value is None else _other(value) for value in values.to_pylist()], pa.string()
    )


def _other(value: object) -> str:
    if isinstance(value, dict):
        return f"ST_GeomFromWKB(0x{value['wkb'].hex().upper()}, {value['srid']})"
    if isinstance(value, list):
        return f"[{','.join(np.format_float_positional(np.float32(n), trim='-') for n in value)}]"
    return repr(value)
