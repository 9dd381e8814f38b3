"""Renders changes as JSON text, for readers of rows of any table.

`{"id":1,"price":"12.50","name":"x","photo":"AAEC","at":"2024-02-29T10:00:00.000000Z","note":null}`: all columns in the
table's order. Integers (also BIGINT UNSIGNED and DECIMAL without fraction) and floats are JSON numbers; a DECIMAL with
a fraction is a string, because most JSON readers would convert it to a binary fraction; bytes are base64; dates and
times are ISO 8601, with Z for an instant (TIMESTAMP) and without zone otherwise (DATETIME). A geometry is
`{"srid":4326,"wkb":"AQEAAAA..."}`, a vector an array of numbers. A column that is missing in the row image has no key,
unlike a column that is NULL.

A JSON column is a JSON string that holds its text. As a nested object it would lose what most JSON readers cannot hold:
1.0 besides 1, integers beyond 2^53, decimals, the order of keys.

Only kernels and Arrow's functions process the rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dispatcher.binlog.decode import arrow_buffers
from dispatcher.binlog.decode.number_format import base64
from dispatcher.binlog.kernel.bytes import I32, U8, Int
from dispatcher.binlog.kernel.jit import njit

_ESCAPES = {chr(code): json.dumps(chr(code))[1:-1] for code in range(0x20)}


def json_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows with `before` and `after` as strings, null for null. The columns `before_absent` and
    `after_absent`, if the batch has them, name the columns without a key."""
    names = batch.schema.names
    columns, fields = list(batch.columns), list(batch.schema)
    for name in ("before", "after"):
        i = names.index(name)
        lists = f"{name}_absent"
        missing = absent_masks(batch.column(lists)) if lists in names else {}
        columns[i] = json_objects(batch.column(i), missing)
        fields[i] = pa.field(name, pa.string())
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def absent_masks(lists: pa.ListArray) -> dict[str, NDArray[np.bool_]]:
    """For each column name in `before_absent` or `after_absent`, a mask of the rows that list it."""
    rows_of: dict[str, NDArray[np.bool_]] = {}
    if lists.null_count == len(lists):
        return rows_of
    flat = lists.flatten()
    rows = pc.list_parent_indices(lists).to_numpy()
    for name in pc.unique(flat).to_pylist():
        rows_of[name] = np.zeros(len(lists), dtype=np.bool_)
        rows_of[name][rows[pc.equal(flat, name).to_numpy(zero_copy_only=False)]] = True
    return rows_of


def json_objects(rows: pa.StructArray, missing: Mapping[str, NDArray[np.bool_]]) -> pa.Array:
    """Structs as JSON objects, null for null. `missing`: for each name, a mask of the rows that get no such key."""
    if rows.null_count == len(rows):
        return pa.nulls(len(rows), pa.string())
    parts: list[Any] = []
    for i, field in enumerate(rows.type):
        comma = "," if i or missing else ""
        key = f"{comma}{json.dumps(field.name, ensure_ascii=False)}:"
        if field.name in missing:
            member = _joined(key, _values(rows.field(i)))
            parts.append(pc.if_else(arrow_buffers.booleans(missing[field.name]), "", member))
        else:
            parts += (key, _values(rows.field(i)))
    texts = _joined("{", *parts, "}") if parts else arrow_buffers.repeated("{}", len(rows))
    if missing:  # any member may be the first
        texts = pc.replace_substring(texts, "{,", "{", max_replacements=1)
    return texts if rows.null_count == 0 else pc.if_else(rows.is_valid(), texts, None)


def _joined(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement="null")


def _values(values: pa.Array) -> pa.Array:
    """The values as JSON text, null for null."""
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return values.cast(pa.string())
    if pa.types.is_decimal128(kind):
        texts = decimal_strings(values)
        return texts if kind.scale == 0 else _quoted(texts)
    if pa.types.is_binary(kind):
        return _quoted(base64_strings(values))
    if pa.types.is_timestamp(kind):
        # View as zoneless: Arrow would need the machine's time zone database to write "UTC".
        texts = pc.replace_substring(values.view(pa.timestamp("us")).cast(pa.string()), " ", "T")
        return _quoted(texts, "Z" if kind.tz else "")
    if pa.types.is_string(kind):
        return _quoted(escaped(values, '"', _ESCAPES))
    if pa.types.is_struct(kind):
        return json_objects(values, {})
    if pa.types.is_list(kind):
        return _lists(values)
    return _quoted(values.cast(pa.string()))


