"""A kernel that writes common events in the form of the text output: GTIDs, XIDs, rows, and statements and table maps
with known bodies.

The kernel stops before any other event: an event with an unknown body, with a type that the kernel does not write, or
with damage. Python then writes this event. When a body first occurs, Python renders its text; from then on the body is
known (`BodyArrays`). A log of small transactions repeats the same few bodies many times, so the kernel writes nearly
all of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dispatcher.binlog.decode.columns.temporals import civil_of
from dispatcher.binlog.decode.formats.number_format import put_digits, unsigned
from dispatcher.binlog.event import header
from dispatcher.binlog.event.file import (
    LOG_POS,
    OFFSET,
    SERVER_ID,
    SIZE,
    START,
    TIMESTAMP,
    TYPE,
)
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.binlog.kernel.bytes import I64, U8, Int, little, packed
from dispatcher.binlog.kernel.intrinsics import load64
from dispatcher.binlog.kernel.jit import njit, part
from dispatcher.binlog.kernel.short_copy import copy_short, padded, same_bytes
from dispatcher.inspect.row_kernels import (
    EXTRAS,
    FULL,
    Extras,
    RowTables,
    Scratch,
    count_rows,
    put_rows,
)
from dispatcher.model.gtid import GNO_MAX

# Columns of `BodyArrays.bodies`. HASH to TEXT_SIZE: a body, its type code, and the text that follows the head of an
# event with this body. SHOWN: 0 for a TABLE_MAP whose columns Python must show first, else 1. The other columns are set
# only for a TABLE_MAP. ROWS, ROWS_SIZE: the table's name in the head of its rows events. TABLE_ID: the table id. TABLE:
# the table's line in `RowTables`, or -1 if Python writes its rows.
HASH, KIND, BODY, BODY_SIZE, TEXT, TEXT_SIZE, ROWS, ROWS_SIZE, SHOWN, TABLE_ID, TABLE = range(11)
BODY_FIELDS = 11

# The columns of the state. LINE: the line of the next event. WRITTEN: the number of bytes written to `out`.
# BODY_IN_FORCE: if the kernel stops before a rows event, the line of its TABLE_MAP's body, or -1 if the kernel does not
# know that body. SECONDS, SECONDS_SIZE: the time whose text is in `BodyArrays.memory`, and the size of this text; only
# the kernel uses them.
LINE, WRITTEN, BODY_IN_FORCE, SECONDS, SECONDS_SIZE = range(5)
STATE_FIELDS = 5

# Why the kernel returns.
DONE, PYTHON, NO_ROOM, NO_EXTRAS = range(4)

# Values of `BlockEvents.extra_at`. Other numbers are lines of `Extras.cuts`.
NOT_DECODED = -1
BY_PYTHON = -2

MEMORY_BYTES = 64
_HEAD_ROOM = 320  # the most bytes of an event's lines, without the text of a known body
_HEX: U8 = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_END_OF_YEAR_9999 = 253_402_300_800
_TIME_MASK = (1 << 55) - 1

_GTID, _ANONYMOUS, _XID = int(EventType.GTID), int(EventType.ANONYMOUS_GTID), int(EventType.XID)
_QUERY, _TABLE_MAP = int(EventType.QUERY), int(EventType.TABLE_MAP)


def _rows_kinds() -> U8:
    table: U8 = np.zeros(256, dtype=np.uint8)
    table[[
        EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1, EventType.WRITE_ROWS,
        EventType.UPDATE_ROWS, EventType.DELETE_ROWS, EventType.PARTIAL_UPDATE_ROWS,
    ]] = 1  # fmt: skip
    return table


def _names() -> tuple[U8, I64]:
    """Returns the joined names of the types that the kernel writes by itself, and the offset and size of each name."""
    texts, places = b"", np.zeros((256, 2), np.int64)
    kinds = [_GTID, _ANONYMOUS, _XID, *np.flatnonzero(_ROWS_KINDS).tolist()]
    for kind in kinds:
        name = type_name(kind).encode() + b"  "
        places[kind] = len(texts), len(name)
        texts += name
    return padded(texts), places


_ROWS_KINDS = _rows_kinds()
_NAMES, _NAME_PLACES = _names()


_AT = padded(b"# at ")
_INSIDE = padded(b" (event ")
_OF_PAYLOAD = padded(b" of the payload)")
_LINE = padded(b"\n# ")
_SERVER_ID = padded(b"  server id ")
_END_LOG_POS = padded(b"  end_log_pos ")
_COMMITTED = padded(b"  committed ")
_COMMIT = padded(b"\nCOMMIT;\n")
_ANONYMOUS_NAME = padded(b"ANONYMOUS")
_ROWS_TEXT = padded(b" rows\n")


class BodyArrays(NamedTuple):
    """The known bodies. `slots`: a hash table whose values are lines of `bodies`, plus 1; `store`: the bytes of bodies
    and texts; `ids`: a hash table of (table id + 1, line of the current TABLE_MAP of this id + 1), where the second
    value is 0 if only Python knows the TABLE_MAP; `memory`: the text of the newest time."""

    slots: I64
    bodies: I64
    store: U8
    ids: I64
    memory: U8


class BlockEvents(NamedTuple):
    """The events of a block. `lines`: the `events` of an `event.file.Block`; `tail`: number of bytes of each event's
    checksum; `inside`: the number of the first event in its payload, or -1; `extra_at`: for each rows event, the line
    of `Extras.cuts` where its first row begins."""

    buf: U8
    lines: I64
    tail: int
    inside: int
    extra_at: I64


@part
def _put(text: U8, size: Int, out: U8, o: Int) -> Int:
    copy_short(out, o, text, np.int64(0), size)
    return np.int64(o + size)


@njit
def hash_of(buf: U8, at: Int, size: Int, kind: Int) -> Int:
    value = np.uint64(size) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(kind)
    k = np.int64(0)
    while k + 8 <= size:
        value = (value ^ load64(buf, np.uint64(at + k))) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(29)
        k += 8
    while k < size:
        value = (value ^ np.uint64(buf[at + k])) * np.uint64(0x9E3779B97F4A7C15)
        k += 1
    return np.int64((value ^ (value >> np.uint64(32))) >> np.uint64(1))


@njit
def find_body(buf: U8, at: Int, size: Int, kind: Int, known: BodyArrays) -> Int:
    """Returns the line of a known body, or -1."""
    key = hash_of(buf, at, size, kind)
    mask = len(known.slots) - 1
    slot = key & mask
    while known.slots[slot]:
        line = known.slots[slot] - 1
        same = known.bodies[line, HASH] == key and known.bodies[line, KIND] == kind
        same = same and known.bodies[line, BODY_SIZE] == size
        if same and same_bytes(buf, at, known.store, known.bodies[line, BODY], size):
            return np.int64(line)
        slot = (slot + 1) & mask
    return np.int64(-1)


@njit
def find_id(table_id: Int, ids: I64) -> Int:
    """Returns the slot of a table id, or the free slot for it."""
    mask = len(ids) - 1
    slot = (table_id * 0x9E3779B1 >> 7) & mask
    while ids[slot, 0] and ids[slot, 0] != table_id + 1:
        slot = (slot + 1) & mask
    return np.int64(slot)


@part
def _date_and_time(seconds: Int, out: U8, o: Int) -> Int:
    """Write `2026-01-31T12:00:00`."""
    days = seconds // 86_400
    second = seconds - days * 86_400
    year, month, day = civil_of(days)
    o = put_digits(np.uint64(year), 4, out, o)
    out[o] = 45
    o = put_digits(np.uint64(month), 2, out, o + 1)
    out[o] = 45
    o = put_digits(np.uint64(day), 2, out, o + 1)
    out[o] = 84
    o = put_digits(np.uint64(second // 3600), 2, out, o + 1)
    out[o] = 58
    o = put_digits(np.uint64(second // 60 % 60), 2, out, o + 1)
    out[o] = 58
    return put_digits(np.uint64(second % 60), 2, out, o + 1)


@part
def _put_head(block: BlockEvents, line: Int, known: BodyArrays, state: I64, out: U8, o: Int) -> Int:
    """Write the first line of an event, and the part of the second line before the type."""
    lines, memory = block.lines, known.memory
    o = unsigned(np.uint64(lines[line, OFFSET]), out, _put(_AT, 5, out, o))
    if block.inside >= 0:
        o = unsigned(np.uint64(block.inside + line + 1), out, _put(_INSIDE, 8, out, o))
        o = _put(_OF_PAYLOAD, 16, out, o)
    o = _put(_LINE, 3, out, o)
    seconds = lines[line, TIMESTAMP]
    if seconds != state[SECONDS]:
        end = np.int64(0)
        if seconds:
            end = _date_and_time(seconds, memory, end)
            memory[end] = 90
            end += 1
        state[SECONDS], state[SECONDS_SIZE] = seconds, end
    o = _put(memory, state[SECONDS_SIZE], out, o)
    o = unsigned(np.uint64(lines[line, SERVER_ID]), out, _put(_SERVER_ID, 12, out, o))
    o = unsigned(np.uint64(lines[line, LOG_POS]), out, _put(_END_LOG_POS, 14, out, o))
    out[o], out[o + 1] = 32, 32
    return np.int64(o + 2)


@part
def _put_name(kind: Int, out: U8, o: Int) -> Int:
    at, size = _NAME_PLACES[kind, 0], _NAME_PLACES[kind, 1]
    copy_short(out, o, _NAMES, at, size)
    return np.int64(o + size)


@njit
def commit_time(buf: U8, at: Int, end: Int) -> Int:
    """Returns the commit time in the body of a GTID event, in µs since 1970. Returns 0 if the event has no time, and -1
    if the event is damaged or the time is outside of the range that kernels can print."""
    none = np.int64(0)
    clock = at + header.GTID_CLOCK_AT
    if end - clock < 17 or buf[clock] != 2:
        return none
    at = clock + 17
    if end - at < 7:
        return none
    time = little(buf, at, 7)
    at += 7
    if time >> 55:
        time &= _TIME_MASK
        at += 7
    if at < end:
        _, at = packed(buf, at, end)  # the transaction's length
        if at < 0:
            return np.int64(-1)
        if end - at >= 4:
            at += 8 if buf[at + 3] >> 7 else 4  # the versions
    seconds = time // 1_000_000
    if at > end or (time and seconds < 1) or seconds >= _END_OF_YEAR_9999:
        return np.int64(-1)
    return time


@part
def _put_uuid(buf: U8, at: Int, out: U8, o: Int) -> Int:
    for k in range(16):
        if k == 4 or k == 6 or k == 8 or k == 10:
            out[o] = 45
            o += 1
        byte = buf[at + k]
        out[o], out[o + 1] = _HEX[byte >> 4], _HEX[byte & 15]
        o += 2
    return np.int64(o)


@part
def _put_gtid(buf: U8, at: Int, kind: Int, time: Int, out: U8, o: Int) -> Int:
    """Write the note of a GTID event: `uuid:5  committed 2026-01-31T12:00:00.123456Z`."""
    o = _put_name(kind, out, o)
    if kind == _ANONYMOUS:
        o = _put(_ANONYMOUS_NAME, 9, out, o)
    else:
        o = _put_uuid(buf, at + header.GTID_SOURCE_AT, out, o)
        out[o] = 58
        number = little(buf, at + header.GTID_NUMBER_AT, 8)
        o = unsigned(np.uint64(number), out, o + 1)
    if time:
        seconds = time // 1_000_000
        o = _date_and_time(seconds, out, _put(_COMMITTED, 12, out, o))
        out[o] = 46
        o = put_digits(np.uint64(time - seconds * 1_000_000), 6, out, o + 1)
        out[o] = 90
        o += 1
    out[o] = 10
    return np.int64(o + 1)


@part
def _gtid_is_valid(buf: U8, at: Int, end: Int, kind: Int) -> bool:
    if end - at < header.GTID_CLOCK_AT:
        return False
    number = little(buf, at + header.GTID_NUMBER_AT, 8)
    return bool(kind == _ANONYMOUS or 1 <= number < GNO_MAX)


@part
def _put_known(line: Int, known: BodyArrays, out: U8, o: Int) -> Int:
    """Write the text of a known body."""
    size = known.bodies[line, TEXT_SIZE]
    copy_short(out, o, known.store, known.bodies[line, TEXT], size)
    return np.int64(o + size)


@part
def _in_force(buf: U8, at: Int, end: Int, known: BodyArrays) -> Int:
    """Returns the line of the body of a rows event's TABLE_MAP, or -1 if only Python can find the TABLE_MAP."""
    if end - at < header.TABLE_HEAD_SIZE:
        return np.int64(-1)
    table_id = little(buf, at, header.TABLE_ID_SIZE)
    return np.int64(known.ids[find_id(table_id, known.ids), 1] - 1)


