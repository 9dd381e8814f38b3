"""Finds the offset of each cell of each row in rows events.

A row image is a bit per column (1 = NULL, least significant first), and then the cells that are not NULL, without an
index: the offset of a cell is known only after the lengths of all cells before it. So one kernel walks once over all
rows and writes the offsets of the cells into one array per column. The decoders in `cells` then process whole columns.
A cell's offset is relative to the batch's first byte and has 32 bits. With 64 bits, the kernel would write twice as
much memory. So a batch never spans more than 2^31 bytes.

An event has one bitmap of the columns that its before-images contain, and another one for its after-images; an INSERT
has only the latter, a DELETE only the former. Usually the bits of all columns are set, and the walk does not read the
bitmap again for each row. Otherwise the walk uses the slower `sparse_image`, and marks a missing column as `ABSENT`,
which is not NULL. The after-image of a PARTIAL_UPDATE_ROWS event begins with an integer, the options. If this integer
is 1, a bit per JSON column of the table follows it. If a column's bit is set, the column's cell contains changes to the
before-image's cell, and the walk writes DIFF - offset in place of the cell's offset.

The walk checks every length against the end of the event before it uses the length. If a cell would reach past this
end, the walk returns an error code and an offset, because a kernel cannot raise a typed error.

Source: MySQL source, libs/mysql/binlog/event/rows_event.h (Rows_event), sql/rpl_record.cc (pack_row, unpack_row).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.event.header import HEADER_SIZE, TABLE_HEAD_SIZE
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.kernel.bytes import I32, I64, U8, Int, little, packed
from dispatcher.binlog.kernel.intrinsics import prefetch
from dispatcher.binlog.kernel.jit import allocating, njit, part
from dispatcher.binlog.table_map.column_types import Column, Type, cell_width

I8 = NDArray[np.int8]
_U64 = np.uint64

# Columns of the events array, which has one line per rows event and per query except BEGIN and COMMIT. Offsets are
# relative to the beginning of the delivered bytes.
OFFSET = 0  # offset of the event's header
END = 1  # end of the event's body, before the checksum
TYPE = 2
INDEX = 3  # index in the delivered transaction
TXN = 4  # index in the transactions array
VERSION = 5  # index in the table map versions array; -1 for a query
MAP_OFFSET = 6  # offset of the TABLE_MAP in force
MAP_INDEX = 7
FORMAT = 8  # index in the list of FORMAT_DESCRIPTION offsets
EVENT_FIELDS = 9

WALK_FIELDS = 6  # size of the state of `walk`

INSERT = 0
UPDATE = 1
DELETE = 2

# Values in place of a cell's offset.
NULL = -1
ABSENT = -2
DIFF = -3  # stored as DIFF - offset

JSON_WIDTH = 16  # bit in the width of a JSON column, which is negative
_PREFIX = 15

PARTIAL_UPDATE = int(EventType.PARTIAL_UPDATE_ROWS)
_WRITE_ROWS = int(EventType.WRITE_ROWS)
_WRITE_ROWS_V1 = int(EventType.WRITE_ROWS_V1)
ROW_BITS = 24
_PADDING = 144
_AHEAD = 6  # distance, in events, from the walked event to the prefetched one
_SPAN = 0x7FFFFFF0  # less than 2^31, so that DIFF - offset fits

# Error codes of `walk`. Without an error `walk` returns a number of rows.
CUT_SHORT = -1  # a cell or bitmap reaches past the end of its event
OTHER_WIDTH = -2  # the event has another number of columns than its TABLE_MAP
NO_COLUMNS = -3  # the row images contain no column, so rows have no bytes and cannot be counted
TOO_MANY_ROWS = -4  # more than 2^24 rows in one event
TOO_LARGE = -5  # one row does not fit into a batch of 2^31 bytes
OTHER_OPTIONS = -6  # a partial update with unknown options


@njit
def operation(kind: Int) -> Int:
    if kind == PARTIAL_UPDATE:
        return np.int64(UPDATE)
    return np.int64(kind - _WRITE_ROWS if kind >= _WRITE_ROWS else kind - _WRITE_ROWS_V1)


def operations(kinds: I64) -> I64:
    """Returns INSERT, UPDATE or DELETE for each type of a rows event."""
    first = np.where(kinds >= _WRITE_ROWS, _WRITE_ROWS, _WRITE_ROWS_V1)
    return np.where(kinds == PARTIAL_UPDATE, UPDATE, kinds - first)


@part
def columns_present(buf: U8, at: Int, columns: Int) -> tuple[bool, bool]:
    """Return (True if the bitmap at `at` contains at least one column, True if it contains all columns)."""
    some, all_ = np.int64(0), np.int64(255)
    whole = columns >> 3
    for k in range(whole):
        byte = np.int64(buf[_U64(at + k)])
        some |= byte
        all_ &= byte
    mask = np.int64((1 << (columns & 7)) - 1)
    if mask:
        byte = np.int64(buf[_U64(at + whole)]) & mask
        some |= byte
        all_ &= byte | ~mask
    return some != 0, all_ == 255


@part
def rows_start(buf: U8, offset: Int, end: Int, kind: Int, columns: Int) -> tuple[Int, Int]:
    """Return (offset of a rows event's first row image or an error code, offset of the first image's bitmap of columns
    or -1 if every image contains every column)."""
    none = np.int64(-1)
    at = offset + HEADER_SIZE + TABLE_HEAD_SIZE
    if kind >= _WRITE_ROWS:
        if at + 2 > end:
            return np.int64(CUT_SHORT), none
        extra = little(buf, at, 2)
        if extra < 2:
            return np.int64(CUT_SHORT), none
        at += extra
    width, at = packed(buf, at, end)
    if at < 0:
        return np.int64(CUT_SHORT), none
    if width != columns:
        return np.int64(OTHER_WIDTH), none
    size = np.int64((columns + 7) >> 3)
    images_count = np.int64(2 if operation(kind) == UPDATE else 1)
    bits = np.int64(at)
    if at + images_count * size > end:
        return np.int64(CUT_SHORT), none
    there, full = columns_present(buf, bits, columns)
    if images_count == 2:
        second, second_full = columns_present(buf, bits + size, columns)
        there, full = there or second, full and second_full
    if not there:
        return np.int64(NO_COLUMNS), none
    full = full and kind != PARTIAL_UPDATE
    return np.int64(at + images_count * size), none if full else bits


@part
def image(buf: U8, at: Int, end: Int, widths: I32, base: Int, cells: I32, row: Int) -> Int:
    """Walk over a row image with all columns, and write its cells' offsets to cells[:, row]. Return the offset after
    the image, or -1 if the image reaches past `end`."""
    # All indices are unsigned, because numba checks at every load whether a signed index is negative.
    columns = len(widths)
    nulls = _U64(at)
    stop, start, line = _U64(end), _U64(base), _U64(row)
    here = nulls + _U64((columns + 7) >> 3)
    if here > stop:
        return np.int64(-1)
    bits = _U64(0)
    for c in range(columns):
        if c & 7 == 0:
            bits = _U64(buf[nulls + _U64(c >> 3)])
        null = bits & _U64(1)
        bits >>= _U64(1)
        if null:
            cells[c, line] = NULL
            continue
        cells[c, line] = np.int32(here - start)
        width = widths[c]
        if width >= 0:
            here += _U64(width)
        else:
            # Check that the prefix lies inside the event before reading it.
            prefix = _U64(-width & _PREFIX)
            if here + prefix > stop:
                return np.int64(-1)
            length = _U64(buf[here])
            if prefix > _U64(1):
                length |= _U64(buf[here + _U64(1)]) << _U64(8)
                for i in range(2, prefix):
                    length |= _U64(buf[here + _U64(i)]) << _U64(8 * i)
            here += prefix + length
    # Before this check, only the prefix of a cell is read, and the prefix is checked above.
    if here > stop:
        return np.int64(-1)
    return np.int64(here)


@njit
def bit(buf: U8, at: Int, number: Int) -> Int:
    return np.int64(buf[at + (number >> 3)] >> (number & 7)) & 1


@njit
def is_json(width: Int) -> Int:
    return np.int64(1) if width < 0 and -width & JSON_WIDTH else np.int64(0)


@njit
def sparse_image(  # noqa: C901, PLR0913 - numbers that live in registers
    buf: U8,
    at: Int,
    end: Int,
    widths: I32,
    base: Int,
    cells: I32,
    row: Int,
    bits: Int,
    partial: bool,
    old: I32,
) -> Int:
    """Walk over a row image with the columns in the bitmap at `bits`. Return the offset after the image, or an error
    code. `partial`: True for the after-image of a partial update. `old`: the before-image's cells."""
    columns = len(widths)
    diffs = np.int64(-1)
    if partial:
        options, at = packed(buf, at, end)
        if at < 0:
            return np.int64(CUT_SHORT)
        if options > 1:
            return np.int64(OTHER_OPTIONS)
        if options:
            documents = np.int64(0)
            for c in range(columns):
                documents += is_json(np.int64(widths[c]))
            diffs = np.int64(at)
            at += (documents + 7) >> 3
    nulls = np.int64(at)
    there = np.int64(0)
    for c in range(columns):
        there += bit(buf, bits, c)
    here = nulls + ((there + 7) >> 3)
    if here > end:
        return np.int64(CUT_SHORT)
    number = np.int64(-1)  # the column's number in the image
    document = np.int64(-1)  # the JSON column's number among the table's JSON columns
    for c in range(columns):
        width = np.int64(widths[c])
        document += is_json(width)
        if not bit(buf, bits, c):
            cells[c, row] = ABSENT
            continue
        number += 1
        if bit(buf, nulls, number):
            cells[c, row] = NULL
            continue
        cell_offset = here - base
        changes = diffs >= 0 and is_json(width) and bit(buf, diffs, document)
        length = np.int64(0)
        if width < 0:
            width = -width & _PREFIX
            if here + width > end:
                return np.int64(CUT_SHORT)
            length = little(buf, here, width)
        if changes:
            # With an empty list of changes, the value is in the before-image's cell, which may be NULL or ABSENT.
            cell_offset = DIFF - cell_offset if length else np.int64(old[c, row])
        cells[c, row] = np.int32(cell_offset)
        here += width + length
        if here > end:
            return np.int64(CUT_SHORT)
    return here


