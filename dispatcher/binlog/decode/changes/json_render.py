"""Renders changes as JSON text, for readers of rows of any table.

`{"id":1,"price":"12.50","name":"x","photo":"AAEC","at":"2024-02-29T10:00:00.000000Z","note":null}`: all columns in the
table's order. Integers (also BIGINT UNSIGNED and DECIMAL without fraction) and floats are JSON numbers. A DECIMAL with
a fraction is a string, because most JSON readers would convert a number to a binary fraction. Bytes are base64. Dates
and times are ISO 8601, with Z for an instant (TIMESTAMP) and without zone otherwise (DATETIME). A geometry is
`{"srid":4326,"wkb":"AQEAAAA..."}`, and a vector is an array of numbers. A column that is missing in the row image has
no key, unlike a column that is NULL.

The value of a JSON column is a JSON string that contains the column's JSON text. If it were a nested object, most JSON
readers would lose parts of it: the difference between 1.0 and 1, integers beyond 2^53, decimals, the order of keys.

Only kernels (`json_kernels`) and Arrow's functions process the rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dispatcher.binlog.decode.arrow import arrow_buffers
from dispatcher.binlog.decode.changes import json_kernels
from dispatcher.binlog.decode.formats.number_format import base64
from dispatcher.binlog.kernel.bytes import I32, U8
from dispatcher.binlog.kernel.jit import njit
from dispatcher.binlog.kernel.short_copy import BLOCK

IMAGES = ("before", "after")


def json_text(batch: pa.RecordBatch, images: Collection[str] = IMAGES) -> pa.RecordBatch:
    """Returns the same rows with the `images` as JSON strings; an image that is null stays null. If the batch has the
    lists `before_absent` and `after_absent`, the columns in a row's list get no key in the row's image."""
    names = batch.schema.names
    columns, fields = list(batch.columns), list(batch.schema)
    for name in images:
        i = names.index(name)
        lists = f"{name}_absent"
        missing = absent_masks(batch.column(lists)) if lists in names else {}
        columns[i] = json_objects(batch.column(i), missing)
        fields[i] = pa.field(name, pa.string())
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def absent_masks(lists: pa.ListArray) -> dict[str, NDArray[np.bool_]]:
    """Returns for each column name in `before_absent` or `after_absent` a mask of the rows whose list contains the
    name."""
    rows_of: dict[str, NDArray[np.bool_]] = {}
    if lists.null_count == len(lists):
        return rows_of
    flat = lists.flatten()
    rows = pc.list_parent_indices(lists).to_numpy()
    for name in pc.unique(flat).to_pylist():
        rows_of[name] = np.zeros(len(lists), dtype=np.bool_)
        rows_of[name][rows[pc.equal(flat, name).to_numpy(zero_copy_only=False)]] = True
    return rows_of


def json_objects(
    rows: pa.StructArray,
    missing: Mapping[str, NDArray[np.bool_]],
    embedded: Collection[str] = (),
) -> pa.Array:
    """Returns structs as JSON objects, null for null. `missing`: for each name, a mask of the rows that do not get this
    key; `embedded`: the names of strings that are JSON texts already, and become nested values."""
    n = len(rows)
    if rows.null_count == n:
        return pa.nulls(n, pa.string())
    whole = _states(rows)
    members = [
        _Member.of(
            field, rows.field(i), whole, missing.get(field.name), embedded=field.name in embedded
        )
        for i, field in enumerate(rows.type)
    ]
    sizes = np.full(n, 2 + BLOCK + sum(member.room for member in members), dtype=np.int64)
    for member in members:
        member.add_sizes(sizes)
    ends = np.cumsum(sizes)
    starts, out = ends - sizes, np.empty(ends[-1], dtype=np.uint8)
    cursor = starts.copy()
    json_kernels.begin(cursor, out)
    for member in members:
        member.put(cursor, out)
    offsets = np.empty(n + 1, dtype=np.int32)
    total = json_kernels.finish(starts, cursor, whole, out, offsets)
    if total < 0:
        raise pa.ArrowCapacityError("more than 2 GiB of JSON in one batch")
    data = np.empty(total, dtype=np.uint8)
    json_kernels.gather(starts, out, offsets, data)
    return arrow_buffers.varying(pa.string(), offsets, data, arrow_buffers.valid_of(rows))


def _states(values: pa.Array) -> NDArray[np.int8]:
    """Returns VALUE or NULL for each value."""
    valid = arrow_buffers.valid_of(values)
    if valid is None:
        return np.full(len(values), json_kernels.VALUE, dtype=np.int8)
    return np.where(valid, json_kernels.VALUE, json_kernels.NULL).astype(np.int8)


@dataclass(slots=True)
class _Member:
    """A column as one member of each row's object. `room`: the largest number of bytes that a member needs, without the
    bytes of a text value."""

    values: pa.Array
    state: NDArray[np.int8]
    key: U8
    room: int
    form: int = json_kernels.PLAIN  # the form of texts

    @classmethod
    def of(
        cls,
        field: pa.Field,
        values: pa.Array,
        rows: NDArray[np.int8],
        missing: NDArray[np.bool_] | None,
        *,
        embedded: bool = False,
    ) -> _Member:
        """`rows`: the states of the objects. The kernel writes no member into an object that is null."""
        state = _states(values)
        state[rows != json_kernels.VALUE] = json_kernels.ABSENT
        if missing is not None:
            state[missing] = json_kernels.ABSENT
        text = f"{json.dumps(field.name, ensure_ascii=False)}:".encode()
        key: U8 = np.frombuffer(text + bytes(BLOCK), dtype=np.uint8)
        member = cls(values, state, key, len(text) + json_kernels.MEMBER_BYTES)
        kind = values.type
        if pa.types.is_integer(kind) or pa.types.is_decimal128(kind):
            member.room += json_kernels.NUMBER_BYTES
        elif kind in _TIMES:
            member.room += json_kernels.TIME_BYTES
        elif pa.types.is_binary(kind):
            member.form = json_kernels.BASE64
        elif pa.types.is_string(kind) and not embedded:
            member.form = json_kernels.ESCAPED
        elif not embedded:
            member.values = _texts(values)
        return member

    def add_sizes(self, sizes: NDArray[np.int64]) -> None:
        kind = self.values.type
        if pa.types.is_binary(kind) or pa.types.is_string(kind):
            escapes = json_kernels.add_text_sizes(*_cuts(self.values), self.form, sizes)
            if self.form == json_kernels.ESCAPED and not escapes:
                self.form = json_kernels.QUOTED

    def put(self, cursor: NDArray[np.int64], out: U8) -> None:
        kind = self.values.type
        if pa.types.is_integer(kind):
            json_kernels.put_integers(_numbers(self.values), self.state, self.key, cursor, out)
        elif pa.types.is_decimal128(kind):
            words = decimal_words(self.values)
            json_kernels.put_decimals(words, kind.scale, self.state, self.key, cursor, out)
        elif kind in _TIMES:
            form = _TIMES[kind]
            json_kernels.put_times(_numbers(self.values), form, self.state, self.key, cursor, out)
        else:
            cuts = _cuts(self.values)
            json_kernels.put_texts(*cuts, self.form, self.state, self.key, cursor, out)


_TIMES = {
    pa.date32(): json_kernels.DATE,
    pa.timestamp("us"): json_kernels.DATETIME,
    pa.timestamp("us", "UTC"): json_kernels.INSTANT,
}
_INTEGERS = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.date32(): np.int32,
}


def _numbers(values: pa.Array) -> NDArray[np.int64]:
    """Returns integers, days or microseconds as 64-bit integers."""
    kind = _INTEGERS.get(values.type, np.int64)
    numbers = np.frombuffer(values.buffers()[1], dtype=kind, count=len(values) + values.offset)
    return numbers[values.offset :].astype(np.int64, copy=False)


def decimal_words(values: pa.Array) -> NDArray[np.uint64]:
    """Returns DECIMALs as pairs (low, high)."""
    words: U8 = np.frombuffer(values.buffers()[1], dtype=np.uint8)
    words = words[16 * values.offset : 16 * (values.offset + len(values))]
    return words.view(np.uint64).reshape(-1, 2)


def _cuts(values: pa.Array) -> tuple[I32, U8]:
    return arrow_buffers.cuts_of(values)


def _texts(values: pa.Array) -> pa.Array:
    """Returns booleans, floats, structs and lists as JSON text, null for null."""
    kind = values.type
    if pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return values.cast(pa.string())
    if pa.types.is_struct(kind):
        return json_objects(values, {})
    if pa.types.is_list(kind):
        return _lists(values)
    raise TypeError(f"no JSON for {kind}")


def _lists(values: pa.ListArray) -> pa.Array:
    """Returns lists of floats as JSON text."""
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    valid = arrow_buffers.valid_of(values)
    buffers = [None if valid is None else arrow_buffers.bitmap(valid), pa.py_buffer(offsets)]
    texts = pa.Array.from_buffers(
        pa.list_(pa.string()), len(values), buffers, children=[_texts(values.flatten())]
    )
    return pc.binary_join_element_wise("[", pc.binary_join(texts, ","), "]", "")


def base64_strings(values: pa.Array) -> pa.Array:
    """Returns bytes as base64, null for null."""
    offsets, data = arrow_buffers.cuts_of(values)
    out_offsets = np.zeros(len(offsets), dtype=np.int32)
    np.cumsum((np.diff(offsets) + 2) // 3 * 4, out=out_offsets[1:])
    out = np.empty(out_offsets[-1], dtype=np.uint8)
    _encode(data, offsets, out_offsets, out)
    return arrow_buffers.varying(pa.string(), out_offsets, out, arrow_buffers.valid_of(values))


@njit
def _encode(data: U8, offsets: I32, out_offsets: I32, out: U8) -> None:
    for i in range(len(offsets) - 1):
        base64(data, offsets[i], offsets[i + 1] - offsets[i], out, out_offsets[i])
