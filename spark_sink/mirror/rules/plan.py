"""Makes the work items of each table from entries of the mirror's log. An entry contains rows of one table in one
layout (set of columns), or a statement, or the position at which an append ends. The number of an entry is its `lsn`.
Pure.

Each name of a table has a queue of work items, in the log's order. A statement becomes one item for each table that it
concerns. A RENAME becomes one barrier. A barrier is an item that is in the queues of all tables that the statement
concerns; it is executed when it is the first item of all these queues. Queues belong to names, not to tables: in the
queue of a name, the items after a RENAME concern the table that has the name after the RENAME.

If the first items of a queue are entries of rows with the same layout and epoch, one step executes them together, as a
`RowRun`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from dispatcher.binlog.sql.lexer import SqlTokens
from dispatcher.binlog.sql.logged import LoggedStatement
from dispatcher.model.errors import BinlogError
from dispatcher.model.names import folded_name
from spark_sink.mirror.schema.statements import (
    DropDatabase,
    DropTable,
    RenameTables,
    TableEffect,
    UnclearTablesError,
)
from spark_sink.mirror.values.entries import LogEntry
from spark_sink.mirror.values.names import TableName
from spark_sink.source.raw_entries import EntryKind


@dataclass(frozen=True, slots=True)
class RowRun:
    """Adjacent entries of one table with the same layout and epoch, for one step. `lsn`: the lsn of the last entry."""

    entries: tuple[LogEntry, ...]

    @property
    def lsn(self) -> int:
        return self.entries[-1].lsn

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.entries)

    @property
    def payload_bytes(self) -> int:
        return sum(entry.payload_bytes for entry in self.entries)

    @property
    def only_inserts(self) -> bool:
        return all(entry.inserts == entry.rows for entry in self.entries)

    def after(self, lsn: int) -> RowRun | None:
        """Returns the part of the run after `lsn`."""
        rest = tuple(entry for entry in self.entries if entry.lsn > lsn)
        return RowRun(rest) if rest else None


@dataclass(frozen=True, slots=True)
class StatementItem:
    """A statement and its effects on one table, in order."""

    entry: LogEntry
    effects: tuple[TableEffect, ...]

    @property
    def lsn(self) -> int:
        return self.entry.lsn


@dataclass(frozen=True, slots=True, eq=False)
class RenameBarrier:
    """A statement that renames tables, with all effects of the statement; `names`: all tables that it concerns."""

    entry: LogEntry
    effects: tuple[TableEffect, ...]
    names: tuple[TableName, ...]

    @property
    def lsn(self) -> int:
        return self.entry.lsn


@dataclass(frozen=True, slots=True)
class UnclearItem:
    """A statement that may have changed the table in an unknown way. `error`: why this is unknown."""

    entry: LogEntry
    error: BinlogError

    @property
    def lsn(self) -> int:
        return self.entry.lsn


@dataclass(frozen=True, slots=True)
class GapItem:
    """The server had purged changes: the log lacks them, and continues with this entry."""

    entry: LogEntry

    @property
    def lsn(self) -> int:
        return self.entry.lsn


@dataclass(frozen=True, slots=True)
class LostItem:
    """The entries of the log from `first` to `lsn` cannot be read. Some of these entries may concern the table.
    `error`: why the entries cannot be read."""

    first: int
    lsn: int
    error: BinlogError


WorkItem = LogEntry | StatementItem | RenameBarrier | UnclearItem | GapItem | LostItem
Work = RowRun | StatementItem | RenameBarrier | UnclearItem | GapItem | LostItem
ReadStatement = Callable[[LoggedStatement], Sequence[TableEffect]]


def route(
    entry: LogEntry,
    read: ReadStatement,
    known: Callable[[], Iterable[TableName]],
    excluded: Callable[[TableName], bool],
) -> list[tuple[TableName, WorkItem]]:
    """Returns the items for an entry, each with the name whose queue gets it.

    `read`: `statements.effects_of`; `known`: returns the names of the tables that are mirrored or have items in a
    queue; `route` calls it only if an entry may concern any of them; `excluded`: returns True for names that the
    settings exclude.
    """
    match entry.kind:
        case EntryKind.ROWS:
            name = (entry.database, entry.table)
            return [] if excluded(name) else [(name, entry)]
        case EntryKind.STATEMENT:
            assert entry.statement is not None
            try:
                effects = read(entry.statement)
            except UnclearTablesError as error:
                return [
                    (name, UnclearItem(entry, error)) for name in _of_names(error.tables, known)
                ]
            except BinlogError as error:
                return [
                    (name, UnclearItem(entry, error)) for name in _mentioned(entry.statement, known)
                ]
            return _statement_items(entry, _expanded(effects, known), excluded)
        case EntryKind.END if entry.gap:
            return [(name, GapItem(entry)) for name in dict.fromkeys(known())]
    return []


def _expanded(
    effects: Sequence[TableEffect], known: Callable[[], Iterable[TableName]]
) -> list[TableEffect]:
    """Returns the effects; each DROP DATABASE is replaced by a DROP TABLE for each known table of the database."""
    expanded: list[TableEffect] = []
    for effect in effects:
        if isinstance(effect, DropDatabase):
            tables = (name for name in dict.fromkeys(known()) if name[0] == effect.database)
            expanded += map(DropTable, tables)
        else:
            expanded.append(effect)
    return expanded


def _statement_items(
    entry: LogEntry, effects: Sequence[TableEffect], excluded: Callable[[TableName], bool]
) -> list[tuple[TableName, WorkItem]]:
    names = list(dict.fromkeys(name for effect in effects for name in effect.tables))
    if any(isinstance(effect, RenameTables) for effect in effects):
        barrier = RenameBarrier(entry, tuple(effects), tuple(names))
        return [(name, barrier) for name in names]
    return [
        (name, StatementItem(entry, tuple(e for e in effects if name in e.tables)))
        for name in names
        if not excluded(name)
    ]


def _of_names(
    names: Collection[TableName], known: Callable[[], Iterable[TableName]]
) -> list[TableName]:
    """Returns the known tables that have one of these names. Case is ignored, because it is not known exactly which
    tables the statement names."""
    wanted = {_without_case(name) for name in names}
    return [name for name in dict.fromkeys(known()) if _without_case(name) in wanted]


def _without_case(name: TableName) -> TableName:
    return folded_name(name[0], 1), folded_name(name[1], 1)


def _mentioned(
    statement: LoggedStatement, known: Callable[[], Iterable[TableName]]
) -> list[TableName]:
    """Returns the tables whose names are words of a statement that the mirror cannot parse. If no word is the name of a
    table, returns all tables of the statement's default database or, if this database has no tables, all tables."""
    tables = list(dict.fromkeys(known()))
    tokens = SqlTokens(statement)
    words = {folded_name(name, 1) for token in tokens if (name := token.name)}
    if named := [name for name in tables if folded_name(name[1], 1) in words]:
        return named
    return [name for name in tables if name[0] == tokens.default_database] or tables


def next_work(items: Sequence[WorkItem], bytes_max: int, entries_max: int) -> tuple[Work, int]:
    """Returns the first step of a queue that is not empty, and the number of items in the step.

    A `RowRun` contains at most `entries_max` entries, and at most `bytes_max` payload bytes unless it has only one
    entry.
    """
    first = items[0]
    if not isinstance(first, LogEntry):
        return first, 1
    run = [first]
    size = first.payload_bytes
    for item in items[1:entries_max]:
        if not isinstance(item, LogEntry) or not continues(first, item):
            break
        size += item.payload_bytes
        if size > bytes_max:
            break
        run.append(item)
    return RowRun(tuple(run)), len(run)


def continues(first: LogEntry, other: LogEntry) -> bool:
    """True if one step can apply both entries of rows of a table."""
    return (first.epoch, first.layout) == (other.epoch, other.layout)
