"""Computes checksums of rows from Arrow, so that rows in different places can be compared without being moved.

A row's hash depends on the bits of all its values. Rows are assigned to buckets by the hash of their key. A bucket
consists of the number of its rows and the sum of their hashes; the order of the rows does not matter. Two different
tables have equal buckets with a probability of one in 2^64. `row_differences` compares the rows of buckets that differ.
An adversary could construct different tables with equal buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dispatcher.binlog.kernel.bytes import U8, Int, little
from dispatcher.binlog.kernel.jit import njit

U64 = NDArray[np.uint64]

_NULL = 0x9E3779B97F4A7C15


@njit
def mixed(value: np.uint64) -> np.uint64:
    """Returns the finalizer of splitmix64 for `value`: each bit of the result depends on every bit of `value`."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit
def add_words(words: U64, valid: NDArray[np.bool_], width: Int, hashes: U64) -> None:
    """Update the rows' hashes with the values of one column. Each value has `width` words."""
    for i in range(len(hashes)):
        h = hashes[i] * np.uint64(0x100000001B3)
        if valid[i]:
            for k in range(width):
                h = mixed(h + words[i * width + k] + np.uint64(1))
        else:
            h = mixed(h ^ np.uint64(_NULL))
        hashes[i] = h


@njit
def add_bytes(data: U8, offsets: NDArray[np.int64], valid: NDArray[np.bool_], hashes: U64) -> None:
    """Update the rows' hashes with the values of one column. The values may have any length."""
    for i in range(len(hashes)):
        h = hashes[i] * np.uint64(0x100000001B3)
        if valid[i]:
            p, end = offsets[i], offsets[i + 1]
            h = mixed(h + np.uint64(end - p) + np.uint64(2))
            while end - p >= 8:
                h = mixed(h + np.uint64(little(data, p, 8)))
                p += 8
            h = mixed(h + np.uint64(little(data, p, end - p)))
        else:
            h = mixed(h ^ np.uint64(_NULL))
        hashes[i] = h


def row_hashes(arrays: Sequence[pa.Array], rows: int) -> U64:
    """Returns one hash per row. The hash covers the row's values in all arrays, in the order of the arrays."""
    hashes: U64 = np.zeros(rows, dtype=np.uint64)
    for array in arrays:
        _add(array, hashes)
    return hashes


def _add(array: pa.Array, hashes: U64) -> None:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.offset:  # the buffers below begin at the first value
        array = pa.concat_arrays([array, array.slice(0, 0)])
    valid = np.ones(len(array), dtype=np.bool_)
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
    kind = array.type
    if pa.types.is_struct(kind):
        for i in range(kind.num_fields):
            _add(array.field(i) if not array.null_count else array.flatten()[i], hashes)
        add_words(np.zeros(len(array), dtype=np.uint64), valid, 1, hashes)
    elif pa.types.is_list(kind):
        offsets = _offsets(array)
        values = array.values.buffers()[1]
        size = kind.value_type.bit_width // 8
        data = np.frombuffer(values or b"", dtype=np.uint8)
        add_bytes(data, offsets * size, valid, hashes)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        data = np.frombuffer(array.buffers()[2] or b"", dtype=np.uint8)
        add_bytes(data, _offsets(array), valid, hashes)
    else:
        words, width = _words(array)
        add_words(words, valid, width, hashes)


def _offsets(array: pa.Array) -> NDArray[np.int64]:
    if not len(array):
        return np.zeros(1, dtype=np.int64)
    raw = np.frombuffer(array.buffers()[1], dtype=np.int32, count=len(array) + 1)
    return raw.astype(np.int64)


def _words(array: pa.Array) -> tuple[U64, int]:
    """Returns (the bits of fixed-width values as 64-bit words, words per value)."""
    count, bits = len(array), array.type.bit_width
    data = array.buffers()[1] or b""
    if pa.types.is_boolean(array.type):
        return array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint64), 1
    if bits == 128:
        return np.frombuffer(data, dtype=np.uint64, count=2 * count), 2
    raw = np.frombuffer(data, dtype=f"<u{bits // 8}", count=count)
    return raw.astype(np.uint64), 1


@dataclass(frozen=True, slots=True)
class Buckets:
    """Buckets of rows, by the hash of their key: the number of rows in each bucket, and the sum of their hashes."""

    counts: NDArray[np.int64]
    sums: U64

    @classmethod
    def empty(cls, buckets: int) -> Buckets:
        return cls(np.zeros(buckets, dtype=np.int64), np.zeros(buckets, dtype=np.uint64))

    def add(self, batch: pa.RecordBatch, key: Sequence[int]) -> None:
        """Add the rows of a batch to their buckets. `key`: indices of the key columns; () for all columns."""
        hashes = row_hashes(batch.columns, batch.num_rows)
        bucket = bucket_of(batch, key, len(self.counts))
        np.add.at(self.counts, bucket, 1)
        np.add.at(self.sums, bucket, hashes)

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    def different(self, other: Buckets) -> NDArray[np.int64]:
        """Returns the numbers of the buckets that differ between `self` and `other`."""
        unequal = (self.counts != other.counts) | (self.sums != other.sums)
        return np.flatnonzero(unequal).astype(np.int64)


def bucket_of(batch: pa.RecordBatch, key: Sequence[int], buckets: int) -> NDArray[np.int64]:
    """Returns the bucket number of each row."""
    columns = [batch.column(i) for i in key] if key else batch.columns
    hashes = row_hashes(columns, batch.num_rows)
    return (hashes % np.uint64(buckets)).astype(np.int64)
