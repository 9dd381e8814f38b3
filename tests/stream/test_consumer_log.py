"""The part of random logs that a consumer gets, in random batches and segments, equals the simple reference of
`random_log`."""

from __future__ import annotations

import random
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.stream.batch import ABORTED, OPEN, Batch
from dispatcher.stream.consumer_log import ConsumerLog
from dispatcher.stream.routes import Filter, Routes
from dispatcher.stream.splitter import Splitter
from tests.support import event_encoder as e
from tests.support.consumer_logs import open_bytes
from tests.support.random_log import Wanted, delivered, random_log, random_wanted

SEEDS = st.integers(0, 2**32 - 1)
GTIDS = st.sampled_from(["mysql", "mysql", "tagged", "anonymous", "5.6", "none", "mariadb"])
Held = set[tuple[str, int]]


class SmallLog(ConsumerLog):
    """A log with segments so small that events often cross the segments' borders."""

    SEGMENT_MIN = 64
    SPILLED_MIN, SPILLED_MAX = 100, 3000
    PIECE = 70


class Lender:
    """Lends memory. `refuses`: the number of the first call that lends nothing; all later calls lend nothing either.
    `lent`: how many bytes were lent and not returned."""

    def __init__(self, refuses: int = 1 << 60) -> None:
        self.calls = self.lent = 0
        self.refuses = refuses

    def __call__(self, size: int) -> NDArray[np.uint8]:
        self.calls += 1
        if self.calls >= self.refuses:
            raise BinlogError(ErrorKind.SPILL, "no room")
        loan = np.zeros(size, dtype=np.uint8)
        self.lent += size
        weakref.finalize(loan, self._back, size)
        return loan

    def _back(self, size: int) -> None:
        self.lent -= size


def batches(rng: random.Random, log: e.LogWriter, routes: Routes, held: Held) -> Iterator[Batch]:
    """Yields the dump of a client that already has the transactions `held`, in batches that are cut at random."""
    split = Splitter(routes, packets=True, checksum=log.files[0].checksum, buffer_bytes=1 << 14)
    split.embedded.small_bytes = rng.choice((0, 1 << 18))
    stream = log.stream(held=held)
    at = 0
    while at < len(stream):
        size = rng.choice((1, 30, 200, 1000, 20_000))
        yield from (b for b in split.feed(stream[at : at + size]) if isinstance(b, Batch))
        at += size


class Taker:
    """Adds batches to a consumer's log, and records which transactions are in the log, the seq, and the logical end of
    each transaction."""

    def __init__(self, rng: random.Random, wanted: Wanted, *, held: Held, packed: bool) -> None:
        self.lender = Lender()
        allocate = self.lender if rng.random() < 0.5 else None
        large = rng.choice((0, 300, 5000))
        size = rng.choice((1, 200, 3000, 1 << 20))
        self.log = (ConsumerLog if rng.random() < 0.3 else SmallLog)(
            size, allocate=allocate, large_bytes=large
        )
        self.filter = Filter(wanted.databases, wanted.tables, wanted.exclude_tables)
        self.held = set(held)
        self.seq = len(held)
        self.packed = packed
        self.ends: list[tuple[int, int]] = []  # logical end, seq

    def take(self, batch: Batch, routes: Routes) -> None:
        tx = batch.tx
        names = [
            (batch.sources[s] if s >= 0 else "", int(n))
            for s, n in zip(tx.source, tx.gno, strict=True)
        ]
        skip = np.array([name in self.held for name in names], dtype=np.uint8)
        taken, seq = self.log.append(
            batch,
            self.filter.route_mask(routes),
            skip if skip.any() else None,
            epoch=3,
            seq=self.seq,
            packed=self.packed,
        )
        self.ends += list(zip(taken.end.tolist(), taken.seq.tolist(), strict=True))
        complete = (tx.flags & (OPEN | ABORTED)) == 0
        fresh = [
            name
            for name, ok in zip(names, complete, strict=True)
            if ok and not (name[0] and name in self.held)
        ]
        if not self.packed:
            assert seq == self.seq + len(fresh)
        self.seq = seq
        self.held |= {name for name in fresh if name[0]}

    def bytes(self, start: int = 0, end: int | None = None) -> bytes:
        return b"".join(self.log.read(start, self.log.committed if end is None else end))


def reference(log: e.LogWriter, wanted: Wanted, held: Held, *, packed: bool) -> list[bytes]:
    """Returns the bytes of each transaction that is not held; b"" for a transaction without any wanted change."""
    seq, out = len(held), []
    for t in log.transactions:
        if (t.source, t.gno) in held:
            continue
        seq += 1
        number = int(t.file.rpartition(".")[2]) << 40 | t.end if packed else seq
        out.append(delivered(t, wanted, epoch=3, seq=number))
    return out


