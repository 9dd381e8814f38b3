"""The dispatchers of a client, and the consumers that are attached to each.

`settle` runs after each step, whatever the event was, and applies these rules:

1. If the queue of an attached consumer is full, the dispatcher pauses, and waits for this consumer as long as the
   consumer's budget allows. Then the dispatcher detaches the consumer and continues (`backpressure`). After a pause of
   `PAUSE_MAX_S` the dispatcher closes the connection. If the connection stayed open, the server would end the dump
   after `net_write_timeout`, and could not purge its log until then. The dispatcher connects again when all its queues
   have room.
2. If all queues together hold too much memory, and this stops a dispatcher or keeps a consumer from attaching, the
   client evicts (empties) the largest queue.
3. A consumer that waits attaches to the nearest dispatcher that may serve it (`assignment`), or to a new one.
4. A dispatcher without consumers is retired.
5. Two dispatchers merge if all consumers of the dispatcher ahead may attach to the dispatcher behind.

So, if all readers keep up, all consumers share one connection in the end, wherever they began.
"""

from __future__ import annotations

from collections.abc import Mapping

from dispatcher.dispatch.client.assignment import Assignment
from dispatcher.dispatch.client.backpressure import PAUSE_MAX_S, Backpressure
from dispatcher.dispatch.client.history_watch import HistoryWatch
from dispatcher.dispatch.client.version_store import VersionStore
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.connection.dispatcher import Dispatcher, Phase
from dispatcher.dispatch.history.attachment import ServerFiles, group_ahead
from dispatcher.dispatch.messages.effects import Effect, Note, Retire, StoreVersions, Wake
from dispatcher.dispatch.tables.versions import StoredVersions
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import ClientLimits
from dispatcher.stream.routes import Routes


