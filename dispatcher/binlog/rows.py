"""The walk over rows events: where each cell of each row begins.

A row image is a bit per column (1 = NULL, least significant first), then the cells that are not NULL, back to back,
with no index: finding cell n means passing over the n - 1 before it. So one kernel passes over all rows once and writes
down offsets, column by column, and the decoders in `cells` then run over whole columns. A cell's offset is relative to
the batch's first byte and 32 bits wide, which halves what is written; hence a batch never spans more than 2^31 bytes.

Every length is checked against the end of its event before it is used. Bytes that do not fit end the walk with an error
code and an offset; a kernel cannot raise a typed error itself.

Source: MySQL source, libs/mysql/binlog/event/rows_event.h (Rows_event), sql/rpl_record.cc (unpack_row).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.arrays import I32, I64, U8
from dispatcher.binlog.integers import Int, little, packed
from dispatcher.binlog.jit import njit

I8 = NDArray[np.int8]
_U64 = np.uint64

# Columns of the events array: one line per rows event (or DDL query), offsets in the file.
OFFSET = 0  # of the event's header
END = 1  # of its body: before the checksum
TYPE = 2
INDEX = 3  # within the transaction as delivered
TXN = 4  # line in the transactions array
VERSION = 5  # line in the table map versions array; -1 for a query
MAP_OFFSET = 6  # of the TABLE_MAP in force
MAP_INDEX = 7
FORMAT = 8  # line in the list of FORMAT_DESCRIPTION offsets
EVENT_FIELDS = 9

INSERT = 0
UPDATE = 1
DELETE = 2

ROW_BITS = 24
_PADDING = 144

# What `walk` returns besides a number of rows.
CUT_SHORT = -1  # a cell or bitmap reaches past the end of its event
OTHER_WIDTH = -2  # the event has another number of columns than its TABLE_MAP
PARTIAL_IMAGE = -3  # a column is not in the row image
TOO_MANY_ROWS = -4  # more than 2^24 rows in one event
TOO_LARGE = -5  # a batch of one row does not fit into 2^31 bytes


@njit
def rows_start(buf: U8, offset: Int, end: Int, kind: Int, columns: Int) -> Int:
    """Offset of the first row image of a rows event, or an error code. Checks that every column is in the images."""
    at = offset + 19 + 8
    if kind >= 30:
        if at + 2 > end:
            return CUT_SHORT
        extra = little(buf, at, 2)
        if extra < 2:
            return CUT_SHORT
        at += extra
    width, at = packed(buf, at, end)
    if at < 0:
        return CUT_SHORT
    if width != columns:
        return OTHER_WIDTH
    size = (columns + 7) >> 3
    bitmaps = 2 if kind == 31 or kind == 24 else 1
    if at + bitmaps * size > end:
        return CUT_SHORT
    for _ in range(bitmaps):
        for c in range(columns):
            if not (buf[at + (c >> 3)] >> (c & 7)) & 1:
                return PARTIAL_IMAGE
        at += size
    return at


@njit
def image(buf: U8, at: Int, end: Int, widths: I32, base: Int, cells: I32, row: Int) -> Int:
    """Pass over one row image, write its cells' offsets to cells[:, row] (-1 = NULL); the offset behind it, or -1."""
    # Unsigned throughout: a signed index would be checked for being negative at every load.
    columns = len(widths)
    nulls = _U64(at)
    stop, start, line = _U64(end), _U64(base), _U64(row)
    here = nulls + _U64((columns + 7) >> 3)
    if here > stop:
        return np.int64(-1)
    for c in range(columns):
        if (buf[nulls + _U64(c >> 3)] >> (c & 7)) & 1:
            cells[c, line] = -1
            continue
        cells[c, line] = np.int32(here - start)
        width = widths[c]
        if width >= 0:
            here += _U64(width)
        else:
            # The prefix itself must lie inside before it is read.
            prefix = _U64(-width)
            if here + prefix > stop:
                return np.int64(-1)
            length = _U64(buf[here])
            if prefix > _U64(1):
                length |= _U64(buf[here + _U64(1)]) << _U64(8)
                for i in range(2, prefix):
                    length |= _U64(buf[here + _U64(i)]) << _U64(8 * i)
            here += prefix + length
        if here > stop:
            return np.int64(-1)
    return np.int64(here)


