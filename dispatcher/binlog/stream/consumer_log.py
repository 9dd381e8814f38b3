"""Copy one consumer's share of a batch into its segment: the only copy that bytes make in the daemon.

A consumer gets of a transaction a record, the GTID, BEGIN, the table maps and rows of its own tables, and the commit.
The record, GTID and BEGIN, and a statement's text and table maps, are copied together with the first row of its own
that follows them, so a transaction or statement without any leaves no trace.

Statements stay whole: the last rows event that the consumer gets of a statement carries STMT_END_F, with a new
checksum where the flag had to be set, since `mysqlbinlog` prints no row of a statement that does not end. The text of a
statement is copied only if all of its tables are the consumer's.

A transaction that ends with ROLLBACK loses its bytes and counts as one without events of the consumer's; ROLLBACK TO
takes the log back to where it was at the savepoint.

A transaction, and even a statement, may span batches and segments. `ConsumerLog` remembers what is needed between them.

A transaction that outgrows its memory (`large_bytes`) goes on in *spilled* segments, which the log's allocator maps to
files: they look like memory, so copying, reading and dropping need no second form. The bytes appended after it go to
memory again. The alternative, to write to a file and to read from it, would have made two kinds of readers, of patches
of what was written (STMT_END_F, the record) and of rollbacks.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from dispatcher.binlog.event.header import EventHeader
from dispatcher.binlog.event.record import (
    NAME_SIZE_AT,
    RECORD_SIZE,
    Record,
    continued_record,
    encode_record,
)
from dispatcher.binlog.kernel.bytes import I64, U8
from dispatcher.binlog.stream import copy_kernel as k
from dispatcher.binlog.stream.batch import ABORTED, CONTINUED, OPEN, ROLLED_BACK, Batch
from dispatcher.binlog.stream.cut_points import CutPoint, CutPoints
from dispatcher.binlog.stream.segments import SEGMENT_POOL, Allocate, DroppedSegments, release_pages
from dispatcher.model.position import SEQ_OFFSET_BITS, file_number


class Savepoint(NamedTuple):
    """The open transaction at a savepoint: logical offset of its end, was its beginning copied, logical offset of its
    record, number of events copied."""

    end: int
    begun: int
    record: int
    copied: int


class Segment(NamedTuple):
    """Bytes of a log. `base`: logical offset of the first one; `spilled`: True if a file holds them."""

    base: int
    bytes: U8
    spilled: bool


class ConsumerLog:
    """One consumer's bytes, written once and read by *logical* offset (bytes since the log was made).

    The log consists of segments of at most `segment_max` bytes, smaller while there is little to hold, or as large as
    one unit that does not fit. A log that was emptied begins with half of its last segment's size, so that a reader
    which keeps up is served from large segments and a quiet consumer soon from small ones. `allocated` counts segments
    in memory whole, also those that were dropped while a reader still has views of them, and `spilled` those in files.
    The bytes behind `committed` belong to a transaction that is not complete; `rollback()` drops them, also after
    `allocate` has raised.

    Bounds, in bytes, where a unit is a rows event with all that must stand before it: the segments that one `append` of
    n bytes begins hold at most 2 * n + `segment_max`, because the rest of a segment is less than the unit that begins
    the next; and the segments in memory that an open transaction touches hold at most `large_bytes`, if there is an
    `allocate`.
    """

    SEGMENT_MIN = 1 << 14
    # A spilled segment is as large as its transaction is by then, within these bounds, so that there are few of them.
    SPILLED_MIN, SPILLED_MAX = 1 << 22, 1 << 26
    # A reader sends a spilled segment in pieces of this size, and releases the pages of each piece after it.
    PIECE = 1 << 20
    CUT_BYTES = 1 << 18  # between two places where a transaction may be cut

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
        self._last_size = 0  # of the newest segment, here or dropped
        self._end = self._dropped_to = 0
        self._cs: I64 = np.zeros(k.STATE_SIZE, dtype=np.int64)
        self._cs[k.EVENT] = -1
        self._savepoints: dict[int, Savepoint] = {}  # of the open transaction
        self._record_at = self._rows_at = 0  # logical offsets of what is EARLIER to the kernel
        self._completed = k.AppendResult.empty(0)
        self.cut_points = CutPoints()

    # -- writing ---------------------------------------------------------------------------------------------

    def append(
        self,
        batch: Batch,
        route_mask: U8,
        already_executed: U8 | None,
        *,
        epoch: int,
        seq: int,
        packed: bool,
    ) -> tuple[k.AppendResult, int]:
        """Copy the consumer's share of `batch`; returns the transactions completed and the seq after all of them.

        `route_mask`: one byte per route, 1 = the consumer's. `already_executed`: one byte per transaction, 1 = the
        consumer has it. `seq`: of the last transaction before the batch. `packed`: number transactions by file and
        offset instead of counting. Raises what `allocate` raises; then nothing of the batch counts, and `rollback()`
        must follow.
        """
        cs, checksum = self._cs, int(batch.format.checksum)
        skipped = self._skipped(batch, already_executed)
        if len(self._completed.tx) < len(batch.tx.first):
            self._completed = k.AppendResult.empty(len(batch.tx.first))
        end = self._completed.end
        record = np.frombuffer(self._record(batch, epoch), dtype=np.uint8).copy()
        file_seq = file_number(batch.file) << SEQ_OFFSET_BITS if packed else -1
        cs[k.SEQ], cs[k.COMPLETE], cs[k.TX], cs[k.EVENT] = seq, 0, 0, -1
        complete, spilled_end, code = 0, self.spilled_end, k.NEED_ROOM
        while code != k.DONE:
            base, segment = self._room(complete)
            cs[k.BASE], cs[k.OUT] = base, self._end - base
            code = k.copy_share(
                batch.buf, batch.ev, batch.tx, route_mask, skipped, record, checksum, file_seq, self.CUT_BYTES, segment,
                cs, self._completed,
            )  # fmt: skip
            # An error that is raised below keeps this frame, which would keep the segment.
            del segment
            self._end = base + int(cs[k.OUT])
            end[complete : cs[k.COMPLETE]] += base
            if self._spilled_from >= 0 and cs[k.COMPLETE] > complete:
                spilled_end, self._spilled_from = int(end[complete]), -1
            complete = int(cs[k.COMPLETE])
            if code == k.NEED_ROOM:
                self._new_segment(
                    int(cs[k.NEED]), int(end[complete - 1]) if complete else self.committed
                )
            elif code != k.DONE:
                self._answer(code, batch, len(record), file_seq)
        if complete:
            self.committed, self.spilled_end = int(end[complete - 1]), spilled_end
        if self._segments and self._segments[-1].spilled:
            release_pages(self._segments[-1].bytes)
        if len(batch.tx.flags) and not batch.tx.flags[-1] & OPEN:
            self._savepoints.clear()
        return self._completed.copy(complete), int(cs[k.SEQ])

    def _answer(self, code: int, batch: Batch, record_size: int, file_seq: int) -> None:
        """Do what the kernel returned for: set or return to a savepoint, note a point to cut at, patch an event in an
        earlier segment."""
        cs, checksum = self._cs, int(batch.format.checksum)
        if code == k.REMEMBER:
            self._savepoints[int(batch.ev.route[cs[k.EVENT] - 1])] = self._savepoint()
        elif code == k.UNDO:
            self._return_to(self._savepoints[int(batch.ev.route[cs[k.EVENT] - 1])])
        elif code == k.CUT:
            self.cut_points.add(CutPoint.of_state(cs))
            cs[k.CUT_FROM] = self._end + self.CUT_BYTES
        elif code == k.PATCH_ROWS:
            k.end_statement(*self._at(self._rows_at), checksum)
            cs[k.LAST_ROWS] = k.NONE
        else:
            offset = int(batch.tx.end[cs[k.TX]])
            seq = file_seq | offset if file_seq >= 0 else int(cs[k.SEQ]) + 1
            k.finish_record(*self._at(self._record_at), record_size, seq, offset, checksum)
            cs[k.RECORD] = k.NONE

    def _skipped(self, batch: Batch, already_executed: U8 | None) -> U8:
        """Return 1 for each transaction to leave out: already executed or aborted. If the first one was aborted, drop
        the part of it that an earlier batch appended."""
        flags = batch.tx.flags
        undone = flags & (ABORTED | ROLLED_BACK)
        if undone.any() and undone[0] and flags[0] & CONTINUED:
            self.rollback()
        aborted: U8 = ((flags & ABORTED) > 0).astype(np.uint8)
        return aborted if already_executed is None else aborted | already_executed

    def rollback(self) -> None:
        """Drop the bytes of the transaction that is not complete. Its beginning is carried, and copied anew."""
        self._savepoints.clear()
        self._return_to(Savepoint(self.committed, 0, 0, 0))
        # The segment in which the dropped bytes end may be empty now.
        self.drop(self._dropped_to)

    def _savepoint(self) -> Savepoint:
        cs = self._cs
        record = int(cs[k.RECORD])
        at = self._segments[-1].base + record if record >= 0 else self._record_at
        return Savepoint(self._end, int(cs[k.BEGUN]), at, int(cs[k.COPIED]))

    def _return_to(self, savepoint: Savepoint) -> None:
        while self._segments and self._segments[-1].base >= savepoint.end:
            self._forget(self._segments.pop())
        self._end = savepoint.end
        if self._spilled_from >= savepoint.end:
            self._spilled_from = -1
        cs = self._cs
        cut_after = self.cut_points.cut_back(savepoint.end, int(cs[k.BEGINNING_END]))
        cs[k.CUT_FROM] = cut_after + self.CUT_BYTES
        cs[k.BEGUN], cs[k.COPIED] = savepoint.begun, savepoint.copied
        cs[k.RECORD], cs[k.LAST_ROWS], cs[k.HEAD_DONE] = k.NONE, k.NONE, 0
        if savepoint.begun:
            base, self._record_at = self._segments[-1].base, savepoint.record
            cs[k.RECORD] = savepoint.record - base if savepoint.record >= base else k.EARLIER

    @property
    def open_bytes(self) -> int:
        """Bytes of the transaction that is not complete."""
        return self._end - self.committed

    @staticmethod
    def _record(batch: Batch, epoch: int) -> bytes:
        # The kernel writes seq, offset and times for each transaction; the rest is the same for all of a batch.
        return encode_record(Record(epoch, 0, batch.file, 0, 0, 0), checksum=batch.format.checksum)

    def _room(self, complete: int) -> tuple[int, U8]:
        """Return base and bytes of the segment to write into. A segment of a spilled transaction is not used for later
        batches."""
        if not self._segments:
            return self._end, _NOTHING
        base, segment, spilled = self._segments[-1]
        if spilled and self._spilled_from < 0 and not complete:
            segment = segment[: self._end - base]
        return base, segment

    def _new_segment(self, need: int, begin: int) -> None:
        """Begin a segment for `need` bytes or more. `begin`: where the open transaction begins."""
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
            if self._end == base:  # nothing was written into it
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
            segment = Segment(self._end, SEGMENT_POOL.allocate(max(size, need)), spilled=False)
            self.kept += len(segment.bytes)
        self._segments.append(segment)

    def _is_large(self, begin: int, more: int) -> bool:
        """True if segments in memory that hold bytes of the open transaction would exceed their bound by `more`."""
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
        """The bytes [start, end) by logical offset, without a copy. Views stay valid when the log drops them."""
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
        """What a reader needs before the bytes from `point` on, in a transaction that begins at `begin`: its record,
        GTID and BEGIN, the table maps in force, and a record that says which event follows."""
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
    def allocated(self) -> int:
        """Bytes of memory allocated for this log: its segments, and those dropped that a reader still views."""
        return self.kept + self._dropped.bytes

    def drop(self, before: int) -> None:
        """Drop everything below a logical offset that is the end of a transaction."""
        self._dropped_to = before
        self.cut_points.drop(before)
        keep = 0
        while keep < len(self._segments) and self._limit(keep) <= before:
            self._forget(self._segments[keep])
            keep += 1
        del self._segments[:keep]

    def _limit(self, index: int) -> int:
        """Logical end of what a segment holds."""
        return self._segments[index + 1].base if index + 1 < len(self._segments) else self._end


def _base(segment: Segment) -> int:
    return segment.base


_NOTHING: U8 = np.empty(0, dtype=np.uint8)
