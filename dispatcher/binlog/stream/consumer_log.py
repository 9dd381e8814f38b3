"""Copy one consumer's share of a batch into its segment: the only copy that bytes make in the daemon.

What a consumer gets of a transaction: a record, the GTID, BEGIN, the statements' table maps and rows that are its own,
the commit. Everything that stands before the first row of its own (record, GTID, BEGIN; a statement's text and table
maps) is copied when that row comes, so a transaction or statement without any leaves no trace.

Statements stay whole: the last rows event that the consumer gets of a statement carries STMT_END_F, with a new
checksum where the flag had to be set; `mysqlbinlog` prints no row of a statement that does not end. The statement's
text goes along only if all of its tables are the consumer's.

Nothing is left of what did not happen: a transaction that ends with ROLLBACK takes its bytes with it (and counts, as
one without anything of the consumer's), and ROLLBACK TO takes the log back to where it was at its savepoint.

A transaction, and even a statement, may span batches and segments. `ConsumerLog` remembers what is needed between them.

A transaction that outgrows the memory it may have (`large_bytes`) goes on in *spilled* segments, from the lender that
the log was given: files that look like memory, so nothing that copies, reads, or drops knows the difference. What the
log takes next goes to memory again. The alternative, to write to a file and to read from it, would have made two kinds
of readers, of patches of what was written (STMT_END_F, the record) and of rollbacks.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dispatcher.binlog.event.record import Record, encode_record
from dispatcher.binlog.kernel.bytes import I32, I64, U8
from dispatcher.binlog.stream import copy_kernel as k
from dispatcher.binlog.stream.batch import ABORTED, CONTINUED, OPEN, ROLLED_BACK, Batch
from dispatcher.binlog.stream.segments import SEGMENT_POOL, Allocate, DroppedSegments, release_pages
from dispatcher.model.position import SEQ_OFFSET_BITS, file_number


@dataclass(slots=True)
class AppendResult:
    """Transactions that became complete: index in the batch's arrays, logical end, seq, number of events copied."""

    tx: I32
    end: I64
    seq: I64
    events: I32


class Savepoint(NamedTuple):
    """What there was of an open transaction at a savepoint: logical offsets of its end and record, events copied."""

    end: int
    begun: int
    record: int
    copied: int


class Segment(NamedTuple):
    """`base`: logical offset of its first byte."""

    base: int
    bytes: U8
    spilled: bool


