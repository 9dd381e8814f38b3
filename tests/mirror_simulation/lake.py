"""Delta tables in a few lines: folders with rows, an owner, and the lsn of the newest commit.

A commit under an lsn happens once: as with Delta's transaction identifiers, a commit with the same or a smaller lsn
changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.table_work import (
    ChangeColumns,
    DeleteRows,
    DeltaChange,
    DeltaFacts,
    MakeTable,
    ReplaceColumns,
)
from spark_sink.mirror.values.entries import LogEntry
from spark_sink.mirror.values.names import TableName, aside_folder
from tests.mirror_simulation.column_values import ColumnValues, images
from tests.mirror_simulation.log import Log, Row, RowChange, Rows, columns_of, has_key
from tests.mirror_simulation.quarantine import Quarantine, Quarantined

FOREIGN = "somebody else's"


@dataclass
class LakeTable:
    """`owner`: id of the table whose rows this Delta table holds; `version`: lsn of the newest commit; `past`: rows by
    version."""

    owner: str
    columns: tuple[str, ...]
    rows: Rows = field(default_factory=Counter)
    version: int = -1
    past: list[tuple[int, Rows]] = field(default_factory=list)

    def commit(self, lsn: int) -> None:
        self.version = lsn
        self.past.append((lsn, Counter(self.rows)))

    def rows_at(self, lsn: int) -> Rows:
        known = [rows for version, rows in self.past if version <= lsn]
        return known[-1] if known else Counter()


@dataclass
class Lake:
    """`folders`: Delta tables by path below the target; `values`: what they show of the server's values."""

    log: Log
    folders: dict[str, LakeTable] = field(default_factory=dict)
    values: ColumnValues = field(default_factory=ColumnValues)
    quarantine: Quarantine = field(default_factory=Quarantine)

    def of(self, record: TableRecord) -> LakeTable | None:
        """Returns the Delta table of a record, if it is in the folder that the record names."""
        table = self.folders.get(record.lies_at)
        return table if table is not None and table.owner == record.table_id else None

    def facts(self, folder: str, table_id: str, *, rows: bool) -> DeltaFacts:
        """Returns the facts about a Delta table, with the lsn that the Delta table records for `table_id`."""
        table = self.folders.get(folder)
        if table is None:
            return DeltaFacts(-1, True if rows else None, "")
        applied = table.version if table.owner == table_id else -1
        return DeltaFacts(applied, not table.rows if rows else None, table.owner)

    # -- changes ---------------------------------------------------------------------------------------------

    def change(self, record: TableRecord, change: DeltaChange) -> str:
        """Returns why a change is refused."""
        if isinstance(change, MakeTable):
            aside = aside_folder(record.table_id)
            if record.lies_at != aside:
                self.folders.pop(aside, None)
            if change.replaces:
                self._replace(record)
            self._make(record, change.entry)
            return ""
        table = self.folders.get(record.lies_at)
        if table is None:
            return ""  # nothing to delete
        match change:
            case ReplaceColumns():
                assert not table.rows, "the columns of rows are replaced"
                table.columns = columns_of(change.entry)
            case DeleteRows() if change.lsn > table.version:
                table.rows.clear()
                table.commit(change.lsn)
            case ChangeColumns() if change.lsn > table.version:
                _change_columns(table, change)
        return ""

    def require_free(self, folder: str) -> None:
        """Assert that a move does not mix the files of two folders."""
        assert folder not in self.folders, f"{folder} has a folder that was left there"

    def _replace(self, record: TableRecord) -> None:
        """Empty the Delta table in the place of a record, and give it to the record's table."""
        former = self.folders.pop(record.lies_at)
        assert former.owner != FOREIGN, "a table of somebody else is replaced"
        version = former.version if former.owner == record.table_id else -1
        self.folders[record.lies_at] = LakeTable(record.table_id, former.columns, version=version)

    def _make(self, record: TableRecord, entry: LogEntry) -> None:
        columns = columns_of(entry)
        table = self.folders.setdefault(record.lies_at, LakeTable(record.table_id, columns))
        if table.owner != record.table_id:
            raise BinlogError(ErrorKind.UNSUPPORTED_CHANGE, "another table", remedy="move it away")
        if set(table.columns) != set(columns):
            if table.rows:
                raise BinlogError(ErrorKind.UNSUPPORTED_CHANGE, "other columns", remedy="copy it")
            table.columns = columns

    # -- rows ------------------------------------------------------------------------------------------------

    def commit(
        self,
        record: TableRecord,
        entries: Sequence[LogEntry],
        *,
        exact: bool,
        snapshot: tuple[Position, Position] | None,
    ) -> None:
        """Commit the rows of entries under the lsn of the last one.

        `exact`: no inserted row is in the table yet; `snapshot`: the transactions up to its end are in the table
        already. Raises AssertionError if a row would be there twice, and BinlogError for a value that stops the table.
        """
        table = self.folders[record.lies_at]
        assert table.owner == record.table_id, "the folder is another table's"
        lsn = entries[-1].lsn
        if lsn <= table.version:
            return
        changes = [
            change
            for entry in self._unseen(entries, snapshot)
            for change in self.log.changes[entry.lsn]
        ]
        values = self.values.under(record.name)
        if not values.are_plain:
            values.require_valid(images(changes))
            self.keep_invalid(record, entries, snapshot)
            changes = [values.change(change) for change in changes]
        assert set(columns_of(entries[0])) == set(table.columns), "rows with other columns"
        if has_key(entries[0]):
            appends = exact and all(change.before is None for change in changes)
            _merge(table, changes, appends=appends)
        else:
            _count(table, changes, exact=exact)
        table.commit(lsn)

    def _unseen(
        self, entries: Sequence[LogEntry], snapshot: tuple[Position, Position] | None
    ) -> list[LogEntry]:
        return [
            entry
            for entry in entries
            if snapshot is None or self.log.offsets[entry.lsn] > snapshot[1].offset
        ]

    def keep_invalid(
        self,
        record: TableRecord,
        entries: Sequence[LogEntry],
        snapshot: tuple[Position, Position] | None,
    ) -> None:
        """Write the invalid values of a step to the quarantine, before its commit, if the policy says so."""
        values, table_id = self.values.under(record.name), record.table_id
        if not values.are_kept:
            return
        self.quarantine.add(
            Quarantined(table_id, table_id, cell, entry.lsn, ordinal)
            for entry in self._unseen(entries, snapshot)
            for ordinal, change in enumerate(self.log.changes[entry.lsn])
            for cell in values.invalid(change.after, keyed=has_key(entry))
        )

    def write_versions(
        self, name: TableName, history: LakeTable, entries: Sequence[LogEntry], *, exact: bool
    ) -> None:
        """Change the current versions of the history of the table `name`. Raises AssertionError if an inserted row has
        one already, and BinlogError for a value that stops the history."""
        if not has_key(entries[0]):
            raise BinlogError(ErrorKind.UNSUPPORTED_CHANGE, "no key", remedy="add a key")
        changes = [change for entry in entries for change in self.log.changes[entry.lsn]]
        values = self.values.under(name)
        if not values.are_plain:
            values.require_valid(images(changes))
            changes = [values.change(change) for change in changes]
        keys = {dict(row)["id"] for row in history.rows}
        for change in changes:
            if change.before is not None:
                keys.discard(dict(change.before)["id"])
            if change.after is not None:
                key = dict(change.after)["id"]
                is_new = change.before is not None or key not in keys
                assert is_new or not exact, "a row has two current versions"
                keys.add(key)
        _merge(history, changes, appends=False)


