"""Where a dispatcher stands after a batch."""

from __future__ import annotations

import pytest

from dispatcher.dispatch.connection.dispatcher import Dispatcher
from dispatcher.dispatch.tables.versions import Versions
from dispatcher.dispatch.values.executed_position import Mode, make_executed
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
