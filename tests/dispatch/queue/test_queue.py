"""What a queue guarantees to its readers: positions that do not depend on the division into batches, ranges that can be
read again, and only positions of its own history."""

from __future__ import annotations

import random
import weakref
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dispatcher.binlog.event.record import Record, encode_record
from dispatcher.binlog.event.types import EventType
from dispatcher.dispatch.queue import queue_contents
from dispatcher.dispatch.queue.queue import Queue
from dispatcher.dispatch.queue.queue_contents import LARGE_MIN
from dispatcher.dispatch.values.executed_position import (
    BatchGtids,
    ExecutedPosition,
    Mode,
    make_executed,
)
from dispatcher.dispatch.values.specs import ConsumerSpec, Earliest
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import Position, packed_seq
from dispatcher.stream.batch import Batch
from dispatcher.stream.consumer_log import ConsumerLog
from dispatcher.stream.routes import Filter, Routes
from dispatcher.stream.splitter import Splitter
from tests.support.event_encoder import SERVER, LogWriter, Statement
from tests.support.fake_server import Feed, Server, gtid_set
from tests.support.random_log import OTHER_SERVER, Wanted, random_log, random_wanted
from tests.support.simulation import World, without_formats

SEEDS = st.integers(0, 2**32 - 1)
WRITER = {Mode.GTID: "mysql", Mode.FILE: "none", Mode.MARIADB: "mariadb", Mode.DOMAINS: "domains"}
ORDERS, BILLS = ("shop", "orders"), ("billing", "bills")


def filled(
    rng: random.Random, log: LogWriter, wanted: Wanted, mode: Mode = Mode.GTID
) -> tuple[World, Queue]:
    """Returns a queue that contains all transactions of a log, all of them unacknowledged."""
    spec = ConsumerSpec(
        "a",
        wanted.databases,
        wanted.tables,
        1 << 30,
        Earliest(),
        exclude_tables=wanted.exclude_tables,
    )
    world = World(rng, Server(log, mode), [spec])
    world.connect()
    world.read_all()
    return world, world.client.consumers["a"].queue


def walk(queue: Queue, bytes_max: int) -> list[Position]:
    """Returns the positions of a reader that reads `bytes_max` at a time, from the acknowledged position to the end."""
    out = [queue.position(queue.acknowledged)]
    while True:
        answer = queue.readable(out[-1], bytes_max)
        if answer.end.order <= out[-1].order:
            return out
        assert answer.transactions <= 1 or answer.bytes <= bytes_max
        out.append(answer.end)


@pytest.mark.parametrize("mode", Mode)
@given(seed=SEEDS)
def test_any_range_can_be_read_until_it_is_acknowledged(mode: Mode, seed: int) -> None:
    rng = random.Random(seed)
    log = random_log(rng, gtid=WRITER[mode], size_max=rng.choice((30, 4000)))
    wanted = random_wanted(rng)
    world, queue = filled(rng, log, wanted, mode)
    positions = walk(queue, rng.choice((1, 1, 3000)))
    assert positions[-1].order == queue.position(queue.queued).order
    assert len({position.to_json() for position in positions}) == len(positions)
    acknowledged = 0
    for _ in range(10):
        a, b = sorted(rng.randrange(acknowledged, len(positions)) for _ in range(2))
        got = without_formats(b"".join(queue.read(positions[a], positions[b])))
        assert got == world.server.expected(wanted, positions[a], positions[b])
        if rng.random() < 0.3:
            acknowledged = a
            world.acknowledge("a", positions[a])
            assert queue.position(queue.acknowledged) == positions[a]
            assert queue.transactions <= len(world.server.between(positions[a], positions[-1]))
            if a:
                with pytest.raises(BinlogError, match="older than the acknowledged") as info:
                    queue.read(positions[rng.randrange(a)], positions[-1])
                assert info.value.kind is ErrorKind.POSITION_UNKNOWN
    world.acknowledge("a", positions[-1])
    assert (queue.transactions, queue.events, queue.unacknowledged_bytes) == (0, 0, 0)
    assert queue.held_bytes == 0


