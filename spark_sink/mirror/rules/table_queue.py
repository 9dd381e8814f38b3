"""The queue of one table's work items. Pure.

Items wait in memory (`items`) up to the table's share of the memory. The items after them stay in the log: `rest`
contains only the lsns (numbers of entries) between which these items are, and they are read again when the table's
steps come to them. Two kinds of items can stay in the log: entries of rows, and statements that concern only this
table. All other items (a RENAME, a statement that could not be understood, a gap, lost entries) are kept in memory,
because they belong to several tables, or cannot be made from their entry again. They are few and small, so their memory
is not counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from spark_sink.mirror.rules.plan import (
    LostItem,
    RenameBarrier,
    RowRun,
    StatementItem,
    Work,
    WorkItem,
    continues,
    next_work,
)
from spark_sink.mirror.values.entries import LogEntry
from spark_sink.mirror.values.names import TableName

ENTRIES_MAX = 10_000  # the most entries of one step
ITEM_BYTES = 1 << 10  # memory of an item without its payload and its texts


@dataclass(frozen=True, slots=True)
class LeftItems:
    """Adjacent items of a queue that are only in the log. `first`, `last`: the lsns between which all these items are,
    both included; `count`: the number of these items."""

    first: int
    last: int
    count: int


@dataclass(frozen=True, slots=True)
class QueuedStep:
    """A step that is being executed: items of one name, or a barrier of several names. `is_cut`: True if more items of
    the same kind waited, but did not fit into the step."""

    names: tuple[TableName, ...]
    work: Work
    is_cut: bool = False


@dataclass(slots=True)
class TableQueue:
    """`number`: the order of the queues of a consumer; `running`: number of items at the head that are being executed;
    `not_before`: the end of the queue's pause; `count`: number of items, including those that are only in the log;
    `held`: bytes of memory of the items that could also stay in the log; `is_read`: True while items are read from the
    log again. `items` is empty only if `rest` begins with items that are only in the log, or if no item waits."""

    name: TableName
    number: int
    items: deque[WorkItem] = field(default_factory=deque)
    rest: deque[WorkItem | LeftItems] = field(default_factory=deque)
    running: int = 0
    not_before: float = 0.0
    entries_max: int = ENTRIES_MAX
    count: int = 0
    held: int = 0
    is_read: bool = False

    @property
    def head(self) -> WorkItem | LeftItems | None:
        """The first item; None if no item waits."""
        if self.items:
            return self.items[0]
        return self.rest[0] if self.rest else None

    @property
    def begin(self) -> int | None:
        """The first lsn that an item of the queue covers; None if no item waits."""
        head = self.head
        if head is None:
            return None
        return head.first if isinstance(head, LeftItems | LostItem) else head.lsn

    @property
    def left(self) -> LeftItems | None:
        """The first items that are only in the log."""
        first = self.rest[0] if self.rest else None
        assert first is None or isinstance(first, LeftItems)
        return first

    def is_free(self, now: float) -> bool:
        return not self.running and self.not_before <= now

    def add(self, item: WorkItem, share: int) -> None:
        """Add an item. `share`: when the items in memory have this number of bytes, further items stay in the log."""
        self.count += 1
        over = bool(self.items) and self.held + held_bytes(item) > share
        if self.rest or (over and _can_stay(item)):
            self._add_behind(item, 1)
        else:
            self._hold(item)

    def _hold(self, item: WorkItem) -> None:
        self.items.append(item)
        self.held += held_bytes(item)

    def _add_behind(self, item: WorkItem | LeftItems, count: int) -> None:
        if not isinstance(item, LeftItems) and not _can_stay(item):
            self.rest.append(item)
            return
        first, last = (
            (item.first, item.last) if isinstance(item, LeftItems) else (item.lsn, item.lsn)
        )
        before = self.rest[-1] if self.rest else None
        if isinstance(before, LeftItems):
            self.rest[-1] = LeftItems(before.first, last, before.count + count)
        else:
            self.rest.append(LeftItems(first, last, count))

    def leave(self) -> None:
        """Leave in the log all items that can be read from it again later. No item may be running."""
        assert not self.running
        every = [*self.items, *self.rest]
        self.items.clear()
        self.rest.clear()
        self.held = 0
        for item in every:
            self._add_behind(item, item.count if isinstance(item, LeftItems) else 1)
        self._surface()

    def _surface(self) -> None:
        """Move the items at the beginning of `rest` that are in memory to `items`."""
        while self.rest:
            first = self.rest[0]
            if isinstance(first, LeftItems):
                return
            self.items.append(first)
            self.rest.popleft()

    def start(self, bytes_max: int) -> QueuedStep:
        """Returns the first step, and marks its items as running. The first item must not be a barrier."""
        window = list(islice(self.items, self.entries_max + 1))
        work, self.running = next_work(window, bytes_max, self.entries_max)
        is_cut = False
        if isinstance(work, RowRun):
            after = window[self.running] if self.running < len(window) else self.left
            is_like = isinstance(after, LogEntry) and continues(work.entries[0], after)
            is_cut = is_like or isinstance(after, LeftItems)
        return QueuedStep((self.name,), work, is_cut)

    def done(self, not_before: float) -> None:
        """Remove the running items. The queue pauses until `not_before`."""
        for _ in range(self.running):
            self.held -= held_bytes(self.items.popleft())
        self.count -= self.running
        self.running, self.not_before = 0, not_before
        self.entries_max = min(ENTRIES_MAX, self.entries_max * 2)

    def wants(self, share: int) -> bool:
        """True if few items are in memory, and the queue can use more. If a RENAME at the head waits, the items after
        it are read only after its execution."""
        waits = bool(self.items) and isinstance(self.items[0], RenameBarrier) and not self.running
        return bool(self.rest) and self.held * 2 < share and not (self.is_read or waits)

    def takes(self, to: int, items: Iterable[WorkItem], share: int) -> bool:
        """Take the first items that were only in the log. `items`: these items, up to the lsn `to`. When the items in
        memory have `share` bytes, the rest of `items` stays in the log. Returns False if a rest stays in the log."""
        left = self.left
        assert left is not None
        taken, read_to = 0, to
        for item in items:
            if self.items and self.held + held_bytes(item) > share:
                to = _begin(item) - 1
                break
            self._hold(item)
            taken += 1
        self.rest.popleft()
        remaining = max(0, left.count - taken) if to < left.last else 0
        self.count += taken + remaining - left.count
        if to < left.last:
            self.rest.appendleft(LeftItems(to + 1, left.last, remaining))
        else:
            self._surface()
        return to == read_to

    def splits(self, lost: LostItem) -> None:
        """Insert `lost` into the first items that are only in the log, at its place by its lsn. It is not known how
        many items are lost, so the count is wrong until the other items were read."""
        left = self.left
        assert left is not None
        self.rest.popleft()
        parts: list[WorkItem | LeftItems] = [lost]
        if left.first < lost.first:
            parts.insert(0, LeftItems(left.first, lost.first - 1, left.count))
        if lost.lsn < left.last:
            known = left.count if len(parts) == 1 else 0
            parts.append(LeftItems(lost.lsn + 1, left.last, known))
        self.rest.extendleft(reversed(parts))
        self.count += 1 - (left.count if len(parts) == 1 else 0)
        self._surface()


def held_bytes(item: WorkItem) -> int:
    """Returns the bytes of memory that are counted for an item; 0 for an item that cannot stay in the log."""
    if isinstance(item, LogEntry):
        return ITEM_BYTES + len(item.payload or b"") + len(item.table_map)
    if isinstance(item, StatementItem):
        statement = item.entry.statement
        return ITEM_BYTES + len("" if statement is None else statement.text)
    return 0


def _can_stay(item: WorkItem) -> bool:
    return isinstance(item, LogEntry | StatementItem)


def of_left(items: Sequence[tuple[TableName, WorkItem]], name: TableName) -> list[WorkItem]:
    """Returns those items of a table that were left in the log. `items`: all items of an entry that was read again."""
    return [item for of, item in items if of == name and _can_stay(item)]


def _begin(item: WorkItem) -> int:
    return item.first if isinstance(item, LostItem) else item.lsn
