"""Copy one consumer's share of a batch into its segment: the only copy that bytes make in the daemon.

What a consumer gets of a transaction: a record, the GTID, BEGIN, the statements' table maps and rows that are its own,
the commit. Everything that stands before the first row of its own (record, GTID, BEGIN; a statement's text and table
maps) is copied when that row comes, so a transaction or statement without any leaves no trace.

Statements stay whole: the last rows event that the consumer gets of a statement carries STMT_END_F, with a new
checksum where the flag had to be set; `mysqlbinlog` prints no row of a statement that does not end. The statement's
text goes along only if all of its tables are the consumer's.

A transaction, and even a statement, may span batches and segments. `Log` remembers what is needed between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dispatcher.binlog import events
from dispatcher.binlog.arrays import (
    ABORTED,
    CARRIED,
    CONTINUED,
    DDL,
    FRAME,
    KIND_MASK,
    OPEN,
    ROWS,
    ROWS_END,
    TABLE_MAP,
    TEXT,
    U8,
    I32,
    I64,
    Events,
    Transactions,
    u32,
)
from dispatcher.binlog.crc import crc32
from dispatcher.binlog.jit import inline, njit
from dispatcher.binlog.memory import copy
from dispatcher.binlog.routes import ALL
from dispatcher.binlog.scan import Batch
from dispatcher.model.position import SEQ_OFFSET_BITS, file_number

# The kernel's state. Offsets are into the segment in use; _EARLIER: in one before it; _NONE: there is none.
(_OUT, _TX, _EVENT, _BEGUN, _RECORD, _HEAD_DONE, _LAST_ROWS, _COPIED, _SEQ, _TAKEN, _HEAD_FIRST, _NEED,
 _MAPS_OPEN) = range(13)  # fmt: skip
_STATE_SIZE = 13
_NONE, _EARLIER = -1, -2

_DONE, _NEED_ROOM, _PATCH_RECORD, _PATCH_ROWS = range(4)

_LOG_POS = 13
_SEQ_AT = events.HEADER_SIZE + 8
_OFFSET_AT = events.HEADER_SIZE + 16
_COMMIT_AT = events.HEADER_SIZE + 24
_ROWS_FLAGS_AT = events.HEADER_SIZE + 6


@inline
def _put(out: U8, at: int, value: int, size: int) -> None:
    for i in range(size):
        out[at + i] = (value >> (8 * i)) & 0xFF


@njit
def end_statement(out: U8, at: int, checksum: int) -> None:
    """Set STMT_END_F on the rows event at out[at] and make its checksum right again."""
    size = u32(out, at + 9)
    out[at + _ROWS_FLAGS_AT] |= 1
    if checksum:
        _put(out, at + size - 4, crc32(out, at, at + size - 4), 4)


@njit
def finish_record(out: U8, at: int, size: int, seq: int, offset: int, checksum: int) -> None:
    """Write into the record at out[at] what is known only when its transaction ends."""
    _put(out, at + _LOG_POS, offset & 0xFFFFFFFF, 4)
    _put(out, at + _SEQ_AT, seq, 8)
    _put(out, at + _OFFSET_AT, offset, 8)
    if checksum:
        _put(out, at + size - 4, crc32(out, at, at + size - 4), 4)


@njit
def _kernel(
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
    taken_tx: I32,
    taken_end: I64,
    taken_seq: I64,
    taken_events: I32,
) -> int:
    """Go on at cs[_TX], cs[_EVENT]; returns _DONE or what Python must do before calling again.

    `packed` < 0: transactions are counted; else file number << 40, and `seq` is that with the end offset.
    """
    n_txs = len(tx.first)
    n_wants = len(wants)
    record_size = len(record)
    at = cs[_OUT]
    for t in range(cs[_TX], n_txs):
        flags = tx.flags[t]
        if cs[_EVENT] < 0:
            if flags & CONTINUED == 0:
                cs[_BEGUN], cs[_RECORD], cs[_LAST_ROWS], cs[_COPIED], cs[_HEAD_DONE] = (
                    0,
                    _NONE,
                    _NONE,
                    0,
                    0,
                )
            if skip[t]:
                continue
            cs[_EVENT] = tx.first[t]
            cs[_HEAD_FIRST], cs[_MAPS_OPEN] = -1, 0
        i = np.int64(cs[_EVENT])
        while i < tx.last[t]:
            kind = np.int64(ev.kind[i])
            carried = kind & CARRIED
            kind &= KIND_MASK
            if kind == TEXT or kind == TABLE_MAP:
                if cs[_HEAD_FIRST] < 0 or (kind == TEXT and cs[_MAPS_OPEN] == 0):
                    cs[_HEAD_FIRST] = i
                    if not carried:
                        cs[_HEAD_DONE] = 0
                if kind == TABLE_MAP:
                    cs[_MAPS_OPEN] = 1
                i += 1
                continue
            if kind == FRAME:
                if cs[_BEGUN] and not carried:
                    if at + ev.size[i] > len(out):
                        cs[_OUT], cs[_TX], cs[_EVENT], cs[_NEED] = at, t, i, ev.size[i]
                        return _NEED_ROOM
                    copy(out, at, buf, ev.off[i], ev.size[i])
                    at += ev.size[i]
                    cs[_COPIED] += 1
                i += 1
                continue
            route = ev.route[i]
            if route == ALL or (route >= 0 and route < n_wants and wants[route]):
                # One unit: whatever must stand before this event, and the event.
                need = np.int64(ev.size[i])
                if not cs[_BEGUN]:
                    need += record_size
                    for j in range(tx.first[t], i):
                        if ev.kind[j] & KIND_MASK == FRAME:
                            need += ev.size[j]
                head = kind != DDL and not cs[_HEAD_DONE] and cs[_HEAD_FIRST] >= 0
                text = True
                if head:
                    for j in range(cs[_HEAD_FIRST], i):
                        if ev.kind[j] & KIND_MASK == TABLE_MAP and not wants[ev.route[j]]:
                            text = False
                    for j in range(cs[_HEAD_FIRST], i):
                        k = ev.kind[j] & KIND_MASK
                        if (k == TEXT and text) or (k == TABLE_MAP and wants[ev.route[j]]):
                            need += ev.size[j]
                if at + need > len(out):
                    cs[_OUT], cs[_TX], cs[_EVENT], cs[_NEED] = at, t, i, need
                    return _NEED_ROOM
                if not cs[_BEGUN]:
                    cs[_BEGUN], cs[_RECORD] = 1, at
                    copy(out, at, record, 0, record_size)
                    copy(out, at, buf, ev.off[tx.first[t]], 4)  # timestamp
                    copy(out, at + 5, buf, ev.off[tx.first[t]] + 5, 4)  # server id
                    _put(out, at + _COMMIT_AT, tx.commit_us[t], 8)
                    at += record_size
                    for j in range(tx.first[t], i):
                        if ev.kind[j] & KIND_MASK == FRAME:
                            copy(out, at, buf, ev.off[j], ev.size[j])
                            at += ev.size[j]
                            cs[_COPIED] += 1
                if head:
                    for j in range(cs[_HEAD_FIRST], i):
                        k = ev.kind[j] & KIND_MASK
                        if (k == TEXT and text) or (k == TABLE_MAP and wants[ev.route[j]]):
                            copy(out, at, buf, ev.off[j], ev.size[j])
                            at += ev.size[j]
                            cs[_COPIED] += 1
                    cs[_HEAD_DONE] = 1
                copy(out, at, buf, ev.off[i], ev.size[i])
                if kind == ROWS:
                    cs[_LAST_ROWS] = at
                at += ev.size[i]
                cs[_COPIED] += 1
                if kind == ROWS_END:
                    cs[_LAST_ROWS], cs[_HEAD_FIRST], cs[_HEAD_DONE], cs[_MAPS_OPEN] = (
                        _NONE,
                        -1,
                        0,
                        0,
                    )
            elif kind == ROWS_END:
                if cs[_LAST_ROWS] == _EARLIER:
                    cs[_OUT], cs[_TX], cs[_EVENT] = at, t, i
                    return _PATCH_ROWS
                if cs[_LAST_ROWS] >= 0:
                    end_statement(out, cs[_LAST_ROWS], checksum)
                cs[_LAST_ROWS], cs[_HEAD_FIRST], cs[_HEAD_DONE], cs[_MAPS_OPEN] = _NONE, -1, 0, 0
            i += 1
        if flags & OPEN:  # goes on in the next batch
            cs[_OUT], cs[_TX], cs[_EVENT] = at, 0, -1
            return _DONE
        seq = cs[_SEQ] + 1
        if packed >= 0:
            seq = packed | tx.end[t]
        if cs[_BEGUN]:
            if cs[_RECORD] == _EARLIER:
                cs[_OUT], cs[_TX], cs[_EVENT] = at, t, i
                return _PATCH_RECORD
            if cs[_RECORD] >= 0:
                finish_record(out, cs[_RECORD], record_size, seq, tx.end[t], checksum)
            n = cs[_TAKEN]
            taken_tx[n], taken_end[n], taken_seq[n], taken_events[n] = t, at, seq, cs[_COPIED] + 1
            cs[_TAKEN] = n + 1
        cs[_SEQ], cs[_BEGUN], cs[_EVENT] = seq, 0, -1
    cs[_OUT], cs[_TX] = at, 0
    return _DONE


@dataclass(slots=True)
class Taken:
    """Transactions that became complete: index in the batch's arrays, logical end, seq, number of events copied."""

    tx: I32
    end: I64
    seq: I64
    events: I32


