"""The kernel that copies, for each consumer, the bytes that this consumer gets of a batch (its share). `consumer_log`
describes which bytes these are, and why.

One call copies for many consumers, because a call costs as much as copying dozens of transactions. A *lane* is one of
the consumers of a call. A *visit* is a transaction of the batch that the kernel must process for a lane. The *head* of
a statement is its text and its table maps. A *frame event* is a GTID, BEGIN, XID or COMMIT.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.event import header
from dispatcher.binlog.event.record import COMMIT_US_AT, EPOCH_AT, OFFSET_AT, SEQ_AT
from dispatcher.binlog.kernel.bytes import I32, I64, U8, u32
from dispatcher.binlog.kernel.crc import crc32
from dispatcher.binlog.kernel.intrinsics import bytes_at, copy, integers_at
from dispatcher.binlog.kernel.jit import njit, part
from dispatcher.stream.batch import (
    CARRIED,
    CONTINUED,
    DDL,
    FRAME,
    KIND_MASK,
    OPEN,
    ROWS,
    ROWS_END,
    SAVEPOINT,
    TABLE_MAP,
    TEXT,
    Events,
    Transactions,
)
from dispatcher.stream.routes import ALL

# The state between calls is an array of integers. Each name below is the index of an element. Offsets are relative to
# the segment in use.
OUT = 0  # offset of the next byte to be written
VISIT = 1  # index in `visits` of the transaction to continue with
EVENT = 2  # index of the event to continue with; -1 = the transaction is not begun
BEGUN = 3  # 1 if the open transaction's beginning was copied
RECORD = 4  # offset of the open transaction's record; or NONE; or EARLIER
LAST_ROWS = 5  # offset of the open statement's last rows event; or NONE; or EARLIER
COPIED = 6  # number of copied events of the open transaction
SAVEPOINTS = 7  # number of the open transaction's savepoints that `ConsumerLog` stores
COMPLETE = 8  # number of the batch's transactions that became complete
NEED = 9  # with NEED_ROOM: how many bytes the kernel must write next
HEAD_DONE = 10  # 1 if the open statement's head was copied
_HEAD_FIRST = 11  # index of the head's first event, -1 = none
_MAPS_OPEN = 12  # 1 if the head contains a table map
# The next elements are logical offsets (bytes since the log was made), except MAPS_EVENT, IN_HEAD, ROOM_AT and ROOM.
BASE = 13  # where the segment in use begins
CUT_FROM = 14  # at and after this offset, the open transaction may be cut before a rows event
BEGINNING_END = 15  # end of the open transaction's record, GTID and BEGIN
MAPS = 16  # beginning of the table maps in force
MAPS_END = 17
MAPS_EVENT = 18  # index of the first of these table maps, -1 = no table map
IN_HEAD = 19  # with CUT: 1 if a statement's head follows
ROOM_AT = 20  # address of the segment in use
ROOM = 21  # how many bytes of that segment may be written
# The queue's index, into which `_keep` copies the columns of complete transactions:
KEEP_AT = 22  # address of the index's columns
KEEP_ROOM = 23  # how many columns the index has room for
KEPT = 24  # how many columns the index has
KEEP_PLACE = 25  # the value for the row TX of these columns
STATE_SIZE = 26

NONE = -1
EARLIER = -2  # the offset lies in an earlier segment

# Why the kernel returned to Python.
DONE, NEED_ROOM, PATCH_RECORD, PATCH_ROWS, REMEMBER, UNDO, CUT = range(7)

# A lane's row in `lanes`: address of its log's state, address and size of its mask (one byte per route), epoch of its
# records.
STATE_AT, MASK_AT, MASK_SIZE, EPOCH = range(4)
LANE_SIZE = 4

# Rows of `done`, which has a column for each visit that completes a transaction: the transaction's logical end, seq,
# end offset in the file, number of copied events, commit time in microseconds since 1970 UTC, index in the batch,
# number of its GTID plus 1.
END, SEQ, OFFSET, EVENTS, COMMIT_US, TX, NUMBER_END = range(7)
DONE_SIZE = 7

# A lane's totals: number of its completed transactions, logical end of the last of them, number of events of all of
# them, commit time of the last of them, 1 if `_keep` had room for their columns.
COUNT, LAST_END, EVENTS_COUNT, LAST_COMMIT_US, KEPT_COLUMNS = range(5)
TOTALS_SIZE = 5

_ROWS_FLAGS_AT = header.HEADER_SIZE + header.ROWS_FLAGS_AT


@part
def _put(out: U8, at: int, value: int, size: int) -> None:
    for i in range(size):
        out[at + i] = (value >> (8 * i)) & 0xFF


@part
def _put_checksum(out: U8, at: int, size: int, checksum: int) -> None:
    """If `checksum` is 1, write the checksum of the event of `size` bytes at out[at]."""
    if checksum:
        end = at + size - header.CHECKSUM_SIZE
        _put(out, end, crc32(out, at, end), header.CHECKSUM_SIZE)


@part
def end_statement(out: U8, at: int, checksum: int) -> None:
    """Set STMT_END_F on the rows event at out[at] and rewrite its checksum."""
    out[at + _ROWS_FLAGS_AT] |= header.STMT_END_F
    _put_checksum(out, at, u32(out, at + header.SIZE_AT), checksum)


@part
def finish_record(out: U8, at: int, size: int, seq: int, offset: int, checksum: int) -> None:
    """Write into the record at out[at] the values that are known only when its transaction ends."""
    _put(out, at + header.LOG_POS_AT, offset & 0xFFFFFFFF, 4)
    _put(out, at + SEQ_AT, seq, 8)
    _put(out, at + OFFSET_AT, offset, 8)
    _put_checksum(out, at, size, checksum)


@part
def _reset_statement(cs: I64) -> None:
    cs[LAST_ROWS], cs[_HEAD_FIRST], cs[HEAD_DONE], cs[_MAPS_OPEN] = NONE, -1, 0, 0


@part
def _all_wanted(kinds: U8, routes: I32, route_mask: U8, lo: int, hi: int) -> bool:
    """True if the consumer reads the tables of all table maps in a statement's head."""
    for j in range(lo, hi):  # noqa: SIM110 - a kernel knows no generators
        if kinds[j] & KIND_MASK == TABLE_MAP and not route_mask[routes[j]]:
            return False
    return True