def _change_columns(table: LakeTable, change: ChangeColumns) -> None:
    columns = change.change.columns
    after: Rows = Counter()
    for row, n in table.rows.items():
        values = dict(row)
        new: Row = tuple(
            (c.name, values[c.source] if c.source is not None else _int(c.fill)) for c in columns
        )
        after[new] += n
    table.rows, table.columns = after, tuple(c.name for c in columns)
    table.commit(change.lsn)


def _int(value: object) -> int | None:
    return None if value is None else int(str(value))


def _merge(table: LakeTable, changes: Sequence[RowChange], *, appends: bool) -> None:
    rows = {dict(row)["id"]: row for row in table.rows}
    for change in changes:
        if change.before is not None:
            rows.pop(dict(change.before)["id"], None)
        if change.after is not None:
            key = dict(change.after)["id"]
            assert not (appends and key in rows), f"row {key} was appended twice"
            rows[key] = change.after
    table.rows = Counter(rows.values())


def _count(table: LakeTable, changes: Sequence[RowChange], *, exact: bool) -> None:
    """Change the rows of a table without a key, which may have equal rows."""
    sums: Rows = Counter()
    for change in changes:
        if change.before is not None:
            sums[change.before] -= 1
        if change.after is not None:
            sums[change.after] += 1
    for row, n in sums.items():
        if exact and table.rows[row] + n < 0:
            raise BinlogError(ErrorKind.INVALID_VALUE, "lacks rows", remedy="copy it")
        table.rows[row] = max(0, table.rows[row] + n)
    table.rows += Counter()