def cell_widths(columns: Sequence[Column]) -> I32:
    """Returns the widths for `walk`: `column_types.cell_width` of each column, with the bit JSON_WIDTH for JSON."""
    widths = [
        cell_width(c.type, c.meta) - (JSON_WIDTH if c.type == Type.JSON else 0) for c in columns
    ]
    return np.array(widths, dtype=np.int32)


def cell_offset(cell: int) -> int:
    """Returns the offset of a cell that `walk` wrote; 0 if there is no cell."""
    return DIFF - cell if cell <= DIFF else max(cell, 0)


class RowCells(NamedTuple):
    """The arrays that `walk` fills, with room for len(op) rows. `before`, `after`: (columns, rows) offsets of cells, or
    NULL, ABSENT or DIFF - offset; undefined if a row has no such image. `event`: the index of the row's event in the
    events array. `op`: INSERT, UPDATE, DELETE."""

    before: I32
    after: I32
    event: I32
    ordinal: I64
    op: I8

    @classmethod
    def room(cls, columns: int, rows: int) -> RowCells:
        # Without the padding, the distance of two columns' arrays would be a power of two, and they would share one set
        # of the L1 cache.
        wide = rows + _PADDING
        return cls(
            np.empty((columns, wide), np.int32),
            np.empty((columns, wide), np.int32),
            np.empty(rows, np.int32),
            np.empty(rows, np.int64),
            np.empty(rows, np.int8),
        )


