"""Moves the folders of tables that RENAME TABLE renames, so that a table is read where its name is.

Order of writes:

1. one commit of the control table (`rename_steps`): all records with their new names and folders, and with the
   folder where the table still lies (`moved_from` of `detail`);
2. every folder moves aside, to _binlog/moving/<table id>;
3. every folder moves to its new place; an emptied folder of a dropped table there is deleted;
4. one commit of the control table: the records without `moved_from`.

After a crash between any two of them `finish_moves` does the rest. It knows by the property `binlog.table_id` whose
folder lies at a path. A copy that becomes a table's folder is moved in the same way, without step 2.

A folder that is not the mirror's may be in a table's place. Then this table alone stays aside and waits, as its record
says; the others move.

An object store has no folders that move at once: their files move one by one, and a crash leaves some here and some
there. Then what lies at a path tells too little, so the records say which of the steps 2, deleting and 3 have ended
(`move_step` of `detail`), for all tables of the statement before the next step begins.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake.delta_log import forget_table
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.lake.moved_files import move_files
from spark_sink.mirror.rules.table_record import MOVE_STEP, MOVED_FROM, TableRecord, TableState
from spark_sink.mirror.rules.transitions import place_taken
from spark_sink.mirror.tables.delta import MirroredTable
from spark_sink.mirror.tables.directory import TableDirectory
from spark_sink.mirror.values.names import OWN_FOLDER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FolderMover:
    """Moves folders to where the records of one consumer's tables say. `full_path`: the path of a folder."""

    def __init__(self, spark: SparkSession, directory: TableDirectory, target: str) -> None:
        self._spark = spark
        self._files = FileSystem(spark)
        self._directory = directory
        self._target = target.rstrip("/")
        self._lock = threading.Lock()

    def finish_moves(self, *table_ids: str) -> dict[str, BinlogError]:
        """Move the folders of these tables, for none of all, to the paths in their records, then write that the moves
        are done. Tables that one statement renames are moved by one call.

        Returns why tables could not move, by id: their places are taken. Their records say where they lie.
        """
        with self._lock:
            moving = [
                record
                for record in self._directory.records()
                if MOVED_FROM in record.detail and (not table_ids or record.table_id in table_ids)
            ]
            return self._finish(moving) if moving else {}

    def _finish(self, moving: Sequence[TableRecord]) -> dict[str, BinlogError]:
        at_once = self._files.moves_folders(self._target)
        aside = self._aside if at_once else self._gather
        for record in moving:
            aside(record)
        obstacles = {record.table_id: self._obstacle(record, aside) for record in moving}
        refused = {table_id: fault for table_id, fault in obstacles.items() if fault is not None}
        free = [record for record in moving if record.table_id not in refused]
        if at_once:
            for record in free:
                self._into_place(record)
        else:
            self._arrive_by_files(free)
        for record in moving:
            for folder in (record.detail[MOVED_FROM], record.folder):
                self._forget(folder)

        def ended(now: TableRecord) -> TableRecord:
            if (fault := refused.get(now.table_id)) is not None:
                return place_taken(now, _source_folder(now), fault)
            return now.having(**{MOVED_FROM: None, MOVE_STEP: None})

        self._directory.change(ended, *(record.table_id for record in moving))
        return refused

    def _aside(self, record: TableRecord) -> None:
        old = record.detail[MOVED_FROM]
        if old.startswith(f"{OWN_FOLDER}/"):
            return  # it lies aside already
        if self._owner(old) == record.table_id:
            self._files.rename(self._full(old), self._full(_aside_folder(record)))

    def _into_place(self, record: TableRecord) -> None:
        source = self._full(_source_folder(record))
        if not self._files.exists(source):
            return  # it has been moved before
        place, aside = self._full(record.folder), self._full(_aside_folder(record))
        if self._files.exists(place):
            self._files.delete(place)
        self._files.rename(source, place)
        if source != aside and self._files.exists(aside):
            self._files.delete(aside)  # the table's rows of before its copy

    def _arrive_by_files(self, moving: Sequence[TableRecord]) -> None:
        """Move folders of an object store, which are gathered aside, to their places. Each step can be repeated until
        the records say that it has ended."""
        for step, work in enumerate((None, self._clear, self._arrive), 1):
            due = [record for record in moving if record.detail.get(MOVE_STEP, 0) < step]
            if work is not None:
                for record in due:
                    work(record)
            ended = partial(_having_ended, step)
            self._directory.change(ended, *(record.table_id for record in due))

    def _gather(self, record: TableRecord) -> None:
        old, aside = record.detail[MOVED_FROM], self._full(_aside_folder(record))
        if old.startswith(f"{OWN_FOLDER}/") or record.detail.get(MOVE_STEP, 0):
            return  # it lies aside already
        if self._files.exists(aside) or self._owner(old) == record.table_id:
            move_files(self._files, self._full(old), aside)

    def _clear(self, record: TableRecord) -> None:
        if self._files.exists(self._full(_source_folder(record))):
            self._files.delete(self._full(record.folder))

    def _arrive(self, record: TableRecord) -> None:
        move_files(self._files, self._full(_source_folder(record)), self._full(record.folder))

    def _obstacle(
        self, record: TableRecord, aside: Callable[[TableRecord], None]
    ) -> BinlogError | None:
        """Returns the fault of a table whose place has something else; None if it can move, or has moved."""
        if record.detail.get(MOVE_STEP, 0):
            return None  # found free before
        records = {r.table_id: r for r in self._directory.records()}
        for other in records.values():
            if MOVED_FROM in other.detail and other.lies_at == record.folder:
                aside(other)  # it has another place, and has not left this one
        if not self._files.exists(self._full(record.folder)):
            return None
        owner = self._owner(record.folder)
        if owner == record.table_id:
            return None  # the table's rows of before its copy, or it has moved
        other_table = records.get(owner)
        if other_table is not None and (
            other_table.state is TableState.DROPPED or other_table.folder != record.folder
        ):
            return None
        return self._taken(record)

    def _taken(self, record: TableRecord) -> BinlogError:
        what, remedy = "something else is there", "move or delete that folder"
        if (owner := self._directory.other_owner(record.name)) is not None:
            what = f"it has this table from the consumer {owner.consumer}"
            remedy = "leave the table out of one of the two consumers"
        return BinlogError(
            ErrorKind.UNSUPPORTED_CHANGE,
            f"table {record.label} cannot move to the folder {record.folder}: {what}",
            where=self._full(record.folder),
            remedy=f"{remedy}; the table then goes on within a minute",
        )

    def _owner(self, folder: str) -> str:
        path = self._full(folder)
        if not self._files.exists(path):
            return ""
        self._forget(folder)
        return MirroredTable("", path, folder).owner(self._spark)

    def _forget(self, folder: str) -> None:
        forget_table(self._spark, self._full(folder))

    def _full(self, folder: str) -> str:
        return f"{self._target}/{folder}"


def _having_ended(step: int, record: TableRecord) -> TableRecord:
    return record.having(**{MOVE_STEP: step})


def _source_folder(record: TableRecord) -> str:
    """Returns the folder from which a table comes to its place."""
    old = str(record.detail[MOVED_FROM])
    return old if old.startswith(f"{OWN_FOLDER}/") else _aside_folder(record)


def _aside_folder(record: TableRecord) -> str:
    return f"{OWN_FOLDER}/moving/{record.table_id}"