@given(SEEDS)
def test_positions_are_canonical(seed: int) -> None:
    rng = random.Random(seed)
    log = random_log(rng, files=False)
    world, queue = filled(rng, log, Wanted(("shop", "billing", "crm")))
    again, other = filled(random.Random(seed + 1), log, Wanted(("shop", "billing", "crm")))
    # The queue's content does not depend on how the log was divided into buffers.
    assert walk(queue, 1) == walk(other, 1)
    for position in walk(queue, 1)[1:]:
        held = log.transactions[: position.seq]
        assert position.gtid == str(gtid_set(held))
        assert (position.file, position.epoch) == (log.file.name, 0)
    assert again.client.label == world.client.label


@given(SEEDS)
def test_events_are_counted_exactly(seed: int) -> None:
    rng = random.Random(seed)
    log = random_log(rng)
    _, queue = filled(rng, log, random_wanted(rng))
    positions = walk(queue, 1 << 20)
    data = without_formats(b"".join(queue.read(positions[0], positions[-1])))
    events, records, at = 0, 0, 0
    while at < len(data):
        events += 1
        records += data[at + 4] == EventType.IGNORABLE
        at += int.from_bytes(data[at + 9 : at + 13], "little")
    assert (queue.events, queue.transactions, queue.unacknowledged_bytes) == (
        events,
        records,
        len(data),
    )
    assert (queue.pushed_transactions, queue.pushed_bytes) == (records, len(data))


@given(SEEDS, st.integers(1, 9))
def test_cut_points_balance_bytes(seed: int, n: int) -> None:
    rng = random.Random(seed)
    log = random_log(rng, files=False, transactions=40)
    _, queue = filled(rng, log, Wanted(("shop",)))
    start, *_, end = walk(queue, 1 << 20)
    cuts = queue.cut_points(start, end, n)
    assert len(cuts) <= n - 1
    assert not any(cut.inside for cut in cuts)
    positions = [start, *(cut.position for cut in cuts), end]
    assert [p.seq for p in positions] == sorted({p.seq for p in positions})
    sizes = [len(b"".join(queue.read(a, b))) for a, b in pairwise(positions)]
    largest = max(len(b"".join(queue.read(a, b))) for a, b in pairwise(walk(queue, 1)))
    assert max(sizes) <= sum(sizes) / n + 2 * largest


def small() -> tuple[World, Queue, LogWriter]:
    """Returns a queue after six transactions of the tables orders, bills, orders, none, orders, bills. The consumer
    reads orders."""
    log = LogWriter()
    for name in (ORDERS, BILLS, ORDERS, None, ORDERS, BILLS):
        log.begin()
        if name:
            log.statement(Statement((name,), ((0, 10),)))
        log.commit()
    world, queue = filled(random.Random(0), log, Wanted(("shop",)))
    return world, queue, log


def test_transactions_of_other_consumers_are_markers() -> None:
    world, queue, _ = small()
    assert [p.seq for p in walk(queue, 1)] == [0, 1, 3, 6]
    assert queue.position(queue.covered).seq == 0
    positions = walk(queue, 1)
    answer = queue.readable(positions[2], 1)
    assert (answer.transactions, answer.end.seq) == (1, 6)
    world.acknowledge("a", positions[-1])
    assert queue.covered.seq == 6
    assert queue.readable(positions[-1], 1).end == positions[-1]
    assert queue.oldest_commit_us is None


@pytest.mark.parametrize(("most", "got"), [(1, 1), (2, 2), (9, 3), (None, 3)])
def test_a_range_has_at_most_so_many_transactions(most: int | None, got: int) -> None:
    _, queue, _ = small()
    answer = queue.readable(queue.position(queue.acknowledged), 1 << 20, most)
    assert answer.transactions == got
    assert answer.end == walk(queue, 1)[got]
    assert queue.readable(queue.position(queue.acknowledged), 1, most).transactions == 1


