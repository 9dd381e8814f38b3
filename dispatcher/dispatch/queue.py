"""A consumer's queue: its complete transactions that are not acknowledged, as bytes, and three positions.

queued ⊇ delivered ⊇ acknowledged. Bytes lie in a `ConsumerLog`, found by logical offset; `TransactionIndex` knows
seq, logical end and place of every transaction. A reader's position is found by its seq, which is totally ordered
within an epoch; whatever lies between two transactions of the consumer's own are markers, and a position among them
means "everything up to here", so it needs no entry.

*Covered* is how far nothing of the consumer's own lies beyond what is acknowledged. It never moves back, for the server
may purge its log up to there: a queue that gives up what it holds (`evict`) has to be filled again from there.

Bound: a queue takes a batch while it is not full, and then all of it, so that it holds in memory at most

    max(bytes_max, LARGE_MIN) + 2 * batch + segment_max

bytes, segments at their allocated size, where `batch` is the size of the last batch's events with a record for each
transaction, and `segment_max` an eighth of `bytes_max`, at least 16 KiB and at most 1 MiB. (Twice the first term while
a reader asks for what it had before a restart.) A transaction that alone would hold more than the first term goes on in
segments from `allocate` (see `ConsumerLog`), and is not counted. One such at a time: while it is there, complete and
not acknowledged, the queue is full.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass

from dispatcher.binlog.event.header import MAGIC, FormatDescription
from dispatcher.binlog.stream.batch import Batch
from dispatcher.binlog.stream.consumer_log import ConsumerLog
from dispatcher.binlog.stream.routes import Filter, Routes
from dispatcher.binlog.stream.segments import Allocate
from dispatcher.dispatch.executed_position import (
    BatchGtids,
    ExecutedPosition,
    Mode,
    executed_of,
    without_file,
)
from dispatcher.dispatch.transaction_index import GtidRun, TransactionIndex
from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import Position, file_number, packed_seq

TOLD_MAX = 64
LARGE_MIN = 1 << 20  # what fits in here stays in memory, however small the queue


@dataclass(frozen=True, slots=True)
class Single:
    """One transaction of a queue, as it is whatever becomes of the queue: `format` and `parts` are its bytes."""

    server: str
    epoch: int
    run: GtidRun
    index: int
    format: FormatDescription
    parts: list[memoryview]

    @property
    def seq(self) -> int:
        return self.run.seq(self.index)

    @property
    def position(self) -> Position:
        """Where the log goes on behind it."""
        return self.run.place(self.index).position(self.server, self.epoch)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a poll returns: the position after what can be read, its bytes and number of transactions."""

    end: Position
    bytes: int
    transactions: int


