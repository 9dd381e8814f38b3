"""Where a dispatcher stands after a batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.dispatch.connection.dispatcher import Dispatcher
from dispatcher.dispatch.tables.versions import Versions
from dispatcher.dispatch.values.executed_position import BatchGtids, Mode, make_executed
from dispatcher.model.gtid import DomainGtids
from dispatcher.stream.batch import Transactions
from dispatcher.stream.routes import Routes
from tests.support.dispatch_parts import CREATED, SERVER, declared, view
from tests.support.fake_batch import batch_of

GTIDS = {Mode.FILE: "", Mode.MARIADB: "0-1-30"}


@pytest.mark.parametrize("mode", [Mode.FILE, Mode.MARIADB])
def test_a_file_is_entered_with_its_head(mode: Mode) -> None:
    """Before the head the creation time is not known, so a RESET could not be noticed at the new file's beginning."""
    consumer = declared()
    read = make_executed(mode, GTIDS[mode], "binlog.000008", 500)
    consumer.queue.reset(SERVER, mode, 0, read, CREATED["binlog.000008"])
    consumer.started = True
    dispatcher = Dispatcher(1, "repl@db1:3306", Routes(), Versions())
    dispatcher.attach(consumer)
    dispatcher.connect()
    dispatcher.view = view(mode=mode, executed=0, knows_tables=True)
    dispatcher.start_dump(dispatcher.view, 0.0)

    dispatcher.receive(batch_of("binlog.000009", 4, None), 0, 1.0)
    assert dispatcher.read == consumer.queue.queued == read
    dispatcher.receive(batch_of("binlog.000009", 120, None), CREATED["binlog.000009"], 2.0)
    assert dispatcher.read == consumer.queue.queued
    assert dispatcher.read is not None
    assert (dispatcher.read.file, dispatcher.read.offset) == ("binlog.000009", 120)
    assert consumer.queue.files.created_of("binlog.000009") == CREATED["binlog.000009"]


def domains_batch(*gtids: tuple[int, int]) -> BatchGtids:
    """Returns the GTIDs of a batch. `gtids`: for each transaction, the index of its source in the list 0-1, 0-2, 5-1,
    and its number."""
    tx = Transactions.empty(len(gtids))
    for n, (source, number) in enumerate(gtids):
        tx.source[n], tx.gno[n], tx.end[n], tx.flags[n] = source, number, 100 * (n + 1), 0
    batch = batch_of("binlog.000009", 700, None, transactions=0)
    return BatchGtids.of(replace(batch, tx=tx, sources=["0-1", "0-2", "5-1"]))


def test_the_seq_grows_by_the_unused_numbers_too() -> None:
    batch = domains_batch((0, 8), (0, 9), (2, 3), (1, 12), (1, 13), (2, 4))
    before = make_executed(Mode.DOMAINS, "0-1-5", "binlog.000009", 4)
    assert batch.gains(before.gtids).tolist() == [3, 1, 3, 3, 1, 1]
    assert batch.seqs(Mode.DOMAINS, before).tolist() == [8, 9, 12, 15, 16, 17]
    assert str(batch.after(before.gtids, 5)) == "0-2-13,5-1-4"
    # Transactions that the position contains already.
    assert batch.gains(DomainGtids.parse("0-2-12,5-1-3")).tolist() == [0, 0, 0, 0, 1, 1]


def test_a_number_that_does_not_ascend_is_found() -> None:
    before = DomainGtids.parse("0-1-5")
    assert domains_batch((0, 6), (2, 1), (1, 9)).backwards(before) is None
    assert domains_batch((0, 5)).backwards(before) == "0-1-5 follows 0-1-5"
    assert domains_batch((0, 6), (0, 7), (1, 7)).backwards(before) == "0-2-7 follows 0-1-7"