@part
def _in_head(kind: int, route: int, route_mask: U8, text: bool) -> bool:
    """True if the consumer gets this event of a statement's head."""
    kind &= KIND_MASK
    return (kind == TEXT and text) or (kind == TABLE_MAP and route_mask[route] == 1)


@part
def _note_head(cs: I64, kind: int, carried: int, i: int) -> None:
    """Record where the head of a statement begins."""
    if cs[_HEAD_FIRST] < 0 or (kind == TEXT and cs[_MAPS_OPEN] == 0):
        cs[_HEAD_FIRST] = i
        if not carried:
            cs[HEAD_DONE] = 0
    if kind == TABLE_MAP:
        cs[_MAPS_OPEN] = 1


@part
def _copy_event(out: U8, cs: I64, buf: U8, off: int, size: int) -> None:
    copy(out, cs[OUT], buf, off, size)
    cs[OUT] += size
    cs[COPIED] += 1


@part
def _begin(cs: I64, flags: int, first: int) -> None:
    """Prepare the state for a transaction of the batch."""
    continued = flags & CONTINUED
    if not (continued and cs[BEGUN]):
        # If the transaction begins in this batch, or the lane has copied nothing of it, the state belongs to an earlier
        # transaction.
        cs[BEGUN], cs[RECORD], cs[LAST_ROWS], cs[COPIED], cs[HEAD_DONE] = 0, NONE, NONE, 0, 0
    if not continued:
        cs[SAVEPOINTS] = 0
    cs[EVENT], cs[_HEAD_FIRST], cs[_MAPS_OPEN] = first, -1, 0


@part
def _unit_bytes(  # noqa: PLR0913 - kernels take arrays one by one, see `copy_share`
    cs: I64,
    size: I64,
    kind: U8,
    route: I32,
    route_mask: U8,
    record_size: int,
    first: int,
    i: int,
    head: int,
    text: bool,
) -> int:
    """Return the size of a *unit*: the rows or DDL event `i`, and what must be copied before it.

    `first`: index of the transaction's first event. `head`: index of the first event of the statement's head, -1 if no
    head must be copied. `text`: True if the statement's text must be copied.
    """
    need = int(size[i])
    if not cs[BEGUN]:
        need += record_size
        for j in range(first, i):
            if kind[j] & KIND_MASK == FRAME:
                need += int(size[j])
    if head >= 0:
        for j in range(head, i):
            if _in_head(kind[j], route[j], route_mask, text):
                need += int(size[j])
    return need