def test_a_position_among_markers_means_everything_up_to_there() -> None:
    world, queue, log = small()
    _, first, second, end = walk(queue, 1)
    between = replace(first, gtid=str(gtid_set(log.transactions[:2])), seq=2)
    assert queue.read(between, end) == queue.read(first, end)
    assert queue.readable(between, 1).end == second
    world.acknowledge("a", between)
    # The queue keeps its own recorded position, which is the position before the markers.
    assert queue.position(queue.acknowledged) == first
    assert queue.readable(between, 1).end == second


def test_a_range_of_markers_is_a_binlog_without_transactions() -> None:
    _, queue, log = small()
    end = walk(queue, 1)[-1]
    before = replace(end, gtid=str(gtid_set(log.transactions[:5])), seq=5)
    data = b"".join(queue.read(before, end))
    assert data[:4] == b"\xfebin"
    assert data[8] == EventType.FORMAT_DESCRIPTION
    assert without_formats(data) == b""


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"epoch": 1}, ErrorKind.POSITION_UNKNOWN),
        ({"gtid": f"{OTHER_SERVER}:1-3"}, ErrorKind.POSITION_UNKNOWN),
        ({"gtid": f"{SERVER}:1-2"}, ErrorKind.POSITION_UNKNOWN),
        ({"gtid": f"{SERVER}:1-7", "seq": 7}, ErrorKind.RANGE_UNAVAILABLE),
        ({"gtid": "?"}, ErrorKind.SETTINGS),
    ],
)
def test_foreign_positions_are_refused(change: dict[str, object], kind: ErrorKind) -> None:
    _, queue, _ = small()
    position = walk(queue, 1)[2]
    for call in (
        queue.locate,
        lambda p: queue.readable(p, 1),
        lambda p: queue.read(p, p),
        queue.acknowledge,
    ):
        with pytest.raises(BinlogError) as info:
            call(replace(position, **change))  # type: ignore[arg-type]
        assert info.value.kind is kind
    assert queue.acknowledged.seq == 0


def test_a_set_without_the_acknowledged_transactions_is_refused() -> None:
    world, queue, _ = small()
    positions = walk(queue, 1)
    world.acknowledge("a", positions[1])
    with pytest.raises(BinlogError) as info:
        queue.locate(replace(positions[2], gtid=f"{SERVER}:2-4", seq=3))
    assert info.value.kind is ErrorKind.POSITION_UNKNOWN


def test_a_replica_of_the_server_has_the_same_positions() -> None:
    _, queue, _ = small()
    position = walk(queue, 1)[2]
    assert queue.locate(replace(position, server="another")).offset == queue.locate(position).offset


def test_without_gtids_another_server_has_other_positions() -> None:
    log = random_log(random.Random(1), gtid="anonymous", files=False)
    _, queue = filled(random.Random(0), log, Wanted(("shop",)), Mode.FILE)
    position = walk(queue, 1)[1]
    for change in ({"server": "another"}, {"offset": position.offset + 1}):
        with pytest.raises(BinlogError) as info:
            queue.locate(replace(position, **change))
        assert info.value.kind is ErrorKind.POSITION_UNKNOWN


def test_a_range_that_ends_before_it_starts_is_refused() -> None:
    _, queue, _ = small()
    positions = walk(queue, 1)
    with pytest.raises(BinlogError, match="ends before it starts"):
        queue.read(positions[2], positions[1])


