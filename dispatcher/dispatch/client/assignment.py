"""Decides to which dispatcher a waiting consumer attaches, and which two dispatchers merge.

This module applies the rules of `attachment`, and takes the dispatchers' phases into account. Two dispatchers merge if
all consumers of the dispatcher ahead may attach to the dispatcher behind, even if the dispatcher ahead is older or is
the main dispatcher. If the two may not merge now, for instance because one of them waits for a full queue, the next
step checks again.
"""

from __future__ import annotations

from collections.abc import Iterable

from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.connection.dispatcher import Dispatcher, Phase
from dispatcher.dispatch.history.attachment import (
    ServerFiles,
    has_all_read,
    has_transaction,
    is_near,
)
from dispatcher.dispatch.values.specs import ClientLimits


class Assignment:
    """`files`: the files of the server that the client reads. The client updates this object."""

    def __init__(self, files: ServerFiles, limits: ClientLimits) -> None:
        self._files = files
        self._limits = limits
        # For each dispatcher: the values that decide whether it may merge, as they were at the last call.
        self._states: dict[int, object] = {}

    def nearest_first(
        self, consumer: Consumer, dispatchers: Iterable[Dispatcher]
    ) -> list[Dispatcher]:
        def distance(dispatcher: Dispatcher) -> tuple[float, int]:
            if dispatcher.read is None or not consumer.started:
                return float("inf"), dispatcher.number
            queue = consumer.queue
            bytes_apart = self._files.distance(queue.mode, dispatcher.read, queue.queued)
            return float("inf") if bytes_apart is None else bytes_apart, dispatcher.number

        return sorted(dispatchers, key=distance)

    def may_attach(self, consumer: Consumer, dispatcher: Dispatcher, now: float) -> bool:
        """True if a waiting consumer may attach to a dispatcher now. If a reader has set the consumer's position, only
        a login can verify the position. Then the consumer may attach only to a dispatcher whose login has not begun."""
        if dispatcher.phase is Phase.CONNECTING:
            return self._may_join_login(consumer, dispatcher, now)
        if dispatcher.phase is not Phase.STREAMING or not consumer.started or not consumer.verified:
            return False
        if consumer.detached_at < dispatcher.stream_begun_at:
            # The log may have been reset since the consumer was detached. Then the consumer's file and offset name
            # another place in the log, and only a login can detect this.
            return False
        unhindered = _unhindered((consumer, *dispatcher.attached), now)
        return unhindered and self._may_join_stream(consumer, dispatcher)

    def _may_join_login(self, consumer: Consumer, dispatcher: Dispatcher, now: float) -> bool:
        """True if a consumer may attach to a dispatcher whose login has not begun. The dispatcher's dump will begin at
        the intersection of its consumers' positions."""
        attached = dispatcher.attached
        if not attached or dispatcher.login_begun:
            return False
        if not consumer.started:
            return not any(other.started for other in attached)
        if not _unhindered((consumer, *attached), now):
            return False
        queue, bytes_max = consumer.queue, self._limits.merge_bytes_max
        files = self._files if queue.server == self._files.server else None
        return all(
            other.started
            and other.queue.mode is queue.mode
            and other.queue.server == queue.server
            and is_near(files, queue.mode, other.queue.queued, queue.queued, bytes_max)
            for other in attached
        )

    def _may_join_stream(self, consumer: Consumer, dispatcher: Dispatcher) -> bool:
        queue, read, view = consumer.queue, dispatcher.read, dispatcher.view
        if read is None or view is None:
            return False
        if view.mode is not queue.mode or view.server != queue.server:
            return False
        has_all = has_all_read(queue.mode, read, queue.queued)
        if not has_all or not has_transaction(queue.queued, dispatcher.open_transaction):
            return False
        distance = self._files.distance(queue.mode, read, queue.queued)
        return distance is not None and distance <= self._limits.merge_bytes_max

    def merge_candidates(
        self, dispatchers: Iterable[Dispatcher], now: float
    ) -> tuple[list[Dispatcher], set[int]]:
        """Returns the dispatchers that may be able to merge, and the numbers of those that have changed since the last
        call. For two dispatchers that have not changed, `may_merge` returns the same result as after the last call."""
        states = {
            d: self._state(d) for d in dispatchers if _reads(d) and _unhindered(d.attached, now)
        }
        changed = {d.number for d, state in states.items() if self._states.get(d.number) != state}
        self._states = {d.number: state for d, state in states.items()}
        return list(states), changed

    def _state(self, dispatcher: Dispatcher) -> object:
        attached = [(consumer, consumer.queue.queued) for consumer in dispatcher.attached]
        transaction, updates = dispatcher.open_transaction, self._files.updates
        return dispatcher.phase, dispatcher.read, transaction, updates, attached

    def may_merge(self, ahead: Dispatcher, behind: Dispatcher, now: float) -> bool:
        """True if all consumers of `ahead` may attach to `behind`."""
        if not _in_same_phase(ahead, behind):
            return False
        attached = ahead.attached
        unhindered = _unhindered((*attached, *behind.attached), now)
        return unhindered and all(self._may_join_stream(consumer, behind) for consumer in attached)


def _in_same_phase(ahead: Dispatcher, behind: Dispatcher) -> bool:
    """True if both dispatchers are reading, or if both have read the whole log up to the same end."""
    if ahead.phase is behind.phase is Phase.ENDED:
        assert ahead.read is not None and behind.read is not None
        return ahead.read.seq == behind.read.seq
    return ahead.phase is behind.phase and _reads(ahead) and _reads(behind)


def _reads(dispatcher: Dispatcher) -> bool:
    """True if the dispatcher is streaming and waits for nothing, or has read the whole log."""
    if dispatcher.phase is Phase.ENDED:
        return True
    return dispatcher.phase is Phase.STREAMING and dispatcher.gate.held is None


def _unhindered(consumers: Iterable[Consumer], now: float) -> bool:
    """True if no consumer would make the others wait: no queue is full, and no consumer was detached a short time
    ago."""
    return all(now >= c.wait_budget.merge_after and not c.queue.full for c in consumers)
