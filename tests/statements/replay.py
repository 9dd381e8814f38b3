"""What the daemon and the mirror make of logged events: the product's own rules, applied to a model of the tables.

The model of a table is its record in the mirror and its rows. Records change only by the mirror's rules (`plan.route`,
`transitions.after_effect`, `renames`); the rows of an ALTER come from the change of columns that these rules compute.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from dispatcher.binlog.event.header import (
    CHECKSUM_SIZE,
    HEADER,
    HEADER_SIZE,
    parse_format_description,
)
from dispatcher.binlog.event.query import parse_query
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.sql.comments import ServerVersion
from dispatcher.binlog.sql.logged import LoggedStatement
from dispatcher.binlog.sql.query_event import logged_kind, logged_statement
from dispatcher.binlog.sql.statement import ROUTING_BOUNDS, QueryKind, parse_statement
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.binlog.table_map.table_kind import TableKind
from spark_sink.mirror.rules.plan import RenameBarrier, StatementItem, UnclearItem, route
from spark_sink.mirror.rules.renames import names_in_the_way, names_of_unknown, records_after
from spark_sink.mirror.rules.states import Dropped, Live
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.transitions import DeltaWork, Situation, after_effect
from spark_sink.mirror.schema.columns import ColumnSignature
from spark_sink.mirror.schema.signature import SchemaChange, Signature
from spark_sink.mirror.schema.statements import CreateTable, RenameTables, TableEffect, effects_of
from spark_sink.mirror.values.entries import LogEntry
from spark_sink.mirror.values.policies import TablePolicy
from spark_sink.source.raw_entries import EntryKind
from tests.statements.worlds import Name, Snapshot, Table

INVALID_DATES = InvalidDates.NULL
_CONTROL = (
    QueryKind.BEGIN,
    QueryKind.COMMIT,
    QueryKind.ROLLBACK,
    QueryKind.SAVEPOINT,
    QueryKind.XA,
)
_SITUATION = Situation("c", "s", TablePolicy(), can_copy=True, invalid_dates=INVALID_DATES)

# Values of a column: what the server printed, or the value with which the mirror fills an added column.
Value = object


@dataclass(slots=True)
class Modelled:
    """`rows`: in the order of the signature's columns; None if the events contain the rows, or if they are not known.
    `checked`: why the mirror looks at the rows before it follows the statement."""

    record: TableRecord
    rows: list[tuple[Value, ...]] | None
    checked: tuple[str, ...] = ()


@dataclass(slots=True)
class Replayed:
    """`tables`: by name, without dropped ones. `doubted`: why a table is in doubt, so that the mirror copies or stops
    it. `loud`: why all consumers are in doubt. `unclear`: the words that were not understood. `named_tables`,
    `named_databases`: those to whose consumers the daemon delivers a statement; `everywhere`: True if it delivers one
    to all consumers. `by_rows`: tables with rows in the log. `open`: tables that a CREATE TABLE IF NOT EXISTS may have
    made, but of which the mirror makes no record: it treats their first rows as rows of a table that it does not
    know."""

    tables: dict[Name, Modelled]
    doubted: dict[Name, str] = field(default_factory=dict)
    loud: str = ""
    unclear: str = ""
    named_tables: set[Name] = field(default_factory=set)
    named_databases: set[str] = field(default_factory=set)
    everywhere: bool = False
    by_rows: set[Name] = field(default_factory=set)
    open: set[Name] = field(default_factory=set)


@cache
def signature_of(table: Table) -> Signature:
    columns = (
        ColumnSignature.of_definition(c.name, c.type, c.charset, c.nullable, INVALID_DATES)
        for c in table.columns
    )
    return Signature(tuple(columns), table.key)


@cache
def stored(table: Table) -> str:
    return signature_of(table).to_json()


def _modelled(name: Name, table: Table) -> Modelled:
    record = TableRecord(".".join(name), "c", *name, state=Live(), signature="")
    record = replace(record, signature=stored(table), generated=table.generated)
    return Modelled(record, None if table.rows is None else [*table.rows])


def is_mirrored(table: Table | None) -> bool:
    """True for a table with rows of its own that the mirror should have. A sequence is no table."""
    return table is not None and table.kind not in ("VIEW", "SEQUENCE")


def replay(
    before: Snapshot,
    sequences: Collection[Name],
    format_: bytes,
    folding: int,
    events: Iterable[bytes],
) -> Replayed:
    """`sequences`: the sequences before and after the events. `format_`: the log's FORMAT_DESCRIPTION. `folding`: the
    server's lower_case_table_names."""
    tables = {name: _modelled(name, table) for name, table in before.items() if is_mirrored(table)}
    return _Replay(Replayed(tables), format_, folding, sequences).run(events)


