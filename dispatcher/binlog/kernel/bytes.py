"""Reads and writes integers of events inside kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.kernel.intrinsics import load32, load64
from dispatcher.binlog.kernel.jit import njit, part

U8 = NDArray[np.uint8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

Int = Any  # an int in Python and an int64 in a kernel, which are different types for mypy


@njit
def little(buf: U8, at: Int, size: Int) -> Int:
    """Read a little-endian integer of up to 8 bytes. With 8 bytes the integer is signed."""
    value = np.int64(0)
    for i in range(size):
        value |= np.int64(buf[at + i]) << np.int64(8 * i)
    return value


@njit
def big(buf: U8, at: Int, size: Int) -> Int:
    """Read a big-endian integer of up to 7 bytes."""
    value = np.int64(0)
    for i in range(size):
        value = value << np.int64(8) | np.int64(buf[at + i])
    return value


@njit
def packed(buf: U8, at: Int, end: Int) -> tuple[Int, Int]:
    """Return (value, offset after the integer) of a packed integer. The offset is -1 if the integer is truncated or
    invalid."""
    if at >= end:
        return np.int64(0), np.int64(-1)
    first = np.int64(buf[at])
    if first < 251:
        return first, at + 1
    size = 2 if first == 252 else 3 if first == 253 else 8 if first == 254 else 0
    if size == 0 or at + 1 + size > end:
        return np.int64(0), np.int64(-1)
    value = little(buf, at + 1, size)
    return (value, at + 1 + size) if value >= 0 else (np.int64(0), np.int64(-1))


@part
def u16(buf: U8, at: int) -> int:
    return int(buf[np.uint64(at)]) | int(buf[np.uint64(at + 1)]) << 8


@part
def u32(buf: U8, at: int) -> int:
    return int(load32(buf, np.uint64(at)))


@part
def u64(buf: U8, at: int) -> int:
    """Read eight bytes as a signed integer, which is the type of the kernels' state."""
    return int(np.int64(load64(buf, np.uint64(at))))


@part
def put32(out: U8, at: Int, value: Int) -> None:
    """Write the low 32 bits of an integer."""
    out[at] = value & 0xFF
    out[at + 1] = (value >> 8) & 0xFF
    out[at + 2] = (value >> 16) & 0xFF
    out[at + 3] = (value >> 24) & 0xFF
