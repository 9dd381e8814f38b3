"""What a consumer's queue holds, and how it is filled: bytes, an index of transactions, and positions.

A transaction is first queued, then delivered, and then acknowledged. The bytes lie in a `ConsumerLog`, which finds them
by *logical* offset (the number of bytes that were written into the log before them). A `TransactionIndex` records the
seq, the logical end and the position of every transaction. The queue finds the position of a reader by its seq, because
the seqs of one epoch order all positions of the queue. Between two transactions of the consumer, the server's log may
contain transactions that hold nothing for the consumer. A position between those is a *marker*: it reports progress
without data, and needs no entry in the index.

The *covered* position is the acknowledged position or a position after it in the log; no transaction of the consumer
lies between the two. The covered position never moves back, because the server may purge its log up to this position.
After an eviction (`evict`), the daemon reads the log again from this position to fill the queue.

The queues that have the same position as their dispatcher share one object with this position (`SharedPosition`), which
the dispatcher moves for all of them. So a batch without events for a consumer changes nothing in that consumer's queue.

Bound: a queue that is not full accepts a whole batch, so it holds in memory at most

    max(bytes_max, LARGE_MIN) + 2 * batch + segment_max

bytes. The bound counts the whole allocated size of each segment (a block of memory of the `ConsumerLog`), including the
unused part. `batch` is the size of the last batch's events with a record for each transaction; `segment_max` is an
eighth of `bytes_max`, at least 16 KiB and at most 4 MiB. While the daemon, after a restart, reads again the
transactions that a reader received before, the first term counts twice. A transaction that alone would hold more than
the first term is continued in segments from `allocate` (see `ConsumerLog`), which are not counted. There is at most one
such transaction: once it is complete, the queue is full until the transaction is acknowledged.
"""

from __future__ import annotations

from collections import deque
from operator import attrgetter
from typing import NamedTuple

from dispatcher.binlog.event.header import FormatDescription
from dispatcher.dispatch.queue.queue_files import QueueFiles
from dispatcher.dispatch.queue.transaction_index import TransactionIndex
from dispatcher.dispatch.values.executed_position import (
    BatchGtids,
    ExecutedPosition,
    Mode,
    without_file,
)
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import Position
from dispatcher.stream.batch import Batch
from dispatcher.stream.consumer_log import ConsumerLog
from dispatcher.stream.copying import Appended, CopiedShares
from dispatcher.stream.routes import Filter, Routes
from dispatcher.stream.segments import Allocate

DELIVERED_MAX = 64
SEGMENT_MAX = 1 << 22
LARGE_MIN = 1 << 20  # a transaction up to this size stays in memory, however small the queue

_seq = attrgetter("seq")


class FoundPosition(NamedTuple):
    """A position that was returned to a reader, and its place in the queue.

    `executed`: the last executed position that the queue has recorded with a seq of at most the position's seq.
    `number`: the number of the first transaction after the position. `offset`: the logical offset of the position.
    """

    position: Position
    executed: ExecutedPosition
    number: int
    offset: int


class SharedPosition:
    """The queued position of one queue, or of all queues that have the same position as their dispatcher. `changes`:
    how often a queue has joined or left this object."""

    __slots__ = ("changes", "executed")

    def __init__(self, executed: ExecutedPosition) -> None:
        self.executed = executed
        self.changes = 0