class Queue:
    """Not started until `reset()` has given it a place; `server`, `epoch`: of every position it hands out.

    `allocate`: room on disk for transactions that do not fit; without it they stay in memory.
    """

    def __init__(self, wanted: Filter, bytes_max: int, allocate: Allocate | None = None) -> None:
        self.wanted = wanted
        self.bytes_max = bytes_max
        self.server = ""
        self.epoch = 0
        self.mode = Mode.GTID
        self.queued = ExecutedPosition(GtidSet(), "", 0, 0)
        self.acknowledged = self._covered = self.queued
        self.delivered_seq = 0
        # A reader asks for what lies before it, as it was given it before a restart. It was in the queue then; that
        # other batches may make it a little larger now must not keep it out.
        self.needed_seq = 0
        # Creation times of the files from the acknowledged one on, s since 1970.
        self._created: dict[str, int] = {}
        # Of places at or behind this file number and offset, all transactions lie before their file and offset in the
        # server's log. With GTIDs that is not so after a start at a set, or after a failover: transactions that are
        # held already may follow.
        self._anchored_from: tuple[int, int] | None = None
        self.transactions = self.events = 0  # queued and not acknowledged
        self.taken_transactions = self.taken_bytes = 0  # since the start
        # An eighth, so that what a reader has acknowledged is soon given back.
        self._log = ConsumerLog(
            min(1 << 20, bytes_max // 8), allocate=allocate, large_bytes=max(bytes_max, LARGE_MIN)
        )
        self._runs = TransactionIndex()
        self._formats: deque[tuple[int, FormatDescription]] = deque()
        self._acknowledged_end = 0  # logical
        # The newest places that a reader was told of, oldest first; of older ones the transactions' places are enough.
        self._told: deque[ExecutedPosition] = deque(maxlen=TOLD_MAX)

    def reset(
        self,
        server: str,
        mode: Mode,
        epoch: int,
        place: ExecutedPosition,
        created: int,
        *,
        anchored: bool = False,
    ) -> None:
        """Begin (again) at a place: nothing is queued, everything up to it counts as acknowledged.

        `created`: creation time of the place's file, s since 1970, 0 = unknown. `anchored`: all of the place is known
        to lie before its file and offset in the server's log.
        """
        self._forget()
        self.server, self.mode, self.epoch = server, mode, epoch
        self.queued = self.acknowledged = self._covered = place
        self._created = {place.file: created} if created else {}
        self._anchored_from = _end(place) if anchored else None
        self.delivered_seq = place.seq
        self.needed_seq = 0

    def move_to(self, server: str) -> None:
        """Another server has the same transactions from now on, in files of its own (with GTIDs only)."""
        self.server = server
        self.queued, self.acknowledged = without_file(self.queued), without_file(self.acknowledged)
        self._covered = without_file(self._covered)
        self._created = {}
        self._anchored_from = None
        self._runs.without_files()
        self._told = deque(map(without_file, self._told), maxlen=TOLD_MAX)

    def jump(self, server: str, mode: Mode, place: ExecutedPosition, created: int) -> None:
        """Go on at a place, leaving out what lies between: history changes, so the epoch does, too."""
        self.reset(server, mode, self.epoch + 1, place, created, anchored=True)

    def evict(self) -> None:
        """Forget what is not acknowledged: queued is again as far as covered, and the rest is to be taken anew.

        Positions that were handed out stay good: their ranges are unavailable until they have been taken again. Not
        inside a transaction that goes on.
        """
        self.queued = self.covered
        self._forget()

    def _forget(self) -> None:
        self._log.rollback()
        self._log.drop(self._log.committed)
        self._runs.clear()
        self._told.clear()
        self.transactions = self.events = 0
        self._acknowledged_end = self._log.committed
        while len(self._formats) > 1:
            self._formats.popleft()

    # -- filling ---------------------------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """Memory that the queue holds: segments at their allocated size, those included that are acknowledged and still
        on their way to a reader."""
        return self._log.allocated

    @property
    def lent_bytes(self) -> int:
        """Memory of what is acknowledged and still on its way to a reader."""
        return self._log.lent

    @property
    def evictable_bytes(self) -> int:
        """Memory that `evict` gives back."""
        return self._log.kept

    @property
    def spilled_bytes(self) -> int:
        """Disk that the queue holds: segments that were lent, at their size."""
        return self._log.spilled

    @property
    def unacknowledged_bytes(self) -> int:
        return self._log.committed - self._acknowledged_end

    @property
    def awaited(self) -> bool:
        """Does a reader wait for what it was told of before, and what is to be read again?"""
        return self.queued.seq < self.needed_seq

    @property
    def full(self) -> bool:
        """No more may be taken. A transaction that has begun is let in whole: it can be read only then.

        So only what is complete makes a queue full, and a reader can always make room.
        """
        if not self._runs:
            return False
        if self.awaited:
            return self._log.allocated >= 2 * max(self.bytes_max, LARGE_MIN)
        spilled = self._log.spilled_end > self._acknowledged_end
        return spilled or self._log.allocated >= self.bytes_max

    @property
    def roomy(self) -> bool:
        """At most half full: worth a connection."""
        if self.full:
            return False
        return self._log.kept <= self.bytes_max // 2 or self.awaited

    def take(
        self,
        batch: Batch,
        steps: BatchGtids,
        routes: Routes,
        created: int,
        after: ExecutedPosition,
        *,
        level: bool,
    ) -> None:
        """Put the consumer's share of a batch into the queue.

        `after`: the dispatcher's place after the batch. `level`: the queue and the dispatcher stood at the same place
        before it (all consumers at the tip then share one value); else the consumer may have some of it already.

        Raises BinlogError where there is no room on disk; then nothing of the batch counts, and `rollback()` must
        follow.
        """
        level = level and steps.follows(self.mode, self.queued)
        skip = None if level else steps.skip(self.mode, self.queued)
        base, start = self.queued.gtids, self._log.committed
        taken, seq = self._log.append(
            batch, self.wanted.route_mask(routes), skip, epoch=self.epoch, seq=self.queued.seq,
            packed=self.mode is not Mode.GTID,
        )  # fmt: skip
        if created:
            self._created[batch.file] = created
        if len(taken.tx):
            if not self._runs:
                self._covered = self.queued
            if not self._formats or self._formats[-1][1] is not batch.format:
                self._formats.append((start, batch.format))
            self._runs.add(steps, base, taken, batch.tx.commit_us[taken.tx])
            self.transactions += len(taken.tx)
            self.events += int(taken.events.sum())
            self.taken_transactions += len(taken.tx)
            self.taken_bytes += self._log.committed - start
        if not level and self.mode is not Mode.GTID:
            seq = after.seq
        if not level and seq <= self.queued.seq:
            return  # it had all of this
        if not len(taken.tx):
            self._runs.pass_over(steps)
        if not level:
            gtids = steps.after(base, len(steps.source))
            after = ExecutedPosition(gtids, after.file, after.offset, seq)
        if after.seq == self.queued.seq and _end(after) < _end(self.queued):
            return  # nothing new, and the place that the queue has says more of where the log goes on
        self.queued = after

    def rollback(self) -> None:
        """The connection was lost inside a transaction, or there is no room for it: forget its beginning."""
        self._log.rollback()

    # -- reading ---------------------------------------------------------------------------------------------

    def position(self, place: ExecutedPosition) -> Position:
        return place.position(self.server, self.epoch)

    def locate(self, position: Position) -> tuple[int, ExecutedPosition]:
        """(logical offset, place) of a position that was handed out and not yet left behind.

        The place is what the queue has recorded itself, at the position's seq or the nearest before it: nothing of the
        consumer's own lies between. Of the position only the seq is used, if the rest does not contradict.

        Raises UserError: older than the acknowledged one, ahead of what is queued (`RANGE_UNAVAILABLE`), or not of
        this history.
        """
        self.check_history(position)
        if not self.acknowledged.seq <= position.seq <= self.queued.seq:
            self.executed_of(position)
        if position.seq < self.acknowledged.seq:
            raise _unknown(
                f"seq {position.seq} is older than the acknowledged {self.acknowledged.seq}"
            )
        if position.seq > self.queued.seq:
            raise UserError(
                ErrorKind.RANGE_UNAVAILABLE,
                f"seq {position.seq} is not read yet (at {self.queued.seq})",
            )
        count = self._runs.count_seq(position.seq)
        found = count > self._runs.dropped
        place = self._recorded(position.seq, count - 1 if found else None)
        self._check_parts(position, place)
        return self._runs.end(count - 1) if found else self._acknowledged_end, place

    def _recorded(self, seq: int, number: int | None) -> ExecutedPosition:
        """The newest place up to a seq that the queue knows of. `number`: of the last transaction up to there."""
        known = [self.acknowledged, self.covered, self.queued, *self._told]
        there = [place for place in known if place.seq <= seq]
        best = max(there, key=_seq)
        if number is not None and best.seq < seq and best.seq < self._runs.seq(number):
            return self._runs.place(number)
        return best

    def _check_parts(self, position: Position, place: ExecutedPosition) -> None:
        """Raises UserError where a position says anything else than `place`, which is at its seq or before it."""
        exact = position.seq == place.seq
        if exact and position.gtid == str(place.gtids) and self.mode is Mode.GTID:
            return
        said = self.executed_of(position)
        if self.mode is not Mode.GTID:
            if exact and said.file != place.file:
                raise _unknown(f"at its offset the file is {place.file}")
        elif exact and said.gtids != place.gtids:
            raise _unknown("its GTID set is not what this consumer has read up to its seq")
        elif not _between(place, said, self.queued):
            raise _unknown("its GTID set is not part of what this consumer has read")

    def check_history(self, position: Position) -> None:
        """Is it a position of the history that this queue follows? A GTID set means the same on any replica."""
        same_server = position.server == self.server or self.mode is Mode.GTID
        if not same_server:
            raise _unknown(
                f"it belongs to server {position.server[:64]!r}; this consumer reads {self.server!r}"
            )
        self.check_epoch(position)

    def check_epoch(self, position: Position) -> None:
        """Raises UserError for a position of another epoch."""
        if position.epoch != self.epoch:
            raise _unknown(
                f"it belongs to epoch {position.epoch}; this consumer reads epoch {self.epoch}"
            )

    def executed_of(self, position: Position) -> ExecutedPosition:
        """Raises UserError unless the position is of this history, and its parts fit each other."""
        self.check_history(position)
        place = executed_of(self.mode, position)
        if self.mode is Mode.GTID:
            if position.server != self.server:
                place = without_file(place)
            assert isinstance(place.gtids, GtidSet)
            if place.seq != len(place.gtids):
                raise _unknown("its seq does not fit its GTID set")
        elif place.seq != packed_seq(place.file, place.offset):
            raise _unknown("its seq does not fit its file and offset")
        return place

    def next(self, after: Position, bytes_max: int) -> Answer:
        """What can be read after a position: whole transactions, at least one if there is any."""
        start, _ = self.locate(after)
        runs = self._runs
        first, last = runs.count_to(start), runs.count_to(start + bytes_max)
        if first == runs.count:
            return Answer(self.position(self.queued), 0, 0)
        last = max(last, first + 1)
        # All of it goes with the markers behind it. A place is added up from GTIDs: only the one that is told is made.
        place = self.queued if last == runs.count else runs.place(last - 1)
        return Answer(self.position(place), runs.end(last - 1) - start, last - first)

    def deliver(self, end: Position) -> None:
        """`end` of the newest answer was handed out."""
        self.delivered_seq = max(self.delivered_seq, end.seq)
        # A place behind markers is recorded nowhere else.
        if end.seq == self.queued.seq and (not self._told or self._told[-1].seq < end.seq):
            self._told.append(self.queued)

    def cut(self, start: Position, end: Position, n: int) -> list[Position]:
        """At most n - 1 positions strictly between, at transaction boundaries, balanced by bytes."""
        lo, _ = self.locate(start)
        hi, _ = self.locate(end)
        cuts: list[Position] = []
        last = lo
        for k in range(1, n):
            at = self._runs.count_to(lo + (hi - lo) * k // n - 1)
            stop = self._runs.end(at) if at < self._runs.count else hi
            if last < stop < hi:
                last = stop
                cuts.append(self.position(self._runs.place(at)))
        return cuts

    def read(self, start: Position, end: Position) -> list[bytes | memoryview]:
        """The binlog of (start, end]: magic, then FORMAT_DESCRIPTION wherever it changes, and the transactions."""
        lo, _ = self.locate(start)
        hi, _ = self.locate(end)
        if hi < lo:
            raise _unknown("the range ends before it starts")
        out: list[bytes | memoryview] = [MAGIC]
        for i, (at, format_) in enumerate(self._formats):
            until = self._formats[i + 1][0] if i + 1 < len(self._formats) else hi
            a, b = max(lo, at), min(hi, until)
            if a < b:
                out.append(format_.raw)
                out += self._log.read(a, b)
        if len(out) == 1 and self._formats:
            out.append(self._formats[-1][1].raw)
        return out

    def singles(self, start: Position, end: Position) -> list[Single]:
        """The transactions of (start, end], one by one."""
        at, _ = self.locate(start)
        hi, _ = self.locate(end)
        formats = [start for start, _ in self._formats]
        out = []
        for number in range(self._runs.count_to(at), self._runs.count_to(hi)):
            run, index = self._runs.at(number)
            begin, at = at, self._runs.end(number)
            format_ = self._formats[bisect_right(formats, begin) - 1][1]
            parts = self._log.read(begin, at)
            out.append(Single(self.server, self.epoch, run, index, format_, parts))
        return out

    def acknowledge(self, position: Position) -> None:
        """Forget everything up to a position (after it was stored)."""
        end, place = self.locate(position)
        self._acknowledged_end = end
        self.acknowledged = place
        transactions, events = self._runs.drop(end)
        self.transactions -= transactions
        self.events -= events
        while len(self._formats) > 1 and self._formats[1][0] <= end:
            self._formats.popleft()
        oldest = file_number(place.file)
        self._created = {f: at for f, at in self._created.items() if file_number(f) >= oldest}
        self._log.drop(end)
        while self._told and self._told[0].seq <= place.seq:
            self._told.popleft()
        self.delivered_seq = max(self.delivered_seq, place.seq)

    def created_of(self, file: str) -> int:
        """When a file was created, as far as this queue has seen: s since 1970, 0 = unknown."""
        return self._created.get(file, 0)

    def saw_created(self, file: str, created: int) -> None:
        """What a server says of a file whose creation time is not known yet; 0 = it does not say."""
        if created:
            self._created.setdefault(file, created)

    def anchor(self) -> None:
        """From here on all that is queued is known to lie before its place in the log."""
        if self._anchored_from is None:
            self._anchored_from = _end(self.queued)

    def is_anchored(self, place: ExecutedPosition) -> bool:
        """True if all transactions of a place of this queue lie before its file and offset in the server's log."""
        if self.mode is not Mode.GTID:
            return True
        return self._anchored_from is not None and _end(place) >= self._anchored_from

    def created_stored(self, place: ExecutedPosition) -> int:
        """What is stored of a place beside its position; see `Progress.created`."""
        created = self.created_of(place.file)
        return created if self.is_anchored(place) else -created

    @property
    def oldest_commit_us(self) -> int | None:
        """When the oldest transaction that is not acknowledged was committed, in microseconds since 1970 UTC."""
        return self._runs.commit_us(self._runs.dropped) if self._runs else None

    @property
    def covered(self) -> ExecutedPosition:
        """How far nothing of the consumer's own lies: beyond the acknowledged place, over markers."""
        return max(self.acknowledged, self._covered, key=_seq) if self._runs else self.queued

    def covered_after(self, end: int, place: ExecutedPosition) -> ExecutedPosition:
        """The same as it will be when (logical offset, place) is acknowledged."""
        if not self._runs or end >= self._log.committed:
            return self.queued
        return max(place, self._covered, key=_seq)


def _between(first: ExecutedPosition, place: ExecutedPosition, last: ExecutedPosition) -> bool:
    """Does a set lie between two others?"""
    low, gtids, high = first.gtids, place.gtids, last.gtids
    assert isinstance(low, GtidSet) and isinstance(gtids, GtidSet) and isinstance(high, GtidSet)
    return gtids.contains(low) and high.contains(gtids)


def _end(place: ExecutedPosition) -> tuple[int, int]:
    return file_number(place.file), place.offset


def _seq(place: ExecutedPosition) -> int:
    return place.seq


def _unknown(why: str) -> UserError:
    return UserError(ErrorKind.POSITION_UNKNOWN, why)
