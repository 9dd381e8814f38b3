"""Reads the statements of a log that may alter tables, and determines which tables each statement may alter."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dispatcher.binlog.event.header import (
    CHECKSUM_SIZE,
    HEADER_SIZE,
    EventHeader,
    FormatDescription,
)
from dispatcher.binlog.event.mariadb_compressed import plain_event
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.kernel.bytes import u32
from dispatcher.binlog.sql.comments import ServerVersion
from dispatcher.binlog.sql.lexer import Name
from dispatcher.binlog.sql.logged import LoggedStatement
from dispatcher.binlog.sql.query_event import kind_and_tables, read_statement
from dispatcher.binlog.sql.statement import ROUTING_BOUNDS, DdlKind, QueryKind, parse_statement
from dispatcher.model.position import LogPosition
from dispatcher.stream.batch import CONTINUED, DDL, KIND_MASK, OPEN, TABLE_MAP, Batch

# Statements that change neither columns nor keys.
_HARMLESS = frozenset(
    {
        DdlKind.TRUNCATE,
        DdlKind.TEMPORARY_TABLE,
        DdlKind.VIEW,
        DdlKind.ALTER_SEQUENCE,
        DdlKind.ROUTINE,
        DdlKind.ACCOUNT,
        DdlKind.MAINTENANCE,
    }
)


@dataclass(frozen=True, slots=True)
class AlteredTables:
    """The tables that a statement may alter: some tables, all tables of some databases, or any table. All names are as
    `folded_name` returns them."""

    tables: frozenset[Name] = frozenset()
    databases: frozenset[str] = frozenset()
    any: bool = False

    def __bool__(self) -> bool:
        return self.any or bool(self.tables) or bool(self.databases)

    def concerns(self, name: Name) -> bool:
        return self.any or name[0] in self.databases or name in self.tables

    def concerns_database(self, database: str) -> bool:
        """True if the statement may alter the database itself."""
        return self.any or database in self.databases


@dataclass(frozen=True, slots=True)
class AlteringStatement:
    """A statement in the log that may alter tables. The old versions of the tables are valid up to `before`, and the
    new versions are valid from `after`.

    `before` is the beginning of the statement's transaction. Usually `after` is the same point. If rows precede the
    statement in its transaction, `after` is the end of the transaction.

    `sequences`: the sequences of MariaDB that the statement dropped. Their definitions need not be fetched, because all
    sequences have the same columns.

    `text`: the statement, None if the definitions after it shall not be derived from it; `server`: the server that
    wrote it, None without a text.
    """

    before: LogPosition
    after: LogPosition
    altered: AlteredTables
    sequences: AlteredTables = AlteredTables()
    text: LoggedStatement | None = None
    server: ServerVersion | None = None


def _altered(
    event: bytes, format_: FormatDescription, lower_case_table_names: int
) -> tuple[AlteredTables, AlteredTables, LoggedStatement | None]:
    """Returns `altered`, `sequences` and `text` of an `AlteringStatement` for a QUERY event, or MariaDB's compressed
    QUERY event. `format_`: the format of its log. `lower_case_table_names`: the server's setting."""
    none = AlteredTables()
    plain = plain_event(event, checksum=format_.checksum)
    header, body = (
        EventHeader.read(plain),
        plain[HEADER_SIZE : len(plain) - CHECKSUM_SIZE * format_.checksum],
    )
    if header.type != EventType.QUERY:
        return AlteredTables(any=True), none, None
    statement = read_statement(
        body, header.flags, ServerVersion.of(format_), lower_case_table_names
    )
    kind, parsed = kind_and_tables(statement)
    if kind is QueryKind.DDL_WITHOUT_EFFECT:
        return none, none, None
    parsed = parsed or parse_statement(statement, ROUTING_BOUNDS)
    if not parsed.parsed:
        return AlteredTables(any=True), none, None
    if parsed.kind in _HARMLESS:
        return none, none, None
    altered = AlteredTables(frozenset(parsed.tables), frozenset(parsed.databases))
    return altered, altered if parsed.kind is DdlKind.DROP_SEQUENCE else none, statement


