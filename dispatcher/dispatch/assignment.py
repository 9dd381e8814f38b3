"""Which dispatcher a consumer boards, and which two become one: `riding` with all that stands around it.

Two dispatchers become one where all who ride on either may ride on the one behind; which of them was there first, or
is called main, does not matter. Where neither may, as while one of them waits for a full queue, nothing is done, and it
is asked again with the next step.
"""

from __future__ import annotations

from collections.abc import Iterable

from dispatcher.dispatch.attachment import ServerFiles, contained, has_transaction, near
from dispatcher.dispatch.consumer import Consumer
from dispatcher.dispatch.dispatcher import Dispatcher, Phase
from dispatcher.dispatch.specs import ClientLimits


class Assignment:
    """`files`: of the server that the client reads; kept up to date by the client."""

    def __init__(self, files: ServerFiles, limits: ClientLimits) -> None:
        self._files = files
        self._limits = limits
        # By dispatcher: what decides whether it becomes one with another, as of the last look.
        self._told: dict[int, object] = {}

    def nearest_first(
        self, consumer: Consumer, dispatchers: Iterable[Dispatcher]
    ) -> list[Dispatcher]:
        def apart(dispatcher: Dispatcher) -> tuple[float, int]:
            if dispatcher.read is None or not consumer.started:
                return float("inf"), dispatcher.number
            queue = consumer.queue
            distance = self._files.between(queue.mode, dispatcher.read, queue.queued)
            return float("inf") if distance is None else distance, dispatcher.number

        return sorted(dispatchers, key=apart)

    def may_attach(self, consumer: Consumer, dispatcher: Dispatcher, now: float) -> bool:
        """Without a login, which alone proves a place that only a reader has named."""
        if dispatcher.phase is Phase.CONNECTING:
            return self._may_begin_with(consumer, dispatcher, now)
        if dispatcher.phase is not Phase.STREAMING or not consumer.started or not consumer.proven:
            return False
        if consumer.left_at < dispatcher.dumped_at:
            # The log may have been reset since, and the place of its file and offset be another one: a login tells.
            return False
        at_ease = _at_ease((consumer, *dispatcher.attached), now)
        return at_ease and self._may_ride(consumer, dispatcher)

    def _may_begin_with(self, consumer: Consumer, dispatcher: Dispatcher, now: float) -> bool:
        """Ride on a dispatcher whose dump is not asked for yet, and will begin with what all its attached have?"""
        attached = dispatcher.attached
        if not attached or dispatcher.asked:
            return False
        if not consumer.started:
            return not any(rider.started for rider in attached)
        if not _at_ease((consumer, *attached), now):
            return False
        queue, bytes_max = consumer.queue, self._limits.merge_bytes_max
        files = self._files if queue.server == self._files.server else None
        return all(
            rider.started
            and rider.queue.mode is queue.mode
            and rider.queue.server == queue.server
            and near(files, queue.mode, rider.queue.queued, queue.queued, bytes_max)
            for rider in attached
        )

    def _may_ride(self, consumer: Consumer, dispatcher: Dispatcher) -> bool:
        queue, read, view = consumer.queue, dispatcher.read, dispatcher.view
        if read is None or view is None:
            return False
        if view.mode is not queue.mode or view.server != queue.server:
            return False
        has_all = contained(queue.mode, read, queue.queued)
        if not has_all or not has_transaction(queue.queued, dispatcher.inside):
            return False
        distance = self._files.between(queue.mode, read, queue.queued)
        return distance is not None and distance <= self._limits.merge_bytes_max

    def news(
        self, dispatchers: Iterable[Dispatcher], now: float
    ) -> tuple[list[Dispatcher], set[int]]:
        """Dispatchers that may become one with some other, and the numbers of those about which there is something new
        since this was asked last: of two that are as they were, the answer is as it was."""
        told = {
            d: self._standing(d) for d in dispatchers if _reads(d) and _at_ease(d.attached, now)
        }
        new = {d.number for d, standing in told.items() if self._told.get(d.number) != standing}
        self._told = {d.number: standing for d, standing in told.items()}
        return list(told), new

    def _standing(self, dispatcher: Dispatcher) -> object:
        attached = [(consumer, consumer.queue.queued) for consumer in dispatcher.attached]
        return dispatcher.phase, dispatcher.read, dispatcher.inside, self._files.looks, attached

    def may_merge(self, ahead: Dispatcher, behind: Dispatcher, now: float) -> bool:
        """May all that ride on one dispatcher ride on the other?"""
        if not _alike(ahead, behind):
            return False
        attached = ahead.attached
        at_ease = _at_ease((*attached, *behind.attached), now)
        return at_ease and all(self._may_ride(rider, behind) for rider in attached)


def _alike(ahead: Dispatcher, behind: Dispatcher) -> bool:
    """Do both of them read? Those that have come to the end are one where they are."""
    if ahead.phase is behind.phase is Phase.ENDED:
        assert ahead.read is not None and behind.read is not None
        return ahead.read.seq == behind.read.seq
    return ahead.phase is behind.phase and _reads(ahead) and _reads(behind)


def _reads(dispatcher: Dispatcher) -> bool:
    """And does it wait for nothing, or has it read all?"""
    if dispatcher.phase is Phase.ENDED:
        return True
    return dispatcher.phase is Phase.STREAMING and not dispatcher.holds


def _at_ease(consumers: Iterable[Consumer], now: float) -> bool:
    """Does none of them bring the others to a halt at once, or as it lately did again and again?"""
    return all(now >= c.patience.merge_after and not c.queue.full for c in consumers)
