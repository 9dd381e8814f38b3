"""A view of the server is compared with the positions that dispatchers had when the server was asked."""

from __future__ import annotations

import random

import pytest

from dispatcher.dispatch.client.backpressure import PAUSE_MAX_S
from dispatcher.dispatch.client.history_watch import POLL, HistoryWatch
from dispatcher.dispatch.connection.dispatcher import Dispatcher, Phase
from dispatcher.dispatch.messages.effects import Close, Connect, Note
from dispatcher.dispatch.values.executed_position import Mode
from tests.dispatch.plays import read_and_poll, spec
from tests.support.dispatch_parts import consumer_at, streaming, view
from tests.support.fake_server import Server
from tests.support.random_log import random_log
from tests.support.simulation import World

NOW = 100.0


class SlowServer(World):
    """A world in which the server answers a poll only when the test tells it to."""

    def tell_survey(self) -> None:
        pass

    def answer(self) -> None:
        super().tell_survey()


def test_a_server_that_takes_long_to_answer_a_poll_is_waited_for() -> None:
    log = random_log(random.Random(3), transactions=12, gtid="anonymous")
    play = SlowServer(random.Random(0), Server(log, Mode.FILE), [spec("a")])
    dispatcher = play.client.dispatchers[1]
    read_and_poll(play, lambda: dispatcher.gate.awaits_poll, "a")
    for _ in range(round(2 * PAUSE_MAX_S / 0.2)):
        play.tick_quietly()
    phases = [dispatcher.phase]
    play.answer()
    assert [*phases, dispatcher.phase] == [Phase.PAUSED, Phase.STREAMING]
    assert dispatcher.streams_begun == 1


@pytest.fixture
def dispatchers() -> dict[int, Dispatcher]:
    return {1: streaming(consumer_at(10)), 2: streaming(consumer_at(12, "crm"), number=2)}


@pytest.fixture
def watch(dispatchers: dict[int, Dispatcher]) -> HistoryWatch:
    return HistoryWatch(dispatchers)


def test_a_view_that_has_all_that_was_read_changes_nothing(watch: HistoryWatch) -> None:
    watch.take_snapshot(POLL)
    assert watch.compare(POLL, view(30), NOW) == []


def test_a_dispatcher_that_read_what_the_server_lacks_logs_in_again(watch: HistoryWatch) -> None:
    watch.take_snapshot(POLL)
    note, close, connect = watch.compare(POLL, view(11), NOW)
    assert isinstance(note, Note) and note.fields["dispatcher"] == 2
    assert isinstance(close, Close) and close.dispatcher == 2
    assert connect == Connect(2, 0.0)


def test_the_dispatcher_that_logs_in_is_left_out(watch: HistoryWatch) -> None:
    watch.take_snapshot(2)
    assert watch.compare(2, view(11), NOW) == []


def test_what_was_read_since_the_question_is_not_compared(
    watch: HistoryWatch, dispatchers: dict[int, Dispatcher]
) -> None:
    watch.take_snapshot(POLL)
    for dispatcher in dispatchers.values():
        for consumer in dispatcher.attached:
            consumer.queue.queued = consumer_at(40).queue.queued
    assert watch.compare(POLL, view(30), NOW) == []


def test_a_stream_that_began_since_the_question_is_not_compared(
    watch: HistoryWatch, dispatchers: dict[int, Dispatcher]
) -> None:
    watch.take_snapshot(POLL)
    dispatchers[2].start_dump(view(30), NOW)
    assert watch.compare(POLL, view(11), NOW) == []


def test_a_dispatcher_that_replaced_another_is_not_compared(
    watch: HistoryWatch, dispatchers: dict[int, Dispatcher]
) -> None:
    watch.take_snapshot(POLL)
    dispatchers[2] = streaming(consumer_at(12, "crm"), number=2)
    assert watch.compare(POLL, view(11), NOW) == []


def test_a_view_is_compared_once(watch: HistoryWatch) -> None:
    watch.take_snapshot(POLL)
    watch.compare(POLL, view(30), NOW)
    assert watch.compare(POLL, view(11), NOW) == []


def test_the_server_is_asked_about_the_offsets_of_the_snapshot(watch: HistoryWatch) -> None:
    assert watch.offsets(POLL) == []
    watch.take_snapshot(POLL)
    assert watch.offsets(POLL) == [("binlog.000009", 100)] * 2
    watch.forget(POLL)
    assert watch.offsets(POLL) == []
