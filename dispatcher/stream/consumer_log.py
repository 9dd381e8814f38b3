"""Holds the bytes of the log that one consumer gets, in *segments* (blocks of memory, or of a file). The kernel
`copy_kernel` copies the bytes that a consumer gets of a batch (the consumer's *share*) into the segments of this
consumer. No other code copies bytes of the log for a consumer.

A consumer's share of a transaction is a record (the event that the daemon adds before a transaction), the GTID, BEGIN,
the table maps and rows of the consumer's tables, and the commit. The kernel copies the record, GTID and BEGIN together
with the transaction's first rows for the consumer. It copies a statement's text and table maps together with the
statement's first rows for the consumer. So a transaction or a statement without rows for the consumer adds no byte.

The last rows event that the consumer gets of a statement always has the flag STMT_END_F, because `mysqlbinlog` prints
no rows of a statement before it reads this flag. If the daemon has to set the flag, it also writes a new checksum. The
text of a statement is copied only if the consumer reads all tables of the statement.

The bytes of a transaction that ends with ROLLBACK are dropped, and the transaction counts as a transaction without
events for the consumer. ROLLBACK TO drops the bytes after the savepoint.

A transaction, and even a statement, may span batches and segments. `ConsumerLog` keeps the state between two batches.

If a transaction needs more than `large_bytes` of memory, its further bytes are copied to *spilled* segments, which the
log's allocator maps to files. The same code copies, reads and drops spilled segments and segments in memory. The
transactions after the large one are copied to memory again. The rejected alternative was to write and read files
without mapping them. This would need a second implementation of reading, of rollbacks, and of changing bytes that were
already written (STMT_END_F, the record).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.event.header import EventHeader
from dispatcher.binlog.event.record import NAME_SIZE_AT, RECORD_SIZE, continued_record
from dispatcher.binlog.kernel.bytes import I64, U8
from dispatcher.model.position import packed_seq
from dispatcher.stream import copy_kernel as k
from dispatcher.stream.batch import ABORTED, OPEN, ROLLED_BACK, Batch
from dispatcher.stream.copying import (
    Appended,
    CopiedShares,
    Dealt,
    append_shares,
    roll_back_aborted,
)
from dispatcher.stream.cut_points import CutPoint, CutPoints
from dispatcher.stream.segments import SEGMENT_POOL, Allocate, DroppedSegments, release_pages


class Savepoint(NamedTuple):
    """The state of the open transaction at a savepoint. `end`: logical offset of the transaction's end; `begun`: 1 if
    its beginning was copied; `record`: logical offset of its record; `copied`: number of its events that were
    copied."""

    end: int
    begun: int
    record: int
    copied: int


class Segment(NamedTuple):
    """Bytes of a log. `base`: logical offset of the first byte; `spilled`: True if the bytes are in a file."""

    base: int
    bytes: U8
    spilled: bool = False


class ConsumerLog:
    """One consumer's bytes, written once and read by *logical* offset (bytes since the log was made).

    The log consists of segments. A new segment in memory has twice the size of the segment before it, from
    `SEGMENT_MIN` up to `segment_max` bytes. If the log is empty, the new segment has half the size of the last segment.
    So a consumer that gets much data has large segments, and a consumer that gets little data soon has small segments.
    A segment is larger than `segment_max` only if it must hold a larger *unit*: a rows or DDL event, together with the
    events that must be copied before it.

    `allocated` counts the bytes of whole segments in memory, including dropped segments of which a reader still has
    views. `spilled` counts the bytes of the segments in files. The bytes at and after logical offset `committed` belong
    to an incomplete transaction. `rollback()` drops these bytes, even after `allocate` has raised an error.

    Bounds: an `append` of n bytes begins segments in memory of at most 2 * n + `segment_max` bytes in total, because
    the unused rest of a segment is smaller than the unit that begins the next segment. If the log has an `allocate`,
    the segments in memory that contain a part of the open transaction have at most `large_bytes` bytes in total.
    """

    SEGMENT_MIN = 1 << 14
    # A new spilled segment is as large as the bytes that were copied of the transaction so far, within these bounds.
    # So a transaction has few spilled segments.
    SPILLED_MIN, SPILLED_MAX = 1 << 22, 1 << 26
    # A reader sends a spilled segment in pieces of this size, and releases the pages of each piece after sending it.
    PIECE = 1 << 20
    CUT_BYTES = 1 << 18  # the least distance between two places where a transaction may be cut

    def __init__(
        self, segment_max: int = 1 << 20, *, allocate: Allocate | None = None, large_bytes: int = 0
    ) -> None:
        self.committed = 0
        self.kept = 0
        self._dropped = DroppedSegments()
        self.spilled = 0
        self.spilled_end = 0  # logical end of the newest complete transaction that was spilled
        self._segment_max = max(segment_max, self.SEGMENT_MIN)
        self._allocate = allocate
        self._large_bytes = large_bytes
        self._segments: list[Segment] = []
        self._spilled_from = -1  # where the open transaction's spilled part begins
        self._last_size = 0  # planned size of the newest segment in memory, even if it was dropped
        self._dropped_to = 0
        self._cs: I64 = np.zeros(k.STATE_SIZE, dtype=np.int64)
        self._cs[k.EVENT] = -1
        self._columns: NDArray[np.int64] | None = None
        self.state_at: int = self._cs.ctypes.data  # address of the kernel's state
        self._savepoints: dict[int, Savepoint] = {}  # the savepoints of the open transaction
        self._record_at = self._rows_at = 0  # the logical offsets for which the state has EARLIER
        self._noted = 0  # number of complete transactions when the kernel returned last
        self._new_spilled_end = 0  # the new `spilled_end`, which `finish` sets
        self.cut_points = CutPoints()
        self._use_last_segment()

    # -- writing ---------------------------------------------------------------------------------------------

    @property
    def _end(self) -> int:
        """Logical offset of the next byte."""
        return int(self._cs[k.BASE] + self._cs[k.OUT])

    def append(
        self,
        batch: Batch,
        route_mask: U8,
        already_executed: U8 | None,
        *,
        epoch: int,
        seq: int,
        packed: bool,
        gains: I64 | None = None,
    ) -> tuple[Appended, int]:
        """Copy the consumer's share of `batch`. Return the completed transactions, and the `seq` of the batch's last
        transaction.

        `route_mask`: one byte per route, 1 = the consumer reads at least one table of the route. `already_executed`:
        one byte per transaction, 1 = the consumer already has the transaction. `seq`: the seq of the last transaction
        before the batch. `packed`: True if the seq of a transaction is made of the file's number and the offset, False
        if it is counted. `gains`: by how much each transaction increases the count, None if each transaction increases
        it by 1. Raises the errors of `allocate`. After such an error `committed` is unchanged, and the caller must call
        `rollback()`.
        """
        flags = batch.tx.flags
        counted = (flags & (OPEN | ABORTED)) == 0
        taken = (flags & (ABORTED | ROLLED_BACK)) == 0
        if already_executed is not None:
            counted &= already_executed == 0
            taken &= already_executed == 0
        if packed:
            seqs = batch.tx.end | packed_seq(batch.file, 0)
        else:
            seqs = seq + np.cumsum(counted if gains is None else counted * gains)
        visits = np.flatnonzero(taken).astype(np.int32)
        starts = np.array((0, len(visits)), dtype=np.int32)
        lanes = np.array([self.lane(route_mask, epoch)], dtype=np.int64)
        roll_back_aborted(batch, [self])
        dealt = Dealt(starts, visits, np.zeros(1, dtype=np.int32))
        copied = append_shares(batch, seqs, [self], lanes, dealt, self.CUT_BYTES)
        if copied.failures:
            raise copied.failures[0]
        return copied.appended(0), int(seqs[counted][-1]) if counted.any() else seq

    def lane(self, route_mask: U8, epoch: int) -> tuple[int, int, int, int]:
        """Return this log's row for the kernels (see `STATE_AT` in `copy_kernel`). The row contains addresses, so the
        log and the mask must live longer than the row."""
        return self.state_at, route_mask.ctypes.data, len(route_mask), epoch

    def answer(self, code: int, batch: Batch, copying: CopiedShares, begin: int) -> None:
        """Do what the kernel asks for with `code`: make room, set a savepoint, return to a savepoint, record a cut
        point, or patch an event in an earlier segment. `begin`: index of the log's first entry in `copying.visits`.
        Raises the errors of `allocate`."""
        cs, checksum, ends = self._cs, int(batch.format.checksum), copying.done[k.END, begin:]
        self._note_complete(ends)
        if code == k.NEED_ROOM:
            open_from = int(ends[self._noted - 1]) if self._noted else self.committed
            self._new_segment(int(cs[k.NEED]), open_from)
        elif code == k.REMEMBER:
            if not cs[k.SAVEPOINTS]:
                self._savepoints.clear()  # these savepoints belong to an earlier transaction
            cs[k.SAVEPOINTS] += 1
            self._savepoints[int(batch.ev.route[cs[k.EVENT] - 1])] = self._savepoint()
        elif code == k.UNDO:
            # If the savepoint is not known here, it was set in an earlier batch, before any byte of the transaction was
            # copied.
            known = self._savepoints if cs[k.SAVEPOINTS] else {}
            number = int(batch.ev.route[cs[k.EVENT] - 1])
            self._return_to(known.get(number, Savepoint(self.committed, 0, 0, 0)))
        elif code == k.CUT:
            self.cut_points.add(CutPoint.of_state(cs))
            cs[k.CUT_FROM] = self._end + self.CUT_BYTES
        elif code == k.PATCH_ROWS:
            k.end_statement(*self._at(self._rows_at), checksum)
            cs[k.LAST_ROWS] = k.NONE
        else:
            t = copying.visits[cs[k.VISIT]]
            seq, offset = int(copying.seqs[t]), int(batch.tx.end[t])
            k.finish_record(*self._at(self._record_at), len(copying.record), seq, offset, checksum)
            cs[k.RECORD] = k.NONE

    def _note_complete(self, ends: I64) -> None:
        """Record the transactions that became complete since the kernel returned last. `ends`: their logical ends."""
        complete = int(self._cs[k.COMPLETE])
        if self._spilled_from >= 0 and complete > self._noted:
            self._new_spilled_end, self._spilled_from = int(ends[self._noted]), -1
        self._noted = complete

    def finish(self, copying: CopiedShares, lane: int) -> None:
        """Move `committed` to the end of the last transaction that became complete."""
        totals = copying.totals[lane]
        if self.spilled:
            self._note_complete(copying.done[k.END, copying.starts[lane] :])
            self.spilled_end = self._new_spilled_end
        self._noted = 0
        if totals[k.COUNT]:
            self.committed = totals[k.LAST_END]
        if self._segments and self._segments[-1].spilled:
            release_pages(self._segments[-1].bytes)
            self._use_last_segment()

    def keep_columns(self, columns: NDArray[np.int64], count: int, place: int) -> None:
        """Let the kernel append the columns of the next transactions to `columns`, after the first `count`, while there
        is room. `place`: the value that the kernel writes into the row `TX` of these columns, in place of the index in
        the batch."""
        cs = self._cs
        self._columns = columns  # keep the array alive, because the kernel has its address
        cs[k.KEEP_AT], cs[k.KEEP_ROOM] = columns.ctypes.data, columns.shape[1]
        cs[k.KEPT], cs[k.KEEP_PLACE] = count, place

    def rollback(self) -> None:
        """Drop the bytes of the incomplete transaction. If a later batch continues the transaction, the carried events
        of that batch contain the transaction's beginning, which is then copied again."""
        self._cs[k.SAVEPOINTS] = self._noted = 0
        self._new_spilled_end = self.spilled_end
        self._return_to(Savepoint(self.committed, 0, 0, 0))
        # The last segment may hold only bytes below `_dropped_to` now.
        self.drop(self._dropped_to)

    def _savepoint(self) -> Savepoint:
        cs = self._cs
        record = int(cs[k.RECORD])
        at = self._segments[-1].base + record if record >= 0 else self._record_at
        return Savepoint(self._end, int(cs[k.BEGUN]), at, int(cs[k.COPIED]))

    def _return_to(self, savepoint: Savepoint) -> None:
        while self._segments and self._segments[-1].base >= savepoint.end:
            self._forget(self._segments.pop())
        if self._spilled_from >= savepoint.end:
            self._spilled_from = -1
        self._use_last_segment(savepoint.end)
        cs = self._cs
        cut_after = self.cut_points.cut_back(savepoint.end, int(cs[k.BEGINNING_END]))
        cs[k.CUT_FROM] = cut_after + self.CUT_BYTES
        cs[k.BEGUN], cs[k.COPIED] = savepoint.begun, savepoint.copied
        cs[k.RECORD], cs[k.LAST_ROWS], cs[k.HEAD_DONE] = k.NONE, k.NONE, 0
        if savepoint.begun:
            base, self._record_at = self._segments[-1].base, savepoint.record
            cs[k.RECORD] = savepoint.record - base if savepoint.record >= base else k.EARLIER

    def _use_last_segment(self, end: int | None = None) -> None:
        """Let the kernel write into the last segment. `end`: logical offset of the next byte; None: unchanged.

        If the last segment is spilled and its transaction is complete, the kernel gets no room in this segment, so
        later batches write no bytes into the segment.
        """
        cs = self._cs
        end = self._end if end is None else end
        base, segment, spilled = self._segments[-1] if self._segments else Segment(end, _NOTHING)
        cs[k.BASE], cs[k.OUT] = base, end - base
        full = spilled and self._spilled_from < 0 and not self._noted
        cs[k.ROOM_AT] = segment.ctypes.data
        cs[k.ROOM] = end - base if full or not self._segments else len(segment)

    def _new_segment(self, need: int, begin: int) -> None:
        """Begin a segment for at least `need` bytes. `begin`: logical offset of the open transaction."""
        size = self._last_size // 2
        if self._segments:
            base = self._segments[-1].base
            size = 2 * self._last_size
            cs = self._cs
            if cs[k.RECORD] >= 0:
                self._record_at, cs[k.RECORD] = base + int(cs[k.RECORD]), k.EARLIER
            if cs[k.LAST_ROWS] >= 0:
                self._rows_at, cs[k.LAST_ROWS] = base + int(cs[k.LAST_ROWS]), k.EARLIER
            if self._segments[-1].spilled:
                release_pages(self._segments[-1].bytes)
            if self._end == base:  # nothing was written into the segment
                self._forget(self._segments.pop())
        size = min(max(size, self.SEGMENT_MIN), self._segment_max)
        if self._allocate and self._is_large(begin, max(size, need)):
            grown = min(max(self._end - begin, self.SPILLED_MIN), self.SPILLED_MAX)
            segment = Segment(self._end, self._allocate(max(grown, need)), spilled=True)
            self.spilled += len(segment.bytes)
            if self._spilled_from < 0:
                self._spilled_from = self._end
        else:
            self._last_size = size
            segment = Segment(self._end, SEGMENT_POOL.allocate(max(size, need)))
            self.kept += len(segment.bytes)
        end = self._end
        self._segments.append(segment)
        self._use_last_segment(end)

    def _is_large(self, begin: int, more: int) -> bool:
        """True if the open transaction's segments in memory together with `more` bytes would exceed `large_bytes`, or
        if the transaction is already spilled."""
        if self._spilled_from >= 0:
            return True
        limit = self._end
        for base, segment, spilled in reversed(self._segments):
            if limit <= begin:
                break
            more += 0 if spilled else len(segment)
            limit = base
        return more > self._large_bytes

    def _forget(self, segment: Segment) -> None:
        if segment.spilled:
            self.spilled -= len(segment.bytes)
        else:
            self.kept -= len(segment.bytes)
            self._dropped.add(segment.bytes)

    def _at(self, logical: int) -> tuple[U8, int]:
        for base, segment, _ in reversed(self._segments):
            if base <= logical:
                return segment, logical - base
        raise AssertionError(f"logical offset {logical} was dropped while it was in use")

    # -- reading ---------------------------------------------------------------------------------------------

    def read(self, start: int, end: int) -> list[memoryview]:
        """Returns the bytes [start, end) by logical offset, without a copy. The views stay valid when the log drops the
        bytes."""
        out = []
        first = bisect_right(self._segments, start, key=_base) - 1
        for i in range(max(first, 0), len(self._segments)):
            base, segment, spilled = self._segments[i]
            if base >= end:
                break
            lo, hi = max(start, base), min(end, self._limit(i))
            piece = self.PIECE if spilled else len(segment)
            out += [
                memoryview(segment)[at - base : min(at + piece, hi) - base]  # type: ignore[arg-type]
                for at in range(lo, hi, piece)
            ]
        return out

    def opening(self, begin: int, point: CutPoint) -> list[bytes | memoryview]:
        """Returns the bytes that a reader needs before it can read the part of a transaction that begins at `point`:
        the transaction's record, GTID and BEGIN, the table maps in force, and a record with the index of the next
        event. `begin`: offset of the transaction."""
        beginning = b"".join(self.read(begin, point.beginning_end))
        record = beginning[: EventHeader.read(beginning).size]
        checksum = len(record) > RECORD_SIZE + record[NAME_SIZE_AT]
        out: list[bytes | memoryview] = [beginning]
        if point.maps < point.maps_end:
            out.append(continued_record(record, point.maps_event, checksum=checksum))
            out += self.read(point.maps, point.maps_end)
        out.append(continued_record(record, point.event, checksum=checksum))
        return out

    @property
    def lent(self) -> int:
        """Bytes of segments in memory that were dropped while a reader still had views of them."""
        return self._dropped.bytes

    @property
    def holds_memory(self) -> bool:
        """True if `allocated` is more than 0."""
        return self.kept > 0 or bool(self._dropped.sizes)

    @property
    def allocated(self) -> int:
        """Bytes of memory allocated for this log: its segments, and dropped segments that a reader still views."""
        return self.kept + self._dropped.bytes if self._dropped.sizes else self.kept

    def drop(self, before: int) -> None:
        """Drop the bytes below logical offset `before`, which must be the end of a transaction."""
        self._dropped_to = before
        self.cut_points.drop(before)
        keep = 0
        while keep < len(self._segments) and self._limit(keep) <= before:
            self._forget(self._segments[keep])
            keep += 1
        if keep:
            end = self._end
            del self._segments[:keep]
            if not self._segments:
                self._use_last_segment(end)

    def _limit(self, index: int) -> int:
        """Logical end of the bytes in a segment."""
        return self._segments[index + 1].base if index + 1 < len(self._segments) else self._end


def _base(segment: Segment) -> int:
    return segment.base


_NOTHING: U8 = np.empty(1, dtype=np.uint8)  # a valid address for the kernel; never written
