"""What is done about full queues: pauses, budgets, detaching, and the bound on all queues together.

A dispatcher with a full queue is not read on. Its attached wait for that consumer as long as its budget allows; then it
is detached: it keeps what is queued, its reader sees no error, and when half of it is read it boards a dispatcher
again. One that rides alone holds up nobody and is not detached.

`queues_bytes_max` bounds what all queues of a client hold. While they hold that much, or so much that somebody with an
empty queue is kept out, everybody waits for the largest of them, on its budget; then its bytes are forgotten down to
what is acknowledged, and read from the server again when there is room. Its reader is given time to fetch what there is
in any case, or what comes again and again would go again and again. One that has failed is left out of this: nothing
would be read again for it, and it takes no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dispatcher.dispatch.consumer import Consumer
from dispatcher.dispatch.dispatcher import Dispatcher, Phase
from dispatcher.dispatch.effects import Effect, Note, Resume
from dispatcher.dispatch.specs import ClientLimits, OnQueueFull

PAUSE_MAX_S = 5.0
# What was taken from a queue for the sake of all is not given back to it at once, nor taken at once.
EVICTED_WAIT_S = 5.0
EVICT_AFTER_S = 2.0


class Backpressure:
    """`consumers`: of the client, as they come and go."""

    def __init__(self, consumers: Mapping[str, Consumer], limits: ClientLimits) -> None:
        self._consumers = consumers
        self._bytes_max = limits.queues_bytes_max
        # No queue is forgotten before; None while there is room for others.
        self.evict_at: float | None = None

    # -- one dispatcher --------------------------------------------------------------------------------------

    def settle(self, dispatcher: Dispatcher, now: float) -> list[Effect]:
        """Pause, detach, resume, close, open again: whatever the attached' queues ask for."""
        if dispatcher.phase not in (Phase.STREAMING, Phase.PAUSED, Phase.BACKPRESSURE_CLOSED):
            return []
        effects: list[Effect] = []
        for consumer in list(dispatcher.attached):
            if not (_blocks(consumer, dispatcher) and _may_detach(consumer, dispatcher)):
                consumer.patience.end(now)
                continue
            consumer.patience.begin(now)
            if consumer.patience.exhausted(now):
                effects += _detach(consumer, dispatcher, now)
        if len(dispatcher.attached) == 1:  # nobody is left who waits for it
            dispatcher.attached[0].patience.end(now)
        return effects + self._go_on(dispatcher, now)

    def _go_on(self, dispatcher: Dispatcher, now: float) -> list[Effect]:
        full = [consumer.name for consumer in dispatcher.attached if consumer.queue.full]
        halted = bool(full) or self._over
        fields = {"dispatcher": dispatcher.number, "full": full}
        if dispatcher.phase is Phase.STREAMING and halted:
            return [*dispatcher.pause(now), Note("debug", "paused", fields)]
        if dispatcher.phase is Phase.PAUSED:
            if not halted and not dispatcher.holds:
                dispatcher.phase = Phase.STREAMING
                return [Resume(dispatcher.number)]
            if now >= dispatcher.paused_since + PAUSE_MAX_S:  # as `Client.next_wakeup` computes it
                why = "a queue is full" if halted else "the server takes long to answer"
                note = Note("info", "closed until there is room", fields)
                # The others go on waiting, on the same budgets.
                return [*dispatcher.close(why, now), note, *self.settle(dispatcher, now)]
        elif dispatcher.phase is Phase.BACKPRESSURE_CLOSED:
            roomy = all(self._has_room(consumer) for consumer in dispatcher.attached)
            if roomy and not dispatcher.looking:
                return dispatcher.connect()
        return []

    def may_attach(self, consumer: Consumer, now: float) -> bool:
        """Is a consumer that waits to board now? It fills its queue again only when that is worth a connection."""
        if now < consumer.attach_after:
            return False
        return not consumer.started or self._has_room(consumer)

    def _has_room(self, consumer: Consumer) -> bool:
        return consumer.queue.roomy and not self._crowded

    # -- all queues ------------------------------------------------------------------------------------------

    def _going_on(self) -> list[Consumer]:
        return [consumer for consumer in self._consumers.values() if consumer.failed is None]

    @property
    def _held_bytes(self) -> int:
        return sum(consumer.queue.held_bytes for consumer in self._going_on())

    @property
    def _over(self) -> bool:
        """Nothing more may be taken; but where nothing is complete nobody could make room, so that goes on."""
        if not self._bytes_max or self._held_bytes < self._bytes_max:
            return False
        return any(consumer.queue.transactions for consumer in self._going_on())

    @property
    def _crowded(self) -> bool:
        """Does nobody else come in?"""
        return bool(self._bytes_max) and self._held_bytes > self._bytes_max - self._bytes_max // 4

    def _short(self, dispatchers: Iterable[Dispatcher], now: float) -> bool:
        """Crowded as it is, does what others hold bring everybody to a halt, or keep somebody out?"""
        if self._over:
            return True
        kept_out = (
            c for c in self._going_on() if c.waiting and c.started and now >= c.attach_after
        )
        return any(c.queue.roomy for c in kept_out) or any(
            d.phase is Phase.BACKPRESSURE_CLOSED and all(c.queue.roomy for c in d.attached)
            for d in dispatchers
        )

    def evict(self, dispatchers: Mapping[int, Dispatcher], now: float) -> list[Effect]:
        """Take the largest queue's memory when the budget of waiting for it is spent."""
        if not self._crowded:
            self.evict_at = None
            return []
        if self.evict_at is None:
            self.evict_at = now + EVICT_AFTER_S
        if not self._short(dispatchers.values(), now):
            return []
        largest = self._largest()
        if largest is None:
            return []
        if not largest.waiting:
            largest.patience.begin(now)
        if now < self.evict_at or not (largest.waiting or largest.patience.exhausted(now)):
            return []
        if largest.dispatcher is not None:
            dispatchers[largest.dispatcher].detach(largest, now)
        largest.patience.detached(now)
        largest.detaches += 1
        fields = {"consumer": largest.name, "held_bytes": largest.queue.held_bytes}
        largest.queue.evict()
        largest.attach_after = max(now + EVICTED_WAIT_S, largest.patience.merge_after)
        return [Note("info", "queue forgotten, all queues are full", fields)]

    def _largest(self) -> Consumer | None:
        """Whose memory is taken: nobody's whose reader waits for it, if there is another; nobody's that is alone."""
        others = self._going_on()
        if len(others) == 1:
            return None
        may = [
            consumer
            for consumer in others
            if consumer.spec.on_queue_full is OnQueueFull.DETACH and consumer.queue.evictable_bytes
        ]
        return max(may, key=lambda c: (not c.queue.awaited, c.queue.evictable_bytes), default=None)


def _blocks(consumer: Consumer, dispatcher: Dispatcher) -> bool:
    """Do the others on a dispatcher wait for it? Once closed it is opened again when there is room, not a little."""
    queue = consumer.queue
    return not queue.roomy if dispatcher.phase is Phase.BACKPRESSURE_CLOSED else queue.full


def _may_detach(consumer: Consumer, dispatcher: Dispatcher) -> bool:
    """Alone it holds up nobody, and somebody stays."""
    return consumer.spec.on_queue_full is OnQueueFull.DETACH and len(dispatcher.attached) > 1


def _detach(consumer: Consumer, dispatcher: Dispatcher, now: float) -> list[Effect]:
    held = consumer.queue.held_bytes
    dispatcher.detach(consumer, now)
    consumer.patience.detached(now)
    consumer.detaches += 1
    return [Note("info", "detached", {"consumer": consumer.name, "held_bytes": held})]
