"""Ranges that are divided inside of transactions: each part can be decoded alone, and no event is lost or doubled."""

from __future__ import annotations

import random
from itertools import pairwise
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.decode.events.index import Index
from dispatcher.binlog.decode.events.index_kernels import EPOCH, GTID, POSITION, SEQ
from dispatcher.binlog.event.header import EventHeader
from dispatcher.binlog.event.types import EventType
from dispatcher.dispatch.queue.queue import Queue
from dispatcher.dispatch.queue.queue_ranges import RangeCut
from dispatcher.dispatch.values.executed_position import Mode
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import EventPoint
from dispatcher.stream.consumer_log import ConsumerLog
from tests.dispatch.queue.test_queue import ORDERS, SEEDS, WRITER, filled, walk
from tests.support.event_encoder import LogWriter, Statement
from tests.support.random_log import Wanted, random_log, random_wanted

Line = tuple[int | bytes, ...]


def lines(data: bytes) -> list[Line]:
    """Returns for every event with data: epoch, seq, position and GTID of its transaction, and its index, table map and
    bytes."""
    index = Index.of(data)
    out: list[Line] = []
    for event in index.events:
        txn, version = index.txns[event[row_walk.TXN]], int(event[row_walk.VERSION])
        body, body_end = index.versions[version, 1:3].tolist() if version >= 0 else (0, 0)
        gtid = int(txn[GTID])
        size = EventHeader.read(data, gtid).size if gtid >= 0 else 0
        out.append(
            (
                *txn[[EPOCH, SEQ, POSITION]].tolist(),
                data[gtid : gtid + size],
                int(event[row_walk.INDEX]),
                data[body:body_end],
                data[event[row_walk.OFFSET] : event[row_walk.END]],
            )
        )
    return out


def divided(queue: Queue, n: int) -> list[RangeCut]:
    """Divides the whole content of a queue into `n` parts. Returns the cuts, including both ends."""
    start, end = queue.position(queue.acknowledged), queue.position(queue.queued)
    return [RangeCut(start), *queue.cut_points(start, end, n, inside=True), RangeCut(end)]


def part(queue: Queue, start: RangeCut, end: RangeCut) -> bytes:
    return b"".join(queue.read(start.position, end.position, start.inside, end.inside))


@pytest.mark.parametrize("mode", Mode)
@given(seed=SEEDS, n=st.integers(2, 60), cut_bytes=st.sampled_from([1, 50, 300, 2000]))
def test_parts_hold_every_event_once(mode: Mode, seed: int, n: int, cut_bytes: int) -> None:
    rng = random.Random(seed)
    log = random_log(rng, gtid=WRITER[mode], size_max=rng.choice((30, 4000)), transactions=6)
    wanted = random_wanted(rng)
    with mock.patch.object(ConsumerLog, "CUT_BYTES", cut_bytes):
        _, queue = filled(rng, log, wanted, mode)
    cuts = divided(queue, n)
    assert len(cuts) <= n + 1
    whole = lines(part(queue, cuts[0], cuts[-1]))
    parts = [lines(part(queue, a, b)) for a, b in pairwise(cuts)]
    assert [line for lines_ in parts for line in lines_] == whole
    # Adjacent parts that are read together give the same lines, too.
    a, b = sorted(rng.sample(range(len(cuts)), 2))
    assert lines(part(queue, cuts[a], cuts[b])) == [x for lines_ in parts[a:b] for x in lines_]


@given(SEEDS, st.sampled_from([1, 300]))
def test_cuts_do_not_depend_on_buffers(seed: int, cut_bytes: int) -> None:
    log = random_log(random.Random(seed), size_max=2000, transactions=6)
    wanted = random_wanted(random.Random(seed))
    with mock.patch.object(ConsumerLog, "CUT_BYTES", cut_bytes):
        _, queue = filled(random.Random(seed), log, wanted)
        _, again = filled(random.Random(seed + 1), log, wanted)
    assert divided(queue, 30) == divided(again, 30)


def large(events: int = 100) -> tuple[Queue, list[RangeCut]]:
    """Returns a queue, cut between all events. It contains a small transaction, and a large transaction of two
    statements with `events` rows events of 1000 bytes each."""
    log = LogWriter()
    log.begin()
    log.statement(Statement((ORDERS,), ((0, 5),)))
    log.commit()
    log.begin()
    for _ in range(2):
        log.statement(Statement((ORDERS,), ((0, 1000),) * (events // 2), "INSERT " + "x" * 300))
    log.commit()
    with mock.patch.object(ConsumerLog, "CUT_BYTES", 1):
        _, queue = filled(random.Random(1), log, Wanted(("shop",)))
    return queue, divided(queue, 10 * events)


def test_a_large_transaction_is_divided_evenly() -> None:
    queue, cuts = large()
    sizes = [len(part(queue, a, b)) for a, b in pairwise(cuts)]
    assert len(cuts) == 102
    assert max(sizes) < 2000
    # The text of a statement is not repeated.
    texts = [part(queue, a, b).count(b"x" * 300) for a, b in pairwise(cuts)]
    assert sum(texts) == 2


def test_small_transactions_are_not_divided() -> None:
    rng = random.Random(4)
    log = random_log(rng, files=False, transactions=40)
    _, queue = filled(rng, log, Wanted(("shop",)))
    assert not any(cut.inside for cut in divided(queue, 8))


def test_a_part_that_ends_a_statement_early_repeats_its_table_map() -> None:
    queue, cuts = large()
    data = part(queue, cuts[3], cuts[4])
    index = Index.of(data)
    assert len(index.versions) == 1
    assert index.events[:, row_walk.TYPE].tolist() == [EventType.WRITE_ROWS]


@pytest.mark.parametrize("change", [(1, 0), (0, 1), (0, -1), (1 << 40, 0)])
def test_another_point_is_refused(change: tuple[int, int]) -> None:
    queue, cuts = large()
    inside = cuts[7].inside
    assert inside is not None
    wrong = EventPoint(inside.index + change[0], inside.offset + change[1])
    with pytest.raises(BinlogError, match="may be cut before event") as info:
        queue.read(cuts[7].position, cuts[-1].position, wrong)
    assert info.value.kind is ErrorKind.POSITION_UNKNOWN
    with pytest.raises(BinlogError, match="may be cut before event"):
        queue.read(cuts[0].position, cuts[7].position, None, wrong)


def test_a_point_needs_the_position_after_its_transaction() -> None:
    queue, cuts = large()
    with pytest.raises(BinlogError, match="no transaction that ends at seq 0"):
        queue.read(cuts[0].position, cuts[-1].position, cuts[7].inside)


def test_an_acknowledged_transaction_has_no_points() -> None:
    queue, cuts = large()
    end = cuts[-1].position
    queue.acknowledge(end)
    with pytest.raises(BinlogError, match="may be cut before event"):
        queue.read(end, end, cuts[7].inside, cuts[8].inside)
    assert not len(queue.log.cut_points)


def test_a_range_that_ends_before_it_starts_is_refused() -> None:
    queue, cuts = large()
    with pytest.raises(BinlogError, match="ends before it starts"):
        part(queue, cuts[8], cuts[7])


def test_walks_end_at_transactions_only() -> None:
    queue, cuts = large()
    assert [position.seq for position in walk(queue, 1)] == [0, 1, 2]
    assert {cut.position.seq for cut in cuts if cut.inside} == {2}
