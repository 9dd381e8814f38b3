"""An administrator moves a consumer to a start in a new epoch. A refused move changes nothing."""

from __future__ import annotations

import pytest

from dispatcher.dispatch.messages.events import RelocationRequested
from dispatcher.dispatch.values.executed_position import Mode
from dispatcher.dispatch.values.specs import AtFile, Earliest, Latest, Start, starts_to_search
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.dispatch.plays import WRITER, alone
from tests.support.event_encoder import LogWriter
from tests.support.fake_source import write
from tests.support.simulation import World

EPOCH_MIN = 1_700_000_000


@pytest.fixture(params=tuple(Mode))
def play(request: pytest.FixtureRequest) -> World:
    """`a` and `b` have read and acknowledged four files with three transactions each; two files are purged."""
    mode: Mode = request.param
    log = LogWriter(gtid=WRITER[mode], checksum=True)
    for n in range(4):
        if n:
            log.rotate()
        write(log, "shop", 3)
    play = alone(log, mode=mode, names=("a", "b"))
    play.finish()
    play.server.purge(2)
    return play


def request(
    play: World, start: Start, epoch_min: int = EPOCH_MIN, name: str = "a"
) -> RelocationRequested:
    starts = starts_to_search([start])
    return RelocationRequested(name, start, play.server.view(None, starts), epoch_min)


def test_a_consumer_moved_to_earliest_reads_all_that_the_server_has(
    play: World,
) -> None:
    play.step(request(play, Earliest()))
    play.flush()
    queue = play.client.consumers["a"].queue
    assert queue.acknowledged.file == play.server.files[0][0]
    play.connect()
    while play.client.consumers["a"].queue.queued.seq < play.client.consumers["b"].queue.queued.seq:
        play.read()
        play.connect()
    answer = queue.readable(queue.position(queue.acknowledged), 1 << 20)
    assert answer.transactions == 6


def test_the_epoch_of_a_moved_consumer_is_at_least_the_requested_one(play: World) -> None:
    play.step(request(play, Latest()))
    play.flush()
    assert play.store["a"].acknowledged.epoch == EPOCH_MIN


def test_each_move_begins_a_new_epoch(play: World) -> None:
    for _ in range(3):
        play.step(request(play, Latest()))
    assert play.client.consumers["a"].queue.epoch == EPOCH_MIN + 2


def test_a_new_position_is_stored_with_the_creation_time_of_its_file(play: World) -> None:
    play.step(request(play, Earliest()))
    play.flush()
    assert play.store["a"].created == play.server.view().created[play.server.files[0][0]]


def test_other_consumers_are_not_affected_by_a_move(play: World) -> None:
    other, dispatcher = play.client.consumers["b"], play.client.consumers["b"].dispatcher
    before = other.queue.queued, other.queue.epoch, play.store["b"]
    play.step(request(play, Earliest()))
    play.flush()
    assert (other.queue.queued, other.queue.epoch, play.store["b"]) == before
    assert other.dispatcher == dispatcher and other.failed is None


def test_a_move_recovers_a_failed_consumer(play: World) -> None:
    consumer = play.client.consumers["a"]
    assert consumer.dispatcher is not None
    error = BinlogError(ErrorKind.HISTORY_DIFFERS, "x")
    play.client.dispatchers[consumer.dispatcher].fail(consumer, error, play.now)
    play.step(request(play, Latest()))
    assert consumer.failed is None and consumer.dispatcher is not None


def test_a_move_recovers_a_consumer_whose_stored_position_was_purged(
    play: World,
) -> None:
    play.step(request(play, Earliest()))
    play.flush()
    play.server.purge(3)
    play.boot()
    play.connect()
    failed = play.client.consumers["a"].failed
    assert failed is not None and failed.kind is ErrorKind.POSITION_PURGED
    play.step(request(play, Earliest(), epoch_min=0))
    play.flush()
    assert play.client.consumers["a"].failed is None
    assert play.store["a"].acknowledged.epoch == EPOCH_MIN + 1


def test_a_move_to_a_position_that_the_server_does_not_have_changes_nothing(play: World) -> None:
    stored, queue = play.store["a"], play.client.consumers["a"].queue
    before = queue.queued, queue.epoch, play.client.consumers["a"].dispatcher
    missing = AtFile("binlog.000099", 4)
    with pytest.raises(BinlogError) as caught:
        play.step(request(play, missing))
    play.flush()
    assert (queue.queued, queue.epoch, play.client.consumers["a"].dispatcher) == before
    assert play.store["a"] == stored
    assert "consumer a" in caught.value.where and "nothing was changed" in caught.value.remedy
