"""The queues of work items of one consumer's tables. An item is an entry of rows, or what a statement does to the
table. The queues decide which table's step is executed next, and which items wait in memory. Pure, not thread-safe.

A queue is free if none of its items is running, and if its pause is over. The first item (the head) of a free queue can
run if it is not a barrier (see `plan`). A barrier can run if it is the head of the queues of all its names, and if all
these queues are free. No barrier waits forever: all queues contain their barriers in the log's order, so when the items
before the oldest barrier are executed, it is the head of all its queues.

Memory. If a table's steps have to wait, this must not delay other tables, so the log is read further meanwhile. The
memory of all items is limited (`held_max`), and each table has a share of it: the items beyond a table's share stay in
the log (see `table_queue`). If the limit is reached, the items of the queues that cannot run now leave the memory, too.
The queues whose steps are running have at most half of the limit. So if the limit is still reached, items of queues
that can run take at least half of it. Their steps will free memory; until then, the log is not read further.

The methods that the rules call in each step must not take a time that is proportional to the number of tables. So a
queue is put into a heap when its head changes. An entry of a heap is valid if the queue has not changed since then.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop, heappush
from types import MappingProxyType

from spark_sink.mirror.rules.plan import LostItem, RenameBarrier, WorkItem
from spark_sink.mirror.rules.table_queue import LeftItems, QueuedStep, TableQueue
from spark_sink.mirror.values.names import TableName

NO_NAMES: Mapping[TableName, float] = MappingProxyType({})


class WaitReason(StrEnum):
    """Why the next step of a table does not begin."""

    FAILING = "failing"  # the table's step has failed, and is repeated after a pause
    INTERVAL = "interval"  # the policy wants a pause between two steps
    RENAME = "rename"  # the next entry is a RENAME, which waits for another table
    STEP = "step"  # the table's step runs, or is one of the next steps


@dataclass(frozen=True, slots=True)
class WaitingTable:
    """A table with entries that are not applied. `entries`: the number of these entries; `reason`: why the table's next
    step does not begin."""

    name: TableName
    entries: int
    reason: WaitReason


class TableQueues:
    """The queues of all tables. Times are seconds of a monotonic clock. `items`: number of items that wait or run,
    including those that are only in the log; `held`: bytes of memory of the items that could also stay in the log."""

    def __init__(self, step_bytes_max: int, held_max: int = 256 << 20, parallel: int = 2) -> None:
        """`step_bytes_max`: most payload bytes of a step with several entries; `held_max`: when the items in memory
        have this many bytes, the log is no longer read; `parallel`: how many steps run at the same time."""
        self._step_bytes_max, self._held_max = step_bytes_max, held_max
        self._share = held_max // (2 * parallel)
        self._queues: dict[TableName, TableQueue] = {}
        self._last_number = 0
        # Heaps, whose entries end with the number and the name of a queue.
        self._pausing: list[tuple[float, int, TableName]] = []  # by the end of the pause
        self._ready: list[tuple[int, int, TableName]] = []  # free queues, by their begin
        self._begins: list[tuple[int, int, TableName]] = []  # all queues, by their begin
        self._idle: dict[
            TableName, None
        ] = {}  # queues that have items in memory and may be unable to run
        self._wanting: dict[
            TableName, None
        ] = {}  # queues that want to read items from the log again
        self.items = 0
        self.held = 0

    def add(self, name: TableName, item: WorkItem) -> None:
        queue = self._queues.get(name)
        if queue is None:
            self._last_number += 1
            queue = self._queues[name] = TableQueue(name, self._last_number)
        was_empty, held = queue.head is None, queue.held
        queue.add(item, self._share)
        self.items += 1
        self._count(queue, held)
        if was_empty:
            self._schedule(queue)
        elif queue.not_before or isinstance(queue.head, RenameBarrier):
            self._idle[name] = None

    def names(self) -> Iterator[TableName]:
        """The names whose queues contain items."""
        return (name for name, queue in self._queues.items() if queue.count)

    def waiting(self, now: float, failing: Container[TableName]) -> Iterator[WaitingTable]:
        """The tables whose queues contain items. `failing`: the tables whose last step has failed."""
        for name, queue in self._queues.items():
            if queue.count:
                reason = WaitReason.STEP
                if not queue.running and queue.not_before > now:
                    reason = WaitReason.FAILING if name in failing else WaitReason.INTERVAL
                elif not queue.running and not self._can_run(queue, now, NO_NAMES):
                    reason = WaitReason.RENAME
                yield WaitingTable(name, queue.count, reason)

    def watermark(self, read: int) -> int:
        """Returns the lsn up to which no queue contains items any more; `read`: the lsn up to which the log's entries
        were added to the queues."""
        while self._begins:
            begin, number, name = self._begins[0]
            queue = self._queues.get(name)
            if queue is not None and (queue.number, queue.begin) == (number, begin):
                return min(read, begin - 1)
            heappop(self._begins)
        return read

    def dealt_with(self, name: TableName, read: int) -> int:
        """Returns the lsn up to which the queue of a name contains no items any more; `read`: the lsn up to which the
        log's entries were added to the queues."""
        queue = self._queues.get(name)
        begin = None if queue is None else queue.begin
        return read if begin is None else min(read, begin - 1)

    # -- steps -------------------------------------------------------------------------------------------------

    def start(self, now: float, busy: Mapping[TableName, float] = NO_NAMES) -> QueuedStep | None:
        """Chooses, of the steps that can run, the step with the oldest entry. Marks it as running, and returns it.
        `busy`: for some names, the lsn up to which no step may begin now, except a barrier.
        """
        self._wake(now)
        skipped: list[tuple[int, int, TableName]] = []
        step: QueuedStep | None = None
        while self._ready and step is None:
            entry = heappop(self._ready)
            queue = self._free(entry, now)
            if queue is None:
                continue
            match queue.head:
                case RenameBarrier() as barrier:
                    step = self._start_barrier(barrier, now)
                    if step is None:
                        # The barrier starts when the last of its queues has reached it.
                        self._idle[queue.name] = None
                case _ if _is_busy(queue, busy):
                    skipped.append(entry)
                    self._idle[queue.name] = None
                case LeftItems():
                    self._wanting[queue.name] = None
                case _:
                    step = queue.start(self._step_bytes_max)
                    self._want(queue)
        for entry in skipped:
            heappush(self._ready, entry)
        return step

    def _start_barrier(self, barrier: RenameBarrier, now: float) -> QueuedStep | None:
        queues = [self._queues[name] for name in barrier.names]
        if not all(queue.is_free(now) and queue.head is barrier for queue in queues):
            return None
        for queue in queues:
            queue.running = 1
        return QueuedStep(barrier.names, barrier)

    def next_time(self, now: float) -> float | None:
        """Returns the earliest time at which a queue's pause ends; None if no queue pauses."""
        self._wake(now)
        while self._pausing:
            if self._paused(self._pausing[0]) is not None:
                return self._pausing[0][0]
            heappop(self._pausing)
        return None

    def done(self, step: QueuedStep, not_before: float = 0.0) -> None:
        """Remove the items of an executed step. The queue pauses until `not_before`, unless more items waited than the
        step could contain."""
        not_before = 0.0 if step.is_cut else not_before
        for name in step.names:
            queue = self._queues[name]
            held = queue.held
            self.items -= queue.running
            queue.done(not_before)
            self._count(queue, held)
            if queue.head is None and not_before == 0.0:
                del self._queues[name]
            else:
                self._schedule(queue)

    def again(self, step: QueuedStep, not_before: float, *, alone: bool = False) -> None:
        """Schedule another attempt of a failed step for the time `not_before`. `alone`: True if the next attempt has
        only the step's first entry."""
        for name in step.names:
            queue = self._queues[name]
            queue.running, queue.not_before = 0, not_before
            if alone:
                queue.entries_max = 1
            self._schedule(queue)

    def resume(self, name: TableName) -> None:
        """End the pause of a queue, because a copy of the table waits for the queue, and other copies wait for that
        copy."""
        queue = self._queues.get(name)
        if queue is not None and not queue.running:
            queue.not_before = 0.0
            self._schedule(queue)

    # -- memory ------------------------------------------------------------------------------------------------

    def is_full(self, now: float, busy: Mapping[TableName, float] = NO_NAMES) -> bool:
        """True if no more items fit into memory. If the limit is reached, first removes the items of queues that cannot
        run now from memory. `busy`: see `start`."""
        if self.held < self._held_max:
            return False
        idle, self._idle = self._idle, {}
        for name in idle:
            queue = self._queues.get(name)
            if queue is None or queue.running or self._can_run(queue, now, busy):
                continue
            held = queue.held
            queue.leave()
            self._count(queue, held)
        return self.held >= self._held_max

    def _can_run(self, queue: TableQueue, now: float, busy: Mapping[TableName, float]) -> bool:
        match queue.head:
            case RenameBarrier(names=names) as barrier:
                queues = [self._queues[name] for name in names]
                return all(q.is_free(now) and q.head is barrier for q in queues)
        return queue.is_free(now) and not _is_busy(queue, busy)

    def reserves(self) -> bool:
        """True if the remaining memory is reserved for the queues that want to read items from the log again."""
        return bool(self._wanting) and self.held * 2 >= self._held_max

    def next_left(
        self, now: float, busy: Mapping[TableName, float] = NO_NAMES
    ) -> TableQueue | None:
        """Returns a queue that needs items which are only in the log, and that has memory for them. The caller reads
        these items, and then calls `takes`, `lost` or `not_read`. `busy`: see `start`."""
        if not self._wanting or self.is_full(now, busy):
            return None
        while self._wanting:
            name = next(iter(self._wanting))
            del self._wanting[name]
            queue = self._queues.get(name)
            if queue is not None and queue.not_before <= now and queue.wants(self._share):
                queue.is_read = True
                return queue
        return None

    def takes(
        self, queue: TableQueue, asked: LeftItems, to: int, items: Iterable[WorkItem]
    ) -> bool:
        """Take items of a queue that were read again. `asked`: the items that were to be read; `to`, `items`: see
        `TableQueue.takes`. Returns False if the queue cannot take more items."""
        held, count, was = queue.held, queue.count, queue.begin
        goes_on = queue.left is not None and queue.left.first == asked.first
        goes_on = goes_on and queue.takes(to, items, self._share)
        self._changed(queue, held, count, was)
        return goes_on

    def lost(self, queue: TableQueue, asked: LeftItems, item: LostItem) -> None:
        """Record that some of the items `asked` are lost. `item`: stands for the lost items."""
        held, count, was = queue.held, queue.count, queue.begin
        if queue.left is not None and queue.left.first == asked.first:
            queue.splits(item)
        self._changed(queue, held, count, was)

    def reads_on(self, queue: TableQueue) -> bool:
        """True if the queue can take more items that are only in the log."""
        return queue.left is not None and queue.held < self._share and self.held < self._held_max

    def not_read(self, queue: TableQueue, not_before: float = 0.0) -> None:
        """Record that a queue reads no more items now. `not_before`: the time of the next attempt, if the read has
        failed."""
        queue.is_read = False
        if not queue.items and not queue.running:
            queue.not_before = max(queue.not_before, not_before)
        self._schedule(queue)

    def _changed(self, queue: TableQueue, held: int, count: int, begin: int | None) -> None:
        self.items += queue.count - count
        self._count(queue, held)
        if queue.begin != begin and queue.begin is not None:
            heappush(self._begins, (queue.begin, queue.number, queue.name))

    # -- heaps -------------------------------------------------------------------------------------------------

    def _count(self, queue: TableQueue, before: int) -> None:
        self.held += queue.held - before

    def _want(self, queue: TableQueue) -> None:
        if queue.wants(self._share):
            self._wanting[queue.name] = None

    def _schedule(self, queue: TableQueue) -> None:
        begin = queue.begin
        if begin is None:
            return
        heappush(self._begins, (begin, queue.number, queue.name))
        if len(self._begins) > 2 * len(self._queues) + 100:
            self._begins = [
                (q.begin, q.number, q.name) for q in self._queues.values() if q.begin is not None
            ]
            heapify(self._begins)
        if not queue.running:
            heappush(self._pausing, (queue.not_before, queue.number, queue.name))
        if queue.not_before:
            self._idle[queue.name] = None

    def _wake(self, now: float) -> None:
        """Put the queues whose pause is over into `_ready`."""
        while self._pausing and self._pausing[0][0] <= now:
            queue = self._paused(heappop(self._pausing))
            if queue is not None and queue.begin is not None:
                heappush(self._ready, (queue.begin, queue.number, queue.name))

    def _paused(self, entry: tuple[float, int, TableName]) -> TableQueue | None:
        """Returns the queue of a valid entry of `_pausing`."""
        not_before, number, name = entry
        queue = self._queues.get(name)
        is_valid = queue is not None and queue.number == number and queue.not_before == not_before
        return queue if queue and is_valid and queue.head and not queue.running else None

    def _free(self, entry: tuple[int, int, TableName], now: float) -> TableQueue | None:
        """Returns the queue of a valid entry of `_ready`."""
        begin, number, name = entry
        queue = self._queues.get(name)
        is_valid = queue is not None and (queue.number, queue.begin) == (number, begin)
        return queue if queue and is_valid and queue.is_free(now) else None


def _is_busy(queue: TableQueue, busy: Mapping[TableName, float]) -> bool:
    return queue.begin is not None and queue.begin <= busy.get(queue.name, -1)
