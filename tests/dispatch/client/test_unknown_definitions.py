"""A consumer and TABLE_MAPs that are marked as unknown: its newest reader decides."""

from __future__ import annotations

import pytest

from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.messages.events import ReaderDeclared
from dispatcher.dispatch.values.executed_position import Mode
from dispatcher.dispatch.values.specs import ClientLimits, ConsumerSpec
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.support.dispatch_parts import CREATED, SERVER, at

MISSING = BinlogError(ErrorKind.METADATA_MISSING, "the columns are unknown")


def client_of(name: str = "shop") -> tuple[Client, Consumer]:
    """Returns a client, and its consumer with the transactions 1 to 12, of which 1 to 10 are acknowledged."""
    client = Client(
        "repl@db1:3306", [ConsumerSpec(name, ("shop",), None, 1 << 20)], {}, limits=ClientLimits()
    )
    consumer = client.consumers[name]
    consumer.queue.reset(SERVER, Mode.GTID, 0, at(10), CREATED["binlog.000009"])
    consumer.queue.queued = at(12)
    consumer.started = True
    return client, consumer


def test_a_consumer_that_failed_at_a_mark_goes_on_for_a_reader_that_understands_it() -> None:
    client, consumer = client_of()
    consumer.fail(MISSING)
    consumer.failed_at_mark = True
    client.step(ReaderDeclared("shop", False), 0.0)
    assert consumer.failed is MISSING
    client.step(ReaderDeclared("shop", True), 0.0)
    assert [consumer.failed, consumer.dispatcher] == [None, 1]


def test_another_failure_stays() -> None:
    client, consumer = client_of()
    consumer.fail(MISSING)
    client.step(ReaderDeclared("shop", True), 0.0)
    assert consumer.failed is MISSING


def test_a_reader_that_does_not_understand_marks_gets_none_from_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, consumer = client_of()
    evicted: list[bool] = []
    monkeypatch.setattr(consumer.queue, "evict", lambda: evicted.append(True))
    consumer.takes_unknown = True
    client.step(ReaderDeclared("shop", False), 0.0)
    consumer.unknown_tables.add("shop.t")
    client.step(ReaderDeclared("shop", True), 0.0)
    assert not evicted
    client.step(ReaderDeclared("shop", False), 0.0)
    assert evicted and not consumer.unknown_tables
