"""Assertions about single consumers: when a consumer fails, skips a gap, is detached, attaches, or delays others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.values.executed_position import (
    ExecutedPosition,
    executed_set,
    make_executed,
    parse_gtids,
    parse_set,
)
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import (
    AtFile,
    AtGtid,
    AtTime,
    OnPurged,
    OnQueueFull,
)
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import DomainGtids, GtidSet
from tests.simulation.memory import LATE_S, REFILL
from tests.simulation.observed import Observations, Observed
from tests.simulation.truth import lost_to_purge

if TYPE_CHECKING:
    pass


WINDOW_S = 600.0
MERGE_AFTER_S = (0.0, 5.0, 20.0, 60.0)
LATEST_S = 0.3  # the longest total delay of the ticks
DETACHES_MAX = 3


class ConsumerRules:
    """Assert the rules for one consumer after a step; `seen`: the consumer before the step."""

    def __init__(self, observed: Observations) -> None:
        self._observed = observed
        self._world = observed.world

    def failure(self, consumer: Consumer, seen: Observed) -> None:
        error = consumer.failed
        if error is not None and error is seen.failed:
            kept = consumer.queue.queued
            assert seen.place in (None, kept), (
                f"the queue of {consumer.name} changed after it had failed"
            )
        if error is None or error is seen.failed:
            return
        assert self._may_fail(consumer, seen, error), f"{consumer.name} fails: {error}"
        view = self._observed.view
        seen.elsewhere = view is not None and seen.server not in ("", view.server)

    def recovery(self, consumer: Consumer, seen: Observed) -> None:
        """Assert that a consumer that failed on another server than its own continues if, and only if, a survey finds
        its own server with the file of its position."""
        view = self._observed.polled
        if view is None or seen.failed is None:
            return
        history = self._world.readers[consumer.name].history
        place = self._place_of(consumer, seen)
        same = history in (None, self._world.surveyed_history)
        has_position = (
            same
            and place is not None
            and view.server == seen.server
            and seen.created != 0
            and place.file in view.created
            and consumer.name in self._world.surveyed_failures
            and self._world.surveyed_failures[consumer.name] == seen.position
            and _has(view, place)
        )
        if consumer.failed is not None:
            assert not (seen.elsewhere and has_position), (
                f"{consumer.name} stays failed, though {view.server} has its position"
            )
            return
        assert seen.elsewhere, f"{consumer.name} goes on, though its own server has another log"
        assert has_position, f"{consumer.name} goes on, though {view.server} lacks its position"
        seen.unproven = True
        seen.elsewhere = False

    def _may_fail(self, consumer: Consumer, seen: Observed, error: BinlogError) -> bool:
        world = self._world
        reader = world.readers[consumer.name]
        if reader.history is not None and reader.history is not world.history:
            return error.kind in (ErrorKind.HISTORY_DIFFERS, ErrorKind.POSITION_PURGED)
        if self._named_in_another_life(consumer, seen):
            return error.kind in (
                ErrorKind.HISTORY_DIFFERS,
                ErrorKind.POSITION_PURGED,
                ErrorKind.SETTINGS,
            )
        if world.dumps_refused >= 3 and error.kind is ErrorKind.POSITION_PURGED:
            return True
        place = self._place_of(consumer, seen)
        if error.kind is ErrorKind.POSITION_PURGED:
            fails = consumer.spec.on_purged is OnPurged.FAIL or place is None
            return fails and any(lost_to_purge(server, place) for server in world.servers)
        if error.kind is ErrorKind.HISTORY_DIFFERS and place is not None:
            view = (
                self._observed.view
            )  # this answer of the server may be older than the present log
            earlier = [str(view.written)] if view and world.scenario.mode.by_gtid else []
            executed = [server.stop.executed for server in world.servers] + earlier
            return any(_lacks(each, place) for each in executed) and self._waited_for_replica(
                consumer, seen
            )
        return False

    def _named_in_another_life(self, consumer: Consumer, seen: Observed) -> bool:
        """True if a start that was declared before a RESET is used after this RESET."""
        unplaced = seen.place is None and consumer.progress is None
        return unplaced and not self._world.first_life

    def _waited_for_replica(self, consumer: Consumer, seen: Observed) -> bool:
        """True if the consumer has read no other server, or if the replica has had time to catch up with the
        consumer."""
        world = self._world
        before = consumer.queue.server
        if seen.place is None:
            before = consumer.progress.covered.server if consumer.progress else ""
        since = max(world.failed_over_at, self._observed.began)  # infinite without a failover
        other_server = before not in ("", world.server.name)
        return not other_server or world.now - since >= world.client.limits.failover_wait_s

    def _place_of(self, consumer: Consumer, seen: Observed) -> ExecutedPosition | None:
        """Returns the position of a consumer before the step."""
        mode = self._world.scenario.mode
        if seen.place is not None:
            return seen.place
        if consumer.progress is not None:
            at = consumer.progress.covered
            return ExecutedPosition(parse_gtids(mode, at.gtid), at.file, at.offset, at.seq)
        start = consumer.spec.start
        match start:
            case AtGtid(gtids):
                return make_executed(mode, gtids, "", 0)
            case AtTime():
                return make_executed(mode, "", self._world.server.log.files[0].name, 4)
            case AtFile(file, offset):
                return make_executed(mode, "", file, offset)
        return None

    def gap(self, consumer: Consumer, seen: Observed) -> None:
        if consumer.gaps == seen.gaps:
            return
        assert consumer.spec.on_purged is OnPurged.LATEST, f"{consumer.name} skips a gap"
        place = self._place_of(consumer, seen)
        servers = self._world.servers
        changed = self._world.readers[consumer.name].history is not self._world.history
        changed = changed or self._named_in_another_life(consumer, seen)
        assert changed or any(lost_to_purge(server, place) for server in servers), (
            f"{consumer.name} skips transactions that were not purged"
        )
        self._observed.jumped.add(consumer.name)
        self._world.readers[consumer.name].history = self._world.history

    def detached(self, consumer: Consumer, seen: Observed, now: float) -> None:
        if consumer.detaches == seen.detaches:
            return
        name, spec = consumer.name, consumer.spec
        evicts = bool(self._world.client.limits.queues_bytes_max)
        assert spec.on_queue_full is OnQueueFull.DETACH, (
            f"{name} is detached despite on_queue_full: wait"
        )
        recent = [at for at in seen.detached_at if now - at < WINDOW_S]
        if (
            spec.wait_max_s and len(recent) < DETACHES_MAX and not evicts
        ):  # if this condition is false, the daemon may detach a consumer in the same step that filled its queue
            closed = seen.closed or seen.dispatcher in self._observed.closed
            assert seen.full or consumer.queue.full or (closed and not consumer.queue.has_room), (
                f"{name} is detached with room in its queue"
            )
        assert evicts or seen.attached > 1, f"{name} is detached though it is the only consumer"
        assert consumer.failed is None, f"{name} fails for being slow"
        assert evicts or consumer.error in (None, seen.error), f"{name} sees an error"
        if not evicts and len(recent) < DETACHES_MAX:
            assert seen.left_s <= LATE_S, f"{name} is detached with {seen.left_s} s left"
        seen.left_s = max(seen.left_s, 0.0)
        times = (*seen.detached_at, *([now] * (consumer.detaches - seen.detaches)))
        seen.detached_at = [at for at in times if now - at < WINDOW_S]
        count = min(len(seen.detached_at), len(MERGE_AFTER_S))
        seen.barred_until = now + MERGE_AFTER_S[count - 1]
        seen.wants_room = not evicts

    def attached(self, consumer: Consumer, seen: Observed, now: float) -> None:
        if consumer.dispatcher is None:
            return
        name, queue = consumer.name, consumer.queue
        dispatcher = self._world.client.dispatchers[consumer.dispatcher]
        if dispatcher.open and seen.dispatcher is None:
            # If dispatchers merged in the same step, the first dispatcher that the consumer attached to counts, because
            # a login has compared what both dispatchers read.
            first = self._attached_first(name) or dispatcher.number
            assert seen.attached_at >= self._observed.begun[first], (
                f"{name} attaches to a dump that began after it was detached, without a login"
            )
        if dispatcher.open and seen.unproven:
            assert seen.dispatcher == self._observed.asked, (
                f"{name} goes on at a position that no login has checked"
            )
            seen.unproven = False
        if seen.wants_room and consumer.dispatcher != seen.dispatcher:
            assert queue.held_bytes <= queue.bytes_max // 2, (
                f"{name} attaches with a queue more than half full"
            )
            seen.wants_room = False
        if now < seen.barred_until:
            assert len(dispatcher.attached) == 1, f"{name} merges before {seen.barred_until}"

    def _attached_first(self, name: str) -> int | None:
        """Returns the dispatcher to which the consumer has attached in this step, and which was then merged into
        another dispatcher."""
        for merge in self._observed.merged:
            names, ahead = merge["consumers"], merge["from"]
            assert isinstance(names, list) and isinstance(ahead, int)
            if name in names:
                return ahead
        return None

    def held_up(self, consumer: Consumer, seen: Observed, now: float) -> None:
        spec = consumer.spec
        if spec.on_queue_full is OnQueueFull.WAIT or self._world.client.limits.queues_bytes_max:
            return
        assert not seen.is_waited_for or seen.left_s >= -LATEST_S, (
            f"others wait {-seen.left_s} s too long for {spec.name}"
        )
        recent = [at for at in seen.detached_at if now - seen.waits_s - at < WINDOW_S]
        detached = consumer.detaches != seen.detaches
        waits_s = seen.waits_s if seen.is_waited_for and not detached else 0.0
        assert len(recent) < DETACHES_MAX or waits_s <= LATEST_S, (
            f"others wait for {spec.name} after {len(recent)} detaches"
        )
        most = spec.wait_max_s + REFILL * (now - seen.since) + 0.2 + LATE_S * consumer.detaches
        assert seen.held_up_s <= most, f"{spec.name} held others up for {seen.held_up_s} s"


def _has(view: ServerView, place: ExecutedPosition) -> bool:
    """True if, by its GTID sets, a server can send a dump that begins at a position."""
    if not view.mode.by_gtid:
        return False
    held, purged = executed_set(place.gtids), parse_set(view.mode, view.purged)
    return view.written.contains(held) and held.contains(purged)


def _lacks(executed: str, place: ExecutedPosition) -> bool:
    if isinstance(place.gtids, DomainGtids):
        return not DomainGtids.parse(executed).contains(place.gtids)
    return isinstance(place.gtids, GtidSet) and not GtidSet.parse(executed).contains(place.gtids)