class Found(NamedTuple):
    """What `walk` fills, as many rows as `op` is long. `before`, `after`: (columns, rows) offsets of cells, -1 where
    NULL, nothing of use where a row has no such image; `event`: line in events; `ordinal`; `op`: INSERT, UPDATE,
    DELETE."""

    before: I32
    after: I32
    event: I32
    ordinal: I64
    op: I8

    @classmethod
    def room(cls, columns: int, rows: int) -> Found:
        # Columns a power of two apart would share one set of the first cache.
        wide = rows + _PADDING
        return cls(
            np.empty((columns, wide), np.int32),
            np.empty((columns, wide), np.int32),
            np.empty(rows, np.int32),
            np.empty(rows, np.int64),
            np.empty(rows, np.int8),
        )


@njit
def operation(kind: Int) -> Int:
    if kind >= 30:
        return kind - 30
    return kind - 23


@njit
def images(  # noqa: PLR0913 - numbers that live in registers
    buf: U8, at: Int, end: Int, widths: I32, base: Int, op: Int, found: Found, row: Int
) -> Int:
    """Pass over a row's one or two images; the offset behind, or -1."""
    if op != INSERT:
        at = image(buf, at, end, widths, base, found.before, row)
    if op != DELETE and at >= 0:
        at = image(buf, at, end, widths, base, found.after, row)
    return at


@njit
def walk(buf: U8, events: I64, widths: I32, state: I64, found: Found, bytes_max: Int) -> Int:
    """Find the cells of the next rows; as many as `found` has room for, or fewer where they span `bytes_max` bytes.

    `events`: lines of rows events of one layout; `widths`: `types.cell_width` per column; `state`: [line in events,
    offset of the next row or 0, its number in the event, out: offset that cell offsets are relative to, out: offset of
    an error]. Returns the number of rows, 0 at the end, or an error code.
    """
    line, at, number = state[0], state[1], state[2]
    room = len(found.op)
    n = 0
    base = np.int64(-1)
    while line < len(events) and n < room:
        end = events[line, END]
        if at == 0:
            at = rows_start(buf, events[line, OFFSET], end, events[line, TYPE], len(widths))
            number = np.int64(0)
            if at < 0:
                state[4] = events[line, OFFSET]
                return at
        if base < 0:
            base = at
        op = operation(events[line, TYPE])
        while at < end and n < room and (n == 0 or at - base <= bytes_max):
            start = at
            at = images(buf, at, end, widths, base, op, found, n)
            if at < 0 or number >> ROW_BITS or at - base >= 0x7FFFFFFF:
                state[4] = start
                return CUT_SHORT if at < 0 else TOO_MANY_ROWS if number >> ROW_BITS else TOO_LARGE
            found.event[n] = line
            found.ordinal[n] = events[line, INDEX] << ROW_BITS | number
            found.op[n] = op
            n += 1
            number += 1
        if at < end:
            break
        line += 1
        at = np.int64(0)
    state[0], state[1], state[2], state[3] = line, at, number, base
    return np.int64(n)


@njit
def count(buf: U8, events: I64, widths: I32, rows: I64) -> Int:
    """Number of rows of each event into `rows`; returns -1, or the line of an event that does not fit its layout, with
    the error code in its place."""
    scratch = np.empty((len(widths), 1), dtype=np.int32)
    for line in range(len(events)):
        end = events[line, END]
        at = rows_start(buf, events[line, OFFSET], end, events[line, TYPE], len(widths))
        seen = 0
        while 0 <= at < end:
            at = image(buf, at, end, widths, at, scratch, 0)
            seen += 1
        both = operation(events[line, TYPE]) == UPDATE
        rows[line] = (
            at if at < 0 else CUT_SHORT if both and seen & 1 else seen >> 1 if both else seen
        )
        if rows[line] < 0:
            return np.int64(line)
    return np.int64(-1)
