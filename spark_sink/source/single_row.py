"""Makes an Arrow batch of one row directly from Arrow buffers.

This module does not use `pyarrow.array` and `pyarrow.scalar`, because they import pandas. The import of pandas takes as
long as all other imports of a task together.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from dispatcher.binlog.decode.arrow.arrow_buffers import string_array

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def single_row(schema: pa.Schema, row: Mapping[str, Any]) -> pa.RecordBatch:
    """Returns a batch of one row. Values that `row` does not have are NULL; a value of type binary is not copied.

    Raises `TypeError` for a value that has another type than its column. The types are bool, int64, string, binary,
    timestamp of microseconds in UTC (a datetime, or microseconds since 1970) and list of structs of strings (mappings).
    """
    arrays = [_array(field.type, row.get(field.name)) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(kind: pa.DataType, value: Any) -> pa.Array:
    if value is None:
        return pa.nulls(1, kind)
    if pa.types.is_string(kind) and isinstance(value, str):
        return _of_bytes(kind, value.encode())
    if pa.types.is_binary(kind) and isinstance(value, bytes | memoryview):
        return _of_bytes(kind, value)
    if pa.types.is_boolean(kind) and isinstance(value, bool):
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes((value,)))])
    if pa.types.is_list(kind) and isinstance(value, list):
        return _of_structs(kind, value)
    if pa.types.is_timestamp(kind) and isinstance(value, datetime):
        value = (value - _EPOCH) // timedelta(microseconds=1)
    if not (pa.types.is_int64(kind) or pa.types.is_timestamp(kind)) or not isinstance(value, int):
        raise TypeError(f"{type(value).__name__} is no {kind}")
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(struct.pack("<q", value))])


def _of_structs(kind: pa.DataType, value: list[Mapping[str, str]]) -> pa.Array:
    element = kind.value_type
    fields = [string_array([row[field.name] for row in value]) for field in element]
    structs = pa.Array.from_buffers(element, len(value), [None], children=fields)
    ends = pa.py_buffer(struct.pack("<ii", 0, len(value)))
    return pa.Array.from_buffers(kind, 1, [None, ends], children=[structs])


def _of_bytes(kind: pa.DataType, value: bytes | memoryview) -> pa.Array:
    ends = struct.pack("<ii", 0, len(value))
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(ends), pa.py_buffer(value)])
