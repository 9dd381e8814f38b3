"""The walk over rows events: where each cell of each row begins.

A row image is a bit per column (1 = NULL, least significant first), then the cells that are not NULL, back to back, with
no index: finding cell n means passing over the n - 1 before it. So one kernel passes over all rows once and writes down
offsets, column by column, and the decoders in `cells` then run over whole columns. A cell's offset is relative to the
batch's first byte and 32 bits wide, which halves what is written; hence a batch never spans more than 2^31 bytes.

Every length is checked against the end of its event before it is used. Bytes that do not fit end the walk with an error
code and an offset; a kernel cannot raise a typed error itself.

Source: MySQL source, libs/mysql/binlog/event/rows_event.h (Rows_event), sql/rpl_record.cc (unpack_row).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.jit import njit

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

# What `walk` returns besides a number of rows.
CUT_SHORT = -1  # a cell or bitmap reaches past the end of its event
OTHER_WIDTH = -2  # the event has another number of columns than its TABLE_MAP
PARTIAL_IMAGE = -3  # a column is not in the row image
TOO_MANY_ROWS = -4  # more than 2^24 rows in one event
TOO_LARGE = -5  # a batch of one row does not fit into 2^31 bytes


@njit
def packed(buf: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """(value, offset behind it) of a packed integer; the offset is -1 where it is cut short or none."""
    if at >= end:
        return 0, -1
    first = np.int64(buf[at])
    if first < 251:
        return first, at + 1
    size = 2 if first == 252 else 3 if first == 253 else 8 if first == 254 else 0
    if size == 0 or at + 1 + size > end:
        return 0, -1
    value = np.int64(0)
    for i in range(size):
        value |= np.int64(buf[at + 1 + i]) << np.int64(8 * i)
    return (value, at + 1 + size) if value >= 0 else (0, -1)


@njit
def rows_start(buf: NDArray[np.uint8], offset: int, end: int, kind: int, columns: int) -> int:
    """Offset of the first row image of a rows event, or an error code. Checks that every column is in the images."""
    at = offset + 19 + 8
    if kind >= 30:
        if at + 2 > end:
            return CUT_SHORT
        extra = np.int64(buf[at]) | np.int64(buf[at + 1]) << 8
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
def image(buf: NDArray[np.uint8], at: int, end: int, widths: NDArray[np.int32], base: int, cells: NDArray[np.int32], row: int) -> int:
    """Pass over one row image, write its cells' offsets to cells[:, row] (-1 = NULL); the offset behind it, or -1."""
    columns = len(widths)
    nulls = at
    at += (columns + 7) >> 3
    if at > end:
        return -1
    for c in range(columns):
        if (buf[nulls + (c >> 3)] >> (c & 7)) & 1:
            cells[c, row] = -1
            continue
        cells[c, row] = at - base
        width = np.int64(widths[c])
        if width >= 0:
            at += width
        else:
            size = -width
            if at + size > end:
                return -1
            length = np.int64(buf[at])
            for i in range(1, size):
                length |= np.int64(buf[at + i]) << np.int64(8 * i)
            at += size + length
        if at > end:
            return -1
    return at


@njit
def walk(
    buf: NDArray[np.uint8],
    events: NDArray[np.int64],
    widths: NDArray[np.int32],
    state: NDArray[np.int64],
    before: NDArray[np.int32],
    after: NDArray[np.int32],
    row_event: NDArray[np.int32],
    row_ordinal: NDArray[np.int64],
    row_op: NDArray[np.int8],
    bytes_max: int,
) -> int:
    """Find the cells of the next rows; as many as `row_event` is long, or fewer where they span `bytes_max` bytes.

    `events`: lines of rows events of one layout; `widths`: `types.cell_width` per column; `state`: [line in events,
    offset of the next row or 0, its number in the event, out: offset that cell offsets are relative to, out: offset of
    an error]; `before`, `after`: (columns, rows), -1 where NULL or no image. Returns the number of rows, 0 at the end,
    or an error code.
    """
    line, at, number = state[0], state[1], state[2]
    columns = len(widths)
    rows = 0
    base = np.int64(-1)
    while line < len(events) and rows < len(row_event):
        end = events[line, END]
        kind = events[line, TYPE]
        if at == 0:
            at = rows_start(buf, events[line, OFFSET], end, kind, columns)
            number = 0
            if at < 0:
                state[4] = events[line, OFFSET]
                return at
        if base < 0:
            base = at
        op = INSERT if kind == 30 or kind == 23 else UPDATE if kind == 31 or kind == 24 else DELETE
        while at < end and rows < len(row_event):
            if rows > 0 and at - base > bytes_max:
                break
            start = at
            if op == INSERT:
                for c in range(columns):
                    before[c, rows] = -1
            else:
                at = image(buf, at, end, widths, base, before, rows)
            if op == DELETE:
                for c in range(columns):
                    after[c, rows] = -1
            elif at >= 0:
                at = image(buf, at, end, widths, base, after, rows)
            if at < 0 or number >> ROW_BITS or at - base >= 0x7FFFFFFF:
                state[4] = start
                return CUT_SHORT if at < 0 else TOO_MANY_ROWS if number >> ROW_BITS else TOO_LARGE
            row_event[rows] = line
            row_ordinal[rows] = events[line, INDEX] << ROW_BITS | number
            row_op[rows] = op
            rows += 1
            number += 1
        if at < end:
            break
        line += 1
        at = np.int64(0)
    state[0], state[1], state[2], state[3] = line, at, number, base
    return rows


@njit
def count(buf: NDArray[np.uint8], events: NDArray[np.int64], widths: NDArray[np.int32], rows: NDArray[np.int64]) -> int:
    """Number of rows of each event into `rows`; returns -1, or the line of an event that does not fit its layout."""
    scratch = np.empty((len(widths), 1), dtype=np.int32)
    for line in range(len(events)):
        end = events[line, END]
        kind = events[line, TYPE]
        at = rows_start(buf, events[line, OFFSET], end, kind, len(widths))
        images = 0
        while 0 <= at < end:
            at = image(buf, at, end, widths, at, scratch, 0)
            images += 1
        both = kind == 31 or kind == 24
        if at < 0 or (both and images & 1):
            return line
        rows[line] = images >> 1 if both else images
    return -1
