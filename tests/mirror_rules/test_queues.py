"""Which items of the queues wait in memory, and which stay in the log and are read again."""

from __future__ import annotations

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.rules.plan import LostItem, RenameBarrier, RowRun
from spark_sink.mirror.rules.queues import TableQueues
from spark_sink.mirror.rules.table_queue import ITEM_BYTES, LeftItems, QueuedStep, TableQueue
from tests.mirror_rules.test_plan import A, B, C, entry, statement

LOST = BinlogError(ErrorKind.TARGET_FILES, "a file is lost")


def queues(*lsns: int, share: int = 2, parallel: int = 2) -> TableQueues:
    """Returns queues in which each table has memory for `share` entries, and table A waits with entries."""
    made = TableQueues(1 << 20, share * ITEM_BYTES * 2 * parallel, parallel)
    for lsn in lsns:
        made.add(A, entry(lsn, "a"))
    return made


def started(q: TableQueues, now: float = 0.0) -> QueuedStep:
    step = q.start(now)
    assert step is not None
    return step


def lsns(step: QueuedStep) -> list[int]:
    assert isinstance(step.work, RowRun)
    return [e.lsn for e in step.work.entries]


def wanted(q: TableQueues, now: float = 0.0) -> tuple[TableQueue, LeftItems]:
    """Returns the queue that reads items again, and what it reads."""
    assert q.start(now) is None
    queue = q.next_left(now)
    assert queue is not None and queue.left is not None
    return queue, queue.left


def emptied(q: TableQueues) -> None:
    """Execute steps until no item in memory can run."""
    while (step := q.start(0)) is not None:
        q.done(step)


def test_items_behind_the_share_of_a_table_stay_in_the_log() -> None:
    q = queues(1, 2, 3, 5)
    q.add(B, entry(4, "b"))
    assert (q.items, q.held) == (5, 3 * ITEM_BYTES)
    first = started(q)
    assert lsns(first) == [1, 2] and lsns(started(q)) == [4]
    q.done(first)
    assert (q.watermark(5), q.dealt_with(A, 5)) == (2, 2)
    queue, left = wanted(q)
    assert left == LeftItems(3, 5, 2)
    assert q.takes(queue, left, 5, [entry(3, "a"), entry(5, "a")])
    q.not_read(queue)
    assert lsns(started(q)) == [3, 5]


def test_statements_of_one_table_stay_in_the_log_and_renames_do_not() -> None:
    q = queues(1, 2, 3)
    barrier = RenameBarrier(statement(4), (), (A, B))
    for name in (A, B):
        q.add(name, barrier)
    q.add(A, entry(5, "a"))
    emptied(q)
    queue, left = wanted(q)
    assert left == LeftItems(3, 3, 1)
    assert q.takes(queue, left, 3, [entry(3, "a")])
    q.not_read(queue)
    q.done(started(q))
    assert started(q).work is barrier


def test_a_queue_that_cannot_run_leaves_its_items_if_the_memory_is_used() -> None:
    q = queues(1, 2)
    q.again(started(q), 60.0)
    for n in range(3):
        for lsn in (3, 4):
            q.add(("db", f"t{n}"), entry(lsn, f"t{n}"))
    assert q.held == 8 * ITEM_BYTES
    assert not q.is_full(0)
    assert (q.held, q.items, q.next_time(0)) == (6 * ITEM_BYTES, 8, 60.0)
    queue, left = wanted_after(q, 60.0)
    assert left == LeftItems(1, 2, 2)
    assert q.takes(queue, left, 2, [entry(1, "a"), entry(2, "a")])


def wanted_after(q: TableQueues, now: float) -> tuple[TableQueue, LeftItems]:
    while (step := q.start(now)) is not None:
        q.done(step)
    return wanted(q, now)