@part
def _copy_beginning(  # noqa: PLR0913 - as above
    out: U8,
    cs: I64,
    buf: U8,
    off: I64,
    size: I64,
    kind: U8,
    record: U8,
    epoch: int,
    commit_us: int,
    first: int,
    i: int,
    cut_bytes: int,
) -> None:
    """Copy the record and the frame events before event `i`."""
    at = cs[OUT]
    cs[BEGUN], cs[RECORD] = 1, at
    copy(out, at, record, 0, len(record))
    _put(out, at + EPOCH_AT, epoch, 4)
    copy(out, at + header.TIMESTAMP_AT, buf, off[first] + header.TIMESTAMP_AT, 4)
    copy(out, at + header.SERVER_ID_AT, buf, off[first] + header.SERVER_ID_AT, 4)
    _put(out, at + COMMIT_US_AT, commit_us, 8)
    cs[OUT] = at + len(record)
    for j in range(first, i):
        if kind[j] & KIND_MASK == FRAME:
            _copy_event(out, cs, buf, off[j], size[j])
    cs[BEGINNING_END] = cs[BASE] + cs[OUT]
    cs[MAPS_EVENT] = -1
    cs[CUT_FROM] = cs[BEGINNING_END] + cut_bytes


@part
def _note_map(cs: I64, kind: int) -> None:
    """Record where the table maps of a statement begin. The kernel calls this before it copies each event of the
    head."""
    if cs[MAPS_EVENT] < 0 and kind & KIND_MASK == TABLE_MAP:
        cs[MAPS], cs[MAPS_EVENT] = cs[BASE] + cs[OUT], cs[COPIED]


@part
def _finish(out: U8, cs: I64, end: int, seq: int, record_size: int, checksum: int) -> bool:
    """Finish the record of a transaction. Return False if the record is in an earlier segment; then Python must finish
    the record."""
    if cs[RECORD] == EARLIER:
        return False
    if cs[RECORD] >= 0:
        finish_record(out, cs[RECORD], record_size, seq, end, checksum)
    return True


@part
def _copy_share(  # noqa: C901, PLR0912, PLR0913, PLR0915 - one branch per kind of event, one array per parameter
    buf: U8,
    off: I64,
    size: I64,
    kinds: U8,
    route: I32,
    first: I32,
    last: I32,
    flags: U8,
    gno: I64,
    end: I64,
    commit_us: I64,
    seqs: I64,
    visits: I32,
    begin: int,
    stop: int,
    route_mask: U8,
    epoch: int,
    record: U8,
    checksum: int,
    cut_bytes: int,
    out: U8,
    cs: I64,
    done: I64,
) -> int:
    """Copy one lane's share, beginning at cs[VISIT] and cs[EVENT]; see `copy_shares`. The lane's visits are [begin,
    stop)."""
    for v in range(cs[VISIT], stop):
        cs[VISIT], t = v, visits[v]
        if cs[EVENT] < 0:
            _begin(cs, flags[t], first[t])
        for i in range(cs[EVENT], last[t]):
            cs[EVENT] = i
            kind, carried = int(kinds[i] & KIND_MASK), int(kinds[i] & CARRIED)
            if kind in (TEXT, TABLE_MAP):
                _note_head(cs, kind, carried, i)
            elif kind == FRAME:
                if cs[BEGUN] and not carried:
                    if cs[OUT] + size[i] > len(out):
                        cs[NEED] = size[i]
                        return NEED_ROOM
                    _copy_event(out, cs, buf, off[i], size[i])
            elif kind >= SAVEPOINT:
                cs[EVENT] = i + 1
                return REMEMBER if kind == SAVEPOINT else UNDO
            elif route[i] == ALL or (0 <= route[i] < len(route_mask) and route_mask[route[i]]):
                head = cs[_HEAD_FIRST] if kind != DDL and not cs[HEAD_DONE] else -1
                if cs[BEGUN] and kind != DDL and cs[BASE] + cs[OUT] >= cs[CUT_FROM]:
                    cs[IN_HEAD] = 1 if head >= 0 else 0
                    return CUT
                text = head >= 0 and _all_wanted(kinds, route, route_mask, head, i)
                need = _unit_bytes(
                    cs, size, kinds, route, route_mask, len(record), first[t], i, head, text
                )
                if cs[OUT] + need > len(out):
                    cs[NEED] = need
                    return NEED_ROOM
                if not cs[BEGUN]:
                    _copy_beginning(
                        out,
                        cs,
                        buf,
                        off,
                        size,
                        kinds,
                        record,
                        epoch,
                        commit_us[t],
                        first[t],
                        i,
                        cut_bytes,
                    )
                if head >= 0:
                    cs[MAPS_EVENT] = -1
                    for j in range(head, i):
                        if _in_head(kinds[j], route[j], route_mask, text):
                            _note_map(cs, kinds[j])
                            _copy_event(out, cs, buf, off[j], size[j])
                    cs[MAPS_END], cs[HEAD_DONE] = cs[BASE] + cs[OUT], 1
                if kind == ROWS:
                    cs[LAST_ROWS] = cs[OUT]
                elif kind == ROWS_END:
                    _reset_statement(cs)
                _copy_event(out, cs, buf, off[i], size[i])
            elif kind == ROWS_END:
                if cs[LAST_ROWS] == EARLIER:
                    return PATCH_ROWS
                if cs[LAST_ROWS] >= 0:
                    end_statement(out, cs[LAST_ROWS], checksum)
                _reset_statement(cs)
        cs[EVENT] = last[t]
        if flags[t] & OPEN:  # the transaction continues in the next batch
            break
        if cs[BEGUN]:
            if not _finish(out, cs, end[t], seqs[t], len(record), checksum):
                return PATCH_RECORD
            n = begin + cs[COMPLETE]
            done[END, n], done[SEQ, n], done[OFFSET, n] = cs[BASE] + cs[OUT], seqs[t], end[t]
            done[EVENTS, n], done[COMMIT_US, n], done[TX, n] = cs[COPIED] + 1, commit_us[t], t
            done[NUMBER_END, n] = gno[t] + 1
            cs[COMPLETE] += 1
        cs[BEGUN], cs[SAVEPOINTS], cs[EVENT] = 0, 0, -1
    cs[EVENT] = -1
    return DONE


