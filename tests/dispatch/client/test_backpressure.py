"""What happens when one queue is full, or the common limit of all queues is reached: waits, detaches and evictions."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from dispatcher.dispatch.client.backpressure import EVICT_AFTER_S
from dispatcher.dispatch.connection.dispatcher import Phase
from dispatcher.dispatch.messages.effects import Store
from dispatcher.dispatch.messages.events import Acknowledged, DeliveryChanged
from dispatcher.dispatch.values.executed_position import Mode
from dispatcher.dispatch.values.specs import ClientLimits, OnQueueFull
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.dispatch.plays import alone, long_log, numbers, read_and_poll, spec
from tests.support.fake_server import Server, gtid_set
from tests.support.simulation import World


def full_of(play: World, name: str, *others: str) -> None:
    """Let the dispatchers read until a queue is full and the readers of the other consumers have read everything."""
    read_and_poll(play, lambda: play.client.consumers[name].queue.full, *others)


def slow_beside_fast(**more: Any) -> World:
    log = long_log(200)
    specs = [spec("slow", 20_000, **more), spec("fast")]
    return World(random.Random(0), Server(log, Mode.GTID), specs, {})


def test_a_slow_consumer_is_waited_for_and_then_detached() -> None:
    play = slow_beside_fast(wait_max_s=2.0)
    slow, fast = (play.client.consumers[name] for name in ("slow", "fast"))
    full_of(play, "slow", "fast")
    assert play.client.dispatchers[1].phase is Phase.PAUSED
    began = play.now
    read_and_poll(play, lambda: slow.detaches == 1, "fast")
    assert 1.5 <= play.now - began <= 2.5
    assert slow.dispatcher is None
    assert slow.error is slow.failed is None
    held = slow.queue.held_bytes
    read_and_poll(play, lambda: fast.queue.queued.seq == 200, "fast")
    assert slow.queue.held_bytes == held, "a detached consumer keeps its queue"
    assert numbers(play) == [1]
    read_and_poll(play, lambda: slow.dispatcher is not None, "slow", "fast")
    play.finish()
    read_and_poll(play, lambda: len(numbers(play)) == 1, "slow", "fast")


def test_the_only_consumer_of_a_dispatcher_is_never_detached() -> None:
    play = alone(long_log(200), limit=20_000)
    full_of(play, "a")
    for _ in range(200):
        play.tick_quietly()
    assert play.client.consumers["a"].detaches == 0
    assert play.client.dispatchers[1].phase is Phase.BACKPRESSURE_CLOSED
    play.finish()


def test_with_on_queue_full_wait_all_consumers_wait() -> None:
    play = slow_beside_fast(wait_max_s=2.0, on_queue_full=OnQueueFull.WAIT)
    full_of(play, "slow", "fast")
    for _ in range(500):
        play.tick_quietly()
        play.connect()
        play.read()
    assert play.client.consumers["slow"].detaches == 0
    assert play.client.dispatchers[1].phase is Phase.BACKPRESSURE_CLOSED
    play.finish()


@pytest.mark.parametrize("on_queue_full", list(OnQueueFull))
def test_others_do_not_wait_for_a_consumer_whose_delivery_is_paused(
    on_queue_full: OnQueueFull,
) -> None:
    play = slow_beside_fast(wait_max_s=10.0, on_queue_full=on_queue_full)
    slow, fast = (play.client.consumers[name] for name in ("slow", "fast"))
    play.step(DeliveryChanged("slow", True))
    read_and_poll(play, lambda: fast.queue.queued.seq == 200, "fast")
    assert slow.detaches == 1 and slow.dispatcher is None
    assert slow.wait_budget.waited_s == 0
    # The reader may still acknowledge ranges that it requested before the pause. The consumer attaches when delivery is
    # resumed.
    read_and_poll(play, lambda: slow.queue.unacknowledged_bytes == 0, "slow")
    for _ in range(100):
        play.tick_quietly()
    assert numbers(play) == [1] and play.client.dispatchers[1].attached == [fast]
    play.step(DeliveryChanged("slow", False))
    read_and_poll(play, lambda: slow.queue.queued.seq == 200, "slow", "fast")
    assert slow.wait_budget.merge_after <= play.now
    play.finish()


def test_a_consumer_without_room_on_disk_waits_and_others_go_on() -> None:
    play = slow_beside_fast()
    slow = play.client.consumers["slow"]
    log = slow.queue.log
    answer = log.answer

    def refuse(*_arguments: Any) -> None:
        log.answer = answer  # type: ignore[method-assign]
        raise BinlogError(ErrorKind.STATE_STORE, "no space left on device")

    log.answer = refuse  # type: ignore[method-assign, assignment]
    play.connect()
    play.read()
    assert slow.dispatcher is None
    assert slow.failed is None
    assert slow.error is not None
    assert "no space left" in str(slow.error)
    assert play.client.dispatchers[1].consumers == ["fast"]
    play.finish()
    assert slow.error is None


def test_the_largest_queue_is_evicted_and_read_again_later() -> None:
    log = long_log(300)
    limits = ClientLimits(queues_bytes_max=200_000)
    specs = [spec("slow", wait_max_s=1.0), spec("fast", wait_max_s=1.0)]
    play = World(random.Random(0), Server(log, Mode.GTID), specs, {}, limits)
    slow, fast = (play.client.consumers[name] for name in ("slow", "fast"))
    read_and_poll(play, lambda: slow.detaches == 1, "fast")
    assert slow.queue.held_bytes == 0
    assert slow.queue.queued == slow.queue.acknowledged
    read_and_poll(play, lambda: fast.queue.queued.seq == 300, "fast")
    play.finish()


def with_bound(bytes_max: int, *specs: Any, transactions: int = 300) -> World:
    limits = ClientLimits(queues_bytes_max=bytes_max)
    server = Server(long_log(transactions), Mode.GTID)
    return World(random.Random(0), server, list(specs), {}, limits)


def test_a_reader_has_time_to_fetch_before_its_queue_is_evicted() -> None:
    """This also holds with a wait budget of 0, and if each batch fills the free memory at once."""
    play = with_bound(60_000, spec("a", wait_max_s=0.0), spec("b", wait_max_s=0.0))
    a = play.client.consumers["a"]
    read_and_poll(play, lambda: play.paused, "b")
    began = play.now
    read_and_poll(play, lambda: a.detaches == 1, "b")
    assert EVICT_AFTER_S / 2 <= play.now - began <= EVICT_AFTER_S + 0.5
    assert a.queue.held_bytes == 0
    play.finish()


def test_the_queue_of_a_failed_consumer_is_kept_and_not_counted() -> None:
    play = with_bound(60_000, *(spec(name, wait_max_s=0.0) for name in ("failed", "slow", "fast")))
    failed, slow, fast = (play.client.consumers[name] for name in ("failed", "slow", "fast"))
    read_and_poll(play, lambda: failed.queue.held_bytes > 35_000, "slow", "fast")
    play.client.dispatchers[1].detach(failed, play.now)
    failed.fail(BinlogError(ErrorKind.MALFORMED_EVENT, "an event that is not understood"))
    held = failed.queue.held_bytes
    read_and_poll(play, lambda: slow.detaches == 1, "fast")
    assert (failed.queue.held_bytes, failed.detaches) == (held, 0)
    read_and_poll(play, lambda: fast.queue.queued.seq == 300, "fast")
    assert failed.queue.held_bytes == held


def test_a_position_stays_acknowledged_if_its_queue_is_evicted_while_it_is_stored() -> None:
    log = long_log(60)
    only = replace(spec("a"), databases=("crm",))  # the last transaction is of another database
    play = World(random.Random(0), Server(log, Mode.GTID), [only, spec("b")], {})
    a, client = play.client.consumers["a"], play.client
    read_and_poll(play, lambda: a.queue.queued.seq == 60)
    end = a.queue.position(a.queue.queued)
    last = replace(end, gtid=str(gtid_set(log.transactions[:59])), seq=59)
    progress = client.progress_after("a", last)
    assert progress is not None and last.seq < progress.covered.seq == 60
    client.dispatchers[1].detach(a, play.now)
    a.queue.evict()
    effects = client.step(Acknowledged("a", last, progress.covered), play.now)
    assert a.queue.position(a.queue.acknowledged).seq == last.seq
    (stored,) = [e.progress for e in effects if isinstance(e, Store)]
    assert (stored.acknowledged.gtid, stored.covered.seq) == (last.gtid, 60)
    assert client.progress_after("a", last) is None, "the reader goes on from there"


def test_a_stuck_queue_does_not_keep_a_consumer_with_room_detached() -> None:
    play = with_bound(
        200_000, spec("stuck", 160_000, wait_max_s=1.0), spec("other", wait_max_s=1.0)
    )
    stuck, other = (play.client.consumers[name] for name in ("stuck", "other"))
    read_and_poll(play, lambda: not stuck.queue.has_room and stuck.dispatcher is None, "other")
    read_and_poll(play, lambda: other.queue.queued.seq == 300, "other")
    play.finish()


def test_no_dispatcher_waits_for_room_while_no_transaction_is_complete() -> None:
    """The beginning of one transaction fills all queues, and no queue may be evicted."""
    specs = [spec(name, on_queue_full=OnQueueFull.WAIT) for name in ("a", "b")]
    play = with_bound(1, *specs, transactions=30)
    play.finish()