class _Replay:
    def __init__(
        self, found: Replayed, format_: bytes, folding: int, sequences: Collection[Name]
    ) -> None:
        self._found, self._folding, self._sequences = found, folding, sequences
        described = parse_format_description(format_)
        self._server = ServerVersion.of(described)
        self._tail = CHECKSUM_SIZE if described.checksum else 0
        self._lsn = 0

    def run(self, events: Iterable[bytes]) -> Replayed:
        for event in events:
            _, kind, _, _, _, flags = HEADER.unpack_from(event)
            body = event[HEADER_SIZE : len(event) - self._tail]
            if kind == EventType.QUERY:
                self._query(body, flags)
            elif kind == EventType.TABLE_MAP:
                self._table_map(TableMap.parse(body))
            elif kind == EventType.EXECUTE_LOAD_QUERY:
                self._found.loud = "rows in a statement"
        return self._found

    def _table_map(self, table_map: TableMap) -> None:
        name = table_map.database, table_map.table
        if table_map.kind is TableKind.DOUBT and name in self._sequences:
            return  # the daemon asks the server, and readers leave the rows out
        self._found.by_rows.add(name)
        known = self._found.tables.get(name)
        if known is None:
            record = TableRecord(".".join(name), "c", *name, state=Live(complete=False))
            self._found.tables[name] = Modelled(record, None)
        else:
            known.rows = None

    def _query(self, body: bytes, flags: int) -> None:
        query = parse_query(body)
        statement = logged_statement(query, flags, self._server, self._folding)
        kind = logged_kind(statement)
        if kind in _CONTROL:
            return
        if kind is QueryKind.DML:
            self._found.loud = "rows in a statement"
            return
        self._deliver(statement, query.updated_databases or ())
        if kind is QueryKind.DDL_WITHOUT_EFFECT:
            return
        self._lsn += 1
        entry = _entry(self._lsn, statement)
        for name, item in route(entry, effects_of, lambda: [*self._found.tables], lambda _: False):
            match item:
                case UnclearItem():
                    self._found.doubted[name] = item.error.what
                case StatementItem():
                    for effect in item.effects:
                        self._apply(name, effect, entry)
                case RenameBarrier() if name == item.names[0]:
                    self._rename(item)

    def _deliver(self, statement: LoggedStatement, updated: Sequence[str]) -> None:
        """As the daemon routes a statement (`special_events`)."""
        parsed, found = parse_statement(statement, ROUTING_BOUNDS), self._found
        found.unclear = found.unclear or parsed.doubt
        found.everywhere |= bool(parsed.doubt) and not updated
        named = {database for database, _ in parsed.tables} | {*parsed.databases}
        found.named_tables |= {*parsed.tables}
        found.named_databases |= {*parsed.databases}
        found.named_databases |= {name for name in updated if parsed.doubt or name not in named}

    # -- effects -----------------------------------------------------------------------------------------------

    def _apply(self, name: Name, effect: TableEffect, entry: LogEntry) -> None:
        known = self._found.tables.get(name)
        record = known.record if known is not None else None
        moved = after_effect(name, record, effect, entry, _SITUATION)
        if moved.recopy:
            self._found.doubted[name] = moved.recopy
        if moved.record is None and isinstance(effect, CreateTable):
            self._found.open.add(name)
        if moved.record is None or isinstance(moved.record.state, Dropped):
            self._found.tables.pop(name, None)
            return
        rows = known.rows if known is not None else []
        checked: tuple[str, ...] = ()
        if moved.record is not record and moved.record.is_live and not moved.record.signature:
            rows = []
        match moved.work:
            case DeltaWork.DROP | DeltaWork.TRUNCATE:
                rows = []
            case DeltaWork.SCHEMA:
                assert moved.change is not None and record is not None
                checked = tuple(unless.reason for unless in moved.change.unless)
                rows = _changed_rows(rows, Signature.from_json(record.signature), moved.change)
        self._found.tables[name] = Modelled(moved.record, rows, checked)

    def _rename(self, barrier: RenameBarrier) -> None:
        for effect in barrier.effects:
            if isinstance(effect, RenameTables):
                self._move(effect)
            else:
                for name in effect.tables:
                    self._apply(name, effect, barrier.entry)

    def _move(self, rename: RenameTables) -> None:
        tables = self._found.tables
        records = {name: known.record for name, known in tables.items()}
        for name in names_in_the_way(records, rename.pairs):
            self._found.doubted[name] = "a table that is in the way of a RENAME"
            del tables[name], records[name]
        unknown = names_of_unknown(records, rename.pairs)
        for old, new in rename.pairs:
            if (why := self._found.doubted.pop(old, None)) is not None:
                self._found.doubted[new] = why
        changed = records_after(records, rename.pairs, self._lsn)
        rows = {known.record.table_id: known for known in tables.values()}
        moved_ids = {record.table_id for record in changed}
        for name in [name for name, record in records.items() if record.table_id in moved_ids]:
            del tables[name]
        for record in changed:
            known = rows[record.table_id]
            tables[record.name] = replace(known, record=record)
        for name in unknown:
            self._found.doubted[name] = "renamed from a table that the mirror does not know"


def _changed_rows(
    rows: list[tuple[Value, ...]] | None, old: Signature, change: SchemaChange
) -> list[tuple[Value, ...]] | None:
    if rows is None:
        return None
    at = {column.name: i for i, column in enumerate(old.columns)}
    return [
        tuple(
            column.fill if column.source is None else row[at[column.source]]
            for column in change.columns
        )
        for row in rows
    ]


def _entry(lsn: int, statement: LoggedStatement) -> LogEntry:
    return LogEntry(
        lsn=lsn,
        kind=EntryKind.STATEMENT,
        database=statement.database,
        table="",
        layout="",
        epoch=1,
        first_seq=lsn,
        last_seq=lsn,
        rows=0,
        inserts=0,
        updates=0,
        deletes=0,
        table_map=b"",
        payload_bytes=0,
        payload=None,
        statement=statement,
        file="",
        pos=0,
        committed_at=None,
        position=None,
    )