class Log:
    """One consumer's bytes, written once and read by *logical* offset (bytes since the log was made).

    Made of segments of at most `segment_max` bytes, smaller while there is little to hold, or as large as one unit
    that does not fit. `allocated` counts them whole: that is what they cost. Behind `committed` lie the bytes of a
    transaction that is not complete; `rollback()` drops them.
    """

    SEGMENT_MIN = 1 << 14

    def __init__(self, segment_max: int = 1 << 20) -> None:
        self.committed = 0
        self.allocated = 0
        self._segment_max = max(segment_max, self.SEGMENT_MIN)
        self._segments: list[tuple[int, U8]] = []  # (logical offset of its first byte, bytes)
        self._end = 0
        self._cs: I64 = np.zeros(_STATE_SIZE, dtype=np.int64)
        self._cs[_EVENT] = -1
        self._record_at = self._rows_at = (
            _NONE  # logical offsets, where the kernel knows them as _EARLIER
        )
        self._index = (
            np.empty(0, dtype=np.int32),
            np.empty(0, dtype=np.int64),
            np.empty(0, dtype=np.int64),
            np.empty(0, dtype=np.int32),
        )

    # -- writing ---------------------------------------------------------------------------------------------

    def take(
        self, batch: Batch, wants: U8, skip: U8 | None, *, epoch: int, seq: int, packed: bool
    ) -> tuple[Taken, int]:
        """Copy what is wanted of `batch`; returns the transactions completed and the seq after all of them.

        `wants`: one byte per route. `skip`: one byte per transaction, 1 = the consumer has it already. `seq`: of the
        last transaction before the batch. `packed`: number by file and offset instead of counting.
        """
        n = len(batch.tx.first)
        if any(batch.tx.flags & ABORTED):
            if batch.tx.flags[0] & ABORTED and batch.tx.flags[0] & CONTINUED:
                self.rollback()
            aborted: U8 = ((batch.tx.flags & ABORTED) > 0).astype(np.uint8)
            skip = aborted if skip is None else aborted | skip
        if skip is None:
            skip = np.zeros(n, dtype=np.uint8)
        if len(self._index[0]) < n:
            self._index = (
                np.empty(n, dtype=np.int32),
                np.empty(n, dtype=np.int64),
                np.empty(n, dtype=np.int64),
                np.empty(n, dtype=np.int32),
            )
        checksum = int(batch.format.checksum)
        record = np.frombuffer(self._record(batch, epoch), dtype=np.uint8).copy()
        high = file_number(batch.file) << SEQ_OFFSET_BITS if packed else -1
        cs = self._cs
        cs[_SEQ], cs[_TAKEN], cs[_TX], cs[_EVENT] = seq, 0, 0, -1
        tx, end, seqs, events_ = self._index
        indexed = 0
        while True:
            base, segment = self._segments[-1] if self._segments else (self._end, record[:0])
            cs[_OUT] = self._end - base
            code = _kernel(
                batch.buf, batch.ev, batch.tx, wants, skip, record, checksum, high, segment, cs, tx, end, seqs, events_,
            )  # fmt: skip
            self._end = base + int(cs[_OUT])
            end[indexed : cs[_TAKEN]] += base
            indexed = int(cs[_TAKEN])
            if code == _DONE:
                break
            if code == _NEED_ROOM:
                self._new_segment(int(cs[_NEED]))
            elif code == _PATCH_ROWS:
                array, at = self._at(self._rows_at)
                end_statement(array, at, checksum)
                cs[_LAST_ROWS] = _NONE
            else:
                array, at = self._at(self._record_at)
                t = int(cs[_TX])
                done = high | int(batch.tx.end[t]) if packed else int(cs[_SEQ]) + 1
                finish_record(array, at, len(record), done, int(batch.tx.end[t]), checksum)
                cs[_RECORD] = _NONE
        if indexed:
            self.committed = int(end[indexed - 1])
        taken = Taken(
            tx[:indexed].copy(),
            end[:indexed].copy(),
            seqs[:indexed].copy(),
            events_[:indexed].copy(),
        )
        return taken, int(cs[_SEQ])

    def rollback(self) -> None:
        """Drop the bytes of the transaction that is not complete."""
        while self._segments and self._segments[-1][0] >= self.committed:
            self.allocated -= len(self._segments.pop()[1])
        self._end = self.committed
        cs = self._cs
        cs[_BEGUN], cs[_RECORD], cs[_LAST_ROWS], cs[_COPIED], cs[_HEAD_DONE] = 0, _NONE, _NONE, 0, 0

    @property
    def open_bytes(self) -> int:
        """Bytes of the transaction that is not complete."""
        return self._end - self.committed

    @staticmethod
    def _record(batch: Batch, epoch: int) -> bytes:
        # Seq, offset and times come per transaction; what is left is the same for all of a batch.
        return events.encode_record(
            events.Record(epoch, 0, batch.file, 0, 0, 0), checksum=batch.format.checksum
        )

    def _new_segment(self, need: int) -> None:
        size = self.SEGMENT_MIN
        if self._segments:
            base, last = self._segments[-1]
            size = min(2 * len(last), self._segment_max)
            cs = self._cs
            if cs[_RECORD] >= 0:
                self._record_at, cs[_RECORD] = base + int(cs[_RECORD]), _EARLIER
            if cs[_LAST_ROWS] >= 0:
                self._rows_at, cs[_LAST_ROWS] = base + int(cs[_LAST_ROWS]), _EARLIER
            if self._end == base:  # nothing was written into it
                self.allocated -= len(self._segments.pop()[1])
        segment: U8 = np.empty(max(size, need), dtype=np.uint8)
        self._segments.append((self._end, segment))
        self.allocated += len(segment)

    def _at(self, logical: int) -> tuple[U8, int]:
        for base, segment in reversed(self._segments):
            if base <= logical:
                return segment, logical - base
        raise AssertionError(f"logical offset {logical} was dropped while it was in use")

    # -- reading ---------------------------------------------------------------------------------------------

    def read(self, start: int, end: int) -> list[memoryview]:
        """The bytes [start, end) by logical offset, without a copy. Views stay valid when the log drops them."""
        out = []
        for i, (base, segment) in enumerate(self._segments):
            limit = self._segments[i + 1][0] if i + 1 < len(self._segments) else self._end
            lo, hi = max(start, base), min(end, limit)
            if lo < hi:
                out.append(memoryview(segment)[lo - base : hi - base])  # type: ignore[arg-type]
        return out

    def drop(self, before: int) -> None:
        """Forget everything below a logical offset that is the end of a transaction."""
        keep = 0
        while keep < len(self._segments):
            limit = self._segments[keep + 1][0] if keep + 1 < len(self._segments) else self._end
            if limit > before:
                break
            keep += 1
        for _, segment in self._segments[:keep]:
            self.allocated -= len(segment)
        del self._segments[:keep]
