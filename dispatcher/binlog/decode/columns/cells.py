"""Kernels that decode one column of a batch from the offsets of its cells.

`at` contains the offset of each row's cell in `buf`, or a negative number if the row has no cell. `row_walk` has
checked that every cell lies inside its event, so these kernels check only the values. A kernel returns the row of the
first cell that is invalid for its type, or -1 if all cells are valid. There are few kernels, each with one signature,
because every executor loads all of them when it starts.

`temporals` decodes dates and times, `charset.transcode` converts character sets.

Sources: MySQL source, strings/decimal.cc (bin2decimal), sql/field.cc; checked against servers by the tests.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.decode.formats import number_format
from dispatcher.binlog.kernel.bytes import I32, I64, U8, Int, little
from dispatcher.binlog.kernel.intrinsics import load64
from dispatcher.binlog.kernel.jit import njit, part
from dispatcher.binlog.kernel.short_copy import copy_short

U64 = NDArray[np.uint64]


@njit
def integers(buf: U8, at: I32, width: Int, signed: bool, out: I64) -> None:
    """Read little-endian integers of `width` bytes, or the bits of floats. NULL becomes 0."""
    shift = np.int64(64 - 8 * width)
    last = np.int64(len(buf) - 8)  # last offset at which eight bytes can be read
    for i in range(len(at)):
        p = np.int64(at[i])
        if p < 0:
            out[i] = 0
            continue
        value = np.int64(load64(buf, np.uint64(p))) if p <= last else little(buf, p, width)
        value = value << shift
        out[i] = value >> shift if signed else np.int64(np.uint64(value) >> np.uint64(shift))


@njit
def read_decimals(buf: U8, at: I32, groups: I64, out: U64) -> Int:
    """Read DECIMALs of up to 38 digits as 128-bit two's complement, out[row] = (low, high).

    `groups`: (bytes, 10^digits) of each group of digits. The first bit is the sign, inverted; in a negative number all
    other bits are inverted, too.
    """
    for i in range(len(at)):
        p = np.int64(at[i])
        low = np.uint64(0)
        high = np.uint64(0)
        if p >= 0:
            negative = buf[p] < 128
            flip = np.uint64(255) if negative else np.uint64(0)
            first = np.uint64(128)
            for g in range(len(groups)):
                group = np.uint64(0)
                for _ in range(groups[g, 0]):
                    group = group << np.uint64(8) | (np.uint64(buf[p]) ^ flip ^ first)
                    first = np.uint64(0)
                    p += 1
                power = np.uint64(groups[g, 1])
                if group >= power:
                    return i
                low, high = number_format.times_plus(low, high, power, group)
            if negative:
                low, high = number_format.negated(low, high)
        out[i, 0] = low
        out[i, 1] = high
    return -1


@njit
def read_decimal_texts(
    buf: U8, at: I32, precision: Int, scale: Int, size: Int, offsets: I32, out: U8
) -> Int:
    """Write DECIMALs as the server prints them: `-123.4500`, `0.00`. `size`: bytes of a cell; `out`: room for precision
    + 3 bytes a row."""
    o = np.int64(0)
    for i in range(len(at)):
        p = np.int64(at[i])
        if p >= 0:
            o = number_format.decimal_digits(buf, p, p + size, precision, scale, out, o)
            if o < 0:
                return i
        offsets[i + 1] = o
    return -1


@part
def value_length(buf: U8, at: Int, prefix: Int) -> Int:
    """Read the length in the `prefix` bytes at `at`; 0 if `prefix` is 0."""
    # This does not call `little`, so that the common sizes compile to one load.
    if prefix == 1:
        return np.int64(buf[np.uint64(at)])
    if prefix == 2:
        return np.int64(buf[np.uint64(at)]) | np.int64(buf[np.uint64(at + 1)]) << np.int64(8)
    return little(buf, at, prefix)


@njit
def lengths(buf: U8, at: I32, prefix: Int, least: Int, offsets: I64) -> None:
    """Compute the offsets of the concatenated values. The room for each value is at least `least` bytes."""
    total = np.int64(0)
    offsets[0] = 0
    for i in range(len(at)):
        p = np.int64(at[i])
        if p >= 0:
            total += max(value_length(buf, p, prefix), least)
        offsets[i + 1] = total


@njit
def copy_values(buf: U8, at: I32, prefix: Int, offsets: I64, out: U8) -> None:
    """Copy the bytes of each value, and pad a value that is shorter than its room with zero bytes. `out` must have
    `short_copy.BLOCK` more bytes after the last value."""
    for i in range(len(at)):
        p = np.int64(at[i])
        if p < 0:
            continue
        o = offsets[i]
        room = offsets[i + 1] - o
        length = room
        if prefix:
            length = value_length(buf, p, prefix)
            p += prefix
        copy_short(out, o, buf, p, length)
        for k in range(length, room):
            out[o + k] = 0
