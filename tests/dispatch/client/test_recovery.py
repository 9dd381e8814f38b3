"""A consumer that failed on another server than its own goes on when its own server is back."""

from __future__ import annotations

from dataclasses import replace

from dispatcher.dispatch.client import recovery
from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.messages.effects import Connect, Effect
from dispatcher.dispatch.messages.events import LoggedIn, Lost, ServerPolled
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import ClientLimits, ConsumerSpec, Earliest, Progress
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.support.dispatch_parts import CREATED, consumer_at, declared, stored_at, view

REPLICA = "9f3a4c1e-0c5d-11ec-8b1a-0242ac130003"
LABEL = "repl@db1:3306"


def failed(consumer: Consumer) -> Consumer:
    """Let the consumer fail on a replica. Returns it."""
    consumer.fail(BinlogError(ErrorKind.HISTORY_DIFFERS, "the server never executed some"))
    consumer.failed_elsewhere = True
    return consumer


def recovered(consumer: Consumer, server: ServerView) -> list[Effect]:
    """Returns the effects if a survey that was made for this consumer has the answer `server`."""
    surveyed = recovery.positions_to_survey([consumer])
    return recovery.recover([consumer], surveyed, server, LABEL)


def test_it_goes_on_at_its_own_server_behind_a_login() -> None:
    consumer = failed(consumer_at(12))
    assert recovered(consumer, view(30))
    assert consumer.failed is None and consumer.error is None
    assert not consumer.verified


def test_one_that_has_not_read_since_the_start_goes_on_too() -> None:
    progress = Progress(stored_at(10), stored_at(12), CREATED["binlog.000009"])
    consumer = failed(declared(progress=progress))
    assert recovered(consumer, view(30))
    assert consumer.failed is None


def test_it_does_not_go_on_at_a_replica_that_executes_its_numbers_later() -> None:
    """The numbers may come from a primary that has lost the transactions that the consumer has read."""
    consumer = failed(consumer_at(12))
    assert recovered(consumer, view(30, server=REPLICA)) == []
    assert consumer.failed is not None


def test_it_does_not_go_on_where_its_set_is_all_that_can_be_compared() -> None:
    """The creation time of its file is not known, or its own server has purged the file."""
    unknown = declared(progress=Progress(stored_at(10), stored_at(12), 0))
    files = (("binlog.000010", 400),)
    purged = replace(view(30), files=files, file="binlog.000010", offset=400, created={})
    for consumer, server in ((unknown, view(30)), (consumer_at(12), purged)):
        assert recovered(failed(consumer), server) == []
        assert consumer.failed is not None


def test_its_own_server_with_another_log_fails_it_for_good() -> None:
    consumer = failed(consumer_at(12))
    assert recovered(consumer, view(3))
    assert consumer.failed is not None and "never executed" in consumer.failed.what
    assert recovered(consumer, view(30)) == []
    assert consumer.failed is not None


def test_a_survey_from_before_its_failure_says_nothing_of_it() -> None:
    """The consumer may have read further after the server was asked. The view lacks these transactions, although the
    server has them."""
    consumer = failed(consumer_at(12))
    for surveyed in ({}, recovery.positions_to_survey([failed(consumer_at(8))])):
        assert recovery.recover([consumer], surveyed, view(10), LABEL) == []
        assert recovery.recover([consumer], surveyed, view(30), LABEL) == []
    assert consumer.failed_elsewhere
    assert recovered(consumer, view(30)) and consumer.failed is None


def test_a_failure_at_its_own_server_is_not_one_elsewhere() -> None:
    consumer = consumer_at(12)
    error = BinlogError(ErrorKind.HISTORY_DIFFERS, "the server never executed some")
    assert recovery.is_elsewhere(consumer, view(3, server=REPLICA), error)
    assert not recovery.is_elsewhere(consumer, view(3), error)


def test_the_remedy_names_the_server_that_may_come_back() -> None:
    consumer = consumer_at(12)
    error = BinlogError(ErrorKind.HISTORY_DIFFERS, "the server never executed some")
    explained = recovery.explained(consumer, view(3, server=REPLICA), error)
    assert consumer.queue.server in explained.remedy and "continues by itself" in explained.remedy
    assert recovery.explained(consumer, view(3), error) is error


def client(wait_s: float) -> Client:
    spec = ConsumerSpec("shop", ("shop",), None, 1 << 20, Earliest())
    progress = Progress(stored_at(10), stored_at(12), CREATED["binlog.000009"])
    made = Client(LABEL, [spec], {"shop": progress}, limits=ClientLimits(failover_wait_s=wait_s))
    made.start()
    return made


def test_a_survey_asks_for_the_place_of_a_consumer_that_failed_elsewhere() -> None:
    """Without the place, the survey could not check what a login checks."""
    made = client(0.0)
    made.step(LoggedIn(1, view(3, server=REPLICA)), 0.0)
    assert made.consumers["shop"].failed is not None and made.awaits_other_server
    assert made.files_to_poll() == ["binlog.000009"]
    assert made.offsets_to_poll() == [("binlog.000009", 100)]
    made.step(ServerPolled(view(30), None), 1.0)
    assert made.consumers["shop"].dispatcher == 1 and not made.awaits_other_server


def test_a_host_that_is_down_does_not_lengthen_the_wait_for_a_replica() -> None:
    """A client with two hosts asks them in turn: the one that lags, and the one that is down."""
    made, now, waits = client(600.0), 0.0, []
    for _ in range(6):
        for event in (
            LoggedIn(1, view(3, server=REPLICA)),
            Lost(1, BinlogError(ErrorKind.CONNECT_FAILED, "refused")),
        ):
            effects = made.step(event, now)
            waits += [effect.after_s for effect in effects if isinstance(effect, Connect)]
            now += waits[-1]
    assert max(waits) <= 1.0
