"""For chunks of any size, the splitter delivers XA transactions as the log's writer predicts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.errors import ErrorKind
from dispatcher.stream.batch import Batch, Closed, Fault
from dispatcher.stream.routes import ALL, Filter, Routes
from dispatcher.stream.splitter import Splitter
from dispatcher.stream.xa_store import XaEntry, XaStore
from tests.support import event_encoder as e
from tests.support.split_log import Flat, check, cuts, expected, feed
from tests.support.xa_log import XIDS, XaLog, random_xa_log

SEEDS = st.integers(0, 2**32 - 1)
GTIDS = st.sampled_from(["mysql", "mysql", "tagged", "anonymous", "none", "mariadb"])
ROWS = e.Statement((("shop", "orders"),), ((0, 10),))
XID = XIDS[1]


def splitter(log: XaLog, prepared: XaStore, *, seed: int = 0, file: str = "") -> Splitter:
    rng = random.Random(seed)
    checksum = next((f for f in log.files if f.name == file), log.files[0]).checksum
    split = Splitter(
        Routes(), packets=True, checksum=checksum, buffer_bytes=rng.choice((1 << 14, 1 << 17))
    )
    split.embedded.small_bytes = rng.choice((0, 300, 1 << 18))
    split.prepared = prepared
    return split


@given(SEEDS, GTIDS)
def test_rows_come_with_the_commit(seed: int, gtid: str) -> None:
    rng = random.Random(seed)
    log = random_xa_log(rng, gtid=gtid, size_max=rng.choice((50, 3000, 20_000)))
    prepared = XaStore()
    split = splitter(log, prepared, seed=seed)
    check(feed(split, cuts(rng, log.stream())), log)
    assert split.offset == log.file.size
    assert len([entry for entry in prepared if entry.end is None]) == len(log.waiting)
    prepared.forget(lambda _: True)
    assert len(prepared) == len(log.waiting)


class Store:
    """The prepared transactions that a state store would contain."""

    def __init__(self) -> None:
        self.entries: dict[int, XaEntry] = {}

    def save(self, prepared: XaStore) -> None:
        changes = prepared.changes()
        if changes is None:
            return
        for entry in changes.put:
            assert entry.number not in self.entries
            self.entries[entry.number] = entry
        for number, end in changes.ended:
            self.entries[number].end = end
        for number in changes.gone:
            del self.entries[number]
        prepared.stored(changes)
        assert prepared.changes() is None
        assert {n: entry.end for n, entry in self.entries.items()} == {
            entry.number: entry.end for entry in prepared
        }

    def load(self) -> list[XaEntry]:
        return [self.entries[number] for number in sorted(self.entries)]


def tail(log: XaLog, n: int) -> tuple[bytes, str]:
    """Returns the dump after the first n transactions, and the name of the file in which it begins."""
    last = log.transactions[n - 1]
    return log.stream(file=last.file, offset=last.end), last.file


@given(SEEDS, GTIDS)
def test_a_restart_between_prepare_and_commit(seed: int, gtid: str) -> None:
    rng = random.Random(seed)
    log = random_xa_log(rng, gtid=gtid)
    want = expected(log)
    store, prepared = Store(), XaStore()
    n = rng.randrange(1, len(want))
    # The first splitter reads beyond the transactions that are stored.
    split = splitter(log, prepared, seed=seed)
    flat, read = Flat(split.routes), rng.randrange(n, len(want) + 1)
    for chunk in cuts(rng, log.stream()):
        flat.add(split.feed(chunk))
        if rng.random() < 0.2:
            store.save(prepared)
        if len(flat.done) >= read:
            break
    store.save(prepared)
    assert flat.done == want[: len(flat.done)]
    stream, file = tail(log, n)
    split = splitter(log, XaStore(stored=store.load()), seed=seed, file=file)
    split.file = file
    flat = feed(split, cuts(rng, stream))
    assert not flat.faults
    assert flat.done == want[n:]


@given(SEEDS, GTIDS)
def test_several_read_different_parts(seed: int, gtid: str) -> None:
    """One splitter is ahead. Other splitters begin at any earlier place, and read prepares and commits again."""
    rng = random.Random(seed)
    log = random_xa_log(rng, gtid=gtid)
    want = expected(log)
    prepared = XaStore()
    first = splitter(log, prepared, seed=seed)
    runs = [(first, Flat(first.routes), list(cuts(rng, log.stream())), 0)]
    while any(chunks for _, _, chunks, _ in runs):
        ahead = len(runs[0][1].done)
        if ahead and len(runs) < 4 and rng.random() < 0.05:
            n = rng.randrange(1, ahead + 1)
            stream, file = tail(log, n)
            split = splitter(log, prepared, seed=seed + n, file=file)
            split.file = file
            runs.append((split, Flat(split.routes), list(cuts(rng, stream)), n))
        split, flat, chunks, _ = rng.choice([run for run in runs if run[2]])
        flat.add(split.feed(chunks.pop(0)))
    for _, flat, _, n in runs:
        assert not flat.faults
        assert flat.done == want[n:]


def faults_of(batches: Iterable[Batch | Closed]) -> list[Fault]:
    return [batch.fault for batch in batches if isinstance(batch, Batch) and batch.fault]


def one(log: XaLog, fill: Iterable[e.Statement] = (ROWS,)) -> Callable[[], None]:
    def write() -> None:
        for statement in fill:
            log.statement(statement)

    return write


@pytest.mark.parametrize("gtid", ["mysql", "mariadb"])
def test_a_commit_whose_prepare_was_not_read_is_a_fault_for_all(gtid: str) -> None:
    log = XaLog(gtid=gtid)
    log.finish(XID)
    log.finish(XID, "ROLLBACK")
    log.prepare(XID, one(log))
    split = splitter(log, XaStore())
    (fault,) = faults_of(split.feed(log.stream()))
    assert fault.route == ALL
    error = fault.error
    assert error.kind is ErrorKind.PREPARED
    assert error.what == "XA COMMIT X'00ff275c3b',X'62',7, of which no XA PREPARE was read"
    assert error.where.startswith("binlog.000001:")


def test_nobody_wants_the_rows() -> None:
    rng = random.Random(3)
    log = random_xa_log(rng, transactions=40)
    split = splitter(log, XaStore())
    split.prepared = None
    flat = feed(split, cuts(rng, log.stream()))
    assert not flat.faults
    assert [done[:3] for done in flat.done] == [want[:3] for want in expected(log)]


def test_what_is_committed_before_is_not_what_was_prepared_behind_it() -> None:
    """A dump begins after the first prepare of the xid, while only the second prepare is known."""
    log = XaLog()
    log.prepare(XID, one(log))
    log.finish(XID)
    log.prepare(XID, one(log, (ROWS, ROWS)))
    log.finish(XID)
    prepared = XaStore()
    for n, faults in ((2, 0), (1, 1), (3, 0), (2, 0)):
        stream, file = tail(log, n)
        split = splitter(log, prepared, file=file)
        split.file = file
        flat = feed(split, [stream])
        assert len(flat.faults) == faults
        assert flat.done[faults:] == expected(log)[n + faults :]


# -- limits ---------------------------------------------------------------------------------------------------

LARGE = e.Statement((("shop", "orders"), ("crm", "people")), ((0, 40_000), (1, 40_000)))
# A text that compression does not make smaller.
DENSE = replace(LARGE, text=random.Random(1).randbytes(20_000).hex())


@pytest.mark.parametrize("gtid", ["mysql", "mariadb"])
@pytest.mark.parametrize("how", ["prepare", "one_phase"])
def test_what_does_not_fit_is_a_fault_of_its_tables(gtid: str, how: str) -> None:
    log = XaLog(gtid=gtid)
    noise = random.Random(2)
    getattr(log, how)(XID, one(log, [DENSE] * 3))
    log.prepare(XIDS[0], one(log))
    if how == "prepare":
        log.finish(XID)
    log.finish(XIDS[0])
    prepared = XaStore(1500)
    split = splitter(log, prepared)
    batches = [batch for chunk in cuts(noise, log.stream()) for batch in split.feed(chunk)]
    flat, faults = Flat(split.routes).add(batches), faults_of(batches)
    assert len(faults) == (2 if how == "prepare" else 1), "at the prepare, and where it is missed"
    for fault in faults:
        assert fault.error.kind is ErrorKind.PREPARED
        assert "do not fit into the 1500 bytes" in fault.error.what
        for database, concerned in (("shop", 1), ("crm", 1), ("billing", 0)):
            assert Filter([database]).route_mask(split.routes)[fault.route] == concerned
    assert flat.done[-1] == expected(log)[-1]
    assert [done[:3] for done in flat.done] == [want[:3] for want in expected(log)]


def test_memory_of_an_open_transaction_is_bounded() -> None:
    log = XaLog()
    log.prepare(XID, one(log, [LARGE] * 60))
    prepared = XaStore(200_000)
    split = splitter(log, prepared)
    held = 0
    for chunk in cuts(random.Random(2), log.stream()):
        split.feed(chunk)
        if recording := split._builder.recording:
            held = max(held, recording.bytes)
    assert held < 200_000
    (entry,) = prepared
    assert entry.rows is not None, "rows that are alike need little room"


def test_a_statement_within_is_a_fault_also_where_only_the_commit_is_read() -> None:
    def fill() -> None:
        log.statement(ROWS)
        log.query("DELETE FROM t", "crm", e.status_variables(updated_databases=["crm"]))

    log = XaLog()
    log.prepare(XID, fill)
    log.finish(XID)
    prepared = XaStore()
    flat = feed(splitter(log, prepared), [log.stream()])
    assert [fault.kind for fault in flat.faults] == [ErrorKind.STATEMENT_FORMAT] * 2
    stream, file = tail(log, 1)
    split = splitter(log, prepared, file=file)
    split.file = file
    (fault,) = faults_of(split.feed(stream))
    assert fault.error.kind is ErrorKind.STATEMENT_FORMAT
    assert Filter(["crm"]).route_mask(split.routes)[fault.route]
    assert not Filter(["shop"]).route_mask(split.routes)[fault.route]
