"""Kernels that decode one column of a batch: cell offsets in, values out.

`at` holds the offset of each row's cell in `buf`, a negative number where there is none. The walk (`rows`) has checked
that every cell lies inside its event, so nothing is checked here but what a value itself may get wrong. Kernels return
-1, or the row of the first cell that holds no value of its type. There are few of them, each with one signature,
because an executor loads every one of them when it starts.

Dates and times are read in `temporals`, character sets in `texts`.

Sources: MySQL source, strings/decimal.cc (bin2decimal), sql/field.cc; checked against servers by the tests.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.kernel.bytes import I32, I64, U8, Int, little
from dispatcher.binlog.kernel.jit import njit

U64 = NDArray[np.uint64]


@njit
def integers(buf: U8, at: I32, width: Int, signed: bool, out: I64) -> None:
    """Little-endian integers of `width` bytes (also the bits of floats); NULL gives 0."""
    shift = np.int64(64 - 8 * width)
    for i in range(len(at)):
        p = at[i]
        if p < 0:
            out[i] = 0
            continue
        # Written out: each width is one load then, a loop would be byte by byte.
        if width == 1:
            value = np.int64(buf[p])
        elif width == 2:
            value = little(buf, p, 2)
        elif width == 3:
            value = little(buf, p, 3)
        elif width == 4:
            value = little(buf, p, 4)
        else:
            value = little(buf, p, width)
        out[i] = (value << shift) >> shift if signed else value


@njit
def read_decimals(
    buf: U8,
    at: I32,
    groups: I64,
    out: U64,
) -> Int:
    """DECIMAL of up to 38 digits as 128-bit two's complement, out[row] = (low, high).

    `groups`: (bytes, 10^digits) of each group of digits. The first bit is the sign, inverted; negative numbers have all
    other bits inverted too.
    """
    mask32 = np.uint64(0xFFFFFFFF)
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
                bottom = (low & mask32) * power + group
                top = (low >> np.uint64(32)) * power + (bottom >> np.uint64(32))
                low = top << np.uint64(32) | (bottom & mask32)
                high = high * power + (top >> np.uint64(32))
            if negative:
                low = ~low + np.uint64(1)
                high = ~high + (np.uint64(1) if low == 0 else np.uint64(0))
        out[i, 0] = low
        out[i, 1] = high
    return -1


@njit
def read_decimal_texts(  # noqa: C901 - sign, point and zeros are one walk over the digits
    buf: U8,
    at: I32,
    groups: I64,
    digits: I64,
    scale: Int,
    offsets: I32,
    out: U8,
) -> Int:
    """DECIMAL of any size as the server prints it: `-123.4500`, `0.00`. `digits`: of each group; `out`: room for
    precision + 3 bytes a row."""
    whole = np.int64(0)
    for g in range(len(groups)):
        whole += digits[g]
    whole -= scale
    plain = np.empty(80, dtype=np.uint8)
    o = np.int64(0)
    for i in range(len(at)):
        p = np.int64(at[i])
        if p >= 0:
            negative = buf[p] < 128
            flip = np.int64(255) if negative else np.int64(0)
            first = np.int64(128)
            n = np.int64(0)
            for g in range(len(groups)):
                group = np.int64(0)
                for _ in range(groups[g, 0]):
                    group = group << 8 | (np.int64(buf[p]) ^ flip ^ first)
                    first = np.int64(0)
                    p += 1
                if group >= groups[g, 1]:
                    return i
                for k in range(digits[g] - 1, -1, -1):
                    plain[n + k] = 48 + group % 10
                    group //= 10
                n += digits[g]
            if negative:
                out[o] = 45
                o += 1
            start = np.int64(0)
            while start < whole - 1 and plain[start] == 48:
                start += 1
            if whole == 0:
                out[o] = 48
                o += 1
            for k in range(start, n):
                if k == whole:
                    out[o] = 46
                    o += 1
                out[o] = plain[k]
                o += 1
        offsets[i + 1] = o
    return -1


@njit
def lengths(
    buf: U8,
    at: I32,
    prefix: Int,
    least: Int,
    offsets: I64,
) -> None:
    """Offsets of the values behind each other: cell i is offsets[i + 1] - offsets[i] bytes long, `least` at least."""
    total = np.int64(0)
    offsets[0] = 0
    for i in range(len(at)):
        p = at[i]
        if p >= 0:
            total += max(little(buf, p, prefix), least)
        offsets[i + 1] = total


@njit
def copy(
    buf: U8,
    at: I32,
    prefix: Int,
    offsets: I64,
    out: U8,
) -> None:
    """The bytes of each value, zero bytes behind a cell that is shorter than its room."""
    for i in range(len(at)):
        p = np.int64(at[i])
        if p < 0:
            continue
        o = offsets[i]
        room = offsets[i + 1] - o
        length = room
        if prefix:
            length = little(buf, p, prefix)
            p += prefix
        for k in range(length):
            out[o + k] = buf[p + k]
        for k in range(length, room):
            out[o + k] = 0
