"""The kernel that copies one consumer's share of a batch; what it copies, and why, is said in `copy_share`."""

from __future__ import annotations

from dispatcher.binlog.event import header
from dispatcher.binlog.kernel.bytes import I32, I64, U8, u32
from dispatcher.binlog.kernel.crc import crc32
from dispatcher.binlog.kernel.intrinsics import copy
from dispatcher.binlog.kernel.jit import njit, part
from dispatcher.binlog.stream.batch import (
    CARRIED,
    CONTINUED,
    DDL,
    FRAME,
    KIND_MASK,
    OPEN,
    ROLLED_BACK,
    ROWS,
    ROWS_END,
    SAVEPOINT,
    TABLE_MAP,
    TEXT,
    Events,
    Transactions,
)
from dispatcher.binlog.stream.routes import ALL

# What survives between calls, by its place in the state array. Offsets are into the segment in use.
OUT = 0  # where the next byte goes
TX = 1  # the transaction to go on with,
EVENT = 2  # and its event; -1 = it is not begun
BEGUN = 3  # has the open transaction's beginning been copied?
RECORD = 4  # where its record stands, or NONE, EARLIER
LAST_ROWS = 5  # where the open statement's last rows event stands, or NONE, EARLIER
COPIED = 6  # events of the open transaction that were copied
SEQ = 7  # of the last transaction
TAKEN = 8  # transactions that became complete
NEED = 9  # with NEED_ROOM: how many bytes
HEAD_DONE = 10  # has the open statement's head been copied?
_HEAD_FIRST = 11  # index of its first event, -1 = none
_MAPS_OPEN = 12  # has it a table map?
STATE_SIZE = 13

NONE = -1
EARLIER = -2  # in a segment before the one in use

# Why the kernel came back.
DONE, NEED_ROOM, PATCH_RECORD, PATCH_ROWS, REMEMBER, UNDO = range(6)

_LOG_POS = 13
_SEQ_AT = header.HEADER_SIZE + 8
_OFFSET_AT = header.HEADER_SIZE + 16
_COMMIT_AT = header.HEADER_SIZE + 24
_ROWS_FLAGS_AT = header.HEADER_SIZE + 6


@part
def _put(out: U8, at: int, value: int, size: int) -> None:
    for i in range(size):
        out[at + i] = (value >> (8 * i)) & 0xFF


@part
def end_statement(out: U8, at: int, checksum: int) -> None:
    """Set STMT_END_F on the rows event at out[at] and make its checksum right again."""
    size = u32(out, at + 9)
    out[at + _ROWS_FLAGS_AT] |= 1
    if checksum:
        _put(out, at + size - 4, crc32(out, at, at + size - 4), 4)


@part
def finish_record(out: U8, at: int, size: int, seq: int, offset: int, checksum: int) -> None:
    """Write into the record at out[at] what is known only when its transaction ends."""
    _put(out, at + _LOG_POS, offset & 0xFFFFFFFF, 4)
    _put(out, at + _SEQ_AT, seq, 8)
    _put(out, at + _OFFSET_AT, offset, 8)
    if checksum:
        _put(out, at + size - 4, crc32(out, at, at + size - 4), 4)


@part
def _reset_statement(cs: I64) -> None:
    cs[LAST_ROWS], cs[_HEAD_FIRST], cs[HEAD_DONE], cs[_MAPS_OPEN] = NONE, -1, 0, 0


@part
def _all_wanted(kinds: U8, routes: I32, wants: U8, lo: int, hi: int) -> bool:
    """Are all tables of a statement's head wanted?"""
    for j in range(lo, hi):  # noqa: SIM110 - a kernel knows no generators
        if kinds[j] & KIND_MASK == TABLE_MAP and not wants[routes[j]]:
            return False
    return True


@part
def _in_head(kind: int, route: int, wants: U8, text: bool) -> bool:
    """Does an event of a statement's head go along?"""
    kind &= KIND_MASK
    return (kind == TEXT and text) or (kind == TABLE_MAP and wants[route] == 1)


@part
def _see_head(cs: I64, kind: int, carried: int, i: int) -> None:
    """Remember where the head of a statement begins."""
    if cs[_HEAD_FIRST] < 0 or (kind == TEXT and cs[_MAPS_OPEN] == 0):
        cs[_HEAD_FIRST] = i
        if not carried:
            cs[HEAD_DONE] = 0
    if kind == TABLE_MAP:
        cs[_MAPS_OPEN] = 1