class ConsumerLog:
    """One consumer's bytes, written once and read by *logical* offset (bytes since the log was made).

    Made of segments of at most `segment_max` bytes, smaller while there is little to hold, or as large as one unit
    that does not fit; a log that was emptied begins with half of its last segment's size, so that a reader which keeps
    up is served from large segments and a quiet consumer soon from small ones. `allocated` counts segments in memory
    whole, also those that were dropped while a reader still has views of them, and `spilled` the others: that is what
    they cost. Behind `committed` lie the bytes of a transaction that is
    not complete; `rollback()` drops them, also after `allocate` has raised.

    Bounds, in bytes, where `taken` is what one `take` added and a unit is a rows event with all that must stand before
    it: segments that a take begins hold at most 2 * taken + `segment_max` in all, because what is left at a segment's
    end is less than the unit that begins the next; and the segments in memory that an open transaction touches, at
    most `large_bytes`, if there is a lender.
    """

    SEGMENT_MIN = 1 << 14
    # A spilled segment is as large as its transaction is by then, within these, so that there are few of them.
    SPILLED_MIN, SPILLED_MAX = 1 << 22, 1 << 26
    PIECE = 1 << 20  # of a spilled segment, for a reader that cools what it has sent

    def __init__(
        self, segment_max: int = 1 << 20, *, allocate: Allocate | None = None, large_bytes: int = 0
    ) -> None:
        self.committed = 0
        self.kept = 0
        self._lent = DroppedSegments()
        self.spilled = 0
        self.spilled_end = 0  # logical end of the newest complete transaction that was spilled
        self._segment_max = max(segment_max, self.SEGMENT_MIN)
        self._allocate = allocate
        self._large_bytes = large_bytes
        self._segments: list[Segment] = []
        self._spilled_from = -1  # where the open transaction's spilled part begins
        self._last_size = 0  # of the newest segment, here or dropped
        self._end = self._forgotten = 0
        self._cs: I64 = np.zeros(k.STATE_SIZE, dtype=np.int64)
        self._cs[k.EVENT] = -1
        self._marks: dict[int, Savepoint] = {}  # savepoints of the open transaction
        self._record_at = self._rows_at = 0  # logical offsets of what the kernel knows as EARLIER
        self._index = (
            np.empty(0, dtype=np.int32),
            np.empty(0, dtype=np.int64),
            np.empty(0, dtype=np.int64),
            np.empty(0, dtype=np.int32),
        )

    # -- writing ---------------------------------------------------------------------------------------------

    def append(
        self, batch: Batch, wants: U8, skip: U8 | None, *, epoch: int, seq: int, packed: bool
    ) -> tuple[AppendResult, int]:
        """Copy what is wanted of `batch`; returns the transactions completed and the seq after all of them.

        Raises what `allocate` raises; then nothing of the batch counts, and `rollback()` must follow. `wants`: one byte
        per route. `skip`: one byte per transaction, 1 = the consumer has it already. `seq`: of the last transaction
        before the batch. `packed`: number by file and offset instead of counting.
        """
        n = len(batch.tx.first)
        skip = self._skipped(batch, skip)
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
        cs[k.SEQ], cs[k.TAKEN], cs[k.TX], cs[k.EVENT] = seq, 0, 0, -1
        tx, end, seqs, events_ = self._index
        indexed, spilled_end = 0, self.spilled_end
        while True:
            base, segment = self._room(indexed)
            cs[k.OUT] = self._end - base
            code = k.copy_share(
                batch.buf, batch.ev, batch.tx, wants, skip, record, checksum, high, segment, cs, self._index,
            )  # fmt: skip
            # An error that is raised below keeps this frame, which would keep the segment.
            del segment
            self._end = base + int(cs[k.OUT])
            end[indexed : cs[k.TAKEN]] += base
            if self._spilled_from >= 0 and cs[k.TAKEN] > indexed:
                spilled_end, self._spilled_from = int(end[indexed]), -1
            indexed = int(cs[k.TAKEN])
            if code == k.DONE:
                break
            if code == k.NEED_ROOM:
                begin = int(end[indexed - 1]) if indexed else self.committed
                self._new_segment(int(cs[k.NEED]), begin)
            elif code == k.REMEMBER:
                self._marks[int(batch.ev.route[cs[k.EVENT] - 1])] = self._mark()
            elif code == k.UNDO:
                self._return_to(self._marks[int(batch.ev.route[cs[k.EVENT] - 1])])
            elif code == k.PATCH_ROWS:
                k.end_statement(*self._at(self._rows_at), checksum)
                cs[k.LAST_ROWS] = k.NONE
            else:
                t = int(cs[k.TX])
                offset = int(batch.tx.end[t])
                done = high | offset if packed else int(cs[k.SEQ]) + 1
                k.finish_record(*self._at(self._record_at), len(record), done, offset, checksum)
                cs[k.RECORD] = k.NONE
        if indexed:
            self.committed, self.spilled_end = int(end[indexed - 1]), spilled_end
        if self._segments and self._segments[-1].spilled:
            release_pages(self._segments[-1].bytes)
        if n and not batch.tx.flags[-1] & OPEN:
            self._marks.clear()
        taken = AppendResult(
            tx[:indexed].copy(),
            end[:indexed].copy(),
            seqs[:indexed].copy(),
            events_[:indexed].copy(),
        )
        return taken, int(cs[k.SEQ])

    def _skipped(self, batch: Batch, skip: U8 | None) -> U8:
        """`skip`, and what never was; its beginning, taken of an earlier batch, goes."""
        flags = batch.tx.flags
        undone = flags & (ABORTED | ROLLED_BACK)
        if undone.any() and undone[0] and flags[0] & CONTINUED:
            self.rollback()
        aborted: U8 = ((flags & ABORTED) > 0).astype(np.uint8)
        return aborted if skip is None else aborted | skip

    def rollback(self) -> None:
        """Drop the bytes of the transaction that is not complete."""
        self._marks.clear()
        # As if nothing of the open transaction had been taken: its beginning is carried, and copied anew.
        self._return_to(Savepoint(self.committed, 0, 0, 0))
        self.drop(
            self._forgotten
        )  # the segment that held the end of what is forgotten, and its beginning

    def _mark(self) -> Savepoint:
        cs = self._cs
        record = int(cs[k.RECORD])
        at = self._segments[-1].base + record if record >= 0 else self._record_at
        return Savepoint(self._end, int(cs[k.BEGUN]), at, int(cs[k.COPIED]))

    def _return_to(self, mark: Savepoint) -> None:
        while self._segments and self._segments[-1].base >= mark.end:
            self._gone(self._segments.pop())
        self._end = mark.end
        if self._spilled_from >= mark.end:
            self._spilled_from = -1
        cs = self._cs
        cs[k.BEGUN], cs[k.COPIED], cs[k.LAST_ROWS], cs[k.HEAD_DONE] = (
            mark.begun,
            mark.copied,
            k.NONE,
            0,
        )
        cs[k.RECORD] = k.NONE
        if mark.begun:
            base, self._record_at = self._segments[-1].base, mark.record
            cs[k.RECORD] = mark.record - base if mark.record >= base else k.EARLIER

    @property
    def open_bytes(self) -> int:
        """Bytes of the transaction that is not complete."""
        return self._end - self.committed

    @staticmethod
    def _record(batch: Batch, epoch: int) -> bytes:
        # Seq, offset and times come per transaction; what is left is the same for all of a batch.
        return encode_record(Record(epoch, 0, batch.file, 0, 0, 0), checksum=batch.format.checksum)

    def _room(self, indexed: int) -> tuple[int, U8]:
        """The segment to write into. What follows a spilled transaction in a later batch is not for its segment."""
        if not self._segments:
            return self._end, _NOTHING
        base, segment, spilled = self._segments[-1]
        if spilled and self._spilled_from < 0 and not indexed:
            segment = segment[: self._end - base]
        return base, segment

    def _new_segment(self, need: int, begin: int) -> None:
        """`begin`: where the open transaction begins."""
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
                self._gone(self._segments.pop())
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
        """Would the segments in memory that hold something of the open transaction be too many with `more` bytes?"""
        if self._spilled_from >= 0:
            return True
        limit = self._end
        for base, segment, spilled in reversed(self._segments):
            if limit <= begin:
                break
            more += 0 if spilled else len(segment)
            limit = base
        return more > self._large_bytes

    def _gone(self, segment: Segment) -> None:
        if segment.spilled:
            self.spilled -= len(segment.bytes)
        else:
            self.kept -= len(segment.bytes)
            self._lent.add(segment.bytes)

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

    @property
    def lent(self) -> int:
        """Bytes of segments in memory that were dropped while somebody still had views of them."""
        return self._lent.bytes

    @property
    def allocated(self) -> int:
        """Memory that is there for this log: segments at their allocated size, and those that are lent."""
        return self.kept + self._lent.bytes

    def drop(self, before: int) -> None:
        """Forget everything below a logical offset that is the end of a transaction."""
        self._forgotten = before
        keep = 0
        while keep < len(self._segments) and self._limit(keep) <= before:
            self._gone(self._segments[keep])
            keep += 1
        del self._segments[:keep]

    def _limit(self, index: int) -> int:
        """Logical end of what a segment holds."""
        return self._segments[index + 1].base if index + 1 < len(self._segments) else self._end


def _base(segment: Segment) -> int:
    return segment.base


_NOTHING: U8 = np.empty(0, dtype=np.uint8)
