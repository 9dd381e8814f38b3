"""Prevents moves of folders while a catalog of Spark registers tables.

If a folder moved while Spark registers its table, Spark would create an empty Delta table at the folder's old path. So
moves wait while a round of the catalog runs, and a waiting move makes the round end early. No round begins while a
folder is being moved. With an Iceberg catalog, moves and rounds do not wait for each other: the catalog creates nothing
in the folders of tables, and a read of a Delta table only waits for moves of this table's folder (`busy_folders`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spark_sink.mirror.rules.effects import MoveFolders
from spark_sink.mirror.rules.events import (
    Event,
    FoldersMoved,
    HistoryWritten,
    RowsCommitted,
    TableChanged,
    TableCopied,
)
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.runtime.catalog import CatalogEntries
from spark_sink.mirror.runtime.works import ConsumerWorks, Work

# The kinds of answers of the works that change Delta tables.
_CHANGES = (TableChanged, RowsCommitted, FoldersMoved, TableCopied, HistoryWritten)


class CatalogTurns:
    """Delays the moves, and begins the rounds of the catalog, of one application. Only the thread that steps the rules
    may call this object. `catalog`: None if the settings name no catalog."""

    def __init__(
        self, catalog: CatalogEntries | None, submit: Callable[[ConsumerWorks, Work], None]
    ) -> None:
        self._catalog, self._submit = catalog, submit
        self._moves_wait = catalog is not None and catalog.moves_wait
        self._moving: set[tuple[str, int]] = set()  # (consumer, number of the work)
        self._held: list[tuple[ConsumerWorks, Work]] = []

    def submit(self, works: ConsumerWorks, work: Work) -> None:
        """Pass a work to the pools. A move of folders is delayed while a round of the catalog runs."""
        if isinstance(work, MoveFolders):
            if self._moves_wait and self._catalog is not None and self._catalog.is_running:
                self._catalog.pause()
                self._held.append((works, work))
                return
            self._moving.add((works.consumer, work.run))
        self._submit(works, work)

    def answered(self, consumer: str, event: Event) -> None:
        """Called with each event. If the event is the answer to a move, record that the move has ended."""
        self._moving.discard((consumer, getattr(event, "run", 0)))
        if self._catalog is not None and isinstance(event, _CHANGES):
            self._catalog.touch()

    def forward(
        self, snapshots: Mapping[str, tuple[TableRecord, ...]], *, at_rest: bool = False
    ) -> bool:
        """If no round of the catalog runs, submit the delayed moves. If no folder is being moved, begin a round if one
        is due. `at_rest`: True if the job waits only for the catalog. Returns True if the catalog is up to date."""
        if self._catalog is None:
            return True
        if not self._catalog.is_running:
            held, self._held = self._held, []
            for works, work in held:
                self.submit(works, work)
        if self._held or (self._moves_wait and self._moving):
            return False
        return self._catalog.forward(snapshots, at_rest=at_rest)
