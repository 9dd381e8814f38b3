"""Assertions about all queues of a client together (`max_bytes_in_all_queues`), and the times that these assertions
measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.connection.dispatcher import Phase
from dispatcher.dispatch.messages.effects import Effect, Note
from dispatcher.dispatch.queue.queue_contents import SEGMENT_MAX
from dispatcher.dispatch.values.specs import OnQueueFull

if TYPE_CHECKING:
    from tests.simulation.world import PlayedWorld

REFILL = 0.05
LATE_S = 0.05  # the longest delay of a tick
EVICT_AFTER_S = 2.0
SLACK_S = 8.0
PART_MAX = 1 << 17  # a queue may exceed the limit by this many bytes to complete a transaction


class MemoryRules:
    """Call `look` after every step and `passed` before the next step. The other methods make the assertions."""

    def __init__(self, world: PlayedWorld) -> None:
        self._world = world
        self._over_s = 0.0
        self._evictions = 0
        self._was_over = False
        self._members: dict[str, Consumer] = {}
        self._budgets_s = 0.0  # sum of the wait budgets of all consumers, including removed ones
        self._most = 0  # the largest number of consumers at one time

    def saw(self, effects: Sequence[Effect]) -> None:
        self._evictions += sum(isinstance(e, Note) and "forgotten" in e.event for e in effects)

    def passed(self, seconds: float) -> None:
        self._over_s += seconds * self._was_over

    def look(self) -> None:
        self._was_over = self._is_short()
        consumers = self._world.client.consumers
        for name, consumer in consumers.items():
            if self._members.get(name) is not consumer:
                self._members[name] = consumer
                self._budgets_s += consumer.spec.wait_max_s
        self._most = max(self._most, len(consumers))

    def bounded(self) -> None:
        """Assert that all queues together exceed the limit by no more than the parts of a batch, and by the unused rest
        of the newest segment of each queue (`queue_contents`)."""
        client = self._world.client
        limit = client.limits.queues_bytes_max
        segments = sum(min(SEGMENT_MAX, c.queue.bytes_max // 8) for c in client.consumers.values())
        most = limit + len(client.consumers) * PART_MAX + segments
        assert not limit or self._held_bytes() <= most, "all queues together are not bounded"

    def not_full_for_long(self, played_s: float) -> None:
        """Assert that all queues together were full for no longer than the budgets allow."""
        if not self._world.client.limits.queues_bytes_max:
            return
        most = self._budgets_s + REFILL * self._most * played_s + SLACK_S
        most += (EVICT_AFTER_S + LATE_S) * (1 + self._evictions)
        assert self._over_s <= most, f"all queues were full for {self._over_s} s"

    def _held_bytes(self) -> int:
        """Returns the bytes in the queues of consumers that have not failed. A failed consumer receives nothing, and
        its queue is not evicted."""
        consumers = self._world.client.consumers.values()
        return sum(c.queue.held_bytes for c in consumers if c.failed is None)

    def _is_short(self) -> bool:
        """True if all queues together are full, or are so full that a consumer with room cannot attach."""
        client = self._world.client
        limit, held = client.limits.queues_bytes_max, self._held_bytes()
        working = [c for c in client.consumers.values() if c.failed is None]
        if not limit or len(working) == 1:  # a single consumer cannot delay another
            return False
        if any(c.spec.on_queue_full is OnQueueFull.WAIT for c in client.consumers.values()):
            return False  # the other consumers wait for such a consumer without a time limit
        if held >= limit:
            return any(c.queue.transactions for c in working)
        dispatchers = client.dispatchers
        phases = {number: dispatcher.phase for number, dispatcher in dispatchers.items()}
        outside = [
            consumer
            for consumer in working
            if consumer.started
            and phases.get(consumer.dispatcher or 0, Phase.BACKPRESSURE_CLOSED)
            is Phase.BACKPRESSURE_CLOSED
        ]
        free = [c for c in outside if c.queue.has_room and c.attach_after <= self._world.now]
        alone = [c for c in free if all(other in free for other in self._attached_with(c))]
        return held > limit * 3 // 4 and bool(alone)

    def _attached_with(self, consumer: Consumer) -> list[Consumer]:
        dispatcher = self._world.client.dispatchers.get(consumer.dispatcher or 0)
        return dispatcher.attached if dispatcher else []