def test_positions_and_records_contain_the_epoch() -> None:
    log = random_log(random.Random(3), files=False)
    spec = ConsumerSpec("a", ("shop",), None, 1 << 30, Earliest())
    world = World(random.Random(0), Server(log, Mode.GTID), [spec])
    queue = world.client.consumers["a"].queue
    world.connect()
    queue.reset(queue.server, Mode.GTID, 7, queue.queued, 0)
    world.read_all()
    start, *_, end = walk(queue, 1 << 30)
    assert (start.epoch, end.epoch) == (7, 7)
    got = without_formats(b"".join(queue.read(start, end)))
    assert got == world.server.expected(Wanted(("shop",)), start, end)
    assert GtidSet.parse(end.gtid) == gtid_set(log.transactions)


# -- filled by hand -------------------------------------------------------------------------------------------


class Disk:
    """Allocates memory in place of segments on disk."""

    def __init__(self) -> None:
        self.lent = 0

    def __call__(self, size: int) -> NDArray[np.uint8]:
        loan = np.zeros(size, dtype=np.uint8)
        self.lent += size
        weakref.finalize(loan, self._back, size)
        return loan

    def _back(self, size: int) -> None:
        self.lent -= size


def started(wanted: Wanted, mode: Mode, bytes_max: int, allocate: Disk | None = None) -> Queue:
    queue = Queue(
        Filter(wanted.databases, wanted.tables, wanted.exclude_tables), bytes_max, allocate
    )
    queue.reset("server", mode, 0, make_executed(mode, "", "binlog.000008", 4), 0)
    return queue


def fill(
    rng: random.Random,
    queue: Queue,
    server: Server,
    routes: Routes | None = None,
    pieces: tuple[int, ...] = (1, 200, 5000, 20_000),
) -> Iterator[Batch]:
    """Push the part of the log after the queue's position, one batch at a time. `routes`: the routes of earlier
    batches, if any."""
    feed = Feed(server, queue.queued)
    routes = Routes() if routes is None else routes
    split = Splitter(routes, packets=True, checksum=feed.checksum, buffer_bytes=1 << 14)
    split.file = server.log.files[feed.file].name
    while data := feed.take(rng.choice(pieces)):
        for batch in split.feed(data):
            assert isinstance(batch, Batch)
            gtids = BatchGtids.of(batch)
            after = queue.queued
            if gtids.ended.any():
                offset = int(gtids.end[gtids.ended][-1])
                after = ExecutedPosition(
                    after.gtids, batch.file, offset, packed_seq(batch.file, offset)
                )
            queue.push(batch, gtids, routes, 0, after, in_sync=False)
            yield batch


@pytest.mark.parametrize("mode", Mode)
@given(seed=SEEDS)
def test_evicted_transactions_are_the_same_when_they_are_read_again(mode: Mode, seed: int) -> None:
    rng = random.Random(seed)
    log = random_log(rng, gtid=WRITER[mode], size_max=rng.choice((30, 4000)))
    server, wanted = Server(log, mode), random_wanted(rng)
    queue, routes = started(wanted, mode, 1 << 30), Routes()
    delivered: dict[int, Position] = {0: queue.position(queue.queued)}
    read: dict[tuple[int, int], bytes] = {}
    for _ in range(rng.randrange(1, 5)):
        stop = rng.choice((3, 30, 1 << 30))
        for n, _ in enumerate(fill(rng, queue, server, routes)):
            if n == stop:
                break
        queue.rollback()
        for position in walk(queue, rng.choice((1, 3000))):
            delivered[position.seq] = position
        seqs = sorted(seq for seq in delivered if queue.acknowledged.seq <= seq <= queue.queued.seq)
        for _ in range(8):
            a, b = sorted(rng.choice(seqs) for _ in range(2))
            data = without_formats(b"".join(queue.read(delivered[a], delivered[b])))
            assert read.setdefault((a, b), data) == data
        if rng.random() < 0.6:
            queue.acknowledge(delivered[rng.choice(seqs)])
        covered, held = queue.covered, bool(queue.transactions)
        last = queue.queued
        queue.evict()
        assert queue.queued == queue.covered == (covered if held else last)
        assert covered.seq >= queue.acknowledged.seq
        own = server.expected(wanted, queue.position(queue.acknowledged), queue.position(covered))
        assert own == b"", "no transaction of the consumer is covered"
        counts = queue.transactions, queue.events, queue.unacknowledged_bytes, queue.held_bytes
        assert counts == (0, 0, 0, 0)
        with pytest.raises(BinlogError) as info:
            queue.locate(replace(queue.position(last), seq=last.seq + 1 << 50))
        assert info.value.kind in (ErrorKind.RANGE_UNAVAILABLE, ErrorKind.POSITION_UNKNOWN)
    for _ in fill(rng, queue, server, routes):
        pass
    for (a, b), data in read.items():
        if a >= queue.acknowledged.seq:
            assert without_formats(b"".join(queue.read(delivered[a], delivered[b]))) == data