class QueueContents:
    """What a queue holds. The queue has no position until `reset()` was called. Every position that the queue returns
    contains the queue's `server` and `epoch`.

    `allocate`: allocates segments on disk for transactions that are larger than the queue; without `allocate` such
    transactions stay in memory.
    """

    def __init__(self, filter_: Filter, bytes_max: int, allocate: Allocate | None = None) -> None:
        self.filter = filter_
        self.bytes_max = bytes_max
        self.server = ""
        self.epoch = 0
        self.mode = Mode.GTID
        self.shared = SharedPosition(ExecutedPosition(GtidSet(), "", 0, 0))
        self.acknowledged = self._covered = self.queued
        self.delivered_seq = 0
        # Everything up to this seq was delivered before the daemon restarted, so the reader may ask for it again. The
        # queue accepts these transactions even beyond its limit: after the restart the batches may have other sizes,
        # which can make the queue a little larger than it was before.
        self.needed_seq = 0
        self.files = QueueFiles()
        self.transactions = self.events = (
            0  # numbers of transactions and events that are queued and not acknowledged
        )
        self.pushed_transactions = self.pushed_bytes = 0  # totals since the start
        self.newest_commit_us = 0  # commit time of the last pushed transaction
        # A segment has at most an eighth of the queue's size, so that acknowledged segments are soon freed.
        segment_max = min(SEGMENT_MAX, bytes_max // 8)
        self.log = ConsumerLog(
            segment_max, allocate=allocate, large_bytes=max(bytes_max, LARGE_MIN)
        )
        self._index = TransactionIndex()
        self._formats: deque[tuple[int, FormatDescription]] = deque()
        self._acknowledged_end = 0  # a logical offset
        self._appended_end = 0  # logical end of the transactions that `_count` has counted
        # The newest delivered positions, in order. Older delivered positions are found as ends of transactions in the
        # index.
        self._delivered: deque[ExecutedPosition] = deque(maxlen=DELIVERED_MAX)
        # The beginning and the end of the newest readable range. The reader will ask for the bytes between them, and
        # acknowledge the end.
        self._found: tuple[FoundPosition, ...] = ()

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
        """Begin (again) at a position: nothing is queued, and everything up to the position counts as acknowledged.

        `created`: creation time of the position's file, s since 1970, 0 = unknown; `anchored`: see `QueueFiles`.
        """
        self._drop_all()
        self.server, self.mode, self.epoch = server, mode, epoch
        self.queued = self.acknowledged = self._covered = executed
        self.files.begin(mode, executed, created, anchored=anchored)
        self.delivered_seq = executed.seq
        self.needed_seq = 0

    def move_to(self, server: str) -> None:
        """Continue with another server, which has the same transactions, but in other files. This is possible only with
        GTIDs."""
        self.server = server
        self.queued, self.acknowledged = without_file(self.queued), without_file(self.acknowledged)
        self._covered = without_file(self._covered)
        self.files.begin(self.mode, self.queued, 0, anchored=False)
        self._index.without_files()
        self._delivered = deque(map(without_file, self._delivered), maxlen=DELIVERED_MAX)
        self._found = ()

    def skip_to(self, server: str, mode: Mode, executed: ExecutedPosition, created: int) -> None:
        """Continue at a position, without the transactions before it. The queue begins a new epoch, because its
        transactions are no longer a complete history."""
        self.reset(server, mode, self.epoch + 1, executed, created, anchored=True)

    def evict(self) -> None:
        """Drop everything that is not acknowledged. The daemon reads the dropped transactions from the server again,
        starting at the covered position.

        Positions that were returned to readers stay valid, but their ranges are unavailable until the daemon has read
        the transactions again. Do not call this while a transaction is being read.
        """
        self.queued = self.covered
        self._drop_all()

    def _drop_all(self) -> None:
        self.log.rollback()
        self.log.drop(self.log.committed)
        self._index.clear()
        self._delivered.clear()
        self._found = ()
        self.transactions = self.events = 0
        self._acknowledged_end = self.log.committed
        while len(self._formats) > 1:
            self._formats.popleft()

    # -- filling ---------------------------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """Memory that the queue holds: the allocated size of its segments, including acknowledged segments that are
        still on their way to a reader."""
        return self.log.allocated

    @property
    def lent_bytes(self) -> int:
        """Memory of acknowledged segments that are still on their way to a reader."""
        return self.log.lent

    @property
    def evictable_bytes(self) -> int:
        """Memory that `evict` gives back."""
        return self.log.kept

    @property
    def spilled_bytes(self) -> int:
        """Space on disk that the queue holds: the size of its allocated segments."""
        return self.log.spilled

    @property
    def unacknowledged_bytes(self) -> int:
        return self.log.committed - self._acknowledged_end

    @property
    def refetching(self) -> bool:
        """True while the daemon, after a restart, reads again the transactions that the reader received before."""
        return self.queued.seq < self.needed_seq

    @property
    def full(self) -> bool:
        """True if the queue accepts no batch.

        A reader can read a transaction only when it is complete, so the queue accepts all of a transaction that has
        begun. Therefore only complete transactions make a queue full, and a reader can always make room.
        """
        if not self.transactions:
            return False
        if self.refetching:
            return self.log.allocated >= 2 * max(self.bytes_max, LARGE_MIN)
        spilled = self.log.spilled_end > self._acknowledged_end
        return spilled or self.log.allocated >= self.bytes_max

    @property
    def has_room(self) -> bool:
        """True if the queue is at most half full, or refetching and not full. With less room, a new connection would
        not be worth its cost."""
        if self.full:
            return False
        return self.log.kept <= self.bytes_max // 2 or self.refetching

    @property
    def queued(self) -> ExecutedPosition:
        return self.shared.executed

    @queued.setter
    def queued(self, executed: ExecutedPosition) -> None:
        self.shared.changes += 1
        self.shared = SharedPosition(executed)

    def join(self, shared: SharedPosition) -> None:
        """From now on, use the shared position `shared`, which must equal the queue's own position."""
        self.shared.changes += 1
        shared.changes += 1
        self.shared = shared

    def leave(self) -> None:
        """From now on, the queue has its own position, which at first equals the shared position."""
        self.queued = self.shared.executed

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
        """Append the events of a batch that the consumer gets.

        `after`: the dispatcher's position after the batch. `in_sync`: True if the queue and the dispatcher had the same
        position before the batch. If False, the queue may contain a part of the batch already.

        Raises BinlogError if there is no room on disk. Then no transaction of the batch is in the queue, and the caller
        must call `rollback()`.
        """
        in_sync = in_sync and gtids.all_after(self.mode, self.queued)
        already_executed = None if in_sync else gtids.already_executed(self.mode, self.queued)
        base = self.queued.gtids
        appended, seq = self.log.append(
            batch, self.filter.route_mask(routes), already_executed, epoch=self.epoch, seq=self.queued.seq,
            packed=not self.mode.by_gtid, gains=gtids.gains(base) if self.mode is Mode.DOMAINS else None,
        )  # fmt: skip
        self.files.read(batch.file, created)
        count = len(appended.tx)
        if count:
            self._add(gtids, appended)
            events, commit_us = int(appended.events.sum()), int(appended.commit_us[-1])
            self._count(batch.format, count, events, commit_us)
        if not in_sync and not self.mode.by_gtid:
            seq = after.seq
        if not in_sync and seq <= self.queued.seq:
            return  # the consumer has all of the batch already
        if not count:
            self.pass_over(gtids)
        if not in_sync:
            queued_gtids = gtids.after(base, len(gtids.source))
            after = ExecutedPosition(queued_gtids, after.file, after.offset, seq)
        if not is_behind(after, self.queued):
            self.queued = after

    def take(
        self, format_: FormatDescription, gtids: BatchGtids, copying: CopiedShares, lane: int
    ) -> None:
        """Count the transactions, at least one, that `copying` has appended to this queue's log, which is lane number
        `lane` of `copying`. Call this method while `queued` is still the position before the batch."""
        count, _, events, commit_us, kept = copying.totals[lane]
        if not (kept and self._index.extend(gtids, count)):
            self._add(gtids, copying.appended(lane))
        self._count(format_, count, events, commit_us)

    def _add(self, gtids: BatchGtids, appended: Appended) -> None:
        if not self._index:
            self._covered = self.queued
        run = self._index.add(gtids, self.queued.gtids, appended)
        self.log.keep_columns(run.columns, run.count, len(run.intervals) - 1)

    def _count(self, format_: FormatDescription, count: int, events: int, commit_us: int) -> None:
        """Count transactions. `events`: the number of events of all these transactions; `commit_us`: the commit time of
        the last transaction."""
        start = self._appended_end
        self._appended_end = self.log.committed
        if not self._formats or self._formats[-1][1] is not format_:
            self._formats.append((start, format_))
        self.newest_commit_us = commit_us
        self.transactions += count
        self.events += events
        self.pushed_transactions += count
        self.pushed_bytes += self._appended_end - start

    def pass_over(self, gtids: BatchGtids) -> None:
        """Move the position over a batch that has no transaction of the consumer."""
        self._index.skip_batch(gtids)

    def rollback(self) -> None:
        """Drop the beginning of a transaction whose rest does not follow, because the connection was lost or the disk
        has no room."""
        self.log.rollback()

    # -- progress --------------------------------------------------------------------------------------------

    @property
    def oldest_commit_us(self) -> int | None:
        """When the oldest transaction that is not acknowledged was committed, microseconds since 1970 UTC."""
        return self._index.commit_us(self._index.dropped) if self._index else None

    def commit_us_behind(self, position: Position) -> int | None:
        """When the first transaction after a position was committed, microseconds since 1970 UTC; None if the queue has
        no transaction there."""
        remembered = self._remembered(position)
        number = self._index.count_seq(position.seq) if remembered is None else remembered.number
        number = max(self._index.dropped, number)
        return self._index.commit_us(number) if number < self._index.count else None

    def _remembered(self, position: Position) -> FoundPosition | None:
        """Returns where a position lies if it is an end of the newest readable range."""
        for end in self._found:
            if end.position == position and position.seq >= self.acknowledged.seq:
                return end
        return None

    @property
    def covered(self) -> ExecutedPosition:
        """The covered position: the log holds no transaction of the consumer between the acknowledged and this
        position."""
        return max(self.acknowledged, self._covered, key=_seq) if self._index else self.queued

    def covered_after(self, end: int, executed: ExecutedPosition) -> ExecutedPosition:
        """Returns what `covered` will be when `executed`, at the logical offset `end`, is acknowledged."""
        if not self._index or end >= self.log.committed:
            return self.queued
        return max(executed, self._covered, key=_seq)


def is_behind(after: ExecutedPosition, queued: ExecutedPosition) -> bool:
    """True if both positions have the same seq, and `queued` lies further ahead in the log."""
    return after.seq == queued.seq and after.log_order < queued.log_order
