"""If a dispatcher adds a batch to the queues of all level consumers at once, each queue gets the same as if the batch
were pushed into it alone."""

from __future__ import annotations

import random
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dispatcher.binlog.event.header import HEADER_SIZE
from dispatcher.binlog.event.record import parse_record
from dispatcher.dispatch.messages.effects import Effect
from dispatcher.dispatch.messages.events import Input
from dispatcher.dispatch.queue import queue_contents
from dispatcher.dispatch.queue.queue import Queue
from dispatcher.dispatch.values.executed_position import Mode
from dispatcher.dispatch.values.specs import ConsumerSpec, Earliest
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.stream import copying
from dispatcher.stream.consumer_log import ConsumerLog
from tests.support.consumer_logs import open_bytes
from tests.support.event_encoder import LogWriter, Statement
from tests.support.fake_server import Server
from tests.support.random_log import random_log, random_wanted
from tests.support.simulation import World

SEEDS = st.integers(0, 2**32 - 1)
WRITER = {Mode.GTID: "mysql", Mode.FILE: "none", Mode.MARIADB: "mariadb", Mode.DOMAINS: "domains"}
ORDERS, BILLS, PEOPLE = ("shop", "orders"), ("billing", "bills"), ("crm", "people")


class Disk:
    """Allocates memory instead of segments on disk. `refuses`: the numbers of the calls that fail; `divisor`: a call
    fails if its size is divisible by this number."""

    def __init__(self, refuses: frozenset[int] = frozenset(), divisor: int = 0) -> None:
        self.calls = self.lent = 0
        self._refuses = refuses
        self._divisor = divisor

    def __call__(self, size: int) -> NDArray[np.uint8]:
        self.calls += 1
        if self.calls in self._refuses or (self._divisor and size % self._divisor == 0):
            raise BinlogError(ErrorKind.SPILL, "no room")
        loan = np.zeros(size, dtype=np.uint8)
        self.lent += size
        weakref.finalize(loan, self._back, size)
        return loan

    def _back(self, size: int) -> None:
        self.lent -= size


class Recorded(World):
    """A world that records the state of all queues after each step."""

    def stepped(self, event: Input, effects: list[Effect]) -> None:
        if not hasattr(self, "states"):
            self.states: list[str] = []
        self.states.append(f"{type(event).__name__} {effects}")
        for name, consumer in self.client.consumers.items():
            self.states.append(f"{name}: {consumer.dispatcher} {state(consumer.queue)}")


def state(queue: Queue) -> tuple[object, ...]:
    """Returns the state of a queue, as far as readers, the store or the memory limits depend on it, with the newest
    transactions."""
    log, index = queue.log, queue._index  # no public method returns all positions
    numbers = range(max(index.dropped, index.count - 5), index.count)
    return (
        *(queue.queued, queue.covered, queue.acknowledged, queue.newest_commit_us),
        *(queue.transactions, queue.events, queue.pushed_transactions, queue.pushed_bytes),
        *(queue.held_bytes, queue.spilled_bytes, queue.full, open_bytes(log), len(log.cut_points)),
        *(queue.files.created_of(queue.queued.file), queue.files.is_anchored(queue.queued)),
        [(index.executed_after(n), index.end(n), index.commit_us(n)) for n in numbers],
        zlib.crc32(b"".join(log.read(queue._acknowledged_end, log.committed))),
        [start for start, _ in queue._formats],
    )


@contextmanager
def small_memory(rng: random.Random) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if rng.random() < 0.7:
            patch.setattr(queue_contents, "LARGE_MIN", rng.choice((300, 3000)))
            patch.setattr(ConsumerLog, "SEGMENT_MIN", rng.choice((64, 1000)))
            patch.setattr(ConsumerLog, "SPILLED_MIN", 700)
            patch.setattr(ConsumerLog, "CUT_BYTES", rng.choice((1, 500)))
        yield


def played(seed: int, mode: Mode, *, alone: bool) -> list[str]:
    """Returns the state of all queues after each step of a history. `alone`: True if no consumer ever counts as level
    with another."""
    rng = random.Random(seed)
    log = random_log(rng, gtid=WRITER[mode], size_max=rng.choice((30, 3000)), transactions=12)
    specs = []
    for n in range(rng.choice((1, 2, 5))):
        wanted = random_wanted(rng)
        specs.append(
            ConsumerSpec(
                f"c{n}",
                wanted.databases,
                wanted.tables,
                rng.choice((1, 20_000, 1 << 22)),
                Earliest(),
                exclude_tables=wanted.exclude_tables,
            )
        )
    # The disk fails by size, so its failures do not depend on the order in which queues are served.
    disk = Disk(divisor=rng.choice((0, 0, 5)))
    with small_memory(rng), pytest.MonkeyPatch.context() as patch:
        if alone:
            patch.setattr(Queue, "join", lambda _queue, _shared: None)
        patch.setattr(Recorded, "allocate", staticmethod(disk))
        world = Recorded(rng, Server(log, mode), specs, largest_transaction=1 << 20)
        for _ in range(rng.choice((10, 30))):
            world.connect()
            for _ in range(rng.choice((1, 5))):
                world.read()
            if rng.random() < 0.1:
                world.lose()
            for spec in specs:
                if rng.random() < 0.3:
                    world.poll(spec.name)
            world.tick_quietly()
        return world.states


@pytest.mark.parametrize("mode", Mode)
@given(seed=SEEDS)
def test_level_queues_hold_what_each_holds_alone(mode: Mode, seed: int) -> None:
    assert played(seed, mode, alone=False) == played(seed, mode, alone=True)