@part
def images(  # noqa: PLR0913 - numbers that live in registers
    buf: U8,
    at: Int,
    end: Int,
    widths: I32,
    base: Int,
    kind: Int,
    bits: Int,
    before: I32,
    after: I32,
    row: Int,
) -> Int:
    """Walk over the one or two images of a row. Return the offset after the images, or an error code."""
    op = operation(kind)
    if bits < 0:
        if op != INSERT:
            at = image(buf, at, end, widths, base, before, row)
        if op != DELETE and at >= 0:
            at = image(buf, at, end, widths, base, after, row)
        return at
    if op != INSERT:
        # With a constant in place of `never`, numba would compile the function a second time.
        never = kind < 0
        at = sparse_image(buf, at, end, widths, base, before, row, bits, never, before)
    if op != DELETE and at >= 0:
        second = bits + ((len(widths) + 7) >> 3) if op == UPDATE else bits
        partial = kind == PARTIAL_UPDATE
        at = sparse_image(buf, at, end, widths, base, after, row, second, partial, before)
    return at


@njit
def walk(buf: U8, events: I64, widths: I32, state: I64, out: RowCells, bytes_max: Int) -> Int:
    """Find the cells of the next rows: as many as `out` has room for, but only up to about `bytes_max` bytes.

    `events`: rows events of one layout. `widths`: see `cell_widths`. `state`: `WALK_FIELDS` numbers, 0 at first. The
    first three are read and written: the index of the current event in `events`, the offset of the next row (0 = the
    event's first row), the number of this row in its event. The other three are only written: the offset to which cell
    offsets are relative, the offset of an error, how many of the events have images that lack columns.

    Returns the number of rows, 0 at the end, or an error code.
    """
    line, at, number = state[0], state[1], state[2]
    sparse = np.int64(0)
    room = len(out.op)
    n = np.int64(0)  # with a plain 0, numba would compile the functions below a second time
    base = np.int64(-1)
    while line < len(events) and n < room:
        # The processor prefetches adjacent cache lines by itself, but not the cache lines of a later event.
        ahead = events[min(line + _AHEAD, len(events) - 1), OFFSET]
        prefetch(buf, ahead)
        prefetch(buf, ahead + 64)
        end = events[line, END]
        kind = events[line, TYPE]
        first, bits = rows_start(buf, events[line, OFFSET], end, kind, len(widths))
        if at == 0:
            at = first
            number = np.int64(0)
            if at < 0:
                state[4] = events[line, OFFSET]
                return at
        if base < 0:
            base = at
        sparse += bits >= 0
        op = operation(kind)
        while at < end and n < room and (n == 0 or at - base <= bytes_max):
            start = at
            at = images(buf, at, end, widths, base, kind, bits, out.before, out.after, n)
            if at < 0 or number >> ROW_BITS or at - base >= _SPAN:
                state[4] = start
                return at if at < 0 else TOO_MANY_ROWS if number >> ROW_BITS else TOO_LARGE
            out.event[n] = line
            out.ordinal[n] = events[line, INDEX] << ROW_BITS | number
            out.op[n] = op
            n += 1
            number += 1
        if at < end:
            break
        line += 1
        at = np.int64(0)
    state[0], state[1], state[2], state[3], state[5] = line, at, number, base, sparse
    return np.int64(n)