def test_covered_does_not_move_back_when_a_transaction_is_queued() -> None:
    """The server may have purged the covered transactions: an evicted queue must not need them again."""
    log = LogWriter()
    for what in (BILLS, BILLS, ORDERS, BILLS):
        log.begin()
        log.statement(Statement((what,), ((0, 10),)))
        log.commit()
    queue = started(Wanted(("shop",)), Mode.GTID, 1 << 30)
    pushes = fill(random.Random(4), queue, Server(log, Mode.GTID), pieces=(50,))
    seen = [queue.covered.seq for _ in pushes]
    assert seen == sorted(seen) and set(seen) >= {1, 2} and seen[-1] == 2
    end = queue.queued
    position = queue.position(end)
    acknowledged = queue.locate(queue.position(queue.acknowledged))
    assert queue.covered_after(acknowledged.offset, acknowledged.executed).seq == 2
    found = queue.locate(position)
    assert queue.covered_after(found.offset, found.executed).seq == 4
    queue.evict()
    assert (queue.acknowledged.seq, queue.queued.seq, queue.covered.seq) == (0, 2, 2)


def test_the_end_of_a_range_is_found_only_while_it_lies_there() -> None:
    """The queue caches the ends of the newest range. Another range, an eviction or a failover may follow before the
    reader uses them."""
    _, queue, _ = small()
    start = queue.position(queue.acknowledged)
    end = queue.readable(start, 1).end
    found = queue.locate(end)
    assert found.executed.file and found == queue.locate(replace(end, server="another"))._replace(
        position=end, executed=found.executed
    )
    queue.move_to("another")
    assert queue.locate(end).executed == replace(found.executed, file="", offset=0)
    queue.readable(start, 1)
    queue.evict()
    with pytest.raises(BinlogError) as info:
        queue.locate(end)
    assert info.value.kind is ErrorKind.RANGE_UNAVAILABLE


def test_the_start_of_a_range_is_not_found_once_its_end_is_acknowledged() -> None:
    world, queue, _ = small()
    start = queue.position(queue.acknowledged)
    end = queue.readable(start, 1).end
    assert queue.locate(start).number == 0
    world.acknowledge("a", end)
    assert queue.locate(end).number == 1
    with pytest.raises(BinlogError, match="older than the acknowledged"):
        queue.locate(start)


def test_skipping_to_a_position_begins_another_history() -> None:
    _, queue, log = small()
    old = walk(queue, 1)[2]
    executed = make_executed(Mode.GTID, str(gtid_set(log.transactions[:5])), "binlog.000002", 4)
    queue.skip_to("another", Mode.GTID, executed, 7)
    position = queue.position(queue.queued)
    assert (position.server, position.seq, position.epoch) == ("another", 5, 1)
    assert queue.queued == queue.acknowledged == queue.covered == executed
    assert (queue.transactions, queue.held_bytes, queue.files.created_of("binlog.000002")) == (
        0,
        0,
        7,
    )
    assert position.order > old.order
    with pytest.raises(BinlogError) as info:
        queue.locate(old)
    assert info.value.kind is ErrorKind.POSITION_UNKNOWN


