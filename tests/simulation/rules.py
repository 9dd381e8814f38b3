"""Assertions after every step of a play. They use the true state of the world, not the client's view of the world.

An AssertionError names the rule that was broken. With the virtual clock, they measure how long a consumer with a full
queue delayed others, how long a connection was not read, and when a consumer was detached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.connection.dispatcher import Dispatcher, Phase
from dispatcher.dispatch.messages.effects import Effect
from dispatcher.dispatch.messages.events import (
    Acknowledged,
    Added,
    BatchReceived,
    Input,
    LoggedIn,
    Removed,
    SeekRequested,
    ServerPolled,
    Tick,
)
from dispatcher.model.position import packed_seq
from tests.simulation.connection_rules import ConnectionRules
from tests.simulation.consumer_rules import ConsumerRules
from tests.simulation.memory import REFILL, MemoryRules
from tests.simulation.observed import Observations
from tests.simulation.seek_rules import SeekRules
from tests.simulation.truth import needed_file
from tests.support.event_encoder import Transaction

if TYPE_CHECKING:
    from tests.simulation.world import PlayedWorld

_SERVING = (Phase.STREAMING, Phase.PAUSED, Phase.BACKPRESSURE_CLOSED)
_QUIET = (SeekRequested, Added, Removed, Acknowledged)


class Rules:
    """All assertions, as the module describes."""

    def __init__(self, world: PlayedWorld) -> None:
        self._world = world
        self._observed = Observations(world)
        self.jumped = self._observed.jumped
        self.seeks = SeekRules(self._observed)
        self.connections = ConnectionRules(self._observed)
        self.consumers = ConsumerRules(self._observed)
        self.begin()

    def begin(self) -> None:
        """Delete all measurements before the daemon starts."""
        self._observed.begin()
        self.connections.begin()
        self._at = 0.0
        self._memory = MemoryRules(self._world)

    def booted(self) -> None:
        self._observed.began = self._at = self._world.now
        dispatchers = self._world.client.dispatchers
        assert len(dispatchers) == 1, "consumers without a position log in together"
        self._look()

    def stepped(self, event: Input, effects: Sequence[Effect]) -> None:
        world, now = self._world, self._world.now
        self._measure(now - self._at)
        self._at = now
        if isinstance(event, Tick) and not effects:
            self._only_time_passed(now)
            return
        self._observed.stepped(event, effects)
        self._memory.saw(effects)
        if isinstance(event, LoggedIn | ServerPolled):
            self.connections.server_answers(event.view)
        self.connections.check_connections(event)
        for consumer in list(world.client.consumers.values()):
            seen = self._observed.of(consumer)
            self.consumers.gap(
                consumer, seen
            )  # checked first, because a consumer that skips a gap continues in the new log
            self.connections.has_what_was_read(consumer, seen)
            self.consumers.failure(consumer, seen)
            self.consumers.recovery(consumer, seen)
            self.connections.is_of_one_history(consumer)
            self.consumers.detached(consumer, seen, now)
            self.consumers.attached(consumer, seen, now)
            self.consumers.held_up(consumer, seen, now)
        if isinstance(event, BatchReceived):
            self._world.check_bounds()
            self._memory.bounded()
        self._memory.not_full_for_long(now - self._observed.began)
        self.connections.merged_where_possible()
        if isinstance(event, LoggedIn):
            self.connections.near_share()
            self.connections.starts(event.view)
            self.connections.waits_for_replica(event.dispatcher)
            begun = world.client.dispatchers.get(event.dispatcher)
            for consumer in begun.attached if begun and begun.open else ():
                if begun is not None and not self._observed.consumers[consumer.name].started:
                    self.connections.is_near(begun, consumer)
        if isinstance(event, _QUIET):
            dispatchers = [world.client.dispatchers[number] for number in self._observed.closed]
            assert all(d.phase is Phase.BACKPRESSURE_CLOSED for d in dispatchers), (
                f"{type(event).__name__} closes the connection of others"
            )
        self._look()

    def _only_time_passed(self, now: float) -> None:
        for name, seen in self._observed.consumers.items():
            self.consumers.held_up(self._world.client.consumers[name], seen, now)
        for dispatcher in self._world.client.dispatchers.values():
            if dispatcher.phase is Phase.PAUSED:
                self.connections.is_read_soon(dispatcher)
        self._memory.not_full_for_long(now - self._observed.began)

    def _measure(self, passed: float) -> None:
        for seen in self._observed.consumers.values():
            seen.held_up_s += passed * seen.holds_up
            if seen.is_waited_for:
                seen.left_s -= passed
                seen.waits_s += passed
            else:
                seen.waits_s = 0.0
                seen.left_s = min(seen.most_s, seen.left_s + REFILL * passed)
        self._memory.passed(passed)

    def _look(self) -> None:
        client = self._world.client
        for name in [name for name in self._observed.consumers if name not in client.consumers]:
            del self._observed.consumers[name]
        for consumer in client.consumers.values():
            seen = self._observed.of(consumer)
            dispatcher = client.dispatchers.get(consumer.dispatcher or 0)
            attached = dispatcher.attached if dispatcher else []
            queue = consumer.queue
            if dispatcher is not None or seen.dispatcher is not None:
                seen.attached_at = self._world.now
            seen.place = queue.queued if consumer.started else None
            seen.started = consumer.started
            at = consumer.position
            seen.server, seen.position = at.server if at is not None else "", at
            seen.created = _created_of(consumer)
            seen.failed, seen.error = consumer.failed, consumer.error
            seen.dispatcher, seen.attached, seen.full = (
                consumer.dispatcher,
                len(attached),
                queue.full,
            )
            seen.detaches, seen.gaps = consumer.detaches, consumer.gaps
            halts = dispatcher is not None and dispatcher.phase is Phase.PAUSED and queue.full
            seen.closed = dispatcher is not None and dispatcher.phase is Phase.BACKPRESSURE_CLOSED
            if seen.closed:
                halts = not queue.has_room
            others = [other for other in attached if other is not consumer]
            seen.holds_up = halts and any(_healthy(other, dispatcher) for other in others)
            blocks = queue.full or (seen.closed and not queue.has_room)
            serves = dispatcher is not None and dispatcher.phase in _SERVING
            seen.is_waited_for = serves and blocks and bool(others)
        self._memory.look()

    def files_needed(self) -> list[int]:
        """The indices of the oldest files of the server that the consumers still need."""
        world = self._world
        stored = [world.store[name] for name in world.readers if name in world.store]
        return [needed_file(world.server, progress.acknowledged) for progress in stored]

    @staticmethod
    def seq_of(transaction: Transaction) -> int:
        return packed_seq(transaction.file, transaction.end)


def _healthy(consumer: Consumer, dispatcher: Dispatcher | None) -> bool:
    """True if the consumer could receive more transactions."""
    if dispatcher is not None and dispatcher.phase is Phase.BACKPRESSURE_CLOSED:
        return consumer.queue.has_room
    return not consumer.queue.full


def _created_of(consumer: Consumer) -> int:
    """Returns the creation time of the file of a consumer's position, 0 if it is not known."""
    if consumer.started:
        return consumer.queue.files.created_of(consumer.queue.queued.file)
    return 0 if consumer.progress is None else abs(consumer.progress.created)
