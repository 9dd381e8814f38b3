"""Moves the folders of tables that RENAME TABLE renames, so that the path of a table follows from its name.

Before a move begins, the record of each table already contains both the table's new folder and its old folder (`Move`).
A move has two steps:

1. every folder is moved aside, to _binlog/moving/<table id>;
2. every folder is moved to its new place. If the folder of a dropped table is in that place, without rows, it is
   deleted first.

A move can be repeated after a crash at any point: the property `binlog.table_id` shows to which table the folder at a
path belongs. A copy that becomes a table's folder is moved in the same way, without the first step.

A table is not moved to its new place in two cases: the folder that is already there does not belong to the mirror, or
the table's own Delta log is damaged so that it does not show the owner. The other tables of the statement are moved.

In an object store, a folder cannot be moved in one operation: each file is moved by itself, and after a crash some
files are at the old path and some at the new one. So the content of a path does not show which part of the move is
done. Therefore one call of `move` executes only one step: it moves the files aside, or deletes the files in the new
place, or moves the files to the new place. The next step begins only when the records of all tables of the statement
show that this step has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake.damage import naming_damage
from spark_sink.mirror.lake.delta_log import forget_table, property_in_commits
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.lake.moved_files import move_files
from spark_sink.mirror.rules.effects import MoveFolders
from spark_sink.mirror.rules.events import FoldersMoved
from spark_sink.mirror.rules.table_record import Move, TableRecord
from spark_sink.mirror.runtime.busy_folders import BusyFolders
from spark_sink.mirror.tables.delta import TABLE_ID_PROPERTY, MirroredTable
from spark_sink.mirror.values.names import OWN_FOLDER, TableName, aside_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AGAIN = "the table then continues within a minute"
GATHERED, CLEARED = 1, 2  # `Move.step` in object stores: files are aside; new place is empty


class FolderMover:
    """Moves the folders of one consumer. Threads may share this object, which executes one move at a time."""

    def __init__(
        self,
        spark: SparkSession,
        target: str,
        other_owner: Callable[[TableName], str],
        busy: BusyFolders,
    ) -> None:
        """`target`: folder of the mirror; `other_owner`: returns the other consumer that mirrors the table of a name,
        "" if there is none; `busy`: the folders that other threads of the job use."""
        self._spark = spark
        self._files = FileSystem(spark)
        self._target = target.rstrip("/")
        self._other_owner = other_owner
        self._lock = threading.Lock()
        self._busy = busy

    def move(self, work: MoveFolders) -> FoldersMoved:
        """Move folders to their places or, in an object store, execute the next step of the move. Raises `BinlogError`
        if the file system refuses an operation."""
        # If another table's folder is still in one of these places, but has to move to another place, it moves aside,
        # too.
        folders = {f for r in work.moving for f in (_move_of(r).source, r.folder)}
        with self._lock, self._busy.using(folders):
            if self._files.moves_folders(self._target):
                return self._move(work)
            return self._move_by_files(work)

    # -- at once -----------------------------------------------------------------------------------------------

    def _move(self, work: MoveFolders) -> FoldersMoved:
        unread = self._unread(work, self._aside)
        refused = self._refused(work, self._aside) | unread
        for record in work.moving:
            if record.table_id not in refused:
                self._into_place(record)
        return self._moved(work, refused, unread, None)

    def _aside(self, record: TableRecord) -> None:
        old = _move_of(record).source
        if old.startswith(f"{OWN_FOLDER}/"):
            return  # the folder is aside already
        if self._owner(old) == record.table_id:
            self._files.rename(self._full(old), self._full(aside_folder(record.table_id)))

    def _into_place(self, record: TableRecord) -> None:
        source, place = self._full(_source_folder(record)), self._full(record.folder)
        if self._files.exists(source):  # otherwise, the folder has been moved before
            if self._files.exists(place):
                self._files.delete(place)
            self._files.rename(source, place)
        self._delete_former(record, source)

    def _delete_former(self, record: TableRecord, source: str) -> None:
        """If the table's copy has moved from `source` to the table's place, delete the rows that the table had before
        this copy."""
        aside = self._full(aside_folder(record.table_id))
        if source != aside and self._files.exists(aside):
            self._files.delete(aside)

    # -- file by file ------------------------------------------------------------------------------------------

    def _move_by_files(self, work: MoveFolders) -> FoldersMoved:
        """Execute the next step, for the tables that have completed the fewest steps. Each step can be repeated until
        the records show that it has ended."""
        steps = {record.table_id: _move_of(record).step for record in work.moving}
        ended = min(steps.values())
        if ended < GATHERED:
            # The answer sets GATHERED in all records, even in those of tables that have already completed CLEARED. So
            # this method moves the files of the latter tables to their places now. Later steps then find no files of
            # these tables aside, and do nothing for them.
            for record in work.moving:
                if steps[record.table_id] == CLEARED:
                    self._arrive(record)
            unread = self._unread(work, self._gather)
            return self._moved(work, self._refused(work, self._gather) | unread, unread, GATHERED)
        if ended < CLEARED:
            for record in work.moving:
                if steps[record.table_id] < CLEARED:
                    self._clear(record)
            return self._moved(work, {}, {}, CLEARED)
        for record in work.moving:
            self._arrive(record)
        return self._moved(work, {}, {}, None)

    def _gather(self, record: TableRecord) -> None:
        move, aside = _move_of(record), self._full(aside_folder(record.table_id))
        if move.source.startswith(f"{OWN_FOLDER}/") or move.step:
            return  # the folder is aside already
        if self._files.exists(aside) or self._owner(move.source) == record.table_id:
            move_files(self._files, self._full(move.source), aside)

    def _clear(self, record: TableRecord) -> None:
        if self._files.exists(self._full(_source_folder(record))):
            self._files.delete(self._full(record.folder))

    def _arrive(self, record: TableRecord) -> None:
        source = self._full(_source_folder(record))
        move_files(self._files, source, self._full(record.folder))
        self._delete_former(record, source)

    # -- places ------------------------------------------------------------------------------------------------

    def _unread(
        self, work: MoveFolders, aside: Callable[[TableRecord], None]
    ) -> dict[str, BinlogError]:
        """Moves the tables aside. Returns, by table id, why a table's folder does not show its owner. Such a table is
        not moved, because the folder may already belong to another table."""
        return _faults(work.moving, aside)

    def _refused(
        self, work: MoveFolders, aside: Callable[[TableRecord], None]
    ) -> dict[str, BinlogError]:
        """Returns, by table id, why the table's place is not free. First moves aside each table that is still in the
        place, but has to move to another place."""
        return _faults(work.moving, lambda r: self._obstacle(r, work.existing, aside))

    def _obstacle(
        self,
        record: TableRecord,
        existing: Sequence[TableRecord],
        aside: Callable[[TableRecord], None],
    ) -> BinlogError | None:
        if _move_of(record).step:
            return None  # an earlier step has found that the place is free
        for other in existing:
            if other.move is not None and other.lies_at == record.folder:
                aside(other)  # the other table belongs in another place, but is still here
        if not self._files.exists(self._full(record.folder)):
            return None
        owner = self._owner(record.folder)
        if owner == record.table_id:
            return None  # the table is there already, maybe with its rows from before the copy
        if any(r.table_id == owner and _leaves(r, record.folder) for r in existing):
            return None
        return self._taken(record)

    def _taken(self, record: TableRecord) -> BinlogError:
        obstacle, remedy = "something else is there", "move or delete that folder"
        if owner := self._other_owner(record.name):
            obstacle = f"it has this table from the consumer {owner}"
            remedy = "leave the table out of one of the two consumers"
        return BinlogError(
            ErrorKind.UNSUPPORTED_CHANGE,
            f"table {record.label} cannot move to the folder {record.folder}: {obstacle}",
            where=self._full(record.folder),
            remedy=f"{remedy}; {AGAIN}",
        )

    def _moved(
        self,
        work: MoveFolders,
        refused: Mapping[str, BinlogError],
        unread: Mapping[str, BinlogError],
        step: int | None,
    ) -> FoldersMoved:
        for record in work.moving:
            for folder in (_move_of(record).source, record.folder):
                self._forget(folder)
        waits = {
            r.table_id: _move_of(r).source if r.table_id in unread else _source_folder(r)
            for r in work.moving
            if r.table_id in refused
        }
        return FoldersMoved(work.run, refused, waits, step)

    # -- files -------------------------------------------------------------------------------------------------

    def _owner(self, folder: str) -> str:
        """Returns the id of the table to which the folder belongs; "" if there is none.

        Raises `BinlogError` TARGET_FILES if the Delta log is damaged so that it does not show the id.
        """
        path = self._full(folder)
        if not self._files.exists(path):
            return ""
        self._forget(folder)
        remedy = f"put the files back, or move or delete the folder {path}; {AGAIN}"
        try:
            with naming_damage(lambda: self._files, path, remedy):
                return MirroredTable("", path, folder).owner(self._spark)
        except BinlogError:
            # If the commits still show the id, this is enough: a new copy of the table can replace the damaged folder.
            if owner := property_in_commits(self._files, path, TABLE_ID_PROPERTY):
                return owner
            raise

    def _forget(self, folder: str) -> None:
        forget_table(self._spark, self._full(folder))

    def _full(self, folder: str) -> str:
        return f"{self._target}/{folder}"


def _move_of(record: TableRecord) -> Move:
    assert record.move is not None, f"{record.label} does not move"
    return record.move


def _faults(
    moving: Sequence[TableRecord], step: Callable[[TableRecord], BinlogError | None]
) -> dict[str, BinlogError]:
    """Executes a step of the move of each table. Returns, by table id, the error that the step returns, or raises
    because a folder does not show its owner. Raises any other error."""
    faults = {}
    for record in moving:
        try:
            fault = step(record)
        except BinlogError as unread:
            if unread.kind is not ErrorKind.TARGET_FILES:
                raise
            fault = unread
        if fault is not None:
            faults[record.table_id] = fault
    return faults


def _leaves(record: TableRecord, folder: str) -> bool:
    """True if the table, which was in `folder`, no longer needs this folder."""
    return record.is_dropped or record.folder != folder


def _source_folder(record: TableRecord) -> str:
    """Returns the folder from which the second step moves a table to its place."""
    old = _move_of(record).source
    return old if old.startswith(f"{OWN_FOLDER}/") else aside_folder(record.table_id)
