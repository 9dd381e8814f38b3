"""A state store that keeps nothing, for a program that keeps its positions itself."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from dispatcher.binlog.stream.xa_store import XaChanges, XaEntry
from dispatcher.dispatch.effects import StoreVersions
from dispatcher.dispatch.versions import StoredVersions
from dispatcher.model.position import Position


class Stateless:
    """What `net.storing.State` asks for."""

    epoch = 0

    def __init__(self, installation_id: UUID) -> None:
        self.installation_id = installation_id

    def load(self, consumer: str) -> None:
        """Nothing is stored."""

    def save(
        self,
        progress: Sequence[tuple[str, Position, Position, int]],
        client: str,
        prepared: XaChanges | None,
    ) -> None:
        """The program's own store has it, or will. Rows of prepared transactions are in memory as long as it runs."""

    def load_prepared(self, _client: str) -> list[XaEntry]:
        return []

    def load_versions(self, _client: str) -> StoredVersions | None:
        return None

    def save_versions(self, client: str, what: StoreVersions) -> None:
        """They are found out again."""

    def session(self, _consumer: str) -> int:
        return 0

    def next_session(self, _consumer: str) -> int:
        return 1

    def forget(self, _consumer: str) -> None:
        """Nothing is stored."""

    def check(self) -> None:
        """There is no file."""

    def close(self) -> None:
        """There is nothing to close."""
