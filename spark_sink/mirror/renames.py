"""Executes RENAME TABLE: records change their names, and folders follow, so that a table is read where its name is.

Order of writes:

1. one commit of the control table: all records with their new names and folders, and with the folder where the table
   still lies (`moved_from` of `detail`);
2. every folder moves aside, to _binlog/moving/<table id>;
3. every folder moves to its new place; an emptied folder of a dropped table there is deleted;
4. one commit of the control table: the records without `moved_from`.

After a crash between any two of them `finish_moves` does the rest. It knows by the property `binlog.table_id` whose
folder lies at a path. A copy that becomes a table's folder is moved in the same way, without step 2.

An object store has no folders that move at once: their files move one by one, and a crash leaves some here and some
there. Then what lies at a path tells too little, so the records say which of the steps 2, deleting and 3 have ended
(`move_step` of `detail`), for all tables of the statement before the next step begins.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.control import TableRecord, TableState
from spark_sink.mirror.delta import MirroredTable
from spark_sink.mirror.directory import LIVE, TableDirectory, renamed
from spark_sink.mirror.jvm import FileSystem, forget_table
from spark_sink.mirror.moved_files import move_files
from spark_sink.mirror.names import OWN_FOLDER, TableName, folder_name
from spark_sink.mirror.transitions import copied_again, in_copy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOVED_FROM = "moved_from"
MOVE_STEP = "move_step"  # steps that have ended, in an object store


def folder_of(name: TableName) -> str:
    """Returns the folder of a table, below the target."""
    return "/".join(map(folder_name, name))


def names_after(
    names: Iterable[TableName], pairs: Sequence[tuple[TableName, TableName]]
) -> dict[TableName, TableName]:
    """Returns the name that each of the tables has after the renames, which are executed one after the other."""
    now = {name: name for name in names}
    for old, new in pairs:
        for origin, name in now.items():
            if name == old:
                now[origin] = new
                break
    return now


@dataclass(frozen=True, slots=True)
class Crossings:
    """The tables of a RENAME that cross the border between mirrored and excluded names.

    `leaving`: names of mirrored tables that get excluded names; `arriving`: names that are not excluded, of tables
    whose names were.
    """

    leaving: tuple[TableName, ...]
    arriving: tuple[TableName, ...]


def crossings(
    pairs: Sequence[tuple[TableName, TableName]], excluded: Callable[[TableName], bool]
) -> Crossings:
    """Returns the tables that a RENAME brings into the mirror, or out of it."""
    # A name that a pair gives and a later one takes is of no table before the statement.
    origins = [old for n, (old, _) in enumerate(pairs) if old not in {new for _, new in pairs[:n]}]
    after = names_after(origins, pairs)
    return Crossings(
        tuple(old for old, new in after.items() if excluded(new) and not excluded(old)),
        tuple(new for old, new in after.items() if excluded(old) and not excluded(new)),
    )


def records_after(
    tables: dict[TableName, TableRecord], pairs: Sequence[tuple[TableName, TableName]], lsn: int
) -> list[TableRecord]:
    """Returns the records that change. `tables`: by name, before the statement, dropped ones included.

    A table whose rows are being copied begins its copy again, because they are read by name: some may be of the table
    that has the name now. A dropped table whose name another one gets loses its folder.
    """
    existing = {n: r for n, r in tables.items() if r.state is not TableState.DROPPED}
    after = names_after(existing, pairs)
    changed = []
    for old, new in after.items():
        if old == new:
            continue
        record = renamed(existing[old], new, lsn)
        lies_at = record.detail.get(MOVED_FROM) or record.folder
        if record.state is TableState.CREATING or in_copy(record, lsn):
            record = replace(copied_again(record), from_lsn=lsn)
        elif record.state in LIVE:
            record = replace(record, from_lsn=lsn)
        if record.folder:
            record = record.having(**{MOVED_FROM: lies_at})
            record = replace(record, folder=folder_of(new))
        changed.append(record)
    taken = {record.folder for record in changed if record.folder}
    dropped = (r for r in tables.values() if r.state is TableState.DROPPED)
    return changed + [replace(r, folder="") for r in dropped if r.folder in taken]


class FolderMover:
    """Moves folders to where the records of one consumer's tables say. `full_path`: the path of a folder."""

    def __init__(self, spark: SparkSession, directory: TableDirectory, target: str) -> None:
        self._spark = spark
        self._files = FileSystem(spark)
        self._directory = directory
        self._target = target.rstrip("/")
        self._lock = threading.Lock()

    def finish_moves(self) -> None:
        """Move every folder to the path in its record, then write that the move is done."""
        with self._lock:
            moving = [r for r in self._directory.records() if MOVED_FROM in r.detail]
            if moving:
                self._finish(moving)

    def _finish(self, moving: Sequence[TableRecord]) -> None:
        if self._files.moves_folders(self._target):
            for record in moving:
                self._aside(record)
            for record in moving:
                self._into_place(record)
        else:
            self._move_by_files(moving)
        for record in moving:
            for folder in (record.detail[MOVED_FROM], record.folder):
                self._forget(folder)
        self._directory.change(
            lambda now: now.having(**{MOVED_FROM: None, MOVE_STEP: None}),
            *(record.table_id for record in moving),
        )

    def _aside(self, record: TableRecord) -> None:
        old = record.detail[MOVED_FROM]
        if old.startswith(f"{OWN_FOLDER}/"):
            return  # a copy lies aside already
        if self._owner(old) == record.table_id:
            self._files.rename(self._full(old), self._full(_aside_folder(record)))

    def _into_place(self, record: TableRecord) -> None:
        source = _source_folder(record)
        if not self._files.exists(self._full(source)):
            return  # it has been moved before
        if self._files.exists(self._full(record.folder)):
            self._require_unused(record)
            self._files.delete(self._full(record.folder))
        self._files.rename(self._full(source), self._full(record.folder))

    def _move_by_files(self, moving: Sequence[TableRecord]) -> None:
        """Move folders of an object store. Each step can be repeated until the records say that it has ended."""
        for step, work in enumerate((self._gather, self._clear, self._arrive), 1):
            due = [record for record in moving if record.detail.get(MOVE_STEP, 0) < step]
            for record in due:
                work(record)
            if work == self._gather:
                for record in due:
                    if self._files.exists(self._full(record.folder)):
                        self._require_unused(record)
            ended = partial(_having_ended, step)
            self._directory.change(ended, *(record.table_id for record in due))

    def _gather(self, record: TableRecord) -> None:
        old, aside = record.detail[MOVED_FROM], self._full(_aside_folder(record))
        if old.startswith(f"{OWN_FOLDER}/"):
            return  # a copy lies aside already
        if self._files.exists(aside) or self._owner(old) == record.table_id:
            move_files(self._files, self._full(old), aside)

    def _clear(self, record: TableRecord) -> None:
        if self._files.exists(self._full(_source_folder(record))):
            self._files.delete(self._full(record.folder))

    def _arrive(self, record: TableRecord) -> None:
        move_files(self._files, self._full(_source_folder(record)), self._full(record.folder))

    def _require_unused(self, record: TableRecord) -> None:
        """Raises `BinlogError` if the folder at the record's place belongs to another table that exists."""
        owner = self._owner(record.folder)
        if owner == record.table_id:
            return  # the table's rows of before its copy
        others = {r.table_id: r for r in self._directory.records()}
        other = others.get(owner)
        if other is not None and (
            other.state is TableState.DROPPED or other.folder != record.folder
        ):
            return
        raise BinlogError(
            ErrorKind.UNSUPPORTED_CHANGE,
            f"table {record.label} cannot move to the folder {record.folder}: something else is there",
            where=self._full(record.folder),
            remedy="move or delete that folder; the mirror then goes on",
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