@njit
def write_events(  # noqa: C901, PLR0911, PLR0912, PLR0915 - one branch per kind of event
    block: BlockEvents,
    known: BodyArrays,
    tables: RowTables,
    extras: Extras,
    scratch: Scratch,
    state: I64,
    out: U8,
) -> Int:
    """Write events to `out`, beginning with the event at line state[LINE], and at offset state[WRITTEN] of `out`.
    Returns DONE, or the reason why the kernel stops before the event at line state[LINE]."""
    buf, lines = block.buf, block.lines
    o: Int = state[WRITTEN]
    for line in range(state[LINE], len(lines)):
        state[LINE], state[WRITTEN], state[BODY_IN_FORCE] = line, o, -1
        kind = lines[line, TYPE]
        start = lines[line, START]
        at = start + header.HEADER_SIZE
        end = start + lines[line, SIZE] - block.tail
        if o + _HEAD_ROOM > len(out):
            return np.int64(NO_ROOM)
        if kind == _QUERY or kind == _TABLE_MAP:  # noqa: SIM109
            body = find_body(buf, at, end - at, kind, known)
            if body < 0 or not known.bodies[body, SHOWN]:
                return np.int64(PYTHON)
            if o + _HEAD_ROOM + known.bodies[body, TEXT_SIZE] > len(out):
                return np.int64(NO_ROOM)
            o = _put_head(block, line, known, state, out, o)
            o = _put_known(body, known, out, o)
            if kind == _TABLE_MAP:
                table_id = known.bodies[body, TABLE_ID]
                slot = find_id(table_id, known.ids)
                if not known.ids[slot, 0]:
                    return np.int64(PYTHON)
                known.ids[slot, 1] = body + 1
        elif _ROWS_KINDS[kind]:
            body = _in_force(buf, at, end, known)
            state[BODY_IN_FORCE] = body
            if body < 0 or known.bodies[body, TABLE] < 0:
                return np.int64(PYTHON)
            table = known.bodies[body, TABLE]
            pair = np.int64(0)
            if tables.tables[table, EXTRAS]:
                pair = block.extra_at[line]
                if pair < 0:
                    return np.int64(NO_EXTRAS if pair == NOT_DECODED else PYTHON)
            rows = count_rows(buf, start, end, kind, table, tables, scratch)
            if rows < 0:
                return np.int64(PYTHON)
            if o + _HEAD_ROOM + known.bodies[body, ROWS_SIZE] > len(out):
                return np.int64(NO_ROOM)
            o = _put_name(kind, out, _put_head(block, line, known, state, out, o))
            size = known.bodies[body, ROWS_SIZE]
            copy_short(out, o, known.store, known.bodies[body, ROWS], size)
            o = unsigned(np.uint64(rows), out, o + size)
            o = _put(_ROWS_TEXT, 6, out, o)
            if rows == 1:
                out[o - 2] = 10
                o -= 1
            o = put_rows(buf, start, end, kind, table, tables, extras, pair, scratch, out, o)
            if o < 0:
                return np.int64(NO_ROOM if o == FULL else PYTHON)
        elif kind == _GTID or kind == _ANONYMOUS:  # noqa: SIM109
            time = commit_time(buf, at, end) if _gtid_is_valid(buf, at, end, kind) else np.int64(-1)
            if time < 0:
                return np.int64(PYTHON)
            o = _put_head(block, line, known, state, out, o)
            o = _put_gtid(buf, at, kind, time, out, o)
        elif kind == _XID and end - at >= 8:
            o = _put_name(kind, out, _put_head(block, line, known, state, out, o))
            o = unsigned(np.uint64(little(buf, at, 8)), out, o)
            o = _put(_COMMIT, 9, out, o)
        else:
            return np.int64(PYTHON)
    state[LINE], state[WRITTEN] = len(lines), o
    return np.int64(DONE)


@njit
def bodies_in_force(block: BlockEvents, first: Int, known: BodyArrays, ids: I64, found: I64) -> Int:
    """Find the TABLE_MAP of each rows event, beginning at line `first`, up to a TABLE_MAP whose body is not known. Sets
    the entry of each rows event in `found` to the line of its TABLE_MAP's body plus 1, and the entry of any other event
    to zero. Returns the line of the unknown TABLE_MAP, or the number of events. `ids`: a copy of `known.ids`, which
    this function may change."""
    buf, lines = block.buf, block.lines
    for line in range(first, len(lines)):
        kind = lines[line, TYPE]
        start = lines[line, START]
        at = start + header.HEADER_SIZE
        end = start + lines[line, SIZE] - block.tail
        found[line] = 0
        if kind == _TABLE_MAP:
            body = find_body(buf, at, end - at, kind, known)
            if body < 0:
                return np.int64(line)
            ids[find_id(known.bodies[body, TABLE_ID], ids), 1] = body + 1
        elif _ROWS_KINDS[kind] and end - at >= header.TABLE_HEAD_SIZE:
            table_id = little(buf, at, header.TABLE_ID_SIZE)
            found[line] = ids[find_id(table_id, ids), 1]
    return np.int64(len(lines))
