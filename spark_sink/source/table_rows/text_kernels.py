"""Kernels for the rows of a text result set: `find_cells` finds the cells, each converting kernel converts one column.

A row is a packet: three bytes of length, a sequence number, then for each column a length-encoded text or, for NULL,
the byte 251. The server divides a row of 16 MiB or more into several packets.

The converting kernels get `at` and `size`, the offset and length of each row's cell in `buf`; `at` is -1 for NULL. They
return -1, or the row of the first cell that is invalid for its type.

Sources: MySQL manual, "Text Resultset Row", "MySQL Packets". The tests compare the results with those of servers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.decode.columns.temporals import (
    BAD,
    DAY_MICROS,
    GOOD,
    MICROS,
    NO_DATE,
    NO_DAY,
    days_from_civil,
)
from dispatcher.binlog.decode.formats import number_format
from dispatcher.binlog.kernel.bytes import I32, I64, U8, Int, little
from dispatcher.binlog.kernel.jit import njit

U64 = NDArray[np.uint64]
Bool = NDArray[np.bool_]

# The slots of the state of `find_cells`: the next byte to read, the end of the received bytes, the number of rows
# found.
NEXT, END, ROWS = 0, 1, 2
# The results of `find_cells`, in this order: more bytes are needed; there is no room for more rows; all rows were read;
# the server reports an error; the bytes do not have the form of a row.
MORE, FULL, DONE, FAILED, MALFORMED = 0, 1, 2, 3, 4

PACKET_MAX = 0xFFFFFF
_HEADER = 4
_NULL = 251

# The forms of a temporal cell.
DATE, DATETIME, TIME = 0, 1, 2


@njit
def join_packets(buf: U8, p: Int, end: Int) -> tuple[Int, Int]:
    """Join the packets of the row at `p` in place. Returns (end of the body, end of the last packet); (-1, -1) if not
    all packets were received."""
    stop = p + _HEADER + PACKET_MAX
    after = stop
    while True:
        if end - after < _HEADER:
            return np.int64(-1), np.int64(-1)
        part = little(buf, after, 3)
        if end - after - _HEADER < part:
            return np.int64(-1), np.int64(-1)
        after += _HEADER + part
        if part < PACKET_MAX:
            break
    source = stop
    while source < after:
        part = little(buf, source, 3)
        for k in range(part):
            buf[stop + k] = buf[source + _HEADER + k]
        stop += part
        source += _HEADER + part
    return stop, after


@njit
def find_row(buf: U8, start: Int, stop: Int, row: Int, at: I32, size: I32) -> bool:
    """Write the offsets and lengths of the cells of one row. Returns False if the bytes do not have the form of a
    row."""
    c = start
    for i in range(at.shape[0]):
        if c >= stop:
            return False
        first = np.int64(buf[c])
        c += 1
        if first == _NULL:
            at[i, row] = -1
            size[i, row] = 0
            continue
        length = first
        if first > _NULL:
            width = 2 if first == 252 else 3 if first == 253 else 8 if first == 254 else 0
            if width == 0 or stop - c < width:
                return False
            length = little(buf, c, width)
            c += width
        if length < 0 or length > stop - c:
            return False
        at[i, row] = c
        size[i, row] = length
        c += length
    return bool(c == stop)


@njit
def find_cells(buf: U8, state: I64, at: I32, size: I32) -> Int:
    """Find the cells of the rows in `buf[state[NEXT] : state[END]]`. `at` and `size` are arrays of the shape (columns,
    rows).

    Returns MORE, FULL, DONE, FAILED or MALFORMED. Moves `state[NEXT]` to the end of the rows that were found. If the
    result is DONE or FAILED, this is the beginning of the packet that ends the rows or reports the error.
    """
    p, end, row = state[NEXT], state[END], state[ROWS]
    result = FULL
    while row < at.shape[1]:
        if end - p < _HEADER:
            result = MORE
            break
        start = p + _HEADER
        stop = start + little(buf, p, 3)
        after = stop
        if stop - start == PACKET_MAX:
            stop, after = join_packets(buf, p, end)
        if stop < 0 or stop > end:
            result = MORE
            break
        if stop == start:
            result = MALFORMED
            break
        if buf[start] == 0xFF:
            result = FAILED
            break
        if buf[start] == 0xFE and stop - start < 9:
            result = DONE
            break
        if not find_row(buf, start, stop, row, at, size):
            result = MALFORMED
            break
        p = after
        row += 1
    state[NEXT] = p
    state[ROWS] = row
    return result


@njit
def cell_offsets(size: I32, offsets: I64) -> None:
    """Fill `offsets` with the offset of each cell in the concatenation of all cells, and with the end of the last
    cell."""
    total = np.int64(0)
    offsets[0] = 0
    for i in range(len(size)):
        total += size[i]
        offsets[i + 1] = total


@njit
def copy_cells(buf: U8, at: I32, size: I32, offsets: I64, out: U8) -> None:
    for i in range(len(at)):
        p, o = np.int64(at[i]), offsets[i]
        for k in range(size[i]):
            out[o + k] = buf[p + k]


@njit
def parse_integers(
    buf: U8, at: I32, size: I32, negative_max: np.uint64, positive_max: np.uint64, out: I64
) -> Int:
    """Parse integers, and write their 64 bits to `out`. A number with a minus sign is invalid if its magnitude is
    larger than `negative_max`, any other number if it is larger than `positive_max`."""
    tenth = np.uint64(1844674407370955161)  # a tenth of 2^64 - 1, whose last digit is 5
    for i in range(len(at)):
        out[i] = 0
        p = np.int64(at[i])
        if p < 0:
            continue
        end = p + size[i]
        negative = p < end and buf[p] == 45
        if negative:
            p += 1
        if p == end:
            return i
        value = np.uint64(0)
        for k in range(p, end):
            digit = np.uint64(buf[k]) - np.uint64(48)
            if digit > np.uint64(9) or value > tenth:
                return i
            if value == tenth and digit > np.uint64(5):
                return i
            value = value * np.uint64(10) + digit
        if value > (negative_max if negative else positive_max):
            return i
        out[i] = -np.int64(value) if negative else np.int64(value)
    return -1


@njit
def decimal_digits_of(buf: U8, p: Int, end: Int, scale: Int) -> Int:
    """Returns the number of significant digits of the decimal without a sign in buf[p:end]; -1 if it is no decimal with
    `scale` digits after the point."""
    point = end - scale - 1 if scale else end
    if point < p or end == p:
        return np.int64(-1)
    digits = np.int64(0)
    for k in range(p, end):
        c = buf[k]
        if k == point:
            if c != 46:
                return np.int64(-1)
        elif c < 48 or c > 57:
            return np.int64(-1)
        elif digits or c != 48:
            digits += 1
    return digits


@njit
def parse_decimals(buf: U8, at: I32, size: I32, scale: Int, most: Int, out: U64) -> Int:
    """Parse decimals with `scale` digits after the point, and write them to `out` as 128-bit two's complement:
    out[row] = (low, high).

    `most`: the number of digits of the type. A text may have more digits, because ZEROFILL adds zeros in front.
    """
    for i in range(len(at)):
        low = np.uint64(0)
        high = np.uint64(0)
        p = np.int64(at[i])
        if p >= 0:
            end = p + size[i]
            negative = p < end and buf[p] == 45
            if negative:
                p += 1
            digits = decimal_digits_of(buf, p, end, scale)
            if digits < 0 or digits > most:
                return i
            while p < end:
                # Nine digits are parsed at a time, because 10^9 fits into 32 bits.
                group = np.uint64(0)
                power = np.uint64(1)
                while p < end and power < np.uint64(1000000000):
                    if buf[p] != 46:
                        group = group * np.uint64(10) + np.uint64(buf[p] - 48)
                        power *= np.uint64(10)
                    p += 1
                low, high = number_format.times_plus(low, high, power, group)
            if negative:
                low, high = number_format.negated(low, high)
        out[i, 0] = low
        out[i, 1] = high
    return -1


@njit
def strip_zeros(buf: U8, at: I32, size: I32) -> None:
    """Move the start of each cell past the zeros that ZEROFILL adds in front of the number. One zero before the point
    stays."""
    for i in range(len(at)):
        if at[i] < 0:
            continue
        p, end = np.int64(at[i]), np.int64(at[i]) + size[i]
        while p + 1 < end and buf[p] == 48 and buf[p + 1] != 46:
            p += 1
        at[i] = p
        size[i] = end - p


@njit
def number_at(buf: U8, p: Int, end: Int) -> Int:
    """Returns the number whose decimal digits are buf[p:end]; -1 if a byte is no digit, or if there are no bytes."""
    value = np.int64(0) if p < end else np.int64(-1)
    for k in range(p, end):
        if buf[k] < 48 or buf[k] > 57:
            return np.int64(-1)
        value = value * 10 + np.int64(buf[k] - 48)
    return value


@njit
def clock_at(buf: U8, p: Int, end: Int, hour_digits: Int) -> Int:
    """Returns the microseconds of `hh:mm:ss` with up to 6 digits after a point; -1 if the bytes do not have this
    form."""
    minutes = p + hour_digits + 1
    behind = minutes + 5
    if end < behind or buf[minutes - 1] != 58 or buf[minutes + 2] != 58:
        return np.int64(-1)
    hour = number_at(buf, p, minutes - 1)
    minute = number_at(buf, minutes, minutes + 2)
    second = number_at(buf, minutes + 3, behind)
    micros = np.int64(0)
    if end > behind:
        if buf[behind] != 46 or end - behind > 7:
            return np.int64(-1)
        micros = number_at(buf, behind + 1, end)
        if micros < 0:
            return np.int64(-1)
        for _ in range(7 - (end - behind)):
            micros *= 10
    if hour < 0 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return np.int64(-1)
    return (hour * 3600 + minute * 60 + second) * MICROS + micros


@njit
def time_at(buf: U8, p: Int, end: Int) -> tuple[Int, Int]:
    """Returns (µs, status) of a TIME, whose hours have two or three digits."""
    negative = p < end and buf[p] == 45
    if negative:
        p += 1
    value = clock_at(buf, p, end, 3 if p + 3 < end and buf[p + 2] != 58 else 2)
    return -value if negative else value, GOOD if value >= 0 else BAD


@njit
def moment_at(buf: U8, p: Int, end: Int, form: Int) -> tuple[Int, Int]:
    """Returns (days or µs since 1970, status) of a DATE or DATETIME."""
    if end - p < 10 or buf[p + 4] != 45 or buf[p + 7] != 45:
        return np.int64(0), BAD
    year = number_at(buf, p, p + 4)
    month = number_at(buf, p + 5, p + 7)
    day = number_at(buf, p + 8, p + 10)
    clock = np.int64(0)
    if form == DATETIME and end - p > 10 and buf[p + 10] == 32:
        clock = clock_at(buf, p + 11, end, 2)
    elif form == DATETIME or end - p != 10:
        return np.int64(0), BAD
    if year < 0 or month < 0 or day < 0 or clock < 0 or clock >= DAY_MICROS:
        return np.int64(0), BAD
    days = days_from_civil(year, month, day)
    if days == NO_DAY:
        return np.int64(0), NO_DATE
    return days if form == DATE else days * DAY_MICROS + clock, GOOD


@njit
def parse_temporals(buf: U8, at: I32, size: I32, form: Int, out: I64, valid: Bool) -> Int:
    """Convert DATE to days since 1970, DATETIME and TIMESTAMP to µs since 1970, TIME to µs. `valid` becomes False for
    NULL and for an invalid date."""
    for i in range(len(at)):
        out[i] = 0
        valid[i] = False
        p = np.int64(at[i])
        if p < 0:
            continue
        if form == TIME:
            value, status = time_at(buf, p, p + size[i])
        else:
            value, status = moment_at(buf, p, p + size[i], form)
        if status == BAD:
            return i
        if status == GOOD:
            out[i] = value
            valid[i] = True
    return -1
