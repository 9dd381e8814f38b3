"""Builds Arrow arrays from numpy buffers and lists of strings, without `pa.array` and `pa.scalar`.

If pandas is installed, these two functions import it to check whether their argument is a pandas object. The import
takes longer than everything else that an executor does before its first batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dispatcher.binlog.kernel.bytes import I32, U8

_NUMPY = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.date32(): np.int32,
    pa.float32(): np.uint32,  # the bits
}


def bitmap(valid: NDArray[np.bool_]) -> pa.Buffer | None:
    """Returns Arrow's validity bitmap; None if all values are valid."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def fixed(
    target: pa.DataType, values: NDArray[Any], valid: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Returns an array of a fixed-width type, to which 64-bit `values` are narrowed. The array shares the buffer of
    `values` if no conversion is needed."""
    values = values.astype(_NUMPY.get(target, values.dtype), copy=False)
    buffers = [None if valid is None else bitmap(valid), pa.py_buffer(values)]
    return pa.Array.from_buffers(target, len(values), buffers)


def varying(
    target: pa.DataType,
    offsets: NDArray[np.int32],
    data: NDArray[np.uint8] | bytes,
    valid: NDArray[np.bool_] | None = None,
) -> pa.Array:
    """Returns a string or binary array."""
    buffers = [None if valid is None else bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(target, len(offsets) - 1, buffers)


def string_array(values: Sequence[str]) -> pa.Array:
    raw = [value.encode() for value in values]
    offsets = np.fromiter(accumulate(map(len, raw), initial=0), np.int32, len(raw) + 1)
    return varying(pa.string(), offsets, b"".join(raw))


def booleans(values: NDArray[np.bool_]) -> pa.Array:
    packed = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, packed])


def spread(values: pa.Array, lengths: NDArray[np.int64]) -> pa.Array:
    """Repeat each string `lengths[i]` times, in order."""
    n = int(lengths.sum())
    if 16 * len(values) > n:
        return values.take(fixed(pa.int64(), np.repeat(np.arange(len(values)), lengths)))
    # If the lengths are large, copying each string repeatedly is several times faster than a look-up per row.
    raw = [value.encode() for value in values.to_pylist()]
    sizes = np.repeat(np.fromiter(map(len, raw), np.int32, len(raw)), lengths)
    offsets = np.zeros(n + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    data = b"".join(text * length for text, length in zip(raw, lengths.tolist(), strict=True))
    return varying(pa.string(), offsets, data)


def repeated(value: str, n: int) -> pa.Array:
    """Returns an array of `value` n times."""
    raw = value.encode()
    offsets = np.arange(n + 1, dtype=np.int32) * np.int32(len(raw))
    return varying(pa.string(), offsets, raw * n)


def cuts_of(values: pa.Array) -> tuple[I32, U8]:
    """Returns (offsets, data) of a string or binary array: value i is data[offsets[i] : offsets[i + 1]]."""
    _, offsets, data = values.buffers()
    all_offsets: I32 = np.frombuffer(offsets, dtype=np.int32)
    bytes_: U8 = np.frombuffer(data or b"", dtype=np.uint8)
    return all_offsets[values.offset : values.offset + len(values) + 1], bytes_


def valid_of(values: pa.Array) -> NDArray[np.bool_] | None:
    """Returns one boolean per value, False for null; None if no value is null."""
    return values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else None
