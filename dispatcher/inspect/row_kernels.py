"""Kernels that write rows in the form of the text output, directly from their cells in the log.

`row_walk` finds the cells of a row. The form of a column says how the kernel writes its cells. Columns of rarer types
have a form that begins with EXTRA. Their values are first decoded by Arrow (`row_text`), and the kernel then writes the
decoded values.

A literal has no line breaks: control characters, quotes and backslashes are escaped. The kernels never write outside of
`out`. They begin a row only if `out` has room for all parts of the row that have a bounded size (`ROOM`). They write a
text or bytes of unbounded length only if this room then still remains in `out`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dispatcher.binlog.charset.transcode import is_utf8
from dispatcher.binlog.decode.columns.cells import value_length
from dispatcher.binlog.decode.columns.temporals import BAD, MICROS, put_temporal, time_of
from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.decode.formats import number_format
from dispatcher.binlog.kernel.bytes import I32, I64, U8, Int, little
from dispatcher.binlog.kernel.intrinsics import load64
from dispatcher.binlog.kernel.jit import njit, part
from dispatcher.binlog.kernel.short_copy import copy_short, padded
from dispatcher.model.printable import UNSAFE

# The forms of columns. The comment of each form says what the columns A, B and C of `RowTables.columns` contain for it.
SIGNED = 0  # A: number of bytes
UNSIGNED = 1  # A: number of bytes
BOTH_SIGNS = 2  # A: number of bytes; for integers whose sign the log does not contain
YEAR = 3
DOUBLE = 4
DECIMAL = 5  # A: precision; B: scale; C: number of bytes
TEMPORAL = 6  # A: form of `temporals`; B: digits of the fraction; C: 1 if the value is in UTC
TIME = 7  # A: form of `temporals`; B: digits of the fraction
ENUM = 8  # A: number of bytes; B: line of the first label in `labels`; C: number of labels
SET = 9  # A, B, C: as for ENUM
TEXT = 10  # A: bytes of the length prefix; B: greatest byte that the UTF-8 may contain
BYTES = 11  # A: bytes of the length prefix; B: pad with zeros to this number of bytes
TEXT_OR_BYTES = 12  # A: bytes of the length prefix; a value in UTF-8 is written as text, any other value as bytes
BITS = 13  # A: number of bytes; B: 0
EXTRA = 14  # A: index among the table's extra columns; the decoded value is the whole literal
EXTRA_TEXT = 15  # A: as for EXTRA; B: as for TEXT
EXTRA_BYTES = 16  # A: as for EXTRA; B: 0
EXTRA_TEXT_OR_BYTES = 17  # A: as for EXTRA

# Columns of `RowTables.columns`. NAME: the offset in `texts` of the beginning of the column's lines, which contains the
# column's name.
FORM, A, B, C, NAME, NAME_SIZE = range(6)
COLUMN_FIELDS = 6

# Columns of `RowTables.tables`: the first line in `columns` and the number of columns, the number of extra columns, the
# offset in `texts` and the size of the table's name, and the most bytes of a row without its texts.
FIRST, COLUMNS, EXTRAS, LABEL, LABEL_SIZE, ROOM = range(6)
TABLE_FIELDS = 6

REFUSED = -1  # the kernel cannot write the row; the decoder raises the error
FULL = -2

HEAD_ROOM = 96  # the most bytes of a row's head, without the name of its table
NUMBER_ROOM = 48

ANY = 0xFF  # greatest byte of UTF-8
# Maps TEXT and each form after it to the form in which the bytes are written, whether they are in the log or in
# `Extras.data`.
_PLAIN: I64 = np.zeros(EXTRA_TEXT_OR_BYTES + 1, np.int64)
_PLAIN[[TEXT, EXTRA_TEXT]] = TEXT
_PLAIN[[BYTES, BITS, EXTRA_BYTES]] = BYTES
_PLAIN[[TEXT_OR_BYTES, EXTRA_TEXT_OR_BYTES]] = TEXT_OR_BYTES
_PLAIN[EXTRA] = EXTRA
_SPAN = 1 << 31
_HEX: U8 = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_UPPER: U8 = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)
_HIGH, _ESCAPED, _LEADING = 1, 2, 4


_INSERT = padded(b"### INSERT INTO ")
_UPDATE = padded(b"### UPDATE ")
_DELETE = padded(b"### DELETE FROM ")
_SET = padded(b"\n### SET\n")
_WHERE = padded(b"\n### WHERE\n")
_UTC = padded(b" UTC'")


def _escape_letters() -> U8:
    """Returns for each byte the letter after the backslash, x for an escape like \\x1b, or 0 if the byte needs no
    escape. MySQL has no escapes for most control characters. mysqlbinlog writes them like \\x1b, and so does this
    module."""
    table: U8 = np.zeros(256, dtype=np.uint8)
    table[[*range(0x20), 0x7F]] = ord("x")
    for byte, letter in zip(b"\n\r\t\0\x1a'\\", b"nrt0Z'\\", strict=True):
        table[byte] = letter
    return table


ESCAPES = _escape_letters()
_CLASSES: U8 = np.where(ESCAPES > 0, _ESCAPED, 0).astype(np.uint8)
_CLASSES[0x80:] = _HIGH
# The characters of several bytes that are written as escapes: first and last code point of each range.
_HIDDEN: I64 = np.array([(max(a, 0x80), b) for a, b in UNSAFE if b >= 0x80], np.int64)
for _first, _last in _HIDDEN.tolist():
    for _lead in (chr(_first), chr(_last)):
        _CLASSES[_lead.encode("utf-8", "surrogatepass")[0]] = _HIGH | _LEADING


class RowTables(NamedTuple):
    """The tables whose rows the kernel can write. `widths`: the widths for `row_walk.walk`, one for each line of
    `columns`; `labels`: offset in `texts` and number of bytes of each ENUM literal and SET member."""

    tables: I64
    columns: I64
    widths: I32
    labels: I64
    texts: U8


class Extras(NamedTuple):
    """Values that Arrow has decoded. `cuts`: (start, end) in `data`, negative for NULL. Each row has one line per extra
    column of its before image, and then one line per extra column of its after image."""

    cuts: I64
    data: U8


class Scratch(NamedTuple):
    """The cells of a row: arrays of (columns, 1)."""

    before: I32
    after: I32

    @classmethod
    def room(cls, columns: int) -> Scratch:
        return cls(np.empty((columns, 1), np.int32), np.empty((columns, 1), np.int32))


@part
def _put(text: U8, size: Int, out: U8, o: Int) -> Int:
    copy_short(out, o, text, np.int64(0), size)
    return np.int64(o + size)


@part
def _number(buf: U8, p: Int, width: Int, signed: bool) -> Int:
    shift = np.int64(64 - 8 * width)
    whole = p + 8 <= len(buf)
    value = np.int64(load64(buf, np.uint64(p))) if whole else little(buf, p, width)
    value = value << shift
    return value >> shift if signed else np.int64(np.uint64(value) >> np.uint64(shift))


@part
def _classes(data: U8, p: Int, size: Int) -> Int:
    """Returns a sum of flags: _HIGH if a byte is not ASCII, _ESCAPED if a byte needs an escape, and _LEADING if a byte
    may begin a character that needs escapes. Returns 0 if no byte has a flag."""
    seen = np.uint8(0)
    for k in range(np.uint64(p), np.uint64(p + size)):
        seen |= _CLASSES[data[k]]
    return np.int64(seen)


@part
def _hidden_bytes(data: U8, p: Int, end: Int) -> Int:
    """Returns the size of the character at `p` if a terminal would react to it or not show it, else 0. The text must be
    valid UTF-8."""
    first = np.int64(data[p])
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if p + size > end:
        return np.int64(0)
    code = first & (0x1F if size == 2 else 0x0F if size == 3 else 0x07)
    for k in range(p + 1, p + size):
        code = code << 6 | np.int64(data[k]) & 0x3F
    for line in range(len(_HIDDEN)):
        if _HIDDEN[line, 0] <= code <= _HIDDEN[line, 1]:
            return np.int64(size)
    return np.int64(0)


@part
def _put_text(data: U8, p: Int, size: Int, classes: Int, out: U8, o: Int) -> Int:
    """Write UTF-8 in quotes. Needs room for 4 * size + 2 bytes."""
    out[o] = 39
    o += 1
    if classes & (_ESCAPED | _LEADING):
        hidden = np.int64(p)  # the end of the last character of several bytes that needs escapes
        for k in range(p, p + size):
            byte = data[k]
            if _CLASSES[byte] & _LEADING:
                hidden = max(hidden, k + _hidden_bytes(data, k, p + size))
            letter = np.uint8(120) if k < hidden else ESCAPES[byte]
            if letter == 0:
                out[o] = byte
                o += 1
                continue
            out[o], out[o + 1] = 92, letter
            o += 2
            if letter == 120:
                out[o], out[o + 1] = _HEX[byte >> 4], _HEX[byte & 15]
                o += 2
    else:
        copy_short(out, o, data, p, size)
        o += size
    out[o] = 39
    return np.int64(o + 1)


@part
def _put_bytes(data: U8, p: Int, size: Int, least: Int, out: U8, o: Int) -> Int:
    """Write bytes as `0x` and two digits for each, padded with zeros to `least` bytes; write `''` if there are no
    bytes."""
    count = max(size, least)
    if count == 0:
        out[o], out[o + 1] = 39, 39
        return np.int64(o + 2)
    out[o], out[o + 1] = 48, 120
    o += 2
    for k in range(p, p + size):
        out[o], out[o + 1] = _UPPER[data[k] >> 4], _UPPER[data[k] & 15]
        o += 2
    for _ in range(size, count):
        out[o], out[o + 1] = 48, 48
        o += 2
    return np.int64(o)


@njit
def put_double(bits: Int, out: U8, o: Int) -> Int:
    """Write the double with these (uint64) bits in the fewest digits. A number of 1e+10 or more, or below 1e-6, gets an
    exponent. Needs room for 34 bytes."""
    if bits >> np.uint64(63):
        out[o] = 45
        o += 1
        bits &= np.uint64((1 << 63) - 1)
    if bits == np.uint64(0):
        out[o] = 48
        return np.int64(o + 1)
    digits, exponent = number_format.shortest(bits)
    while digits % np.uint64(10) == np.uint64(0):
        digits //= np.uint64(10)
        exponent += 1
    start = o + 8  # after the longest prefix
    count = number_format.unsigned(digits, out, start) - start
    point = count + exponent
    if -6 < point <= 0:
        out[o], out[o + 1] = 48, 46
        o += 2
        for _ in range(-point):
            out[o] = 48
            o += 1
        point = np.int64(-1)
    elif 0 < point <= 10:
        for _ in range(count, point):
            out[start + count] = 48
            count += 1
    else:
        return _exponential(start, count, point - 1, out, o)
    for k in range(count):
        if k == point:
            out[o] = 46
            o += 1
        out[o] = out[start + k]
        o += 1
    return np.int64(o)


@part
def _exponential(start: Int, count: Int, exponent: Int, out: U8, o: Int) -> Int:
    o = number_format.mantissa(out, o, start, count)
    if exponent > 0:
        out[o] = 43
        o += 1
    return number_format.signed(exponent, out, o)


@part
def _put_any_double(bits: Int, out: U8, o: Int) -> Int:
    """Write a double. It may be infinite or NaN, although no server stores such values."""
    if bits >> np.uint64(52) & np.uint64(0x7FF) != np.uint64(0x7FF):
        return put_double(bits, out, o)
    if bits & np.uint64((1 << 52) - 1):
        out[o], out[o + 1], out[o + 2] = 110, 97, 110
        return np.int64(o + 3)
    if bits >> np.uint64(63):
        out[o] = 45
        o += 1
    out[o], out[o + 1], out[o + 2] = 105, 110, 102
    return np.int64(o + 3)


@part
def _put_decimal(buf: U8, p: Int, precision: Int, scale: Int, size: Int, out: U8, o: Int) -> Int:
    end = number_format.decimal_digits(buf, p, p + size, precision, scale, out, o)
    if end < 0:
        return np.int64(REFUSED)
    if out[o] == 45:
        zero = True
        for k in range(o + 1, end):
            zero = zero and (out[k] == 48 or out[k] == 46)
        if zero:  # write -0 as 0; no server stores -0
            for k in range(o + 1, end):
                out[k - 1] = out[k]
            end -= 1
    return np.int64(end)


@part
def _put_temporal(buf: U8, p: Int, form: Int, digits: Int, utc: Int, out: U8, o: Int) -> Int:
    out[o] = 39
    o = put_temporal(buf, p, form, digits, out, o + 1)
    if o < 0:
        return np.int64(REFUSED)
    if utc:
        return _put(_UTC, 5, out, o)
    out[o] = 39
    return np.int64(o + 1)


@part
def _put_time(buf: U8, p: Int, form: Int, digits: Int, out: U8, o: Int) -> Int:
    """Write a TIME as MySQL shows it: `'-838:59:59'`, `'12:34:56.789012'`."""
    value, status = time_of(buf, p, form, digits)
    if status == BAD:
        return np.int64(REFUSED)
    out[o] = 39
    o += 1
    if value < 0:
        out[o] = 45
        o += 1
        value = -value
    seconds = value // MICROS
    hours = seconds // 3600
    if hours < 100:
        o = number_format.put_digits(np.uint64(hours), 2, out, o)
    else:
        o = number_format.unsigned(np.uint64(hours), out, o)
    out[o] = 58
    o = number_format.put_digits(np.uint64(seconds // 60 % 60), 2, out, o + 1)
    out[o] = 58
    o = number_format.put_digits(np.uint64(seconds % 60), 2, out, o + 1)
    if digits:
        out[o] = 46
        micros = value - seconds * MICROS
        o = number_format.put_digits(np.uint64(micros // 10 ** (6 - digits)), digits, out, o + 1)
    out[o] = 39
    return np.int64(o + 1)


@part
def _put_labels(number: Int, line: Int, tables: RowTables, out: U8, o: Int) -> Int:
    """Write the literal of an ENUM or of a SET."""
    columns, labels = tables.columns, tables.labels
    first, count = columns[line, B], columns[line, C]
    if columns[line, FORM] == ENUM:
        if np.uint64(number) >= np.uint64(count):
            return np.int64(REFUSED)
        at, size = labels[first + number, 0], labels[first + number, 1]
        copy_short(out, o, tables.texts, at, size)
        return np.int64(o + size)
    members = np.uint64(number)
    if count < 64 and members >> np.uint64(count):
        return np.int64(REFUSED)
    out[o] = 39
    o += 1
    begun = False
    for k in range(count):
        if members >> np.uint64(k) & np.uint64(1):
            if begun:
                out[o] = 44
                o += 1
            begun = True
            size = labels[first + k, 1]
            copy_short(out, o, tables.texts, labels[first + k, 0], size)
            o += size
    out[o] = 39
    return np.int64(o + 1)


@part
def _put_number(buf: U8, p: Int, form: Int, width: Int, out: U8, o: Int) -> Int:
    """Write an integer. If the log does not show whether the column is signed, and the number would be negative in a
    signed column, write the signed and the unsigned number."""
    value = _number(buf, p, width, form != UNSIGNED)
    if form == UNSIGNED:
        return number_format.unsigned(np.uint64(value), out, o)
    o = number_format.signed(value, out, o)
    if form == BOTH_SIGNS and value < 0:
        out[o], out[o + 1] = 32, 40
        o = number_format.unsigned(np.uint64(_number(buf, p, width, False)), out, o + 2)
        out[o] = 41
        o += 1
    return np.int64(o)


@part
def _put_any(  # noqa: PLR0913 - numbers that live in registers
    data: U8, p: Int, size: Int, form: Int, limit: Int, room: Int, out: U8, o: Int
) -> Int:
    """Write a text, bytes or a literal of any length. `form`: TEXT, BYTES, TEXT_OR_BYTES or EXTRA; `limit`: B of the
    column; `room`: how many bytes must remain free in `out` afterwards."""
    if form == EXTRA:
        if o + size + room > len(out):
            return np.int64(FULL)
        copy_short(out, o, data, p, size)
        return np.int64(o + size)
    if form != BYTES:
        classes = _classes(data, p, size)
        greatest = limit if form == TEXT else np.int64(ANY)
        is_text = not classes & _HIGH or is_utf8(data, p, p + size, greatest)
        if is_text and o + 4 * size + room > len(out):
            return np.int64(FULL)
        if is_text:
            return _put_text(data, p, size, classes, out, o)
        if form == TEXT:
            return np.int64(REFUSED)
    least = limit if form == BYTES else np.int64(0)
    if o + 2 * max(size, least) + room > len(out):
        return np.int64(FULL)
    return _put_bytes(data, p, size, least, out, o)


@part
def _put_fixed(buf: U8, p: Int, line: Int, tables: RowTables, out: U8, o: Int) -> Int:
    """Write a cell of a column whose literals have a bounded size."""
    columns = tables.columns
    form, a, b = columns[line, FORM], columns[line, A], columns[line, B]
    if form <= BOTH_SIGNS:
        return _put_number(buf, p, form, a, out, o)
    if form == TEMPORAL:
        return _put_temporal(buf, p, a, b, columns[line, C], out, o)
    if form == DECIMAL:
        return _put_decimal(buf, p, a, b, columns[line, C], out, o)
    if form == DOUBLE:
        return _put_any_double(np.uint64(_number(buf, p, 8, True)), out, o)
    if form == ENUM or form == SET:  # noqa: SIM109 - a kernel compares faster so
        return _put_labels(_number(buf, p, a, False), line, tables, out, o)
    if form == TIME:
        return _put_time(buf, p, a, b, out, o)
    year = np.int64(buf[p])
    return number_format.unsigned(np.uint64(year + 1900 if year else 0), out, o)


@part
def _put_image(  # noqa: PLR0913 - numbers that live in registers
    buf: U8,
    base: Int,
    cells: I32,
    table: Int,
    tables: RowTables,
    extras: Extras,
    pair: Int,
    out: U8,
    o: Int,
) -> Int:
    """Write a row image, with one line for each column of the image. `base`: the offset in `buf` to which the offsets
    of `cells` are relative; `pair`: the line of `extras.cuts` with the first extra column of the image."""
    first, room, columns = tables.tables[table, FIRST], tables.tables[table, ROOM], tables.columns
    for c in range(tables.tables[table, COLUMNS]):
        cell = np.int64(cells[c, 0])
        if cell == row_walk.ABSENT:
            continue
        line = first + c
        size = columns[line, NAME_SIZE]
        copy_short(out, o, tables.texts, columns[line, NAME], size)
        o += size
        form = columns[line, FORM]
        at = base + cell
        limit = columns[line, B]
        data = buf
        if form >= EXTRA:
            extra = pair + columns[line, A]
            at, size, data = extras.cuts[extra, 0], extras.cuts[extra, 1], extras.data
            size -= at
        elif form >= BITS:
            size = columns[line, A]
        elif form >= TEXT and cell >= 0:
            size = value_length(buf, at, columns[line, A])
            at += columns[line, A]
        if cell == row_walk.NULL or (form >= EXTRA and at < 0):
            out[o], out[o + 1], out[o + 2], out[o + 3] = 78, 85, 76, 76
            o += 4
        elif form >= TEXT:
            o = _put_any(data, at, size, _PLAIN[form], limit, room, out, o)
        else:
            o = _put_fixed(buf, at, line, tables, out, o)
        if o < 0:
            return np.int64(o)
        out[o] = 10
        o += 1
    return np.int64(o)


@part
def _put_label(op: Int, table: Int, tables: RowTables, out: U8, o: Int) -> Int:
    """Write the first line of a row, without the line break."""
    kind = _INSERT if op == row_walk.INSERT else _UPDATE if op == row_walk.UPDATE else _DELETE
    size = np.int64(11 if op == row_walk.UPDATE else 16)
    copy_short(out, o, kind, np.int64(0), size)
    o += size
    label, size = tables.tables[table, LABEL], tables.tables[table, LABEL_SIZE]
    copy_short(out, o, tables.texts, label, size)
    return np.int64(o + size)


@njit
def count_rows(
    buf: U8, offset: Int, end: Int, kind: Int, table: Int, tables: RowTables, scratch: Scratch
) -> Int:
    """Returns the number of rows of an event, or REFUSED."""
    first, columns = tables.tables[table, FIRST], tables.tables[table, COLUMNS]
    widths = tables.widths[first : first + columns]
    if end - offset >= _SPAN:
        return np.int64(REFUSED)
    at, bits = row_walk.rows_start(buf, offset, end, kind, columns)
    rows, line = np.int64(0), np.int64(0)
    while 0 <= at < end:
        at = row_walk.images(
            buf, at, end, widths, offset, kind, bits, scratch.before, scratch.after, line
        )
        rows += 1
    return np.int64(REFUSED) if at < 0 or rows >> row_walk.ROW_BITS else rows


@njit
def put_rows(  # noqa: PLR0913 - numbers that live in registers
    buf: U8,
    offset: Int,
    end: Int,
    kind: Int,
    table: Int,
    tables: RowTables,
    extras: Extras,
    pair: Int,
    scratch: Scratch,
    out: U8,
    o: Int,
) -> Int:
    """Write the rows of an event that `count_rows` has accepted. Returns the offset after the rows, REFUSED or FULL.
    `pair`: the line of `extras.cuts` with the first extra column of its first row."""
    first, columns = tables.tables[table, FIRST], tables.tables[table, COLUMNS]
    widths = tables.widths[first : first + columns]
    room, count = tables.tables[table, ROOM], tables.tables[table, EXTRAS]
    at, bits = row_walk.rows_start(buf, offset, end, kind, columns)
    op, line = row_walk.operation(kind), np.int64(0)
    while at < end:
        if o + room > len(out):
            return np.int64(FULL)
        at = row_walk.images(
            buf, at, end, widths, offset, kind, bits, scratch.before, scratch.after, line
        )
        o = _put_label(op, table, tables, out, o)
        for which in range(2):
            if which == 0 and op == row_walk.INSERT:
                continue
            if which == 1 and op == row_walk.DELETE:
                continue
            # The newline at the beginning of the mark ends the previous line. After the first image of an UPDATE, this
            # newline is already written, so it is skipped.
            skipped = np.int64(1 if which == 1 and op == row_walk.UPDATE else 0)
            mark = _SET if which == 1 else _WHERE
            size = np.int64(9 if which == 1 else 11) - skipped
            copy_short(out, o, mark, skipped, size)
            cells = scratch.after if which == 1 else scratch.before
            first_pair = pair + which * count
            o = _put_image(buf, offset, cells, table, tables, extras, first_pair, out, o + size)
            if o < 0:
                return np.int64(o)
        pair += 2 * count
    return np.int64(o)


@njit
def put_events(  # noqa: PLR0913 - arrays of one run
    buf: U8,
    events: I64,
    line: Int,
    table: Int,
    tables: RowTables,
    extras: Extras,
    scratch: Scratch,
    counts: I64,
    ends: I64,
    out: U8,
) -> Int:
    """Write the rows of one table's events to `out`, beginning with the event at line `line`. Also write the number of
    each event's rows to `counts`, and the end of each event's text to `ends`. Returns the number of events, or the line
    of the first event that is not written. The count of this event is FULL if `out` has no room for it, and REFUSED if
    the kernel cannot write it."""
    o = ends[line - 1] if line else np.int64(0)
    pair = np.int64(0)
    for i in range(line):
        pair += 2 * tables.tables[table, EXTRAS] * counts[i]
    for i in range(line, len(events)):
        offset, end = events[i, row_walk.OFFSET], events[i, row_walk.END]
        kind = events[i, row_walk.TYPE]
        counts[i] = count_rows(buf, offset, end, kind, table, tables, scratch)
        if counts[i] < 0:
            return np.int64(i)
        ends[i] = put_rows(buf, offset, end, kind, table, tables, extras, pair, scratch, out, o)
        if ends[i] < 0:
            counts[i] = ends[i]
            return np.int64(i)
        o = ends[i]
        pair += 2 * tables.tables[table, EXTRAS] * counts[i]
    return np.int64(len(events))