@part
def _sum_up(totals: I64, done: NDArray[np.int64], begin: int, count: int) -> None:
    events = 0
    for n in range(begin, begin + count):
        events += done[EVENTS, n]
    totals[COUNT], totals[EVENTS_COUNT] = count, events
    if count:
        last = begin + count - 1
        totals[LAST_END], totals[LAST_COMMIT_US] = done[END, last], done[COMMIT_US, last]


@part
def _keep(cs: I64, done: NDArray[np.int64], begin: int, count: int) -> int:
    """Append the columns of `count` transactions, beginning with column `begin`, to the lane's index. Return 0 if the
    index has no room."""
    room, kept = cs[KEEP_ROOM], cs[KEPT]
    if kept + count > room:
        return 0
    columns = integers_at(cs[KEEP_AT], DONE_SIZE * room)
    for field in range(DONE_SIZE):
        for n in range(count):
            columns[field * room + kept + n] = (
                cs[KEEP_PLACE] if field == TX else done[field, begin + n]
            )
    cs[KEPT] = kept + count
    return 1


@njit
def copy_shares(  # noqa: PLR0913 - kernels take arrays one by one
    buf: U8,
    ev: Events,
    tx: Transactions,
    seqs: I64,
    lanes: NDArray[np.int64],
    todo: I32,
    resumed: bool,
    starts: I32,
    visits: I32,
    record: U8,
    checksum: int,
    cut_bytes: int,
    done: NDArray[np.int64],
    codes: I32,
    totals: NDArray[np.int64],
) -> int:
    """Copy the shares of the lanes `todo`. Return how many lanes are not done.

    The kernel sets each lane's entry in `codes` to DONE, or to what Python must do for the lane. After that, Python
    calls the kernel again, with `resumed`, for the lanes that are not done. (REMEMBER and UNDO refer to the event
    before cs[EVENT].) When a lane is done, the kernel fills the lane's row of `totals`.

    `seqs`: the seq of each transaction of the batch. `visits`: the transactions to be copied; the visits of lane n are
    visits[starts[n] : starts[n + 1]], and `done` has a column for each visit. `record`: the record to copy, with epoch
    0. `cut_bytes`: a lane's code becomes CUT before the first rows event that lies at least this many bytes after the
    transaction's record, GTID and BEGIN.
    """
    # Taking an array out of a tuple changes the array's reference count atomically, twice. So the kernel takes the
    # arrays out once per call, not per lane.
    off, size, kinds, route = ev.off, ev.size, ev.kind, ev.route
    first, last, flags, gno = tx.first, tx.last, tx.flags, tx.gno
    end, commit_us = tx.end, tx.commit_us
    waiting = 0
    for n in range(len(todo)):
        lane = todo[n]
        cs = integers_at(lanes[lane, STATE_AT], STATE_SIZE)
        if not resumed:
            cs[VISIT], cs[EVENT], cs[COMPLETE] = starts[lane], -1, 0
        codes[lane] = _copy_share(
            buf, off, size, kinds, route, first, last, flags, gno, end, commit_us, seqs, visits, starts[lane],
            starts[lane + 1], bytes_at(lanes[lane, MASK_AT], lanes[lane, MASK_SIZE]), lanes[lane, EPOCH], record,
            checksum, cut_bytes, bytes_at(cs[ROOM_AT], cs[ROOM]), cs, done,
        )  # fmt: skip
        if codes[lane] == DONE:
            _sum_up(totals[lane], done, starts[lane], cs[COMPLETE])
            if cs[COMPLETE]:
                totals[lane, KEPT_COLUMNS] = _keep(cs, done, starts[lane], cs[COMPLETE])
        else:
            waiting += 1
    return waiting