class DispatcherSet:
    """`consumers`, `files`: objects that the client owns and changes. `versions`: the versions that the state store
    held at the start."""

    def __init__(
        self,
        label: str,
        routes: Routes,
        consumers: Mapping[str, Consumer],
        files: ServerFiles,
        limits: ClientLimits,
        versions: StoredVersions | None,
    ) -> None:
        self.dispatchers: dict[int, Dispatcher] = {}
        self.history = HistoryWatch(self.dispatchers)
        self.merges = 0
        self._label = label
        self._routes = routes
        self._consumers = consumers
        self._files = files
        self._limits = limits
        self._assignment = Assignment(files, limits)
        self._backpressure = Backpressure(consumers, limits)
        self._versions = VersionStore(versions)

    @property
    def main(self) -> Dispatcher | None:
        """The dispatcher that is furthest ahead."""
        return max(
            self.dispatchers.values(),
            key=lambda d: (d.read.seq if d.read else -1, -d.number),
            default=None,
        )

    def store_versions(self, *, with_position: bool = True) -> list[StoreVersions]:
        """Returns what must be stored of the table versions; see `VersionStore.store`."""
        return self._versions.store(self.main, with_position=with_position)

    def wakeups(self) -> list[float]:
        """Returns the times at which `settle` may have something to do. Some of these times may be in the past."""
        times = [
            dispatcher.paused_since + PAUSE_MAX_S
            for dispatcher in self.dispatchers.values()
            if dispatcher.phase is Phase.PAUSED
        ]
        if self._backpressure.evict_at is not None:
            times.append(self._backpressure.evict_at)
        several = len(self.dispatchers) > 1
        for consumer in self._consumers.values():
            if (deadline := consumer.wait_budget.deadline) is not None:
                times.append(deadline)
            if consumer.waiting:
                times.append(consumer.attach_after)
            if several:
                times.append(consumer.wait_budget.merge_after)
        return times

    # -- what a step asks for --------------------------------------------------------------------------------

    def detach(self, consumer: Consumer, now: float) -> None:
        if consumer.dispatcher is not None:
            self.dispatchers[consumer.dispatcher].detach(consumer, now)

    def detach_distant(self, dispatcher: Dispatcher, now: float) -> None:
        """Detach consumers that are far from the consumer furthest ahead. `settle` attaches the detached consumers to
        other dispatchers."""
        positions = [(consumer, consumer.queue.queued) for consumer in dispatcher.attached]
        near = group_ahead(self._files, dispatcher.mode, positions, self._limits.merge_bytes_max)
        for consumer in [consumer for consumer, _ in positions if consumer not in near]:
            dispatcher.detach(consumer, now)

    def follow_server(self, dispatcher: Dispatcher, view: ServerView, now: float) -> list[Effect]:
        """Let each dispatcher except `dispatcher` connect again if it does not read the server of `view`: all
        dispatchers of a client read the same server."""
        effects: list[Effect] = []
        for other in self.dispatchers.values():
            differs = other.view is not None and other.view.server != view.server
            if other is not dispatcher and other.open and differs:
                effects += other.close("the client reads another server now", now)
                effects += other.connect()
        return effects

    # -- order -----------------------------------------------------------------------------------------------

    def settle(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for dispatcher in list(self.dispatchers.values()):
            effects += self._backpressure.settle(dispatcher, now)
        effects += self._backpressure.evict(self.dispatchers, now)
        for consumer in self._detached():
            if consumer.waiting and self._backpressure.may_attach(consumer, now):
                effects += self._attach(consumer, now)
        for dispatcher in [d for d in self.dispatchers.values() if not d.attached]:
            effects += self._retire(dispatcher, "no consumer needs it")
        if len(self.dispatchers) > 1:
            effects += self._merge(now)
        return effects

    def _detached(self) -> list[Consumer]:
        attached = sum([len(dispatcher.attached) for dispatcher in self.dispatchers.values()])
        if attached == len(self._consumers):  # nearly always true
            return []
        return [consumer for consumer in self._consumers.values() if consumer.dispatcher is None]

    def _retire(self, dispatcher: Dispatcher, reason: str) -> list[Effect]:
        if self.main is dispatcher:
            self._versions.retire(dispatcher)
        del self.dispatchers[dispatcher.number]
        self.history.forget(dispatcher.number)
        return [Retire(dispatcher.number, reason)]

    def _attach(self, consumer: Consumer, now: float) -> list[Effect]:
        consumer.attach_after = 0.0
        for dispatcher in self._assignment.nearest_first(consumer, self.dispatchers.values()):
            if self._assignment.may_attach(consumer, dispatcher, now):
                dispatcher.attach(consumer)
                return [_attached(consumer, dispatcher), Wake(consumer.name)]
        number = next(n for n in range(1, len(self.dispatchers) + 2) if n not in self.dispatchers)
        versions = self._versions.versions_for(self.main)
        dispatcher = Dispatcher(number, self._label, self._routes, versions)
        self.dispatchers[number] = dispatcher
        dispatcher.attach(consumer)
        return [*dispatcher.connect(), _attached(consumer, dispatcher), Wake(consumer.name)]

    def _merge(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        candidates, changed = self._assignment.merge_candidates(self.dispatchers.values(), now)
        for ahead in sorted(candidates, key=lambda d: -d.number) if changed else ():
            for behind in candidates:
                if ahead is behind or behind.number not in self.dispatchers:
                    continue
                may_differ = ahead.number in changed or behind.number in changed
                if may_differ and self._assignment.may_merge(ahead, behind, now):
                    effects += self._merge_into(ahead, behind, now)
                    break
        return effects

    def _merge_into(self, ahead: Dispatcher, behind: Dispatcher, now: float) -> list[Effect]:
        names = ahead.consumers
        furthest = self.main
        late = behind.consumers if furthest is ahead else names if furthest is behind else []
        for consumer in list(ahead.attached):
            ahead.detach(consumer, now)
            behind.attach(consumer)
        self.merges += 1
        numbers = {"from": ahead.number, "into": behind.number}
        fields = {"consumers": names, **numbers, "caught_up": late}
        return [Note("info", "merged", fields), *self._retire(ahead, "merged")]


def _attached(consumer: Consumer, dispatcher: Dispatcher) -> Note:
    return Note("debug", "attached", {"consumer": consumer.name, "dispatcher": dispatcher.number})