@njit
def copy_share(  # noqa: C901, PLR0912, PLR0913, PLR0915 - one walk over the events; its parts would share all of this
    buf: U8,
    ev: Events,
    tx: Transactions,
    wants: U8,
    skip: U8,
    record: U8,
    checksum: int,
    packed: int,
    out: U8,
    cs: I64,
    taken: tuple[I32, I64, I64, I32],
) -> int:
    """Go on at cs[TX], cs[EVENT]; returns DONE or what Python must do before calling again. (With REMEMBER and UNDO
    that is the event before cs[EVENT].)

    `packed` < 0: transactions are counted; else file number << 40, and `seq` is that with the end offset. `taken`:
    index, end in `out`, seq and number of events of each transaction that became complete, cs[TAKEN] of them.
    """
    # Taking an array out of a tuple counts it in and out, atomically: once here, not once an event.
    ev_off, ev_size, ev_kind, ev_route = ev.off, ev.size, ev.kind, ev.route
    tx_first, tx_last, tx_flags = tx.first, tx.last, tx.flags
    tx_end, tx_commit_us = tx.end, tx.commit_us
    taken_tx, taken_end, taken_seq, taken_events = taken
    n_wants, record_size = len(wants), len(record)
    at = cs[OUT]
    for t in range(cs[TX], len(tx_first)):
        flags = tx_flags[t]
        if cs[EVENT] < 0:
            if flags & CONTINUED == 0:
                cs[BEGUN], cs[RECORD], cs[LAST_ROWS], cs[COPIED], cs[HEAD_DONE] = (
                    0,
                    NONE,
                    NONE,
                    0,
                    0,
                )
            if skip[t]:
                continue
            if flags & ROLLED_BACK:  # nothing of it happened, and it happened
                cs[SEQ] = packed | tx_end[t] if packed >= 0 else cs[SEQ] + 1
                cs[BEGUN] = 0
                continue
            cs[EVENT], cs[_HEAD_FIRST], cs[_MAPS_OPEN] = tx_first[t], -1, 0
        i = int(cs[EVENT])
        while i < tx_last[t]:
            kind, carried = int(ev_kind[i] & KIND_MASK), int(ev_kind[i] & CARRIED)
            size, route = ev_size[i], ev_route[i]
            if kind in (TEXT, TABLE_MAP):
                _see_head(cs, kind, carried, i)
            elif kind == FRAME:
                if cs[BEGUN] and not carried:
                    if at + size > len(out):
                        cs[OUT], cs[TX], cs[EVENT], cs[NEED] = at, t, i, size
                        return NEED_ROOM
                    copy(out, at, buf, ev_off[i], size)
                    at += size
                    cs[COPIED] += 1
            elif kind >= SAVEPOINT:
                cs[OUT], cs[TX], cs[EVENT] = at, t, i + 1
                return REMEMBER if kind == SAVEPOINT else UNDO
            elif route == ALL or (0 <= route < n_wants and wants[route]):
                # One unit: whatever must stand before this event, and the event.
                head_first = int(cs[_HEAD_FIRST])
                head = kind != DDL and head_first >= 0 and not cs[HEAD_DONE]
                text = head and _all_wanted(ev_kind, ev_route, wants, head_first, i)
                need = size
                if not cs[BEGUN]:
                    need += record_size
                    for j in range(tx_first[t], i):
                        if ev_kind[j] & KIND_MASK == FRAME:
                            need += ev_size[j]
                if head:
                    for j in range(head_first, i):
                        if _in_head(ev_kind[j], ev_route[j], wants, text):
                            need += ev_size[j]
                if at + need > len(out):
                    cs[OUT], cs[TX], cs[EVENT], cs[NEED] = at, t, i, need
                    return NEED_ROOM
                if not cs[BEGUN]:
                    cs[BEGUN], cs[RECORD] = 1, at
                    first = ev_off[tx_first[t]]
                    copy(out, at, record, 0, record_size)
                    copy(out, at, buf, first, 4)  # timestamp
                    copy(out, at + 5, buf, first + 5, 4)  # server id
                    _put(out, at + _COMMIT_AT, tx_commit_us[t], 8)
                    at += record_size
                    for j in range(tx_first[t], i):
                        if ev_kind[j] & KIND_MASK == FRAME:
                            copy(out, at, buf, ev_off[j], ev_size[j])
                            at += ev_size[j]
                            cs[COPIED] += 1
                if head:
                    for j in range(head_first, i):
                        if _in_head(ev_kind[j], ev_route[j], wants, text):
                            copy(out, at, buf, ev_off[j], ev_size[j])
                            at += ev_size[j]
                            cs[COPIED] += 1
                    cs[HEAD_DONE] = 1
                copy(out, at, buf, ev_off[i], size)
                if kind == ROWS:
                    cs[LAST_ROWS] = at
                elif kind == ROWS_END:
                    _reset_statement(cs)
                at += size
                cs[COPIED] += 1
            elif kind == ROWS_END:
                if cs[LAST_ROWS] == EARLIER:
                    cs[OUT], cs[TX], cs[EVENT] = at, t, i
                    return PATCH_ROWS
                if cs[LAST_ROWS] >= 0:
                    end_statement(out, cs[LAST_ROWS], checksum)
                _reset_statement(cs)
            i += 1
        if flags & OPEN:  # goes on in the next batch
            cs[OUT], cs[TX], cs[EVENT] = at, 0, -1
            return DONE
        seq = packed | tx_end[t] if packed >= 0 else cs[SEQ] + 1
        if cs[BEGUN]:
            if cs[RECORD] == EARLIER:
                cs[OUT], cs[TX], cs[EVENT] = at, t, i
                return PATCH_RECORD
            if cs[RECORD] >= 0:
                finish_record(out, cs[RECORD], record_size, seq, tx_end[t], checksum)
            n = cs[TAKEN]
            taken_tx[n], taken_end[n], taken_seq[n], taken_events[n] = t, at, seq, cs[COPIED] + 1
            cs[TAKEN] = n + 1
        cs[SEQ], cs[BEGUN], cs[EVENT] = seq, 0, -1
    cs[OUT], cs[TX] = at, 0
    return DONE
