"""Lets either folders move or the catalog register tables, but not both at the same time.

If a folder moved while it is registered, Spark would make an empty Delta table at its old path. So moves wait while a
round of the catalog runs, and the round is asked to end early. No round begins while a folder is being moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from spark_sink.mirror.rules.effects import MoveFolders
from spark_sink.mirror.rules.events import Event
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.runtime.works import ConsumerWorks, Work


class RegisteringCatalog(Protocol):
    """The methods of `CatalogEntries` that are needed here."""

    @property
    def is_running(self) -> bool: ...
    def pause(self) -> None: ...
    def forward(self, snapshots: Mapping[str, tuple[TableRecord, ...]]) -> bool: ...


class CatalogTurns:
    """The turns of one application, used by the thread that steps the rules. `catalog`: None if there is none."""

    def __init__(
        self, catalog: RegisteringCatalog | None, submit: Callable[[ConsumerWorks, Work], None]
    ) -> None:
        self._catalog, self._submit = catalog, submit
        self._moving: set[tuple[str, int]] = set()  # consumer and number of the work
        self._held: list[tuple[ConsumerWorks, Work]] = []

    def submit(self, works: ConsumerWorks, work: Work) -> None:
        """Submit a work. A move of folders waits for its turn."""
        if isinstance(work, MoveFolders):
            if self._catalog is not None and self._catalog.is_running:
                self._catalog.pause()
                self._held.append((works, work))
                return
            self._moving.add((works.consumer, work.run))
        self._submit(works, work)

    def answered(self, consumer: str, event: Event) -> None:
        """Note an event, which may be the answer of a move."""
        self._moving.discard((consumer, getattr(event, "run", 0)))

    def forward(self, snapshots: Mapping[str, tuple[TableRecord, ...]]) -> bool:
        """Begin a round of the catalog, unless folders are being moved. Returns True if the catalog has nothing left to
        do."""
        if self._catalog is None:
            return True
        if not self._catalog.is_running:
            held, self._held = self._held, []
            for works, work in held:
                self.submit(works, work)
        if self._held or self._moving:
            return False
        return self._catalog.forward(snapshots)