def _quoted(texts: pa.Array, suffix: str = "") -> pa.Array:
    return pc.binary_join_element_wise('"', texts, suffix + '"', "")


def _lists(values: pa.ListArray) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    valid = arrow_buffers.valid_of(values)
    buffers = [None if valid is None else arrow_buffers.bitmap(valid), pa.py_buffer(offsets)]
    texts = pa.Array.from_buffers(
        pa.list_(pa.string()), len(values), buffers, children=[_values(values.flatten())]
    )
    return pc.binary_join_element_wise("[", pc.binary_join(texts, ","), "]", "")


def escaped(texts: pa.Array, quote: str, escapes: Mapping[str, str]) -> pa.Array:
    """Texts with a backslash before each backslash and `quote`; `escapes` maps control characters to their escapes."""
    for char in ("\\", quote):
        if pc.any(pc.match_substring(texts, char)).as_py():
            texts = pc.replace_substring(texts, char, f"\\{char}")
    if not pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f\x7f]")).as_py():
        return texts
    for char, escape in escapes.items():
        if pc.any(pc.match_substring(texts, char)).as_py():
            texts = pc.replace_substring(texts, char, escape)
    return texts


def base64_strings(values: pa.Array) -> pa.Array:
    """Bytes as base64, null where they are null."""
    offsets, data = arrow_buffers.cuts_of(values)
    out_offsets = np.zeros(len(offsets), dtype=np.int32)
    np.cumsum((np.diff(offsets) + 2) // 3 * 4, out=out_offsets[1:])
    out = np.empty(out_offsets[-1], dtype=np.uint8)
    _encode(data, offsets, out_offsets, out)
    return arrow_buffers.varying(pa.string(), out_offsets, out, arrow_buffers.valid_of(values))


def decimal_strings(values: pa.Array) -> pa.Array:
    """DECIMALs as strings, with all digits of their scale."""
    words: U8 = np.frombuffer(values.buffers()[1], dtype=np.uint8)
    words = words[16 * values.offset : 16 * (values.offset + len(values))]
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    out = np.empty(len(values) * 42, dtype=np.uint8)
    write_decimals(words.view(np.uint64).reshape(-1, 2), values.type.scale, offsets, out)
    return arrow_buffers.varying(
        pa.string(), offsets, out[: offsets[-1]].copy(), arrow_buffers.valid_of(values)
    )


@njit
def _encode(data: U8, offsets: I32, out_offsets: I32, out: U8) -> None:
    for i in range(len(offsets) - 1):
        base64(data, offsets[i], offsets[i + 1] - offsets[i], out, out_offsets[i])


@njit
def write_decimals(words: Any, scale: Int, offsets: I32, out: U8) -> None:
    """Write 128-bit two's complement numbers (low, high) as decimals with `scale` digits behind the point."""
    digits = np.empty(48, dtype=np.uint8)
    mask32 = np.uint64(0xFFFFFFFF)
    limbs = np.empty(4, dtype=np.uint64)
    o = np.int64(0)
    for i in range(len(words)):
        low, high = words[i, 0], words[i, 1]
        if high >> np.uint64(63):
            low = ~low + np.uint64(1)
            high = ~high + (np.uint64(1) if low == 0 else np.uint64(0))
            out[o] = 45
            o += 1
        limbs[0], limbs[1] = high >> np.uint64(32), high & mask32
        limbs[2], limbs[3] = low >> np.uint64(32), low & mask32
        n = np.int64(0)
        while n <= scale or limbs[0] | limbs[1] | limbs[2] | limbs[3]:
            rest = np.uint64(0)
            for k in range(4):
                value = rest << np.uint64(32) | limbs[k]
                limbs[k] = value // np.uint64(10)
                rest = value % np.uint64(10)
            digits[n] = np.uint8(48 + rest)
            n += 1
        for k in range(n - 1, -1, -1):
            out[o] = digits[k]
            o += 1
            if k == scale and scale:
                out[o] = 46
                o += 1
        offsets[i + 1] = o
