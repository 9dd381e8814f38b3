"""Finds which consumers of a dispatcher get events of a batch, and from which of its transactions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dispatcher.binlog.kernel.bytes import U8
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.tables.enrichment import SchemaFailure, SchemaRequirement
from dispatcher.dispatch.values.executed_position import BatchGtids, ExecutedPosition
from dispatcher.stream.routes import Routes

_NO_ROUTES: U8 = np.zeros(0, dtype=np.uint8)


@dataclass(slots=True)
class _ConsumerDemand:
    consumer: Consumer
    in_sync: bool  # True if the consumer's queue ends at the dispatcher's position
    route_mask: U8  # one byte per route
    already_executed: U8 | None  # one byte per transaction, 1 = already in the queue; None: all 0

    def includes(self, route: int, t: int) -> bool:
        """True if the consumer gets events of a route in transaction `t` of the batch."""
        executed = self.already_executed
        return bool(self.route_mask[route]) and (executed is None or not executed[t])


class Demand:
    """`read`: the dispatcher's position before the batch. `level`: the consumers that are known to be at this position.
    `level_mask`: one byte per route, 1 = at least one level consumer gets events of this route. `consumers`: the other
    consumers."""

    def __init__(
        self,
        consumers: Iterable[Consumer],
        gtids: BatchGtids,
        read: ExecutedPosition,
        routes: Routes,
        level: Sequence[Consumer] = (),
        level_mask: U8 = _NO_ROUTES,
    ) -> None:
        self._routes = routes
        self._level = level
        self._level_mask = level_mask
        self._demands: list[_ConsumerDemand] = []
        for consumer in consumers:
            queue, queued = consumer.queue, consumer.queue.queued
            in_sync = queued is read or (queued.gtids == read.gtids and queued.seq == read.seq)
            in_sync = in_sync and gtids.all_after(queue.mode, read)
            already_executed = None if in_sync else gtids.already_executed(queue.mode, queued)
            route_mask = queue.filter.route_mask(routes)
            self._demands.append(_ConsumerDemand(consumer, in_sync, route_mask, already_executed))

    def _all(self) -> Iterator[_ConsumerDemand]:
        yield from self._demands
        for consumer in self._level:
            route_mask = consumer.queue.filter.route_mask(self._routes)
            yield _ConsumerDemand(consumer, True, route_mask, None)

    def others(self) -> list[tuple[Consumer, bool]]:
        """Returns each consumer that is not known to be level, with True if the consumer is in sync with the
        dispatcher."""
        return [(demand.consumer, demand.in_sync) for demand in self._demands]

    def route_mask(self) -> U8:
        """Returns one byte per route: 1 = at least one consumer gets events of this route, in at least one
        transaction."""
        masks = [
            demand.route_mask
            for demand in self._demands
            if demand.already_executed is None or not demand.already_executed.all()
        ]
        if self._level:
            masks.append(self._level_mask)
        if len(masks) == 1:
            return masks[0]
        out: U8 = np.zeros(len(self._routes), dtype=np.uint8)
        for mask in masks:
            out |= mask
        return out

    def requirement(self, route: int, t: int) -> SchemaRequirement:
        proven = current = later = False
        for demand in self._all():
            if demand.consumer.spec.assume_current_schema:
                current = current or demand.includes(route, t)
            elif demand.route_mask[route]:
                proven = proven or demand.includes(route, t)
                later = True
        return SchemaRequirement(proven, current, later)

    def failing(self, failures: Iterable[SchemaFailure]) -> list[tuple[Consumer, SchemaFailure]]:
        """Returns the consumers that must fail because a definition is missing, each with its first failure in the
        batch. A consumer whose reader understands marks fails only if the TABLE_MAP is not marked."""
        own = self._concerning(failures)
        failing = (
            (consumer, [f for f in each if not (f.marked and consumer.takes_unknown)])
            for consumer, each in own
        )
        return [(consumer, each[0]) for consumer, each in failing if each]

    def receiving_marks(
        self, failures: Iterable[SchemaFailure]
    ) -> list[tuple[Consumer, SchemaFailure]]:
        """Returns the marked TABLE_MAPs that consumers get. Call this after the consumers of `failing` are detached."""
        return [
            (consumer, failure)
            for consumer, each in self._concerning(failures)
            for failure in each
            if failure.marked
        ]

    def _concerning(
        self, failures: Iterable[SchemaFailure]
    ) -> Iterator[tuple[Consumer, list[SchemaFailure]]]:
        """Yields the failures that concern each consumer, in the order of the batch."""
        ordered = sorted(failures, key=lambda failure: failure.t)
        for demand in self._all() if ordered else ():
            current = demand.consumer.spec.assume_current_schema
            yield (
                demand.consumer,
                [
                    failure
                    for failure in ordered
                    if demand.includes(failure.route, failure.t)
                    and (failure.even_current or not current)
                ],
            )
