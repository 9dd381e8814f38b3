"""Kernels that write JSON objects, a column at a time: each call appends a member to the object of every row.

In `out`, each row has room for its whole object and for `BLOCK` bytes after the object, which `copy_short` may
overwrite. `cursor[i]` is the offset at which the next member of row i begins. A column's `state` says for each row what
the kernel writes: the value, null, or no member. `key` is the member's name as JSON with its colon, followed by `BLOCK`
more bytes. Each member ends with a comma. `finish` replaces the last comma by the closing brace, and `gather`
concatenates the objects.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.decode.formats import number_format
from dispatcher.binlog.kernel.bytes import I32, I64, U8, Int
from dispatcher.binlog.kernel.intrinsics import copy
from dispatcher.binlog.kernel.jit import njit, part
from dispatcher.binlog.kernel.short_copy import BLOCK, copy_short

I8 = NDArray[np.int8]

VALUE, NULL, ABSENT = 0, 1, 2

# The forms in which `put_texts` writes a text.
PLAIN = 0  # unchanged
QUOTED = 1  # between quotes; the text needs no escapes
ESCAPED = 2
BASE64 = 3  # bytes, between quotes

# What `put_times` writes.
DATE = 0
DATETIME = 1
INSTANT = 2

# Room that a member needs besides its key and its text: two quotes, the word null, a comma.
MEMBER_BYTES = 8
NUMBER_BYTES = 42  # a sign, 39 digits, a zero and a point
TIME_BYTES = 27

_COMMA, _QUOTE, _OPEN, _CLOSE = 44, 34, 123, 125
_DAY_US = 86_400_000_000
_DATE_BYTES = 10
_NO_DAY = 1 << 62


def _short_escapes() -> U8:
    """Returns for each byte: the letter after the backslash; `u` for \\u00xx; 0 if the byte needs no escape."""
    table: U8 = np.zeros(256, dtype=np.uint8)
    for code in (*range(0x20), ord('"'), ord("\\")):
        table[code] = ord(json.dumps(chr(code))[2])
    return table


_ESCAPES = _short_escapes()
_HEX: U8 = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


@part
def _member(key: U8, state: Int, out: U8, o: Int) -> Int:
    """Write the key. If `state` is NULL, write the value null and a comma after the key."""
    size = len(key) - BLOCK
    copy_short(out, o, key, 0, size)
    o += size
    if state == NULL:
        out[o], out[o + 1], out[o + 2], out[o + 3] = 110, 117, 108, 108
        out[o + 4] = _COMMA
        o += 5
    return np.int64(o)


@njit
def begin(cursor: I64, out: U8) -> None:
    for i in range(len(cursor)):
        out[cursor[i]] = _OPEN
        cursor[i] += 1


@njit
def put_integers(values: I64, state: I8, key: U8, cursor: I64, out: U8) -> None:
    for i in range(len(values)):
        if state[i] == ABSENT:
            continue
        o = _member(key, state[i], out, cursor[i])
        if state[i] == VALUE:
            o = number_format.signed(values[i], out, o)
            out[o] = _COMMA
            o += 1
        cursor[i] = o


@njit
def put_decimals(words: Any, scale: Int, state: I8, key: U8, cursor: I64, out: U8) -> None:
    """Write 128-bit two's complement numbers (low, high): as strings if they have a fraction, else as JSON numbers."""
    for i in range(len(words)):
        if state[i] == ABSENT:
            continue
        o = _member(key, state[i], out, cursor[i])
        if state[i] == VALUE:
            if scale:
                out[o] = _QUOTE
                o += 1
            o = number_format.decimal128(words[i, 0], words[i, 1], scale, out, o)
            if scale:
                out[o] = _QUOTE
                o += 1
            out[o] = _COMMA
            o += 1
        cursor[i] = o


@part
def _digits(value: Int, count: Int, out: U8, o: Int) -> Int:
    return number_format.put_digits(np.uint64(value), count, out, o)


@njit
def put_times(values: I64, form: Int, state: I8, key: U8, cursor: I64, out: U8) -> None:
    """Write dates and times of the years 0 to 9999, given as days (DATE) or microseconds since 1970: as `2024-02-29`
    (DATE), `2024-02-29T10:00:00.000000` (DATETIME), or the latter with a final Z (INSTANT)."""
    known, text = (
        np.int64(_NO_DAY),
        np.int64(0),
    )  # the previous row's date and the offset of its text: many rows have the same date
    for i in range(len(values)):
        if state[i] == ABSENT:
            continue
        o = _member(key, state[i], out, cursor[i])
        if state[i] == VALUE:
            days = values[i] if form == DATE else values[i] // _DAY_US
            out[o] = _QUOTE
            o += 1
            if days == known:
                copy(out, o, out, int(text), _DATE_BYTES)
                o += _DATE_BYTES
            else:
                known, text = days, o
                o = _date(days, out, o)
            if form != DATE:
                o = _clock(values[i] - days * _DAY_US, out, o)
            if form == INSTANT:
                out[o] = 90
                o += 1
            out[o], out[o + 1] = _QUOTE, _COMMA
            o += 2
        cursor[i] = o


