"""The index of a queue returns the same positions, after many batches, as a computation batch by batch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.binlog.event.header import FormatDescription
from dispatcher.dispatch.queue.transaction_index import TransactionIndex
from dispatcher.dispatch.values.executed_position import (
    BatchGtids,
    ExecutedPosition,
    Gtids,
    Mode,
    make_executed,
)
from dispatcher.stream import copy_kernel as k
from dispatcher.stream.batch import ABORTED, OPEN, Batch, Events, Transactions
from dispatcher.stream.copying import Appended

SEEDS = st.integers(0, 2**32 - 1)
FORMAT = FormatDescription(b"", "", 0, True, False)
SOURCES = {
    Mode.GTID: [f"{n}e11fa47-71ca-11e1-9e33-c80aa9429562" for n in range(3)],
    Mode.FILE: [],
    Mode.MARIADB: ["0-1", "0-2", "7-1"],
    Mode.DOMAINS: ["0-1", "5-2", "7-1"],
}


def gtids_of(tx: Transactions, file: str, sources: list[str]) -> BatchGtids:
    nothing = np.empty(0, np.uint8)
    return BatchGtids.of(Batch(nothing, FORMAT, file, 0, 0, Events.empty(0), tx, sources, 0, 0))


def appended_of(
    batch: BatchGtids, tx: list[int], sizes: list[int], *, end: int, seq: int
) -> Appended:
    """Returns what a log would return. The test uses a transaction's size also as its number of events and its commit
    time."""
    columns = np.empty((k.DONE_SIZE, len(tx)), dtype=np.int64)
    columns[k.TX], columns[k.EVENTS], columns[k.COMMIT_US] = tx, sizes, sizes
    columns[k.END] = end + np.cumsum(columns[k.EVENTS])
    columns[k.SEQ], columns[k.OFFSET] = seq + 1 + columns[k.TX], batch.end[tx]
    columns[k.NUMBER_END] = batch.gno[tx] + 1
    return Appended(columns)


class SmallRuns(TransactionIndex):
    """An index with short index and interval logs, so that their ends are often reached."""

    RUN_MAX = 5
    INTERVALS_MAX = 4


@dataclass
class Step:
    gtids: BatchGtids
    base: Gtids
    appended: Appended
    positions: list[ExecutedPosition]


def walk(rng: random.Random, mode: Mode, batches: int) -> Iterator[Step]:
    """Yields batches of one server's log, from which a consumer gets some transactions."""
    names = SOURCES[mode]
    numbers = dict.fromkeys(range(-1, len(names)), 1)
    gtids: Gtids = make_executed(mode, "", "binlog.000001", 4).gtids
    seq = end = 0
    file, offset = 1, 4
    turns = rng.choice((1, 2, 20))
    source = rng.randrange(-1, len(names)) if not mode.by_gtid else 0
    for _ in range(batches):
        if rng.random() < 0.1:
            file, offset = file + 1, 4
        n = rng.choice((0, 1, 1, 2, 30))
        tx = Transactions.empty(n)
        for t in range(n):
            if rng.randrange(turns) == 0:
                source = rng.randrange(-1 if not mode.by_gtid else 0, len(names))
            numbers[source] += rng.choice((1, 1, 1, 1, 5))
            offset += rng.randrange(100, 200)
            tx.source[t], tx.gno[t], tx.end[t] = source, numbers[source], offset
            tx.flags[t] = 0
        if n:
            tx.flags[-1] = rng.choice((0, 0, OPEN, ABORTED))
        name = f"binlog.{file:06}"
        batch = gtids_of(tx, name, names)
        share = rng.choice((0, 0, 0.1, 1))
        own = [t for t in range(n) if batch.ended[t] and rng.random() < share]
        sizes = [rng.randrange(1, 1000) for _ in own]
        appended = appended_of(batch, own, sizes, end=end, seq=seq)
        positions = [
            ExecutedPosition(batch.after(gtids, t), name, int(tx.end[t]), seq + 1 + t) for t in own
        ]
        yield Step(batch, gtids, appended, positions)
        gtids = batch.after(gtids, n)
        seq += int(batch.ended.sum())
        end += sum(sizes)


@pytest.mark.parametrize("mode", Mode)
@given(seed=SEEDS)
def test_positions_equal_those_computed_batch_by_batch(mode: Mode, seed: int) -> None:
    rng = random.Random(seed)
    index = rng.choice((TransactionIndex, SmallRuns))()
    positions: list[ExecutedPosition] = []
    ends: list[int] = []
    dropped = 0
    for step in walk(rng, mode, rng.choice((5, 60))):
        if len(step.appended.tx):
            index.add(step.gtids, step.base, step.appended)
        else:
            index.skip_batch(step.gtids)
        positions += step.positions
        ends += step.appended.end.tolist()
        if rng.random() < 0.1:
            n = rng.randrange(dropped, len(positions) + 1)
            events = np.diff([0, *ends])[dropped:n].sum()
            assert index.drop(n) == (n - dropped, events)
            dropped = n
        if rng.random() < 0.02:
            index.clear()
            dropped = len(positions)
        state = index.dropped, index.count, bool(index)
        assert state == (dropped, len(positions), dropped < len(positions))
    for n in range(dropped, len(positions)):
        assert index.executed_after(n) == positions[n]
        assert index.end(n) == ends[n]
        assert index.commit_us(n) == ends[n] - ([0, *ends])[n]
        for delta in (-1, 0, 1):
            assert index.count_to(ends[n] + delta) == max(
                sum(e <= ends[n] + delta for e in ends), dropped
            )
            seq = positions[n].seq + delta
            assert index.count_seq(seq) == max(sum(p.seq <= seq for p in positions), dropped)


def test_memory_does_not_grow_with_the_number_of_batches() -> None:
    """The source's transaction numbers have no gaps. There are thousands of batches, each with one transaction of the
    consumer."""
    index = TransactionIndex()
    start = make_executed(Mode.GTID, "", "binlog.000001", 4)
    gtids = start.gtids
    for n in range(1, 5001):
        tx = Transactions.empty(3)
        tx.source[:], tx.flags[:], tx.end[:] = 0, 0, 4 + 100 * n
        tx.gno[:] = 3 * n + np.arange(3)
        batch = gtids_of(tx, start.file, SOURCES[Mode.GTID])
        index.add(batch, gtids, appended_of(batch, [1], [1], end=n - 1, seq=3 * n))
        gtids = batch.after(gtids, 3)
    kept = index._runs  # no public method returns how much the index stores
    assert len(kept) == 5
    assert sum(len(run.intervals) for run in kept) == 5
    assert sum(run.columns.nbytes for run in kept) < 5000 * 120
    assert len(str(index.executed_after(4999).gtids)) < 60
