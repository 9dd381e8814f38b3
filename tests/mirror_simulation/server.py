"""A simulated server with tables, and the mirror's log of the server's changes.

Each change becomes entries of the log, in the form in which the log stage writes them. An entry of rows has a TABLE_MAP
and an empty payload; its changes are in `Log.changes`. A statement is SQL text. Each append ends with an END entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from dispatcher.binlog.sql.logged import LoggedStatement, SessionFacts
from dispatcher.model.position import Position, packed_seq
from spark_sink.mirror.values.entries import LogEntry, first_lsn
from spark_sink.mirror.values.names import TableName
from spark_sink.source.raw_entries import EntryKind
from tests.mirror_simulation.log import Log, Row, RowChange, Rows, ServerTable, table_map_of
from tests.support.spelling import as_it_is

SERVER, FILE = "11111111-2222-3333-4444-555555555555", "binlog.000001"
ER_QUERY_INTERRUPTED = 1317
ENTRY_BYTES = 100  # bytes in the server's log for each entry


class Server:
    """`hidden`: True while the server purges changes before they are read; `told`: a list to which each change adds a
    line; `lower_case`: the value of `lower_case_table_names`; `spelled`: returns the name that a person writes into a
    statement about a database or a table."""

    def __init__(self, told: Callable[[str], None] | None = None) -> None:
        self.tables: dict[TableName, ServerTable] = {}
        self.log = Log()
        self.hidden = False
        self.told = told
        self.lower_case = 0
        self.spelled: Callable[[str], str] = as_it_is
        self.epoch = 7
        self._offset = 1000
        self._index = 0
        self._number = 0
        self._open: list[LogEntry] = []

    def position(self) -> Position:
        """Returns the position that the server has executed now."""
        offset = self._offset
        return Position(SERVER, "", FILE, offset, packed_seq(FILE, offset), self.epoch)

    # -- statements ------------------------------------------------------------------------------------------

    def create(self, name: TableName, *, keyed: bool = True) -> None:
        """Create a table. If a table has this name, drop it first."""
        verb = "CREATE OR REPLACE TABLE" if name in self.tables else "CREATE TABLE"
        columns = ("id", "a")
        key = ", PRIMARY KEY (id)" if keyed else ""
        self._number += 1
        is_told = not self.hidden
        self.tables[name] = ServerTable(self._number, columns, keyed, begun=is_told, logged=is_told)
        body = ", ".join(f"{column} INT" for column in columns)
        self._statement(f"{verb} {self._typed(name)} ({body}{key})", name)

    def create_if_absent(self, name: TableName) -> None:
        """Execute CREATE TABLE IF NOT EXISTS for an existing table, which changes nothing."""
        assert name in self.tables
        self._statement(f"CREATE TABLE IF NOT EXISTS {self._typed(name)} (x INT)", name)

    def drop(self, *names: TableName) -> None:
        for name in names:
            del self.tables[name]
        self._statement(f"DROP TABLE {', '.join(map(self._typed, names))}", *names)

    def drop_database(self, database: str) -> None:
        names = [name for name in self.tables if name[0] == database]
        for name in names:
            del self.tables[name]
        self._statement(f"DROP DATABASE `{self.spelled(database)}`", *names, database="")

    def truncate(self, name: TableName) -> None:
        self.tables[name].rows.clear()
        self._statement(f"TRUNCATE TABLE {self._typed(name)}", name)

    def add_column(self, name: TableName, column: str, default: int | None) -> None:
        self._add_column(name, column, default)
        text = "" if default is None else f" DEFAULT {default}"
        self._statement(f"ALTER TABLE {self._typed(name)} ADD COLUMN {column} INT{text}", name)

    def _add_column(self, name: TableName, column: str, value: int | None) -> None:
        table = self.tables[name]
        table.columns += (column,)
        table.rows = Counter({(*row, (column, value)): n for row, n in table.rows.items()})

    def drop_column(self, name: TableName, column: str) -> None:
        table = self.tables[name]
        table.columns = tuple(c for c in table.columns if c != column)
        rows: Rows = Counter()
        for row, n in table.rows.items():
            rows[tuple((c, v) for c, v in row if c != column)] += n
        table.rows = rows
        self._statement(f"ALTER TABLE {self._typed(name)} DROP COLUMN {column}", name)

    def change_rows_silently(self, name: TableName) -> None:
        """Execute a statement that changes rows; the log contains the statement, but not the rows. The mirror has to
        copy the table."""
        self._delete_one(name)
        self._statement(f"ALTER TABLE {self._typed(name)} TRUNCATE PARTITION p0", name)

    def change_unclear(self, name: TableName) -> None:
        """Execute a statement that changes rows and that the mirror cannot parse."""
        self._delete_one(name)
        self._statement(f"CLEAN {self._typed(name)}", name)

    def change_with_error(self, name: TableName) -> None:
        """Execute a statement that ended with an error after it had deleted a row."""
        self._delete_one(name)
        self._statement(f"TRUNCATE TABLE {self._typed(name)}", name, error=ER_QUERY_INTERRUPTED)

    def _delete_one(self, name: TableName) -> None:
        rows = self.tables[name].rows
        if rows:
            del rows[next(iter(rows))]

    def rename_and_add(self, old: TableName, new: TableName, column: str) -> None:
        """Rename a table and add a column, whose value is 3, in one statement."""
        self.tables[new] = self.tables.pop(old)
        text = f"ALTER TABLE {self._typed(old)} RENAME TO {self._typed(new)}"
        self._add_column(new, column, 3)
        self._statement(f"{text}, ADD COLUMN {column} INT DEFAULT 3", old, new)

    def rename(self, *pairs: tuple[TableName, TableName]) -> None:
        for old, new in pairs:
            self.tables[new] = self.tables.pop(old)
        text = ", ".join(f"{self._typed(old)} TO {self._typed(new)}" for old, new in pairs)
        self._statement(f"RENAME TABLE {text}", *(name for pair in pairs for name in pair))

    # -- rows ------------------------------------------------------------------------------------------------

    def insert(self, name: TableName, *rows: Row) -> None:
        self.change(name, *(RowChange(None, row) for row in rows))

    def change(self, name: TableName, *changes: RowChange) -> None:
        table = self.tables[name]
        for change in changes:
            if change.before is not None:
                table.rows[change.before] -= 1
                table.rows += Counter()
            if change.after is not None:
                table.rows[change.after] += 1
        self._rows(name, table, changes)

    # -- the log ---------------------------------------------------------------------------------------------

    def end_append(self, *, gap: bool = False) -> None:
        """Add all changes since the last append to the log, as one append. `gap`: changes before this append were
        purged."""
        end = replace(self._entry(EntryKind.END, "", ""), position=self.position(), gap=gap)
        self._open.append(end)
        if gap:
            for name in {*self.log.names(), *self.tables}:
                self._tell(name, end.lsn)
        self.log.add(self._open)
        self._open, self._index = [], 0

    def _typed(self, name: TableName) -> str:
        return f"`{self.spelled(name[1])}`"

    def _statement(
        self, text: str, *names: TableName, database: str | None = None, error: int = 0
    ) -> None:
        facts = SessionFacts(lower_case_table_names=self.lower_case, error=error)
        default = names[0][0] if database is None else database
        statement = LoggedStatement(text, self.spelled(default), facts)
        entry = replace(self._entry(EntryKind.STATEMENT, "", ""), statement=statement)
        if self.told is not None:
            self.told(text)
        self._add(entry, names)

    def _rows(self, name: TableName, table: ServerTable, changes: Sequence[RowChange]) -> None:
        table.logged = table.logged or not self.hidden
        inserts = sum(change.before is None for change in changes)
        deletes = sum(change.after is None for change in changes)
        entry = replace(
            self._entry(EntryKind.ROWS, *name),
            layout="/".join(table.columns),
            rows=len(changes),
            inserts=inserts,
            updates=len(changes) - inserts - deletes,
            deletes=deletes,
            table_map=table_map_of(name, table.columns, table.keyed),
            payload=b"",
            payload_bytes=10 * len(changes),
        )
        if self.told is not None:
            self.told(f"{name[1]}: {', '.join(map(_change_text, changes))}")
        if self._add(entry, [name]):
            self.log.changes[entry.lsn] = list(changes)

    def _entry(self, kind: EntryKind, database: str, table: str) -> LogEntry:
        self._index += 1
        lsn = first_lsn(self.log.append + 1) + self._index
        self._offset += ENTRY_BYTES
        return LogEntry(
            lsn, kind, database, table, "", self.epoch, 0, 0, 0, 0, 0, 0, b"", 0, None, None, FILE,
            self._offset, None, None,
        )  # fmt: skip

    def _add(self, entry: LogEntry, names: Sequence[TableName]) -> bool:
        """Add an entry to the open append. Returns False if the entry is purged before the daemon reads it."""
        if self.hidden:
            return False
        self._open.append(entry)
        self.log.offsets[entry.lsn] = self._offset
        for name in names:
            self._tell(name, entry.lsn)
        return True

    def _tell(self, name: TableName, lsn: int) -> None:
        self.log.tell(name, lsn, self.tables.get(name))


def _change_text(change: RowChange) -> str:
    before, after = map(row_text, (change.before, change.after))
    if change.before is None:
        return f"INSERT {after}"
    return f"DELETE {before}" if change.after is None else f"UPDATE {before} to {after}"


def row_text(row: Row | None) -> str:
    return "" if row is None else f"({', '.join(f'{c}={v}' for c, v in row)})"
