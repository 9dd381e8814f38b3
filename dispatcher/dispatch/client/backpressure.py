"""What a client does about full queues: it pauses reading, waits within budgets, detaches consumers, and limits all
queues together.

When a consumer's queue is full, its dispatcher stops reading, and waits for the consumer as long as the consumer's
budget allows. When the budget is spent, the dispatcher detaches the consumer and continues. A detached consumer keeps
its queue, and its reader sees no error. The consumer attaches again when its reader has acknowledged so much that the
queue is at most half full. A consumer that is alone on its dispatcher holds up no other consumer and is not detached.

An administrator may pause a consumer's delivery. The dispatcher detaches such a consumer as soon as its queue is full,
whatever the consumer's settings say. The consumer does not attach again before the delivery is resumed.

`queues_bytes_max` bounds the memory of all queues of a client. The queues exceed it by no more than their parts of one
batch and their newest segments (`queue_contents`). While the queues hold that many bytes, all dispatchers stop reading;
while they hold more than three quarters of `queues_bytes_max`, no detached consumer attaches again. If this limit keeps
a dispatcher from reading, or keeps a consumer with room in its queue from attaching, the client waits for the reader of
the largest queue, as long as the budget of that queue's consumer allows. Then the client *evicts* that queue: it drops
all bytes that are not acknowledged. When there is room, the daemon reads these bytes from the server again. The wait
gives the reader time to fetch some of the bytes; without the wait, the client could drop the same bytes again and
again. The queue of a failed consumer is neither counted nor evicted: such a queue does not grow, and after an eviction
the daemon would not fill it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.connection.dispatcher import Dispatcher, Phase
from dispatcher.dispatch.messages.effects import Effect, Note, Resume
from dispatcher.dispatch.values.specs import ClientLimits, OnQueueFull

PAUSE_MAX_S = 5.0
EVICTED_WAIT_S = 5.0  # an evicted queue is filled again after this time at the earliest
EVICT_AFTER_S = 2.0  # a queue is evicted at the earliest this long after memory ran low


class Backpressure:
    """`consumers`: the client's consumers. The client adds and removes them."""

    def __init__(self, consumers: Mapping[str, Consumer], limits: ClientLimits) -> None:
        self._consumers = consumers
        self._bytes_max = limits.queues_bytes_max
        self._waited_for: dict[Consumer, None] = {}  # may hold consumers whose wait has ended
        # The earliest time at which a queue may be evicted; None while memory is not low.
        self.evict_at: float | None = None

    # -- one dispatcher --------------------------------------------------------------------------------------

    def settle(self, dispatcher: Dispatcher, now: float) -> list[Effect]:
        """Pause, resume, close or connect the dispatcher, and detach consumers, as the queues of the attached consumers
        require."""
        if dispatcher.phase not in (Phase.STREAMING, Phase.PAUSED, Phase.BACKPRESSURE_CLOSED):
            return []
        effects: list[Effect] = []
        # If there are many consumers, most have nothing queued, so this code does no work per attached consumer.
        blocking = _blocking(dispatcher)
        for consumer in dict.fromkeys((*blocking, *self._waited_for_by(dispatcher))):
            if not (consumer in blocking and _may_detach(consumer, dispatcher)):
                consumer.wait_budget.end(now)
                continue
            self._wait_for(consumer, now)
            if consumer.delivery_paused or consumer.wait_budget.exhausted(now):
                effects += _detach(consumer, dispatcher, now)
        if len(dispatcher.attached) == 1:  # no other consumer waits for this one
            dispatcher.attached[0].wait_budget.end(now)
        return effects + self._pause_or_resume(
            dispatcher, _full(dispatcher) if blocking else [], now
        )

    def _wait_for(self, consumer: Consumer, now: float) -> None:
        consumer.wait_budget.begin(now)
        self._waited_for[consumer] = None

    def _waited_for_by(self, dispatcher: Dispatcher) -> list[Consumer]:
        if not self._waited_for:
            return []
        waited_for = [c for c in self._waited_for if c.wait_budget.is_waited_for]
        self._waited_for = dict.fromkeys(waited_for)
        return [consumer for consumer in waited_for if consumer.dispatcher == dispatcher.number]

    def _pause_or_resume(
        self, dispatcher: Dispatcher, full: list[Consumer], now: float
    ) -> list[Effect]:
        halted = bool(full) or self._memory_exhausted
        if dispatcher.phase is Phase.STREAMING:
            if not halted:  # nearly always true
                return []
            return [*dispatcher.pause(now), Note("debug", "paused", _fields(dispatcher, full))]
        if dispatcher.phase is Phase.PAUSED:
            if not halted and dispatcher.gate.held is None:
                dispatcher.phase = Phase.STREAMING
                return [Resume(dispatcher.number)]
            # A slow answer to a poll is no reason to close: the next stream would wait for a poll again.
            may_close = halted or not dispatcher.gate.awaits_poll
            # `DispatcherSet.wakeups` has the same sum.
            if may_close and now >= dispatcher.paused_since + PAUSE_MAX_S:
                why = "a queue is full" if halted else "the server takes long to answer"
                note = Note("info", "closed until there is room", _fields(dispatcher, full))
                # After the close, the other consumers still wait for the full queues, within the same budgets.
                return [*dispatcher.close(why, now), note, *self.settle(dispatcher, now)]
        elif dispatcher.phase is Phase.BACKPRESSURE_CLOSED:
            has_room = all(self._has_room(consumer) for consumer in dispatcher.attached)
            if has_room and not dispatcher.gate.fetching:
                return dispatcher.connect()
        return []

    def may_attach(self, consumer: Consumer, now: float) -> bool:
        """True if a waiting consumer may attach now: its queue has enough room to be worth a connection."""
        if now < consumer.attach_after or (consumer.delivery_paused and consumer.started):
            return False
        return not consumer.started or self._has_room(consumer)

    def _has_room(self, consumer: Consumer) -> bool:
        return consumer.queue.has_room and not self._memory_low

    # -- all queues ------------------------------------------------------------------------------------------

    def _active(self) -> list[Consumer]:
        return [consumer for consumer in self._consumers.values() if consumer.failed is None]

    @property
    def _held_bytes(self) -> int:
        # This sum is computed twice per batch, so it does little work for a queue that holds no memory.
        return sum([c.queue.held_bytes for c in self._active() if c.queue.log.holds_memory])

    @property
    def _memory_exhausted(self) -> bool:
        """True if no queue may grow. While no queue has a complete transaction, this is False, because no reader could
        make room."""
        if not self._bytes_max or self._held_bytes < self._bytes_max:
            return False
        return any(consumer.queue.transactions for consumer in self._active())

    @property
    def _memory_low(self) -> bool:
        """True if the queues hold so much memory that no consumer may attach."""
        return bool(self._bytes_max) and self._held_bytes > self._bytes_max - self._bytes_max // 4

    def _blocks_progress(self, dispatchers: Iterable[Dispatcher], now: float) -> bool:
        """True if low memory halts all dispatchers, or keeps a consumer that has room from attaching."""
        if self._memory_exhausted:
            return True
        waiting = [c for c in self._active() if c.waiting and c.started and now >= c.attach_after]
        kept_out = (c for c in waiting if not c.delivery_paused)
        return any(c.queue.has_room for c in kept_out) or any(
            d.phase is Phase.BACKPRESSURE_CLOSED and all(c.queue.has_room for c in d.attached)
            for d in dispatchers
        )

    def evict(self, dispatchers: Mapping[int, Dispatcher], now: float) -> list[Effect]:
        """If low memory blocks progress, evict the largest queue once its consumer's budget is spent."""
        if not self._memory_low:
            self.evict_at = None
            return []
        if self.evict_at is None:
            self.evict_at = now + EVICT_AFTER_S
        if not self._blocks_progress(dispatchers.values(), now):
            return []
        largest = self._largest()
        if largest is None:
            return []
        if not largest.waiting:
            self._wait_for(largest, now)
        at_once = largest.waiting or largest.delivery_paused
        if now < self.evict_at or not (at_once or largest.wait_budget.exhausted(now)):
            return []
        if largest.dispatcher is not None:
            dispatchers[largest.dispatcher].detach(largest, now)
        largest.wait_budget.record_detach(now)
        largest.detaches += 1
        fields = {"consumer": largest.name, "held_bytes": largest.queue.held_bytes}
        largest.evicted_commit_us = largest.queue.oldest_commit_us
        largest.queue.evict()
        largest.attach_after = max(now + EVICTED_WAIT_S, largest.wait_budget.merge_after)
        return [Note("info", "queue forgotten, all queues are full", fields)]

    def _largest(self) -> Consumer | None:
        """Return the consumer whose queue is to be evicted. A consumer whose delivery is paused comes first, then a
        consumer that is not refetching; among equals, the consumer with the largest queue. Return None if no queue may
        be evicted, or if the client has only one consumer."""
        active = self._active()
        if len(active) == 1:
            return None
        evictable = [
            consumer
            for consumer in active
            if _others_may_go_on(consumer) and consumer.queue.evictable_bytes
        ]
        return max(
            evictable,
            key=lambda c: (c.delivery_paused, not c.queue.refetching, c.queue.evictable_bytes),
            default=None,
        )


