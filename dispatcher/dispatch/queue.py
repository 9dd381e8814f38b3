"""A consumer's queue: its complete transactions that are not acknowledged, as bytes, and three positions.

queued ⊇ delivered ⊇ acknowledged. The bytes lie in a `ConsumerLog`, found by logical offset; a `TransactionIndex` has
seq, logical end and position of every transaction. A reader's position is found by its seq, which is totally ordered
within an epoch. Between two of the consumer's transactions there are only markers, and a position among them means
"everything up to here", so it needs no entry.

*Covered* is how far, beyond what is acknowledged, no transaction of the consumer lies. It never moves back, because the
server may purge its log up to there; an evicted queue (`evict`) is filled again from there.

Bound: a queue that is not full accepts a whole batch, so it holds in memory at most

    max(bytes_max, LARGE_MIN) + 2 * batch + segment_max

bytes, segments at their allocated size, where `batch` is the size of the last batch's events with a record for each
transaction, and `segment_max` an eighth of `bytes_max`, at least 16 KiB and at most 1 MiB. (Twice the first term while
a reader asks for what it had before a restart.) A transaction that alone would hold more than the first term goes on in
segments from `allocate` (see `ConsumerLog`), and is not counted. There is one such transaction at a time: while it is
complete and not acknowledged, the queue is full.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from operator import attrgetter

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
from dispatcher.dispatch.queue_files import QueueFiles
from dispatcher.dispatch.queue_ranges import (
    RangeCut,
    RangeEnd,
    balanced_cuts,
    formatted_bytes,
    inside_end,
)
from dispatcher.dispatch.transaction_index import GtidRun, TransactionIndex
from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import EventPoint, Position

DELIVERED_MAX = 64
LARGE_MIN = 1 << 20  # a transaction up to this size stays in memory, however small the queue

_seq = attrgetter("seq")


@dataclass(frozen=True, slots=True)
class QueuedTransaction:
    """One transaction, valid whatever becomes of the queue: `format` and `parts` are its bytes."""

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
        """The position after it."""
        return self.run.executed_after(self.index).position(self.server, self.epoch)


@dataclass(frozen=True, slots=True)
class ReadableRange:
    """What a reader can read next: the position after it, its bytes and number of transactions."""

    end: Position
    bytes: int
    transactions: int


class Queue:
    """Has no position until `reset()`. `server`, `epoch`: of every position that it hands out.

    `allocate`: allocates segments on disk for transactions that do not fit; without it they stay in memory.
    """

    def __init__(self, filter_: Filter, bytes_max: int, allocate: Allocate | None = None) -> None:
        self.filter = filter_
        self.bytes_max = bytes_max
        self.server = ""
        self.epoch = 0
        self.mode = Mode.GTID
        self.queued = ExecutedPosition(GtidSet(), "", 0, 0)
        self.acknowledged = self._covered = self.queued
        self.delivered_seq = 0
        # Everything up to this seq was delivered before a restart, so the reader may ask for it again. It is accepted
        # even if it exceeds the limit: batches of other sizes can make the queue a little larger than it was.
        self.needed_seq = 0
        self.files = QueueFiles()
        self.transactions = self.events = 0  # queued and not acknowledged
        self.pushed_transactions = self.pushed_bytes = 0  # since the start
        self.newest_commit_us = 0  # of the last of them
        # An eighth, so that acknowledged segments are soon given back.
        self._log = ConsumerLog(
            min(1 << 20, bytes_max // 8), allocate=allocate, large_bytes=max(bytes_max, LARGE_MIN)
        )
        self._index = TransactionIndex()
        self._formats: deque[tuple[int, FormatDescription]] = deque()
        self._acknowledged_end = 0  # logical
        # The newest delivered positions, oldest first; of older ones those of the transactions are enough.
        self._delivered: deque[ExecutedPosition] = deque(maxlen=DELIVERED_MAX)

    def reset(
        self,
        server: str,
        mode: Mode,
        epoch: int,
        executed: ExecutedPosition,
        created: int,
        *,
        anchored: bool = False,
    ) -> None:
        """Begin (again) at a position: nothing is queued, everything up to it counts as acknowledged.

        `created`: creation time of the position's file, s since 1970, 0 = unknown; `anchored`: see `QueueFiles`.
        """
        self._drop_all()
        self.server, self.mode, self.epoch = server, mode, epoch
        self.queued = self.acknowledged = self._covered = executed
        self.files.begin(mode, executed, created, anchored=anchored)
        self.delivered_seq = executed.seq
        self.needed_seq = 0

    def move_to(self, server: str) -> None:
        """Go on with another server, which has the same transactions in files of its own (with GTIDs only)."""
        self.server = server
        self.queued, self.acknowledged = without_file(self.queued), without_file(self.acknowledged)
        self._covered = without_file(self._covered)
        self.files.begin(self.mode, self.queued, 0, anchored=False)
        self._index.without_files()
        self._delivered = deque(map(without_file, self._delivered), maxlen=DELIVERED_MAX)

    def skip_to(self, server: str, mode: Mode, executed: ExecutedPosition, created: int) -> None:
        """Go on at a position, without the transactions before it: history changes, so the epoch does, too."""
        self.reset(server, mode, self.epoch + 1, executed, created, anchored=True)

    def evict(self) -> None:
        """Drop everything that is not acknowledged, to be read from the server again, from the covered position on.

        Positions that were handed out stay valid: their ranges are unavailable until they have been read again. Not to
        be called inside of a transaction.
        """
        self.queued = self.covered
        self._drop_all()

    def _drop_all(self) -> None:
        self._log.rollback()
        self._log.drop(self._log.committed)
        self._index.clear()
        self._delivered.clear()
        self.transactions = self.events = 0
        self._acknowledged_end = self._log.committed
        while len(self._formats) > 1:
            self._formats.popleft()

    # -- filling ---------------------------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """Memory that the queue holds: segments at their allocated size, including acknowledged ones that are still on
        their way to a reader."""
        return self._log.allocated

    @property
    def lent_bytes(self) -> int:
        """Memory of acknowledged segments that are still on their way to a reader."""
        return self._log.lent

    @property
    def evictable_bytes(self) -> int:
        """Memory that `evict` gives back."""
        return self._log.kept

    @property
    def spilled_bytes(self) -> int:
        """Disk that the queue holds: allocated segments, at their size."""
        return self._log.spilled

    @property
    def unacknowledged_bytes(self) -> int:
        return self._log.committed - self._acknowledged_end

    @property
    def refetching(self) -> bool:
        """True while a reader waits for transactions that it was given before, and that are read again."""
        return self.queued.seq < self.needed_seq

    @property
    def full(self) -> bool:
        """True if the queue accepts no batch. A transaction that has begun is accepted whole, because it can be read
        only then. So only complete ones make a queue full, and a reader can always make room."""
        if not self._index:
            return False
        if self.refetching:
            return self._log.allocated >= 2 * max(self.bytes_max, LARGE_MIN)
        spilled = self._log.spilled_end > self._acknowledged_end
        return spilled or self._log.allocated >= self.bytes_max

    @property
    def has_room(self) -> bool:
        """True if the queue is at most half full: worth a connection."""
        if self.full:
            return False
        return self._log.kept <= self.bytes_max // 2 or self.refetching

    def push(
        self,
        batch: Batch,
        gtids: BatchGtids,
        routes: Routes,
        created: int,
        after: ExecutedPosition,
        *,
        in_sync: bool,
    ) -> None:
        """Append the consumer's part of a batch.

        `after`: the dispatcher's position after the batch. `in_sync`: the queue and the dispatcher stood at the same
        position before it (so all consumers at the tip share one value); else the consumer may have part of it already.

        Raises BinlogError if there is no room on disk; then nothing of the batch counts, and `rollback()` must follow.
        """
        in_sync = in_sync and gtids.all_after(self.mode, self.queued)
        already_executed = None if in_sync else gtids.already_executed(self.mode, self.queued)
        base, start = self.queued.gtids, self._log.committed
        appended, seq = self._log.append(
            batch, self.filter.route_mask(routes), already_executed, epoch=self.epoch, seq=self.queued.seq,
            packed=self.mode is not Mode.GTID,
        )  # fmt: skip
        self.files.read(batch.file, created)
        count = len(appended.tx)
        if count:
            if not self._index:
                self._covered = self.queued
            if not self._formats or self._formats[-1][1] is not batch.format:
                self._formats.append((start, batch.format))
            commit_us = batch.tx.commit_us[appended.tx]
            self._index.add(gtids, base, appended, commit_us)
            self.newest_commit_us = int(commit_us[-1])
            self.transactions += count
            self.events += int(appended.events.sum())
            self.pushed_transactions += count
            self.pushed_bytes += self._log.committed - start
        if not in_sync and self.mode is not Mode.GTID:
            seq = after.seq
        if not in_sync and seq <= self.queued.seq:
            return  # the consumer has had all of the batch
        if not count:
            self._index.skip_batch(gtids)
        if not in_sync:
            queued_gtids = gtids.after(base, len(gtids.source))
            after = ExecutedPosition(queued_gtids, after.file, after.offset, seq)
        if after.seq == self.queued.seq and after.log_order < self.queued.log_order:
            return  # nothing new, and the present position tells better where the log goes on
        self.queued = after

    def rollback(self) -> None:
        """Drop the beginning of a transaction: the connection was lost inside it, or there is no room for it."""
        self._log.rollback()

    # -- reading ---------------------------------------------------------------------------------------------

    def position(self, executed: ExecutedPosition) -> Position:
        return executed.position(self.server, self.epoch)

    def locate(self, position: Position) -> tuple[int, ExecutedPosition]:
        """Returns (logical offset, executed position) of a position that was handed out and is not yet acknowledged.

        The queue has recorded executed positions itself. Returned is the one at the position's seq or the nearest
        before it; the consumer has no transaction between the two. The position's other fields are only checked.

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
        count = self._index.count_seq(position.seq)
        queued = count > self._index.dropped
        executed = self._recorded(position.seq, count - 1 if queued else None)
        self._check_parts(position, executed)
        return self._index.end(count - 1) if queued else self._acknowledged_end, executed

    def _recorded(self, seq: int, number: int | None) -> ExecutedPosition:
        """Returns the newest recorded position up to a seq. `number`: of the last transaction up to there."""
        known = [self.acknowledged, self.covered, self.queued, *self._delivered]
        best = max((executed for executed in known if executed.seq <= seq), key=_seq)
        if number is not None and best.seq < seq and best.seq < self._index.seq(number):
            return self._index.executed_after(number)
        return best

    def _check_parts(self, position: Position, recorded: ExecutedPosition) -> None:
        """Raises UserError if a position contradicts `recorded`, which is at its seq or before it."""
        exact = position.seq == recorded.seq
        if exact and position.gtid == str(recorded.gtids) and self.mode is Mode.GTID:
            return
        named = self.executed_of(position)
        if self.mode is not Mode.GTID:
            if exact and named.file != recorded.file:
                raise _unknown(f"at its offset the file is {recorded.file}")
        elif exact and named.gtids != recorded.gtids:
            raise _unknown("its GTID set is not what this consumer has read up to its seq")
        elif not (named.contains(recorded) and self.queued.contains(named)):
            raise _unknown("its GTID set is not part of what this consumer has read")

    def check_history(self, position: Position) -> None:
        """Raises UserError for a position of another epoch or, without GTIDs, of another server.

        With GTIDs another server is accepted, because a set means the same on every replica.
        """
        if position.server != self.server and self.mode is not Mode.GTID:
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
        executed = executed_of(self.mode, position)
        if not executed.seq_fits(self.mode):
            parts = "GTID set" if self.mode is Mode.GTID else "file and offset"
            raise _unknown(f"its seq does not fit its {parts}")
        if self.mode is Mode.GTID and position.server != self.server:
            return without_file(executed)
        return executed

    def readable(
        self, after: Position, bytes_max: int, transactions_max: int | None = None
    ) -> ReadableRange:
        """Returns what can be read after a position: whole transactions, at least one if there is any."""
        start, _ = self.locate(after)
        index = self._index
        first, last = index.count_to(start), index.count_to(start + bytes_max)
        if first == index.count:
            return ReadableRange(self.position(self.queued), 0, 0)
        if transactions_max is not None:
            last = min(last, first + transactions_max)
        last = max(last, first + 1)
        # The last transaction is delivered with the markers behind it.
        end = self.queued if last == index.count else index.executed_after(last - 1)
        return ReadableRange(self.position(end), index.end(last - 1) - start, last - first)

    def deliver(self, end: Position) -> None:
        """Record that `end` of the newest readable range was handed out."""
        self.delivered_seq = max(self.delivered_seq, end.seq)
        # A position behind markers is recorded nowhere else.
        recorded = self._delivered[-1].seq if self._delivered else -1
        if recorded < end.seq == self.queued.seq:
            self._delivered.append(self.queued)

    def cut_points(
        self, start: Position, end: Position, n: int, *, inside: bool = False
    ) -> list[RangeCut]:
        """Returns at most n - 1 places strictly between, balanced by bytes: at transaction boundaries or, with
        `inside`, also inside of large transactions."""
        lo, hi = self.locate(start)[0], self.locate(end)[0]
        cuts = balanced_cuts(self._index, self._log, lo, hi, n, inside=inside)
        return [
            RangeCut(
                self.position(self._index.executed_after(cut.number)),
                cut.point.value if cut.point else None,
            )
            for cut in cuts
        ]

    def range_bytes(self, start: Position, end: Position) -> int:
        """Returns the bytes of (start, end]."""
        return self.locate(end)[0] - self.locate(start)[0]

    def range_transactions(self, start: Position, end: Position) -> int:
        """Returns the number of transactions of (start, end]."""
        count = self._index.count_to
        return count(self.locate(end)[0]) - count(self.locate(start)[0])

    def _range_end(self, position: Position, inside: EventPoint | None) -> RangeEnd:
        """Raises UserError as `locate` does, or if the transaction that ends at the position has no such point."""
        offset, _ = self.locate(position)
        if inside is None:
            return RangeEnd(offset)
        return inside_end(
            self._index, self._log, self._acknowledged_end, position.seq, offset, inside
        )

    def read(
        self,
        start: Position,
        end: Position,
        start_event: EventPoint | None = None,
        end_event: EventPoint | None = None,
    ) -> list[bytes | memoryview]:
        """Returns the binlog of (start, end]: magic, then FORMAT_DESCRIPTION wherever it changes, and the
        transactions.

        With `start_event` it begins at that point inside of the transaction that ends at `start`, with what a reader
        needs to decode the rest of it; with `end_event` it ends inside of the transaction that ends at `end`.
        """
        begin = self._range_end(start, start_event)
        lo, hi = begin.offset, self._range_end(end, end_event).offset
        if hi < lo:
            raise _unknown("the range ends before it starts")
        return [MAGIC, *formatted_bytes(self._formats, self._log, begin, hi)]

    def transactions_in(self, start: Position, end: Position) -> list[QueuedTransaction]:
        """Returns the transactions of (start, end]."""
        at, hi = self.locate(start)[0], self.locate(end)[0]
        formats = [start for start, _ in self._formats]
        out = []
        for number in range(self._index.count_to(at), self._index.count_to(hi)):
            run, index = self._index.at(number)
            begin, at = at, self._index.end(number)
            format_ = self._formats[bisect_right(formats, begin) - 1][1]
            parts = self._log.read(begin, at)
            out.append(QueuedTransaction(self.server, self.epoch, run, index, format_, parts))
        return out

    def acknowledge(self, position: Position) -> None:
        """Drop everything up to a position, which has been stored."""
        end, executed = self.locate(position)
        self._acknowledged_end = end
        self.acknowledged = executed
        transactions, events = self._index.drop(end)
        self.transactions -= transactions
        self.events -= events
        while len(self._formats) > 1 and self._formats[1][0] <= end:
            self._formats.popleft()
        self.files.drop_before(executed.file)
        self._log.drop(end)
        while self._delivered and self._delivered[0].seq <= executed.seq:
            self._delivered.popleft()
        self.delivered_seq = max(self.delivered_seq, executed.seq)

    @property
    def oldest_commit_us(self) -> int | None:
        """When the oldest transaction that is not acknowledged was committed, microseconds since 1970 UTC."""
        return self._index.commit_us(self._index.dropped) if self._index else None

    def commit_us_behind(self, position: Position) -> int | None:
        """When the first transaction behind a position was committed, as `oldest_commit_us`; None if none is here."""
        number = max(self._index.dropped, self._index.count_seq(position.seq))
        return self._index.commit_us(number) if number < self._index.count else None

    @property
    def covered(self) -> ExecutedPosition:
        """How far no transaction of the consumer lies beyond the acknowledged position."""
        return max(self.acknowledged, self._covered, key=_seq) if self._index else self.queued

    def covered_after(self, end: int, executed: ExecutedPosition) -> ExecutedPosition:
        """Returns what `covered` will be when (logical offset, executed position) is acknowledged."""
        if not self._index or end >= self._log.committed:
            return self.queued
        return max(executed, self._covered, key=_seq)


def _unknown(why: str) -> UserError:
    return UserError(ErrorKind.POSITION_UNKNOWN, why)