def world_of(log: LogWriter, *databases: str, allocate: Disk | None = None) -> World:
    specs = [ConsumerSpec(name, (name,), None, 1 << 20, Earliest()) for name in databases]
    world = World(random.Random(0), Server(log, Mode.GTID), specs)
    world.allocate = allocate
    world.boot()
    world.connect()
    return world


def one_row_each(*tables: tuple[str, str], size: int = 10) -> LogWriter:
    log = LogWriter()
    for table in tables:
        log.begin()
        log.statement(Statement((table,), ((0, size),)))
        log.commit()
    return log


def by_bytes(world: World, size: int) -> World:
    """Makes the batches of a world small."""
    connection = world.connection
    assert connection is not None
    connection.sizes = (size,)
    return world


def test_level_consumers_share_one_position() -> None:
    world = by_bytes(world_of(one_row_each(*[ORDERS, BILLS] * 20), "shop", "crm"), 300)
    shop, crm = (world.client.consumers[name].queue for name in ("shop", "crm"))
    world.read_all()
    assert shop.shared is crm.shared
    assert shop.queued is world.client.dispatchers[1].read
    assert (shop.transactions, crm.transactions) == (20, 0)


def test_a_batch_does_not_touch_queues_that_get_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = by_bytes(world_of(one_row_each(*[ORDERS] * 40), "shop", "crm", "billing"), 300)
    while world.client.consumers["shop"].queue.transactions < 10:
        world.read()
    finished: list[ConsumerLog] = []
    finish = ConsumerLog.finish

    def record(log: ConsumerLog, copied: copying.CopiedShares, lane: int) -> None:
        finished.append(log)
        finish(log, copied, lane)

    monkeypatch.setattr(ConsumerLog, "finish", record)
    monkeypatch.setattr(Queue, "push", None)
    world.read_all()
    shop = world.client.consumers["shop"].queue
    assert shop.transactions == 40
    assert len(finished) >= 10 and set(map(id, finished)) == {id(shop.log)}


def test_a_consumer_that_is_detached_keeps_its_position() -> None:
    world = by_bytes(world_of(one_row_each(*[ORDERS, BILLS] * 20), "shop", "billing"), 300)
    while world.client.consumers["shop"].queue.transactions < 5:
        world.read()
    shop, billing = (world.client.consumers[name] for name in ("shop", "billing"))
    position = shop.queue.queued
    world.client.dispatchers[1].detach(shop, world.now)
    shop.attach_after = 1e9
    while billing.queue.transactions < 15:
        world.read()
    assert shop.queue.queued == position
    assert billing.queue.queued.seq > position.seq


def test_a_level_consumer_without_room_does_not_move_and_others_do() -> None:
    log = one_row_each(ORDERS, BILLS, BILLS)
    log.begin()
    log.statement(Statement((ORDERS, BILLS), tuple((0, 400_000) for _ in range(6))))
    log.commit()
    disk = Disk(frozenset({1}))
    world = by_bytes(world_of(log, "shop", "billing", allocate=disk), 16_000)
    shop, billing = (world.client.consumers[name] for name in ("shop", "billing"))
    while shop.error is None:
        world.read()
    assert shop.dispatcher is None and shop.queue.queued.seq == 3
    assert (shop.queue.transactions, open_bytes(shop.queue.log)) == (1, 0)
    dispatcher = world.client.dispatchers[1]
    assert dispatcher.attached == [billing]
    while billing.queue.queued.seq < 4:
        world.read()
    assert shop.queue.queued.seq == 3
    world.finish()
    assert world.readers["shop"].transactions == 2
    assert disk.calls > 1


def test_a_rolled_back_savepoint_from_before_the_first_row_of_a_consumer() -> None:
    """Before its first row, the consumer's log does not examine batches, so it does not contain the savepoint."""
    log = LogWriter()
    for _ in range(3):
        log.begin()
        log.savepoint("a")
        log.statement(Statement((BILLS,), ((0, 2000), (0, 2000))))
        log.statement(Statement((ORDERS,), ((0, 2000),)))
        log.undo("a")
        log.statement(Statement((ORDERS,), ((0, 7),)))
        log.commit()
    world = by_bytes(world_of(log, "shop", "billing", "crm"), 500)
    world.finish()
    assert [world.readers[name].transactions for name in ("shop", "billing", "crm")] == [3, 0, 0]


def test_files_and_anchors_are_told_to_level_consumers() -> None:
    log = one_row_each(ORDERS, ORDERS)
    log.rotate()
    for table in (ORDERS, ORDERS, BILLS):
        log.begin()
        log.statement(Statement((table,), ((0, 10),)))
        log.commit()
    world = by_bytes(world_of(log, "shop", "crm"), 200)
    world.read_all()
    shop, crm = (world.client.consumers[name].queue for name in ("shop", "crm"))
    created = shop.files.created_of(shop.queued.file)
    assert created and crm.files.created_of(crm.queued.file) == created
    assert shop.files.is_anchored(shop.queued) and crm.files.is_anchored(crm.queued)


def test_transactions_behind_a_gap_have_the_epoch_of_their_queue() -> None:
    world = by_bytes(world_of(one_row_each(*[ORDERS] * 6), "shop"), 300)
    queue = world.client.consumers["shop"].queue
    while queue.transactions < 2:
        world.read()
    world.lose()
    queue.skip_to(queue.server, queue.mode, queue.queued, 0)  # as a login after a gap does
    world.connect()
    world.read_all()
    assert queue.epoch == 1
    transactions = queue.transactions_in(
        queue.position(queue.acknowledged), queue.position(queue.queued)
    )
    assert transactions
    for transaction in transactions:
        (first, *_) = transaction.parts
        body = bytes(first[HEADER_SIZE : len(first)])
        record = parse_record(body[:-4])
        assert record is not None and record.epoch == 1
