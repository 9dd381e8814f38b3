"""The log of the simulated consumer, with the state of each table of the server after each entry."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from dispatcher.binlog.table_map.parse import TableMap
from spark_sink.mirror.values.entries import LogEnd, LogEntry, append_of, first_lsn
from spark_sink.mirror.values.names import TableName
from spark_sink.source.raw_entries import EntryKind
from tests.support.rows_encoder import Spec, table_map

LONG = 3  # type code of INT

Row = tuple[tuple[str, int | None], ...]  # (column, value) in the table's order
Rows = Counter[Row]  # the number of copies of each row


@dataclass(frozen=True)
class RowChange:
    """A change of one row. `before`: None for an INSERT; `after`: None for a DELETE."""

    before: Row | None
    after: Row | None


@dataclass
class ServerTable:
    """`number`: distinguishes tables with the same name; `begun`: True if the log has the table's CREATE TABLE;
    `logged`: True if the log has the CREATE TABLE or entries of the table's rows."""

    number: int
    columns: tuple[str, ...]
    keyed: bool
    rows: Rows = field(default_factory=Counter)
    begun: bool = False
    logged: bool = False

    def copy(self) -> ServerTable:
        return replace(self, rows=Counter(self.rows))


@dataclass
class Log:
    """`entries`: all entries in order; `append`: number of the last append; `lost`: numbers of appends that cannot be
    read; `doubtful`: numbers of appends that could not be read at some time; `changes`: the row changes of each entry
    of rows, by lsn; `offsets`: the offset in the server's log after each entry, by lsn; `oldest`: the smallest lsn
    that the log still has."""

    entries: list[LogEntry] = field(default_factory=list)
    append: int = 0
    lost: set[int] = field(default_factory=set)
    changes: dict[int, list[RowChange]] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    oldest: int = 0

    doubtful: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._lsns: list[int] = []  # the lsn of each entry
        # For each name: the lsn of each entry that changed its table, and the server's table after that entry.
        self._truth: dict[TableName, tuple[list[int], list[ServerTable | None]]] = {}

    @property
    def end(self) -> LogEnd | None:
        for entry in reversed(self.entries):
            if entry.position is not None and entry.append not in self.lost:
                return LogEnd(self.append, entry.position)
        return None

    def add(self, entries: Sequence[LogEntry]) -> None:
        """Add the entries of the next append."""
        self.entries += entries
        self._lsns += [entry.lsn for entry in entries]
        self.append += 1

    def lose(self, append: int) -> None:
        """Make an append unreadable until a person restores its files."""
        self.lost.add(append)
        self.doubtful.add(append)

    def forget(self, needed: int) -> None:
        """Delete whole appends whose entries all have an lsn up to `needed`."""
        kept = self.between(needed, None)
        self.oldest = max(self.oldest, first_lsn(kept[0].append if kept else self.append))

    # -- reading -----------------------------------------------------------------------------------------------

    def between(self, after: int, before: int | None) -> Sequence[LogEntry]:
        """Returns the entries after the lsn `after` and before the lsn `before`."""
        end = None if before is None else bisect_right(self._lsns, before - 1)
        return self.entries[bisect_right(self._lsns, after) : end]

    def read(
        self, after: int, before: int | None, tables: Sequence[TableName] | None, appends: int
    ) -> tuple[LogEntry, ...]:
        """Returns the entries after `after` and before `before`, from at most `appends` appends, counted from the first
        append with such an entry. `tables`: the tables whose rows are returned, None for all. Statements are returned
        for all tables."""
        found: list[LogEntry] = []
        for entry in self.between(max(after, self.oldest - 1), before):
            is_rows = entry.kind is EntryKind.ROWS
            if is_rows and tables is not None and (entry.database, entry.table) not in tables:
                continue
            if found and entry.append >= found[0].append + appends:
                break
            found.append(entry)
        return tuple(found)

    def lost_behind(self, after: int, before: int | None) -> int | None:
        """Returns the first append that cannot be read and has an entry in the range."""
        if not self.lost:
            return None
        appends = (append_of(entry.lsn) for entry in self.between(after, before))
        return next((append for append in appends if append in self.lost), None)

    def is_rename(self, lsn: int) -> bool:
        """True if the entry is a RENAME TABLE or an ALTER TABLE ... RENAME TO."""
        return any(
            e.statement is not None and "RENAME" in e.statement.text
            for e in self.between(lsn - 1, lsn + 1)
        )

    # -- the truth ---------------------------------------------------------------------------------------------

    def tell(self, name: TableName, lsn: int, table: ServerTable | None) -> None:
        """Record the table that the server has under the name after the entry `lsn`, or None for no table."""
        lsns, tables = self._truth.setdefault(name, ([], []))
        lsns.append(lsn)
        tables.append(None if table is None else table.copy())

    def names(self) -> set[TableName]:
        """Returns all names that a table has had at any time."""
        return set(self._truth)

    def at(self, name: TableName, lsn: int) -> ServerTable | None:
        """Returns the table that the server had under the name after the entry `lsn`."""
        lsns, tables = self._truth.get(name, ([], []))
        known = bisect_right(lsns, lsn)
        return tables[known - 1] if known else None


# -- columns -------------------------------------------------------------------------------------------------------


@lru_cache(4096)
def table_map_of(name: TableName, columns: tuple[str, ...], keyed: bool) -> bytes:
    """Returns the TABLE_MAP of a table."""
    specs = [Spec(c, LONG, nullable=not (keyed and c == "id")) for c in columns]
    key = [columns.index("id")] if keyed else []
    return table_map(specs, database=name[0], table=name[1], key=key)


@lru_cache(4096)
def parsed(body: bytes) -> TableMap:
    return TableMap.parse(body)


def columns_of(entry: LogEntry) -> tuple[str, ...]:
    return tuple(column.name for column in parsed(entry.table_map).columns)


def has_key(entry: LogEntry) -> bool:
    return parsed(entry.table_map).key != ()
