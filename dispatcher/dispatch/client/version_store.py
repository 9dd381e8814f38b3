"""Stores the table versions of a client: the versions of the dispatcher that is furthest ahead."""

from __future__ import annotations

from dispatcher.dispatch.connection.dispatcher import Dispatcher
from dispatcher.dispatch.messages.effects import StoreVersions
from dispatcher.dispatch.tables.versions import LogPosition, StoredVersions, Versions


class VersionStore:
    """`stored`: the versions that the state store held at the start."""

    def __init__(self, stored: StoredVersions | None) -> None:
        self._known = stored
        self._stored_of: Dispatcher | None = None  # the dispatcher whose versions are stored
        self._position: LogPosition | None = None  # the stored position

    def versions_for(self, main: Dispatcher | None) -> Versions:
        """Returns the versions with which a new dispatcher begins. `main`: the dispatcher that is furthest ahead."""
        ahead = main.enrichment.versions.snapshot() if main and main.read else self._known
        return Versions.from_stored(ahead)

    def retire(self, main: Dispatcher) -> None:
        """Keep the versions of the dispatcher that is furthest ahead, because it is being retired."""
        self._known = main.enrichment.versions.snapshot()

    def store(self, main: Dispatcher | None, *, with_position: bool = True) -> list[StoreVersions]:
        """Store all versions if one has changed; otherwise, if `with_position`, only the position up to which they
        hold. A server with full metadata needs no versions, so nothing is stored."""
        if main is None or main.read is None:
            return []
        versions = main.enrichment.versions
        changed = versions.changed or (main is not self._stored_of and bool(len(versions)))
        position = versions.position
        moved = with_position and len(versions) and position != self._position
        if position is None or not (changed or moved):
            return []
        self._stored_of, self._position = main, position
        stored = versions.to_store() if changed else None
        self._known = stored or self._known
        return [StoreVersions(position, stored)]