@allocating
def count(buf: U8, events: I64, widths: I32, rows: I64) -> Int:
    """Write the number of rows of each event to `rows`. Returns -1, or the index of an event that does not fit its
    layout; then `rows` contains the error code at this index."""
    scratch = np.empty((len(widths), 1), dtype=np.int32)
    first = np.int64(0)
    for line in range(len(events)):
        end = events[line, END]
        kind = events[line, TYPE]
        at, bits = rows_start(buf, events[line, OFFSET], end, kind, len(widths))
        seen = np.int64(0)
        while 0 <= at < end:
            at = images(buf, at, end, widths, at, kind, bits, scratch, scratch, first)
            seen += 1
        rows[line] = at if at < 0 else seen
        if at < 0:
            return np.int64(line)
    return np.int64(-1)


@njit
def bitmaps(buf: U8, events: I64, columns: Int, before: I64, after: I64) -> Int:
    """Write the offsets of the column bitmaps of each event's two images; -1 if an image contains all columns or does
    not exist. Returns how many of the offsets are not -1. `walk` must have checked the events."""
    present = np.int64(0)
    for line in range(len(events)):
        kind = events[line, TYPE]
        op = operation(kind)
        _, bits = rows_start(buf, events[line, OFFSET], events[line, END], kind, columns)
        second = bits + ((columns + 7) >> 3) if op == UPDATE else bits
        before[line] = -1 if op == INSERT or bits < 0 else bits
        after[line] = -1 if op == DELETE or bits < 0 else second
        present += (before[line] >= 0) + (after[line] >= 0)
    return present