def test_items_that_wait_for_a_rename_leave_the_memory() -> None:
    barrier = RenameBarrier(statement(3), (), (A, B))
    q = queues(1)
    running = started(q)
    for name in (A, B):
        q.add(name, barrier)
    assert q.start(0) is None  # the RENAME waits for A
    for n, lsn in enumerate((4, 5, 6, 7)):
        q.add(B, entry(lsn, "b"))
        q.add(("db", f"t{n}"), entry(lsn, f"t{n}"))
    assert q.held == 7 * ITEM_BYTES
    q.add(("db", "t0"), entry(8, "t0"))
    assert not q.is_full(0) and q.held == 6 * ITEM_BYTES
    q.done(running)
    assert started(q).work is barrier


def test_memory_is_reserved_for_tables_that_read_again() -> None:
    q = queues(1, 2, 3)
    emptied(q)
    for n in range(4):
        assert not q.reserves()
        q.add(("db", f"t{n}"), entry(4, f"t{n}"))
    while q.start(0) is not None:
        pass
    assert q.reserves()


def test_an_answer_that_comes_too_late_is_not_used() -> None:
    q = queues(1, 2, 3, 4)
    step = started(q)
    queue = q.next_left(0)
    assert queue is None  # half of the share is in memory
    q.done(step)
    queue, left = wanted(q)
    assert q.takes(queue, left, 3, [entry(3, "a")])
    then = queue.left
    assert then is not None
    queue.leave()
    assert not q.takes(queue, then, 4, [entry(4, "a")])
    assert queue.left == LeftItems(3, 4, 2)


def test_items_that_are_lost_stop_their_table_only() -> None:
    q = queues(*range(1, 9))
    emptied(q)
    queue, left = wanted(q)
    q.lost(queue, left, LostItem(4, 5, LOST))
    assert queue.left == LeftItems(3, 3, 6)
    assert q.takes(queue, LeftItems(3, 3, 6), 3, [entry(3, "a")])
    q.not_read(queue)
    q.done(started(q))
    lost = started(q)
    assert lost.work == LostItem(4, 5, LOST) and q.watermark(8) == 3
    q.done(lost)
    queue, left = wanted(q)
    assert (left.first, left.last) == (6, 8)
    assert q.takes(queue, left, 8, [entry(6, "a"), entry(7, "a")])
    q.not_read(queue)
    assert q.items == 2


def test_a_queue_does_not_pause_while_more_waits_than_a_step_may_have() -> None:
    q = queues(1, 2, 3)
    q.done(started(q), 60.0)
    queue, left = wanted(q)
    assert q.takes(queue, left, 3, [entry(3, "a")])
    q.not_read(queue)
    last = started(q)
    q.add(A, entry(4, "a"))  # it came later
    q.done(last, 60.0)
    assert q.start(59.0) is None and lsns(started(q, 60.0)) == [4]


def test_a_failed_read_is_repeated_after_a_pause() -> None:
    q = queues(1, 2, 3)
    emptied(q)
    queue, _ = wanted(q)
    q.not_read(queue, 7.0)
    assert q.start(6.0) is None and q.next_left(6.0) is None and q.next_time(6.0) == 7.0
    assert wanted(q, 7.0)[0] is queue


def test_it_is_told_why_tables_wait() -> None:
    q = queues(1, 2, 3)
    q.again(started(q), 60.0)
    barrier = RenameBarrier(statement(4), (), (A, B))
    for name in (A, B):
        q.add(name, barrier)
    q.add(C, entry(5, "c"))
    found = {table.name: (table.entries, str(table.reason)) for table in q.waiting(1.0, {A})}
    assert found == {A: (4, "failing"), B: (1, "rename"), C: (1, "step")}
    assert {str(table.reason) for table in q.waiting(1.0, ())} == {"interval", "rename", "step"}


def test_no_heap_grows_while_a_table_waits() -> None:
    q = queues(1)
    q.again(started(q), 1e9)
    for lsn in range(2, 3000):
        q.add(B, entry(lsn, "b"))
        q.done(started(q))
    assert len(q._begins) + len(q._ready) + len(q._pausing) < 200
    assert q.watermark(3000) == 0