@part
def _date(days: Int, out: U8, o: Int) -> Int:
    """Write a date, given as days since 1970-01-01.

    Years are counted from March, so that a leap day is the last day of its year. 400 years have 146,097 days. Month
    number `month`, counted from March = 0, begins after (153 * month + 2) / 5 days.
    """
    shifted = days + 719_468  # since 0000-03-01
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    year += 400 * era
    if month < 10:
        month += 3
    else:
        month -= 9
        year += 1
    o = _digits(year, 4, out, o)
    out[o] = 45
    o = _digits(month, 2, out, o + 1)
    out[o] = 45
    return _digits(day, 2, out, o + 1)


@part
def _clock(micros: Int, out: U8, o: Int) -> Int:
    seconds = micros // 1_000_000
    out[o] = 84
    o = _digits(seconds // 3600, 2, out, o + 1)
    out[o] = 58
    o = _digits(seconds // 60 % 60, 2, out, o + 1)
    out[o] = 58
    o = _digits(seconds % 60, 2, out, o + 1)
    out[o] = 46
    return _digits(micros % 1_000_000, 6, out, o + 1)


@njit
def add_text_sizes(offsets: I32, data: U8, form: Int, sizes: I64) -> Int:
    """Add to `sizes` the bytes of each text as JSON, without its quotes. Returns how many bytes need escapes."""
    escapes = np.int64(0)
    for i in range(len(sizes)):
        start, end = np.int64(offsets[i]), np.int64(offsets[i + 1])
        if form == BASE64:
            sizes[i] += (end - start + 2) // 3 * 4
            continue
        sizes[i] += end - start
        if form == ESCAPED:
            for k in range(start, end):
                escape = _ESCAPES[data[k]]
                if escape:
                    escapes += 1
                    sizes[i] += 5 if escape == 117 else 1
    return escapes


@njit
def put_texts(offsets: I32, data: U8, form: Int, state: I8, key: U8, cursor: I64, out: U8) -> None:
    for i in range(len(state)):
        if state[i] == ABSENT:
            continue
        o = _member(key, state[i], out, cursor[i])
        if state[i] == VALUE:
            start: Int = np.int64(offsets[i])
            end: Int = np.int64(offsets[i + 1])
            if form != PLAIN:
                out[o] = _QUOTE
                o += 1
            if form == BASE64:
                o = number_format.base64(data, start, end - start, out, o)
            elif form == ESCAPED:
                o = _escaped(data, start, end, out, o)
            else:
                copy_short(out, o, data, start, end - start)
                o += end - start
            if form != PLAIN:
                out[o] = _QUOTE
                o += 1
            out[o] = _COMMA
            o += 1
        cursor[i] = o


@part
def _escaped(data: U8, start: Int, end: Int, out: U8, o: Int) -> Int:
    for k in range(start, end):
        byte = data[k]
        escape = _ESCAPES[byte]
        if escape:
            out[o], out[o + 1] = 92, escape
            o += 2
            if escape == 117:
                out[o], out[o + 1] = 48, 48
                out[o + 2], out[o + 3] = _HEX[byte >> 4], _HEX[byte & 15]
                o += 4
        else:
            out[o] = byte
            o += 1
    return np.int64(o)


@njit
def finish(starts: I64, cursor: I64, state: I8, out: U8, offsets: I32) -> Int:
    """Close the objects and write the offsets of their texts. A row whose state is not VALUE gets an empty text.
    Returns the size of all texts in bytes, or -1 if 32-bit offsets cannot address them."""
    total = np.int64(0)
    offsets[0] = 0
    for i in range(len(starts)):
        if state[i] == VALUE:
            end = cursor[i]
            if end > starts[i] + 1:
                end -= 1  # the comma
            out[end] = _CLOSE
            total += end + 1 - starts[i]
        if total > 0x7FFFFFFF:
            return np.int64(-1)
        offsets[i + 1] = total
    return total


@njit
def gather(starts: I64, out: U8, offsets: I32, data: U8) -> None:
    for i in range(len(starts)):
        start: Int = np.int64(offsets[i])
        size: Int = np.int64(offsets[i + 1]) - start
        copy(data, start, out, starts[i], size)
