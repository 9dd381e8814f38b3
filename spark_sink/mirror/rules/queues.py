"""The queues of work items of one consumer's tables. An item is an entry of rows, or what a statement does to the
table. The queues decide which table's step is executed next. Pure, not thread-safe.

A queue is free if none of its items is running, and if its pause is over. The first item (the head) of a free queue can
run if it is not a barrier (see `plan`). A barrier can run if it is the head of the queues of all its names, and if all
these queues are free. All queues contain their barriers in the log's order, so the oldest barrier becomes the head of
all its queues when the items before it are executed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from spark_sink.mirror.rules.plan import LostItem, RenameBarrier, Work, WorkItem, next_work
from spark_sink.mirror.values.names import TableName

ENTRIES_MAX = 10_000  # most entries of one step


@dataclass(slots=True)
class _Queue:
    items: deque[WorkItem] = field(default_factory=deque)
    running: int = 0  # number of items at the head that are being executed
    not_before: float = 0.0
    entries_max: int = ENTRIES_MAX


@dataclass(frozen=True, slots=True)
class QueuedStep:
    """A step that is being executed: items of one name, or a barrier of several names."""

    names: tuple[TableName, ...]
    work: Work


class TableQueues:
    """`bytes_max`: most payload bytes of a step with several entries. Times are seconds of a monotonic clock."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._queues: dict[TableName, _Queue] = {}
        self.items = 0
        self.inline_bytes = 0

    def add(self, name: TableName, item: WorkItem) -> None:
        self._queues.setdefault(name, _Queue()).items.append(item)
        self.items += 1
        self.inline_bytes += _inline_bytes(item)

    def names(self) -> Iterator[TableName]:
        """The names that have work."""
        return (name for name, queue in self._queues.items() if queue.items)

    def watermark(self, read: int) -> int:
        """Returns the lsn up to which no queue has items left; `read`: the lsn up to which entries were added."""
        heads = (_begin(queue.items[0]) for queue in self._queues.values() if queue.items)
        return min(read, min(heads, default=read + 1) - 1)

    def dealt_with(self, name: TableName, read: int) -> int:
        """Returns the lsn up to which the queue of a name has no items left; `read`: the lsn up to which entries were
        added."""
        queue = self._queues.get(name)
        return min(read, _begin(queue.items[0]) - 1) if queue and queue.items else read

    def lag(self, name: TableName) -> int:
        """Returns how many items wait for a name."""
        queue = self._queues.get(name)
        return len(queue.items) if queue else 0

    def start(self, now: float, busy: Iterable[TableName] = ()) -> QueuedStep | None:
        """Returns, of the steps that can run, the step with the oldest entry, and marks it as running. `busy`: names
        whose steps must not begin now, except barriers.
        """
        kept = set(busy)
        free = {
            name: queue
            for name, queue in self._queues.items()
            if queue.items and not queue.running and queue.not_before <= now
        }
        for name in sorted(free, key=lambda name: free[name].items[0].lsn):
            queue = free[name]
            head = queue.items[0]
            if not isinstance(head, RenameBarrier):
                if name in kept:
                    continue
                window = list(islice(queue.items, queue.entries_max))
                work, queue.running = next_work(window, self._bytes_max, queue.entries_max)
                return QueuedStep((name,), work)
            if all(other in free and free[other].items[0] is head for other in head.names):
                for other in head.names:
                    free[other].running = 1
                return QueuedStep(head.names, head)
        return None

    def next_time(self, now: float) -> float | None:
        """Returns the earliest time at which a queue's pause ends; None if no queue pauses."""
        times = (q.not_before for q in self._queues.values() if q.items and not q.running)
        return min((time for time in times if time > now), default=None)

    def done(self, step: QueuedStep, not_before: float = 0.0) -> None:
        """Remove the items of an executed step. The queue pauses until `not_before`."""
        for name in step.names:
            queue = self._queues[name]
            for _ in range(queue.running):
                item = queue.items.popleft()
                self.items -= 1
                self.inline_bytes -= _inline_bytes(item)
            queue.running, queue.not_before = 0, not_before
            queue.entries_max = min(ENTRIES_MAX, queue.entries_max * 2)
            if not queue.items and not_before == 0.0:
                del self._queues[name]

    def again(self, step: QueuedStep, not_before: float, *, alone: bool = False) -> None:
        """Schedule another attempt of a failed step for `not_before`; `alone`: the next attempt has only the step's
        first entry."""
        for name in step.names:
            queue = self._queues[name]
            queue.running, queue.not_before = 0, not_before
            if alone:
                queue.entries_max = 1


def _begin(item: WorkItem) -> int:
    """Returns the first lsn that an item covers."""
    return item.first if isinstance(item, LostItem) else item.lsn


def _inline_bytes(item: WorkItem) -> int:
    payload = getattr(item, "payload", None)
    return len(payload) if payload else 0