def _fields(dispatcher: Dispatcher, full: list[Consumer]) -> dict[str, object]:
    return {"dispatcher": dispatcher.number, "full": [consumer.name for consumer in full]}


def _full(dispatcher: Dispatcher) -> list[Consumer]:
    return [consumer for consumer in dispatcher.filled if consumer.queue.full]


def _blocking(dispatcher: Dispatcher) -> list[Consumer]:
    """Returns the consumers whose queues make the others wait. A closed dispatcher needs more room in each queue than
    an open one."""
    if dispatcher.phase is Phase.BACKPRESSURE_CLOSED:
        return [consumer for consumer in dispatcher.attached if not consumer.queue.has_room]
    return _full(dispatcher)


def _may_detach(consumer: Consumer, dispatcher: Dispatcher) -> bool:
    """True if the dispatcher may continue without the consumer. False for the dispatcher's only consumer, because no
    other consumer waits for it. Also False for a consumer with `on_queue_full: wait` whose delivery is not paused."""
    return _others_may_go_on(consumer) and len(dispatcher.attached) > 1


def _others_may_go_on(consumer: Consumer) -> bool:
    return consumer.delivery_paused or consumer.spec.on_queue_full is OnQueueFull.DETACH


def _detach(consumer: Consumer, dispatcher: Dispatcher, now: float) -> list[Effect]:
    held = consumer.queue.held_bytes
    dispatcher.detach(consumer, now)
    if consumer.delivery_paused:  # a pause does not show that the reader is slow
        consumer.wait_budget.end(now)
    else:
        consumer.wait_budget.record_detach(now)
    consumer.detaches += 1
    return [Note("info", "detached", {"consumer": consumer.name, "held_bytes": held})]