@given(SEEDS, GTIDS)
def test_the_share_of_any_consumer(seed: int, gtid: str) -> None:
    rng = random.Random(seed)
    log = random_log(rng, gtid=gtid, size_max=rng.choice((30, 500, 8000)))
    wanted, packed = random_wanted(rng), gtid in ("none", "anonymous", "mariadb")
    routes = Routes()
    taker = Taker(rng, wanted, held=set(), packed=packed)
    for batch in batches(rng, log, routes, set()):
        taker.take(batch, routes)
    want = reference(log, wanted, set(), packed=packed)
    assert taker.bytes() == b"".join(want)
    assert [end for end, _ in taker.ends] == _ends(want)


def _ends(parts: list[bytes]) -> list[int]:
    sizes = [len(part) for part in parts if part]
    return [sum(sizes[: n + 1]) for n in range(len(sizes))]


@given(SEEDS)
def test_what_is_held_is_passed_over_and_lost_connections_change_nothing(seed: int) -> None:
    rng = random.Random(seed)
    log = random_log(rng, size_max=rng.choice((30, 3000)))
    wanted = random_wanted(rng)
    held = {(t.source, t.gno) for t in log.transactions if rng.random() < rng.choice((0.1, 0.6))}
    # The dump omits the transactions that all consumers of the connection already have, a subset of the transactions
    # that this consumer has.
    routes = Routes()
    taker = Taker(rng, wanted, held=held, packed=False)
    for last in (False, False, True):
        others = {name for name in taker.held if rng.random() < 0.7}
        stop = rng.randrange(1, 60)
        for n, batch in enumerate(batches(rng, log, routes, others)):
            if n == stop and not last:
                break
            taker.take(batch, routes)
        before = taker.bytes()
        taker.log.rollback()
        assert open_bytes(taker.log) == 0
        assert taker.bytes() == before
    want = reference(log, wanted, held, packed=False)
    assert taker.bytes() == b"".join(want)
    seqs = [len(held) + n for n, part in enumerate(want, start=1) if part]
    assert taker.ends == list(zip(_ends(want), seqs, strict=True))


@given(SEEDS)
def test_any_range_can_be_read_again_and_again_and_dropping_keeps_the_rest(seed: int) -> None:
    rng = random.Random(seed)
    log = random_log(rng, size_max=rng.choice((30, 3000)))
    wanted = random_wanted(rng)
    routes = Routes()
    taker = Taker(rng, wanted, held=set(), packed=False)
    want = b"".join(reference(log, wanted, set(), packed=False))
    dropped = 0
    views = []
    for batch in batches(rng, log, routes, set()):
        taker.take(batch, routes)
        ends = [end for end, _ in taker.ends if end >= dropped] or [dropped]
        a, b = sorted((rng.choice(ends), rng.choice(ends)))
        assert taker.bytes(a, b) == want[a:b]
        if rng.random() < 0.1:
            views.append((taker.log.read(a, b), want[a:b]))
            before = taker.log.allocated
            dropped = b
            taker.log.drop(b)
            assert taker.log.allocated <= before
    assert taker.bytes(dropped) == want[dropped:]
    taker.log.drop(taker.log.committed)
    assert taker.log.kept == 0
    assert all(b"".join(view) == data for view, data in views), "views outlive what is dropped"
    views.clear()
    assert taker.log.allocated == 0


def test_memory_that_was_dropped_counts_while_a_view_of_it_lives() -> None:
    rng = random.Random(0)
    log, routes = random_log(rng, size_max=3000), Routes()
    taker = Taker(rng, random_wanted(rng), held=set(), packed=False)
    for batch in batches(rng, log, routes, set()):
        taker.take(batch, routes)
    held = taker.log.kept
    view = taker.log.read(0, taker.log.committed)
    taker.log.drop(taker.log.committed)
    assert (taker.log.kept, taker.log.lent, taker.log.allocated) == (0, held, held) and held
    del view
    assert taker.log.lent == taker.log.allocated == 0


@given(SEEDS, st.integers(1, 12))
def test_a_lender_that_refuses_changes_nothing(seed: int, refuses: int) -> None:
    rng = random.Random(seed)
    log = random_log(rng, size_max=rng.choice((30, 3000)))
    wanted = random_wanted(rng)
    held = {(t.source, t.gno) for t in log.transactions if rng.random() < 0.3}
    taker = Taker(rng, wanted, held=held, packed=False)
    taker.lender.refuses = refuses
    taker.log = SmallLog(
        rng.choice((1, 500)), allocate=taker.lender, large_bytes=rng.choice((0, 300, 2000))
    )
    routes = Routes()
    dropped = refused = 0
    before, ends = b"", (0, 0)
    while True:
        try:
            for batch in batches(rng, log, routes, set()):
                before = taker.bytes(dropped)
                ends = taker.log.committed, taker.log.spilled_end
                taker.take(batch, routes)
                if rng.random() < 0.05 and taker.ends:
                    dropped = rng.choice(
                        [end for end, _ in taker.ends if end >= dropped] or [dropped]
                    )
                    taker.log.drop(dropped)
            break
        except BinlogError:
            refused += 1
            taker.lender.refuses = taker.lender.calls + rng.randrange(1, 12)
            taker.log.rollback()
            assert open_bytes(taker.log) == 0
            assert (taker.log.committed, taker.log.spilled_end) == ends
            assert taker.bytes(dropped) == before
            assert taker.log.spilled == taker.lender.lent
            if refused > 20:
                taker.lender.refuses = 1 << 60
    taker.log.rollback()
    want = reference(log, wanted, held, packed=False)
    assert taker.bytes(dropped) == b"".join(want)[dropped:]
    assert [end for end, _ in taker.ends] == _ends(want)
    taker.log.drop(taker.log.committed)
    assert taker.log.spilled == taker.log.allocated == taker.lender.lent == 0


