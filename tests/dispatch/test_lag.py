"""The lag of a consumer, while transactions wait for its reader, and while it gets no transactions."""

from __future__ import annotations

import random

import pytest

from dispatcher.dispatch import status
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.connection.dispatcher import Phase
from dispatcher.dispatch.messages.events import Added, ServerPolled, Tick
from dispatcher.dispatch.values.executed_position import Mode
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from tests.dispatch.plays import WRITER, alone, at, small_log, spec
from tests.support.random_log import random_statement
from tests.support.simulation import World

LAST_COMMIT_AGE_S = 0.5


def consumer_of(play: World) -> Consumer:
    return play.client.consumers["a"]


def lag_s(play: World) -> float:
    """The lag just after the newest transaction's commit, plus the time that the play's clock has gone on."""
    consumer = consumer_of(play)
    now_s = consumer.queue.newest_commit_us / 1e6 + LAST_COMMIT_AGE_S
    return status.lag_s(play.client, consumer, now_s, play.now)


def at_the_end(mode: Mode = Mode.GTID) -> World:
    """Returns a world with a consumer whose reader has acknowledged the whole log of the server."""
    play = alone(small_log(gtid=WRITER[mode]), mode=mode)
    play.connect()
    play.read_all()
    acknowledge(play)
    assert consumer_of(play).queue.transactions == 0
    return play


def acknowledge(play: World) -> None:
    for _ in range(2):  # the second poll acknowledges the range of the first poll
        play.poll("a", 1 << 26, ack=True)


def write(play: World) -> None:
    log = play.server.log
    log.begin()
    log.statement(random_statement(random.Random(5), 200))
    log.commit()


def wait(play: World, s: float) -> None:
    play.now += s
    play.step(Tick())
    play.flush()


@pytest.mark.parametrize("mode", Mode)
def test_nothing_lags_on_an_idle_server(mode: Mode) -> None:
    play = at_the_end(mode)
    wait(play, 7200)
    assert lag_s(play) == 0
    play.survey()
    play.tell_survey()
    assert lag_s(play) == 0


@pytest.mark.parametrize("mode", Mode)
def test_a_position_is_behind_by_what_follows_it(mode: Mode) -> None:
    play = at_the_end(mode)
    consumer = consumer_of(play)
    before = consumer.queue.position(consumer.queue.queued)
    for _ in range(2):
        write(play)
    play.read_all()
    head = consumer.queue.position(consumer.queue.queued)
    now_s = consumer.queue.newest_commit_us / 1e6 + LAST_COMMIT_AGE_S

    def behind(end: Position) -> tuple[int | None, int | None, float]:
        lag = status.lag_behind(play.client, consumer, end, head, now_s, play.now)
        return lag["lag_transactions"], lag["lag_bytes"], lag["lag_seconds"]

    counted = mode is Mode.GTID
    transactions, size, age_s = behind(before)
    assert transactions == (2 if counted else None)
    assert size == head.offset - before.offset > 0
    assert age_s >= LAST_COMMIT_AGE_S
    assert behind(head) == (0 if counted else None, 0, 0)


@pytest.mark.parametrize("mode", Mode)
def test_the_lag_grows_without_a_connection_until_the_end_is_reached_again(mode: Mode) -> None:
    play = at_the_end(mode)
    wait(play, 7200)
    play.lose()
    assert lag_s(play) == 0
    wait(play, 50)
    assert lag_s(play) == 50
    play.connect()  # the server has written nothing new
    assert consumer_of(play).dispatcher == 1
    assert lag_s(play) == 0


def test_the_lag_does_not_end_before_the_end_of_the_log_is_read() -> None:
    play = at_the_end()
    play.lose()
    wait(play, 50)
    write(play)
    play.connect()
    waited = play.now
    assert lag_s(play) >= 50
    play.read_all()
    assert play.now == waited
    assert lag_s(play) == LAST_COMMIT_AGE_S  # the age of the new transaction
    acknowledge(play)
    assert lag_s(play) == 0


def test_a_survey_tells_of_what_is_not_read() -> None:
    play = at_the_end()
    write(play)
    wait(play, 30)
    play.survey()
    play.tell_survey()
    wait(play, 20)
    assert lag_s(play) == 20
    play.read_all()
    acknowledge(play)
    assert lag_s(play) == 0


def test_executed_transactions_that_are_not_in_the_log_are_not_waited_for() -> None:
    """A replica without log_replica_updates does not log the transactions that it executes."""
    play = at_the_end()
    play.client.offsets_to_poll()
    view = play.server.view()
    more = f"{view.executed},9e11fa47-71ca-11e1-9e33-c80aa9429562:1-9"
    play.step(
        ServerPolled(
            type(view)(**{n: getattr(view, n) for n in view.__slots__} | {"executed": more}), None
        )
    )
    wait(play, 60)
    assert lag_s(play) == 0


def test_a_failed_consumer_lags() -> None:
    play = at_the_end()
    dispatcher = play.client.dispatchers[1]
    play.step(Tick())
    dispatcher.fail(
        consumer_of(play), BinlogError(ErrorKind.ROW_IMAGE, "rows lack columns"), play.now
    )
    wait(play, 1000)
    assert status.consumer_state(play.client, consumer_of(play)) == "failed"
    assert lag_s(play) == 1000


def test_a_consumer_that_never_was_connected_lags_since_the_daemon_began() -> None:
    play = alone(small_log(), stored={"a": at(small_log(), 6)})
    play.client.start(play.now)
    wait(play, 30)
    assert lag_s(play) == 30
    play.client.step(Added(spec("b"), None), play.now)
    assert status.lag_s(play.client, play.client.consumers["b"], 0.0, play.now + 5) == 5


def test_consumers_that_wait_for_the_queue_of_another_lag() -> None:
    play = at_the_end()
    play.step(Tick())
    play.client.dispatchers[1].pause(play.now)
    assert play.client.dispatchers[1].phase is Phase.PAUSED
    play.now += 4
    assert lag_s(play) == 4


def test_an_evicted_queue_lags_as_before() -> None:
    play = alone(small_log())
    play.connect()
    play.read_all()
    consumer = consumer_of(play)
    play.step(Tick())
    before = lag_s(play)
    consumer.evicted_commit_us = consumer.queue.oldest_commit_us
    play.client.dispatchers[1].detach(consumer, play.now)
    consumer.queue.evict()
    assert consumer.queue.oldest_commit_us is None
    assert lag_s(play) == before > 0