def record_size(batch: Batch) -> int:
    return len(encode_record(Record(0, 0, batch.file, 0, 0, 0), checksum=batch.format.checksum))


@given(SEEDS, st.sampled_from((1, 100, 5000, 20_000, 300_000)))
def test_memory_is_bounded_exactly(seed: int, bytes_max: int) -> None:
    rng = random.Random(seed)
    log = random_log(rng, size_max=rng.choice((100, 3000)), transactions=rng.choice((20, 100)))
    disk = Disk()
    large_min, segment_min = rng.choice(((2000, 64), (30_000, 64), (1 << 20, 1 << 14)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_contents, "LARGE_MIN", large_min)
        patch.setattr(ConsumerLog, "SEGMENT_MIN", segment_min)
        patch.setattr(ConsumerLog, "SPILLED_MIN", 700)
        queue = started(Wanted(("shop", "crm", "billing")), Mode.GTID, bytes_max, disk)
        segment_max = max(segment_min, min(1 << 20, bytes_max // 8))
        for batch in fill(rng, queue, Server(log, Mode.GTID)):
            taken = int(batch.ev.size.sum()) + len(batch.tx.first) * record_size(batch)
            bound = max(bytes_max, large_min) + 2 * taken + segment_max
            assert queue.held_bytes <= bound
            assert queue.spilled_bytes == disk.lent
            after = queue.position(queue.acknowledged)
            while queue.full or (queue.transactions and rng.random() < 0.1):
                # A reader can always make room.
                after = queue.readable(after, rng.choice((1, 5000))).end
                queue.acknowledge(after)
        queue.rollback()
        queue.acknowledge(queue.position(queue.queued))
        assert queue.held_bytes == queue.spilled_bytes == disk.lent == 0


def test_the_queue_holds_one_large_transaction_at_a_time() -> None:
    """A complete large transaction fills the queue until it is acknowledged. Small transactions before and after it
    are in memory."""
    log = LogWriter()
    for sizes in ((10,), (400_000,) * 8, (10,), (400_000,) * 8):
        log.begin()
        log.statement(Statement((ORDERS,), tuple((0, size) for size in sizes)))
        log.commit()
    disk = Disk()
    queue = started(Wanted(("shop",)), Mode.GTID, 100_000, disk)
    seen: list[tuple[int, bool, bool]] = []
    for _ in fill(random.Random(0), queue, Server(log, Mode.GTID), pieces=(5000,)):
        assert queue.held_bytes <= LARGE_MIN + 3 * 400_000
        state = queue.transactions, queue.spilled_bytes > 0, queue.full
        if not seen or seen[-1] != state:
            seen.append(state)
        if queue.full:
            answer = queue.readable(queue.position(queue.acknowledged), 1 << 30)
            queue.acknowledge(answer.end)
            assert (queue.transactions, queue.spilled_bytes) == (0, disk.lent)
            # The queue still holds the beginning of a transaction.
            assert queue.held_bytes <= LARGE_MIN
    beginning, spilling = (0, False, False), (0, True, False)
    assert seen == [
        *(
            (1, False, False),
            (1, False, True),
        ),  # the small transaction, then more of the large transaction than fits
        *(beginning, spilling, (2, True, True)),  # also the small one after the large one
        *(beginning, spilling, (1, True, True)),
    ]


def test_the_acknowledged_position_is_the_one_that_the_queue_recorded() -> None:
    world, queue, _ = small()
    _, first, second, _ = walk(queue, 1)
    world.acknowledge("a", replace(first, file="../../etc/passwd", offset=7, server="x"))
    assert queue.position(queue.acknowledged) == first
    assert world.store["a"].acknowledged == first
    with pytest.raises(BinlogError, match="GTID set"):
        queue.locate(replace(second, seq=first.seq))