def test_memory_is_counted_and_bounded_by_what_is_held() -> None:
    log = random_log(random.Random(8), transactions=300, size_max=5000, files=False)
    routes = Routes()
    rng = random.Random(1)
    taker = Taker(rng, Wanted(("shop", "crm", "billing")), held=set(), packed=False)
    taker.log = ConsumerLog(1 << 16)
    largest = 0
    for batch in batches(rng, log, routes, set()):
        taker.take(batch, routes)
        largest = max(largest, taker.log.allocated)
        taker.log.drop(taker.log.committed)
        assert taker.log.allocated <= (1 << 17) + 2 * open_bytes(taker.log)
    assert largest < 1 << 18


# -- the rules, one at a time ---------------------------------------------------------------------------------

ORDERS, ITEMS, BILL = ("shop", "orders"), ("shop", "items"), ("billing", "bills")


def share(
    log: e.LogWriter, wanted: Wanted, *, byte_by_byte: bool = False
) -> list[tuple[int, bytes]]:
    """(type, bytes) of each event that the consumer gets."""
    routes = Routes()
    split = Splitter(routes, packets=True, checksum=log.files[0].checksum, buffer_bytes=1 << 14)
    out = SmallLog(1)
    stream = log.stream()
    seq = 0
    step = 1 if byte_by_byte else len(stream)
    wants = Filter(wanted.databases, wanted.tables, wanted.exclude_tables)
    for at in range(0, len(stream), step):
        for batch in split.feed(stream[at : at + step]):
            assert isinstance(batch, Batch)
            _, seq = out.append(
                batch, wants.route_mask(routes), None, epoch=0, seq=seq, packed=False
            )
    data = b"".join(out.read(0, out.committed))
    events, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        events.append((data[at + 4], data[at : at + size]))
        at += size
    return events


@pytest.mark.parametrize("byte_by_byte", [False, True])
@pytest.mark.parametrize("checksum", [False, True])
def test_the_last_rows_of_a_statement_end_it(byte_by_byte: bool, checksum: bool) -> None:
    log = e.LogWriter(checksum=checksum)
    log.begin()
    log.statement(e.Statement((ORDERS, BILL), ((0, 5), (0, 6), (1, 7)), "UPDATE both"))
    log.statement(e.Statement((ORDERS,), ((0, 8),), "UPDATE one"))
    log.commit()
    got = share(log, Wanted(("shop",)), byte_by_byte=byte_by_byte)
    assert [kind for kind, _ in got] == [28, 33, 2, 19, 30, 30, 29, 19, 30, 16]
    assert [raw[25] for kind, raw in got if kind == 30] == [0, 1, 1]
    got = share(log, Wanted(("billing",)), byte_by_byte=byte_by_byte)
    assert [kind for kind, _ in got] == [28, 33, 2, 19, 30, 16]
    got = share(log, Wanted(("billing", "shop")), byte_by_byte=byte_by_byte)
    assert [kind for kind, _ in got] == [28, 33, 2, 29, 19, 19, 30, 30, 30, 29, 19, 30, 16]


def test_nothing_of_a_transaction_without_rows_of_ones_own() -> None:
    log = e.LogWriter()
    log.begin()
    log.statement(e.Statement((BILL,), ((0, 5),), "UPDATE bills"))
    log.commit()
    log.begin()
    log.commit()
    assert share(log, Wanted(("shop",))) == []


def test_a_table_map_without_rows_leaves_no_trace() -> None:
    log = e.LogWriter()
    log.begin()
    log.statement(e.Statement((ORDERS, BILL), ((1, 5),), "UPDATE bills"))
    log.commit()
    assert share(log, Wanted(("shop",))) == []


def test_a_filter_by_tables() -> None:
    log = e.LogWriter()
    log.begin()
    log.statement(e.Statement((ORDERS, ITEMS), ((0, 5), (1, 5))))
    log.commit()
    log.ddl("ALTER TABLE shop.orders ADD c int", tables=(ORDERS,))
    log.ddl("ALTER TABLE shop.items ADD c int", tables=(ITEMS,))
    log.ddl("DROP DATABASE shop", tables=(("shop", None),))
    got = share(log, Wanted(("shop",), (ITEMS,)))
    kinds = [28, 33, 2, 19, 30, 16, 28, 33, 2, 28, 33, 2]
    assert [kind for kind, _ in got] == kinds
    assert b"shop.items" in got[8][1]
    assert b"DROP DATABASE" in got[11][1]