@dataclass(slots=True)
class TransactionStarts:
    """Computes where the transactions of consecutive batches begin. The header of a transaction's first event contains
    the event's end and size, from which the beginning is computed."""

    # Beginning of the transaction that continues in the next batch, and True if earlier batches hold a TABLE_MAP of it.
    _open: LogPosition | None = None
    _open_has_rows: bool = False

    def start(self, batch: Batch, created: int, t: int) -> LogPosition:
        if batch.tx.flags[t] & CONTINUED and self._open is not None:
            return self._open
        first = int(batch.tx.first[t])
        off, size = int(batch.ev.off[first]), int(batch.ev.size[first])
        log_pos = int(u32(batch.buf, off + 13))
        end = int(batch.tx.end[t])
        if log_pos and not batch.tx.flags[t] & CONTINUED:
            # The header contains only the low 32 bits of the event's end; `end`, the transaction's end, has all bits.
            return LogPosition(batch.file, end - ((end - (log_pos - size)) & 0xFFFFFFFF), created)
        return LogPosition(batch.file, int(batch.tx.end[t - 1]) if t else end, created)

    def after(self, batch: Batch, created: int) -> LogPosition:
        """Returns where the next transaction begins. If the last transaction of the batch continues in the next batch,
        returns where this last transaction begins. Call `after` once per batch, after all calls of `start`."""
        t = len(batch.tx.first) - 1
        if t >= 0 and batch.tx.flags[t] & OPEN:
            self._open_has_rows = self.rows_precede(batch, int(batch.tx.last[t]), t)
            self._open = self.start(batch, created, t)
            return self._open
        self._open = None
        return LogPosition(batch.file, batch.offset, created)

    def rows_precede(self, batch: Batch, i: int, t: int) -> bool:
        """True if transaction `t` has a TABLE_MAP before event `i`, or if the transaction's beginning was not read.

        The answer does not depend on where the batches of a reading end: two readings of a statement must agree where
        the new versions of its tables begin.
        """
        kinds = batch.ev.kind[int(batch.tx.first[t]) : i] & KIND_MASK
        if (kinds == TABLE_MAP).any():
            return True
        if not batch.tx.flags[t] & CONTINUED:
            return False
        return self._open is None or self._open_has_rows


def altering_statement(
    batch: Batch, created: int, starts: TransactionStarts, i: int, t: int
) -> AlteringStatement:
    """Reads the statement that is event `i` of a batch, in its transaction `t`."""
    off, size = int(batch.ev.off[i]), int(batch.ev.size[i])
    altered, sequences, text = _altered(
        batch.buf[off : off + size].tobytes(), batch.format, batch.lower_case_table_names
    )
    before = after = starts.start(batch, created, t)
    if starts.rows_precede(batch, i, t):
        after = replace(before, offset=max(int(batch.tx.end[t]), before.offset))
    server = ServerVersion.of(batch.format)
    return AlteringStatement(before, after, altered, sequences, text, server)


def altering_statements(
    batch: Batch, created: int, starts: TransactionStarts
) -> list[AlteringStatement]:
    """Reads every statement of a batch that may alter a table."""
    statements = []
    for i in (int(n) for n in (batch.ev.kind & KIND_MASK == DDL).nonzero()[0]):
        t = int((batch.tx.first <= i).sum()) - 1
        statements.append(altering_statement(batch, created, starts, i, t))
    if batch.fault:
        at = starts.after(batch, created)
        names = batch.fault.altered
        altered = AlteredTables(any=True) if names is None else AlteredTables(frozenset(names))
        statements.append(AlteringStatement(at, at, altered))
    return [statement for statement in statements if statement.altered]
