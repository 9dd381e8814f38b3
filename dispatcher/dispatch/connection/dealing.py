"""Puts a batch into the queues of a dispatcher's consumers.

A consumer is *level* if its queue has the same position as the dispatcher. Nearly always all consumers are level. The
level consumers share one object with their position (`SharedPosition`), and one pass over the batch finds the events
for each of them (`Lanes`). So the cost of a batch depends on its events and on the delivered bytes. A level consumer
that gets no event of a batch needs no work, because its position is the shared one.

Any other consumer may have part of the batch already. The dispatcher puts the batch into the queue of such a consumer
separately (`Queue.push`). The consumer becomes level when its queue reaches the dispatcher's position.
"""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.connection.demand import Demand
from dispatcher.dispatch.queue.queue_contents import SharedPosition, is_behind
from dispatcher.dispatch.values.executed_position import BatchGtids, ExecutedPosition
from dispatcher.model.errors import BinlogError
from dispatcher.stream import copy_kernel as k
from dispatcher.stream.batch import Batch
from dispatcher.stream.lanes import Lanes
from dispatcher.stream.routes import Routes

Served = list[tuple[Consumer, BinlogError | None]]
"""The consumers that got a transaction, each with None, and the consumers that lack room on disk for a transaction,
each with the error; in the order in which they were attached."""


class Dealer:
    """`routes`: the routes of the connection."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._shared: SharedPosition | None = None
        # The attached consumers, and the counter `changes` of `_shared`, at the time when the fields from `_level` to
        # `_places` were computed.
        self._attached: list[Consumer] = []
        self._changes = -1
        self._level: list[Consumer] = []
        self._others: list[Consumer] = []  # the consumers that are not level
        self._lanes = Lanes((), (), ())  # the lanes of the level consumers
        # Lanes whose queues hold transactions. The set may also contain lanes whose queues have become empty.
        self._holding: set[int] = set()
        self._places: dict[str, int] = {}  # the index of each consumer in `_attached`, by name
        # The file and creation time that were recorded last in the level consumers' queues.
        self._created = ("", 0)
        self._anchored = False

    def begin(self, read: ExecutedPosition, attached: Sequence[Consumer]) -> None:
        """Record that a stream begins at `read`."""
        self._shared = shared = SharedPosition(read)
        self._changes = -1
        # The login may have moved a queue to another epoch, so the lanes, which hold the epochs, are built anew.
        self._set_level([])
        for consumer in attached:
            if consumer.queue.queued == read:
                consumer.queue.join(shared)

    def demand(
        self, attached: Sequence[Consumer], gtids: BatchGtids, read: ExecutedPosition
    ) -> Demand:
        """Returns the demand of the attached consumers for the next batch. `read`: the position before the batch."""
        self._find_level(attached)
        if self._level and not gtids.all_after(self._level[0].queue.mode, read):
            for consumer in self._level:
                consumer.queue.leave()
            self._find_level(attached)
        self._lanes.learn(self._routes)
        return Demand(self._others, gtids, read, self._routes, self._level, self._lanes.mask)

    def _find_level(self, attached: Sequence[Consumer]) -> None:
        shared = self._shared
        assert shared is not None, "a batch before the dump"
        if shared.changes == self._changes and attached == self._attached:
            return  # the usual case, without any work per consumer
        self._changes, self._attached = shared.changes, list(attached)
        self._set_level([consumer for consumer in attached if consumer.queue.shared is shared])
        self._others = [consumer for consumer in attached if consumer.queue.shared is not shared]
        self._places = {consumer.name: place for place, consumer in enumerate(attached)}

    def _set_level(self, level: list[Consumer]) -> None:
        if level == self._level:
            return
        self._level = level
        self._holding = {lane for lane, c in enumerate(level) if c.queue.transactions}
        queues = [consumer.queue for consumer in level]
        self._lanes = Lanes(
            [queue.log for queue in queues],
            [queue.filter for queue in queues],
            [queue.epoch for queue in queues],
        )
        self._lanes.learn(self._routes)
        self._created, self._anchored = ("", 0), False

    def deal(
        self,
        batch: Batch,
        gtids: BatchGtids,
        created: int,
        after: ExecutedPosition,
        others: Sequence[tuple[Consumer, bool]],
        *,
        anchored: bool,
    ) -> Served:
        """Push a batch into all queues. `after`: the dispatcher's position after the batch. `others`: the consumers
        that are not level, each with True if it is in sync. `anchored`: see `Continuity`.

        If a consumer lacks room on disk, its queue contains no transaction of the batch, and the caller must detach the
        consumer.
        """
        shared = self._shared
        assert shared is not None, "a batch before the dump"
        served = self._deal_level(batch, gtids, shared) if self._level else []
        if not is_behind(after, shared.executed):
            shared.executed = after
        if self._level:
            self._update_level_files(batch.file, created, shared, anchored=anchored)
        for consumer, in_sync in others:
            queue = consumer.queue
            count = queue.pushed_transactions
            try:
                queue.push(batch, gtids, self._routes, created, after, in_sync=in_sync)
            except BinlogError as error:
                served.append((consumer, error))
                continue
            if in_sync and anchored:
                queue.files.anchor(queue.queued)
            if queue.queued is shared.executed:
                queue.join(shared)
            if queue.pushed_transactions != count:
                served.append((consumer, None))
        if others and self._level:
            served.sort(key=lambda each: self._places[each[0].name])
        return served

    def _deal_level(self, batch: Batch, gtids: BatchGtids, shared: SharedPosition) -> Served:
        level = self._level
        served: Served = []
        seqs = gtids.seqs(level[0].queue.mode, shared.executed)
        lanes, copying = self._lanes.copy(batch, seqs)
        took = set()
        for lane in lanes:
            consumer = level[lane]
            error = copying.failures.get(lane)
            if error is not None:
                consumer.queue.leave()
                served.append((consumer, error))
            elif copying.totals[lane][k.COUNT]:
                consumer.queue.take(batch.format, gtids, copying, lane)
                served.append((consumer, None))
            else:
                continue
            took.add(lane)
        for lane in self._holding - took:
            queue = level[lane].queue
            if queue.transactions:
                queue.pass_over(gtids)
            else:
                self._holding.remove(lane)
        self._holding |= took
        return served

    def _update_level_files(
        self, file: str, created: int, shared: SharedPosition, *, anchored: bool
    ) -> None:
        if created and (file, created) != self._created:
            self._created = file, created
            for queue in [c.queue for c in self._level if c.queue.shared is shared]:
                queue.files.read(file, created)
        if anchored and not self._anchored:
            self._anchored = True
            for queue in [c.queue for c in self._level if c.queue.shared is shared]:
                queue.files.anchor(queue.queued)
