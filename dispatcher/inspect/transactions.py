"""Finds which events belong to one transaction, and selects events by `--database` and `--table`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dispatcher.binlog.event.types import HEARTBEATS, EventType
from dispatcher.binlog.sql.statement import QueryKind, parse_statement
from dispatcher.inspect.entry import (
    BEFORE_STATEMENTS,
    GTIDS,
    IN_TRANSACTIONS,
    ROWS,
    STATEMENTS,
    InspectEntry,
)
from dispatcher.model.names import folded_name

K = EventType

_OUTSIDE = frozenset(
    (K.FORMAT_DESCRIPTION, K.ROTATE, K.STOP, K.PREVIOUS_GTIDS, K.MARIADB_GTID_LIST, K.MARIADB_BINLOG_CHECKPOINT,
     K.MARIADB_START_ENCRYPTION, *HEARTBEATS, K.INCIDENT)
)  # fmt: skip
_ENDS = frozenset((K.XID, K.XA_PREPARE))
# Statements that begin, end or structure a transaction and change no table.
_CONTROL = (
    QueryKind.BEGIN, QueryKind.COMMIT, QueryKind.ROLLBACK, QueryKind.SAVEPOINT, QueryKind.XA,
)  # fmt: skip
# These members are looked up once, because looking up an enumeration member would double the time for most events.
_MARIADB_GTID, _BEGIN = int(K.MARIADB_GTID), QueryKind.BEGIN


class TransactionTracker:
    """Finds where transactions begin and end. `step`, called for each entry in order, sets the entry's `begins`,
    `in_transaction` and `ends`.

    MySQL's GTID event begins a transaction; a BEGIN begins one if no GTID event precedes it. MariaDB's GTID event also
    implies BEGIN, except if its flags say that the transaction is a single statement.
    """

    def __init__(self) -> None:
        self._open = False
        self._single = False  # True if the next statement is the whole transaction

    def step(self, entry: InspectEntry) -> None:
        kind = entry.kind
        entry.begins, entry.in_transaction = not self._open, True
        if kind in GTIDS:
            entry.begins = self._open = True
            flags = entry.fields.data.get("gtid_flags", ())
            self._single = kind != _MARIADB_GTID or "standalone" in flags
        elif kind in _OUTSIDE:
            entry.begins, entry.in_transaction, self._open = True, False, False
        elif kind in _ENDS:
            self._end(entry)
        elif kind in STATEMENTS:
            self._statement(entry)

    def _statement(self, entry: InspectEntry) -> None:
        kind = entry.fields.query_kind
        if kind is _BEGIN or (kind is QueryKind.XA and _starts_xa(entry)):
            self._open, self._single = True, False
            return
        alone = (
            self._single or not self._open
        )  # not open: neither a GTID nor a BEGIN precedes the statement
        if alone or kind in (QueryKind.COMMIT, QueryKind.ROLLBACK):
            self._end(entry)

    def _end(self, entry: InspectEntry) -> None:
        entry.ends, self._open, self._single = True, False, False


def _starts_xa(entry: InspectEntry) -> bool:
    words = entry.fields.data["query"].upper().split(None, 2)
    return words[1:2] in (["START"], ["BEGIN"])


class EntryFilter:
    """Selects the rows and statements of some databases or tables, and the control events of their transactions.

    Events that may concern a selected table are also shown: an INCIDENT, and a statement that cannot be parsed. Names
    are compared without regard to case, because a log does not contain the server's `lower_case_table_names`.
    """

    def __init__(self, databases: Sequence[str], tables: Sequence[str]) -> None:
        """`tables`: `database.table`, or a table's name in any database."""
        self._databases = frozenset(map(_folded, databases))
        self._tables = frozenset(map(_folded, tables))
        self.selects_all = not databases and not tables
        # Control events that are held back until a selected event of their transaction is shown.
        self._control: list[InspectEntry] = []
        # Events that belong to the next statement and are held back with it.
        self._prelude: list[InspectEntry] = []
        self._shown = False

    def admit(self, entry: InspectEntry) -> Iterator[InspectEntry]:
        """Yields the entries to show now: first the held-back entries of the transaction, then `entry`. Yields nothing
        if `entry` is not selected or is held back."""
        if entry.begins:
            self._control, self._prelude, self._shown = [], [], False
        kind = entry.kind
        if self._concerns(entry):
            self._shown = True
            yield from self._control
            yield from self._prelude
            self._control, self._prelude = [], []
            yield entry
        elif kind in BEFORE_STATEMENTS:
            self._prelude.append(entry)
        elif entry.in_transaction and _is_control(entry):
            if self._shown:
                yield entry
            else:
                self._control.append(entry)
        if kind in ROWS or (kind in STATEMENTS and not _is_control(entry)):
            self._prelude = []

    def _selects(self, database: str, table: str) -> bool:
        database, table = _folded(database), _folded(table)
        if self._databases and database not in self._databases:
            return False
        return not self._tables or table in self._tables or f"{database}.{table}" in self._tables

    def _concerns(self, entry: InspectEntry) -> bool:
        fields, kind = entry.fields, entry.kind
        if kind == K.INCIDENT or (fields.error and not fields.table):
            return True  # an event that cannot be read may concern any table
        if kind in STATEMENTS:
            return not _is_control(entry) and self._statement_concerns(entry)
        return bool(fields.table) and self._selects(fields.database, fields.table)

    def _statement_concerns(self, entry: InspectEntry) -> bool:
        fields = entry.fields
        updated = fields.data.get("updated_databases")
        if fields.query_kind is QueryKind.DML or fields.query_kind is QueryKind.OTHER:
            return any(self._may_touch(name) for name in updated or [fields.database])
        assert fields.statement is not None
        statement = parse_statement(fields.statement)
        if not statement.parsed:
            return not updated or any(self._may_touch(name) for name in updated)
        return any(self._selects(*name) for name in statement.tables) or any(
            self._may_touch(name) for name in statement.databases
        )

    def _may_touch(self, database: str) -> bool:
        """True if a statement that changes unknown tables of the database may concern a selected table."""
        database = _folded(database)
        if self._databases and database not in self._databases:
            return False
        databases = [name.partition(".")[0] for name in self._tables if "." in name]
        return not self._tables or len(databases) < len(self._tables) or database in databases


def _folded(name: str) -> str:
    return folded_name(name, 1)


def _is_control(entry: InspectEntry) -> bool:
    if entry.kind in STATEMENTS:
        return entry.fields.query_kind in _CONTROL
    return entry.kind in GTIDS or entry.kind in IN_TRANSACTIONS
