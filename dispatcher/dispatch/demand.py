"""Who of a connection's consumers may take something of a batch, and of which of its transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from dispatcher.binlog.kernel.bytes import U8
from dispatcher.binlog.stream.routes import Routes
from dispatcher.dispatch.enrichment import Failure, SchemaRequirement
from dispatcher.dispatch.executed_position import BatchGtids, ExecutedPosition
from dispatcher.dispatch.queue import Queue
from dispatcher.dispatch.specs import ConsumerSpec


class HasQueue(Protocol):
    spec: ConsumerSpec
    queue: Queue


T = TypeVar("T", bound=HasQueue)


@dataclass(slots=True)
class _Taker(Generic[T]):
    consumer: T
    level: bool  # stands where the dispatcher stands
    wants: U8  # one byte per route
    skip: U8 | None  # one byte per transaction: 1 = it has that already

    def takes(self, route: int, t: int) -> bool:
        return bool(self.wants[route]) and (self.skip is None or not self.skip[t])


class Demand(Generic[T]):
    """`read`: where the dispatcher stands before the batch."""

    def __init__(
        self, consumers: Iterable[T], steps: BatchGtids, read: ExecutedPosition, routes: Routes
    ) -> None:
        self._routes = routes
        self._takers: list[_Taker[T]] = []
        for consumer in consumers:
            queue = consumer.queue
            level = queue.queued is read or (
                queue.queued.gtids == read.gtids and queue.queued.seq == read.seq
            )
            level = level and steps.follows(queue.mode, read)
            skip = None if level else steps.skip(queue.mode, queue.queued)
            wants = queue.wanted.route_mask(routes)
            self._takers.append(_Taker(consumer, level, wants, skip))

    def level(self) -> list[tuple[T, bool]]:
        return [(taker.consumer, taker.level) for taker in self._takers]

    def wanted(self) -> U8:
        """One byte per route: 1 = somebody takes it of some transaction."""
        found: Sequence[U8] = [
            t.wants for t in self._takers if t.skip is None or not bool(t.skip.all())
        ]
        if len(found) == 1:
            return found[0]
        out: U8 = np.zeros(len(self._routes), dtype=np.uint8)
        for wants in found:
            out |= wants
        return out

    def need(self, route: int, t: int) -> SchemaRequirement:
        strict = lax = later = False
        for taker in self._takers:
            if taker.consumer.spec.assume_current_schema:
                lax = lax or taker.takes(route, t)
            elif taker.wants[route]:
                strict = strict or taker.takes(route, t)
                later = True
        return SchemaRequirement(strict, lax, later)

    def failing(self, failures: Iterable[Failure]) -> list[tuple[T, Failure]]:
        """The consumers that cannot go on, each with the first failure that it meets."""
        found = []
        ordered = sorted(failures, key=lambda failure: failure.t)
        for taker in self._takers:
            lax = taker.consumer.spec.assume_current_schema
            own = [f for f in ordered if taker.takes(f.route, f.t) and (f.lax or not lax)]
            if own:
                found.append((taker.consumer, own[0]))
        return found
