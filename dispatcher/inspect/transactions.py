"""Which events belong to one transaction, and which transactions `--database` and `--table` let through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.sql.statement import QueryKind, parse_statement
from dispatcher.inspect.entry import (
    BEFORE_STATEMENTS,
    GTIDS,
    IN_TRANSACTIONS,
    ROWS,
    STATEMENTS,
    InspectEntry,
)

K = EventType

_OUTSIDE = frozenset(
    (K.FORMAT_DESCRIPTION, K.ROTATE, K.STOP, K.PREVIOUS_GTIDS, K.MARIADB_GTID_LIST, K.MARIADB_BINLOG_CHECKPOINT,
     K.MARIADB_START_ENCRYPTION, K.HEARTBEAT, K.HEARTBEAT_V2, K.INCIDENT)
)  # fmt: skip
_ENDS = frozenset((K.XID, K.XA_PREPARE))
# Reading a member of an enumeration takes as long as the rest of what is done with most events.
_MARIADB_GTID, _BEGIN = int(K.MARIADB_GTID), QueryKind.BEGIN


class TransactionTracker:
    """Follows the log; `step` says of each entry how it lies in its transaction.

    MySQL's GTID event begins a transaction, and so does BEGIN where there are no GTIDs. MariaDB's GTID event stands for
    BEGIN unless it says that a single statement follows.
    """

    def __init__(self) -> None:
        self._open = False
        self._single = False  # the next statement is the whole transaction

    def step(self, entry: InspectEntry) -> None:
        kind = entry.kind
        entry.begins, entry.in_transaction = not self._open, True
        if kind in GTIDS:
            entry.begins = self._open = True
            self._single = kind != _MARIADB_GTID or "standalone" in entry.fields.data.get(
                "gtid_flags", ()
            )
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
        alone = self._single or not self._open  # the latter without GTID and without BEGIN
        if alone or kind in (QueryKind.COMMIT, QueryKind.ROLLBACK):
            self._end(entry)

    def _end(self, entry: InspectEntry) -> None:
        entry.ends, self._open, self._single = True, False, False


def _starts_xa(entry: InspectEntry) -> bool:
    words = entry.fields.data["query"].upper().split(None, 2)
    return words[1:2] in (["START"], ["BEGIN"])


class TableFilter:
    """Lets through what concerns some databases or tables: their rows and statements, and of the transactions that hold
    such the frame. Nothing that may concern them is left out: a statement that is not understood, and an incident."""

    def __init__(self, databases: Sequence[str], tables: Sequence[str]) -> None:
        """`tables`: `database.table`, or a table's name in any database."""
        self._databases = frozenset(databases)
        self._tables = frozenset(tables)
        self.idle = not databases and not tables
        self._held: list[InspectEntry] = []
        self._pending: list[InspectEntry] = []
        self._hit = False

    def admit(self, entry: InspectEntry) -> Iterator[InspectEntry]:
        """What is to be shown now: held back events of the transaction first."""
        if entry.begins:
            self._held, self._pending, self._hit = [], [], False
        kind = entry.kind
        if self._concerns(entry):
            self._hit = True
            yield from self._held
            yield from self._pending
            self._held, self._pending = [], []
            yield entry
        elif kind in BEFORE_STATEMENTS:
            self._pending.append(entry)
        elif entry.in_transaction and _is_frame(entry):
            if self._hit:
                yield entry
            else:
                self._held.append(entry)
        if kind in ROWS or (kind in STATEMENTS and not _is_frame(entry)):
            self._pending = []

    def wants(self, database: str, table: str) -> bool:
        if self._databases and database not in self._databases:
            return False
        return not self._tables or table in self._tables or f"{database}.{table}" in self._tables

    def _concerns(self, entry: InspectEntry) -> bool:
        fields, kind = entry.fields, entry.kind
        if kind == K.INCIDENT or (fields.error and not fields.table):
            return True  # without its table, or its statement, it may concern any
        if kind in STATEMENTS:
            return not _is_frame(entry) and self._statement_concerns(entry)
        return bool(fields.table) and self.wants(fields.database, fields.table)

    def _statement_concerns(self, entry: InspectEntry) -> bool:
        fields = entry.fields
        updated = fields.data.get("updated_databases")
        if fields.query_kind is QueryKind.DML or fields.query_kind is QueryKind.OTHER:
            return any(self._may_touch(name) for name in updated or [fields.database])
        found = parse_statement(fields.data["query"], fields.database, fields.sql_mode)
        if not found.parsed:
            return not updated or any(self._may_touch(name) for name in updated)
        return any(self.wants(*name) for name in found.tables) or any(
            self._may_touch(name) for name in found.databases
        )

    def _may_touch(self, database: str) -> bool:
        if self._databases and database not in self._databases:
            return False
        owners = [name.partition(".")[0] for name in self._tables if "." in name]
        return not self._tables or len(owners) < len(self._tables) or database in owners


_FRAME = (
    QueryKind.BEGIN, QueryKind.COMMIT, QueryKind.ROLLBACK, QueryKind.SAVEPOINT, QueryKind.XA,
)  # fmt: skip


def _is_frame(entry: InspectEntry) -> bool:
    if entry.kind in STATEMENTS:
        return entry.fields.query_kind in _FRAME
    return entry.kind in GTIDS or entry.kind in IN_TRANSACTIONS
