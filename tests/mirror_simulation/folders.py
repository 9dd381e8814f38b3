"""Move folders in the simulated target. A killed job may stop in the middle of a move. Both movers return refusals: the
moves that were not possible, with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.values.names import OWN_FOLDER, aside_folder
from tests.mirror_simulation.lake import Lake

Refusals = Mapping[str, BinlogError]
TAKEN = "its place is taken"
_LAST_STEP = 3  # the last step of a move in an object store


def source_folder(record: TableRecord) -> str:
    """Returns the folder from which a table's data moves to the table's place."""
    assert record.move is not None
    source = record.move.source
    return source if source.startswith(f"{OWN_FOLDER}/") else aside_folder(record.table_id)


class FileMover:
    """Moves folders in an object store: one step of each table's move at a time. After each step, the records contain
    the number of the step."""

    def __init__(self, lake: Lake, existing: Sequence[TableRecord]) -> None:
        self._lake, self._existing = lake, existing

    def move(self, moving: Sequence[TableRecord], works: int) -> tuple[Refusals, int | None]:
        """Do the next step for at most `works` tables. Returns the refusals and the number of the step; the number is
        None after the last step."""
        assert all(record.move is not None for record in moving)
        step = min(record.move.step for record in moving if record.move) + 1
        for record in moving[:works]:
            self._move(record, step)
        refused: Refusals = {}
        if step == 1 and works >= len(moving):
            refused = _refusals(self._lake, moving, self._existing)
        return refused, step if step < _LAST_STEP else None

    def _move(self, record: TableRecord, step: int) -> None:
        assert record.move is not None
        folders, source = self._lake.folders, record.move.source
        if step == 1 and not source.startswith(f"{OWN_FOLDER}/"):
            table = folders.get(source)
            if table is not None and table.owner == record.table_id:
                self._lake.require_free(aside_folder(record.table_id))
                folders[aside_folder(record.table_id)] = folders.pop(source)
        elif step == 2 and source_folder(record) in folders:
            folders.pop(record.folder, None)
        elif step == _LAST_STEP:
            if source_folder(record) in folders:
                assert record.folder not in folders, "files of two tables in one folder"
                folders[record.folder] = folders.pop(source_folder(record))
            _delete_former(self._lake, record)


class _KilledError(Exception):
    """The job was killed in the middle of a move."""


class FolderMover:
    """Renames folders: first all folders to other names aside, then each folder to its place. `steps`: the number of
    renames until the job is killed."""

    def __init__(self, lake: Lake, existing: Sequence[TableRecord], steps: int) -> None:
        self._lake, self._existing, self._steps = lake, existing, steps

    def move(self, moving: Sequence[TableRecord]) -> Refusals:
        try:
            return self._all(moving)
        except _KilledError:
            return {}

    def _all(self, moving: Sequence[TableRecord]) -> Refusals:
        for record in moving:
            self._aside(record)
        for record in moving:
            for other in self._existing:
                if other.move is not None and other.lies_at == record.folder:
                    self._aside(other)
        refused = _refusals(self._lake, moving, self._existing)
        for record in moving:
            if record.table_id not in refused:
                self._into_place(record)
        return refused

    def _aside(self, record: TableRecord) -> None:
        assert record.move is not None
        folders, source = self._lake.folders, record.move.source
        table = folders.get(source)
        is_own = table is not None and table.owner == record.table_id
        if is_own and not source.startswith(f"{OWN_FOLDER}/"):
            self._step()
            self._lake.require_free(aside_folder(record.table_id))
            folders[aside_folder(record.table_id)] = folders.pop(source)

    def _into_place(self, record: TableRecord) -> None:
        folders, source = self._lake.folders, source_folder(record)
        if source in folders:
            self._step()
            folders.pop(record.folder, None)
            folders[record.folder] = folders.pop(source)
        self._step()
        _delete_former(self._lake, record)

    def _step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise _KilledError


def _delete_former(lake: Lake, record: TableRecord) -> None:
    """Delete the rows that the table had before its copy moved to the table's place."""
    aside = aside_folder(record.table_id)
    if source_folder(record) != aside:
        lake.folders.pop(aside, None)


def _refusals(
    lake: Lake, moving: Sequence[TableRecord], existing: Sequence[TableRecord]
) -> dict[str, BinlogError]:
    """Returns, by table id, why a table's place is not free: a table that does not move has its folder there, or the
    place has a foreign folder."""
    refused = {}
    for record in moving:
        place = lake.folders.get(record.folder)
        if place is None or place.owner == record.table_id:
            continue
        if not _gone(place.owner, record, existing):
            refused[record.table_id] = BinlogError(
                ErrorKind.UNSUPPORTED_CHANGE, TAKEN, remedy="free it"
            )
    return refused


def _gone(owner: str, record: TableRecord, existing: Sequence[TableRecord]) -> bool:
    """True if the table to which a folder belongs has another place or is dropped."""
    other = next((r for r in existing if r.table_id == owner), None)
    return other is not None and (other.is_dropped or other.folder != record.folder)
