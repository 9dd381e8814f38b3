"""Assertions about a reader's seek, before and after the step of the seek."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dispatcher.dispatch.values.executed_position import (
    ExecutedPosition,
    parse_gtids,
    parse_set,
)
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position, packed_seq
from tests.simulation.observed import Observations
from tests.simulation.truth import lost_to_purge

if TYPE_CHECKING:
    pass


class SeekRules:
    """Call `begins` before a seek is stepped, and `sought` or `refused` after it."""

    def __init__(self, observed: Observations) -> None:
        self._observed = observed
        self._world = observed.world

    def begins(self, name: str, after: Position) -> Callable[[], None]:
        """Call before a seek is stepped. Asserts that the seek is needed: a reader whose position lies between the
        stored and the queued position continues without a seek. Returns a function that restores what this call has
        changed; call it if the seek is refused."""
        world = self._world
        consumer, stored = (
            world.client.consumers[name],
            world.to_store.get(name) or world.store[name],
        )
        queued = consumer.queue.queued
        assert (
            not consumer.started
            or after.epoch != stored.acknowledged.epoch
            or not stored.acknowledged.seq <= after.seq <= queued.seq
        ), f"{name} seeks to a position that its queue has"
        seen = self._observed.consumers[name]
        before = seen.wants_room, seen.unproven, seen.place

        def undo() -> None:
            seen.wants_room, seen.unproven, seen.place = before

        seen.wants_room = False
        mode = world.scenario.mode
        if mode.by_gtid:
            # A survey of another server says nothing about the server whose log the consumer reads.
            server = consumer.queue.server if consumer.started else world.server.name
            executed = self._observed.executed.get(server, parse_set(mode, ""))
            seen.unproven = not executed.contains(parse_set(mode, after.gtid))
        return undo

    def sought(self, name: str, after: Position) -> None:
        """Call after an accepted seek. Asserts that the position was written and is not purged, and that the consumer
        continues."""
        server, place = self._world.server, self._as_place(after)
        assert not lost_to_purge(server, place), f"{name} is moved to {after}, which was purged"
        assert self._is_written(after), f"{name} is moved to {after}, which was never written"
        consumer = self._world.client.consumers[name]
        assert consumer.started and consumer.failed is None, f"{name} does not go on after a seek"

    def refused(self, name: str, after: Position, error: BinlogError, before: object) -> None:
        """Call after a refused seek. Asserts that the error is true, and that the seek has changed nothing. `before`:
        what `standing` returned before the seek."""
        assert self.standing() == before, f"a refused seek of {name} has changed something"
        world = self._world
        consumer = world.client.consumers[name]
        lost, written = lost_to_purge(world.server, self._as_place(after)), self._is_written(after)
        match error.kind:
            case ErrorKind.POSITION_PURGED:
                assert lost, f"{name} may not go to {after}, which was not purged: {error}"
            case ErrorKind.HISTORY_DIFFERS:
                doubted = consumer.failed is not None or not written
                assert doubted, f"{name} may not go to {after}, which was written: {error}"
            case ErrorKind.RANGE_UNAVAILABLE:
                other = consumer.queue.server != world.server.name
                assert other and not written, f"{name} waits to go to {after}: {error}"
            case _:
                # An empty set is in every history.
                doubted = consumer.failed is not None or not after.seq
                assert doubted, f"{name} may not go to {after}: {error}"

    def standing(self) -> object:
        """Returns the state of all consumers that a refused seek must not change."""
        world = self._world
        consumers = world.client.consumers.items()
        return (
            dict(world.store),
            dict(world.to_store),
            {
                name: (
                    c.started,
                    c.failed,
                    c.dispatcher,
                    c.queue.epoch,
                    c.queue.queued,
                    c.queue.acknowledged,
                )
                for name, c in consumers
            },
            {number: id(link) for number, link in world.links.items()},
        )

    def _as_place(self, position: Position) -> ExecutedPosition:
        mode = self._world.scenario.mode
        gtids = parse_gtids(mode, position.gtid)
        return ExecutedPosition(gtids, position.file, position.offset, position.seq)

    def _is_written(self, position: Position) -> bool:
        """True if the server's log reaches up to a position."""
        server = self._world.server
        if server.mode.by_gtid:
            executed = self._world.history.parse(server.stop.executed)
            return executed.contains(self._world.history.parse(position.gtid))
        newest = server.log.files[server.extent[0] - 1]
        return position.seq <= packed_seq(newest.name, server.stop.offset)
