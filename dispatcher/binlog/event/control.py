"""Parsers of the events that the other modules of this package do not parse: events that contain no rows, statement
text, GTIDs or payload.

Each parser reads an event's body (no header, no checksum) and raises `BinlogError` (MALFORMED_EVENT). `inspect` shows
these events, and fault messages quote them. The delivery of rows does not need them.

Sources: MySQL source, libs/mysql/binlog/event/{control_events,load_data_events,statement_events}.cpp; for the events of
LOAD DATA before 5.0.3 also sql/log_event.cc of 5.0; MariaDB, sql/log_event.h.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from decimal import Decimal

from dispatcher.binlog.event.cursor import ByteCursor, malformed
from dispatcher.binlog.event.gtid import Xid
from dispatcher.binlog.event.query import Query, parse_query, text_of
from dispatcher.binlog.event.types import EventType, type_name

# -- parts of a statement -------------------------------------------------------------------------------------


def parse_rows_query(body: bytes) -> str:
    """Return the statement that caused the next rows events. (The parser skips the size byte before the statement,
    because the byte is wrong for a long statement.)"""
    cursor = ByteCursor("ROWS_QUERY_EVENT", body)
    cursor.read(1)
    return _lenient_text(cursor)


def parse_annotate_rows(body: bytes) -> str:
    """Return the statement of MariaDB's counterpart of ROWS_QUERY_EVENT."""
    return _lenient_text(ByteCursor(type_name(EventType.MARIADB_ANNOTATE_ROWS), body))


def _lenient_text(cursor: ByteCursor) -> str:
    # A statement is in its session's character set, which these events do not contain.
    return cursor.rest().decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Intvar:
    """`LAST_INSERT_ID` or `INSERT_ID` of the statement that follows."""

    name: str
    value: int


def parse_intvar(body: bytes) -> Intvar:
    cursor = ByteCursor("INTVAR_EVENT", body)
    kind, value = cursor.number(1), cursor.number(8)
    if kind not in (1, 2):
        raise malformed(cursor.name, f"is of the unknown kind {kind}")
    return Intvar("LAST_INSERT_ID" if kind == 1 else "INSERT_ID", value)


def parse_rand(body: bytes) -> tuple[int, int]:
    """Return the two seeds of RAND() for the statement that follows."""
    cursor = ByteCursor("RAND_EVENT", body)
    return cursor.number(8), cursor.number(8)


@dataclass(frozen=True, slots=True)
class UserVar:
    """A user variable of the statement that follows. `value`: bytes if the character set is binary, or if the value is
    invalid in its character set."""

    name: str
    value: str | bytes | int | float | Decimal | None


_STRING, _REAL, _INT, _ROW, _DECIMAL = range(5)
_UNSIGNED = 1


def parse_user_var(body: bytes) -> UserVar:
    cursor = ByteCursor("USER_VAR_EVENT", body)
    name = cursor.text(cursor.number(4))
    if cursor.number(1):
        return UserVar(name, None)
    kind, collation = cursor.number(1), cursor.number(4)
    raw = cursor.read(cursor.number(4))
    flags = cursor.number(1) if len(cursor) else 0
    return UserVar(name, _value(kind, raw, collation, flags))


def _value(
    kind: int, raw: bytes, collation: int, flags: int
) -> str | bytes | int | float | Decimal:
    if kind == _STRING:
        return text_of(raw, collation)
    if kind == _INT and len(raw) == 8:
        return int.from_bytes(raw, "little", signed=not flags & _UNSIGNED)
    if kind == _REAL and len(raw) == 8:
        return float(struct.unpack("<d", raw)[0])
    if kind == _DECIMAL and len(raw) >= 2:
        return _decimal(raw[2:], raw[0], raw[1])
    raise malformed("USER_VAR_EVENT", f"has a value of type {kind} in {len(raw)} bytes")


_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def _decimal(raw: bytes, precision: int, scale: int) -> Decimal:
    """Decode a stored DECIMAL: groups of 9 digits in 4 bytes each. The first bit is inverted; in a negative number all
    other bits are inverted, too."""
    whole = precision - scale
    groups = [whole % 9] + [9] * (whole // 9) + [9] * (scale // 9) + [scale % 9]
    if not 1 <= precision <= 65 or not 0 <= scale <= 30 or whole < 0:
        raise malformed("USER_VAR_EVENT", f"has a DECIMAL({precision},{scale})")
    if len(raw) < sum(_DIGIT_BYTES[digits] for digits in groups):
        raise malformed("USER_VAR_EVENT", f"has a DECIMAL({precision},{scale}) in {len(raw)} bytes")
    negative = not raw[0] & 0x80
    raw = bytes((raw[0] ^ 0x80,)) + raw[1:]
    if negative:
        raw = bytes(byte ^ 0xFF for byte in raw)
    at, digits_text = 0, ""
    for digits in groups:
        size = _DIGIT_BYTES[digits]
        value = int.from_bytes(raw[at : at + size], "big")
        digits_text += f"{value:0{digits}}" if digits else ""
        at += size
    # The constructor of Decimal does not round to the context's precision, so the value is exact.
    return Decimal(f"{'-' if negative else ''}{digits_text}E-{scale}")


# -- ends of transactions -------------------------------------------------------------------------------------


def parse_xid(body: bytes) -> int:
    """Return the transaction's number in the storage engines."""
    return ByteCursor("XID_EVENT", body).number(8)


@dataclass(frozen=True, slots=True)
class XaPrepare:
    """`one_phase`: True for XA COMMIT ... ONE PHASE, which ends the transaction. False for XA PREPARE; then a later XA
    COMMIT or XA ROLLBACK ends the transaction."""

    one_phase: bool
    xid: Xid

    def __str__(self) -> str:
        return f"XA COMMIT {self.xid} ONE PHASE" if self.one_phase else f"XA PREPARE {self.xid}"


def parse_xa_prepare(body: bytes) -> XaPrepare:
    cursor = ByteCursor("XA_PREPARE_EVENT", body)
    one_phase, format_id = bool(cursor.number(1)), cursor.number(4, signed=True)
    gtrid, bqual = cursor.number(4), cursor.number(4)
    if gtrid > 64 or bqual > 64:
        raise malformed(cursor.name, f"has an xid of {gtrid} and {bqual} bytes")
    return XaPrepare(one_phase, Xid(format_id, cursor.read(gtrid), cursor.read(bqual)))


# -- the state of the server and its log ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Incident:
    """The server reports that its log is incomplete. `number`: 1 = lost events."""

    number: int
    message: str


def parse_incident(body: bytes) -> Incident:
    cursor = ByteCursor("INCIDENT_EVENT", body)
    number = cursor.number(2)
    return Incident(number, cursor.sized_text() if len(cursor) else "")


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The server has no new events since `position` in `file`."""

    file: str
    position: int


def parse_heartbeat(kind: int, body: bytes, log_pos: int) -> Heartbeat:
    """Parse a HEARTBEAT event. `log_pos`: the field of the event's header. In version 1 the position is only in this
    field (32 bits). For a higher position, MariaDB writes 0 into the field and 8 bytes before the file's name (MariaDB,
    sql/sql_repl.cc, send_heartbeat_event)."""
    cursor = ByteCursor(type_name(kind), body)
    if kind == EventType.HEARTBEAT:
        position = log_pos or cursor.number(8)
        return Heartbeat(cursor.decode(cursor.rest()), position)
    file, position = "", 0
    while len(cursor) and (field := cursor.packed_number()):
        size = cursor.packed_number()
        value = ByteCursor(cursor.name, cursor.read(size))
        if field == 1:
            file = value.text(size)
        elif field == 2:
            position = value.packed_number()
    return Heartbeat(file, position)


def parse_binlog_checkpoint(body: bytes) -> str:
    """Return the name of the oldest file that MariaDB's crash recovery needs."""
    cursor = ByteCursor(type_name(EventType.MARIADB_BINLOG_CHECKPOINT), body)
    return cursor.text(cursor.number(4))


@dataclass(frozen=True, slots=True)
class StartEncryption:
    """MariaDB: the events of the file after this event are encrypted. In a dump the server sends these events
    decrypted."""

    scheme: int
    key_version: int
    nonce: bytes


def parse_start_encryption(body: bytes) -> StartEncryption:
    cursor = ByteCursor(type_name(EventType.MARIADB_START_ENCRYPTION), body)
    return StartEncryption(cursor.number(1), cursor.number(4), cursor.read(12))


# -- group replication ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TransactionContext:
    """The data with which the replication group certifies the next transaction."""

    server_uuid: str
    thread_id: int
    write_set: tuple[bytes, ...]
    read_set: tuple[bytes, ...]


def parse_transaction_context(body: bytes) -> TransactionContext:
    cursor = ByteCursor("TRANSACTION_CONTEXT_EVENT", body)
    uuid_size, thread_id = cursor.number(1), cursor.number(4)
    cursor.read(1)  # whether the session has set the GTID
    snapshot_size, writes, reads = cursor.number(4), cursor.number(4), cursor.number(4)
    uuid = cursor.text(uuid_size)
    cursor.read(snapshot_size)
    return TransactionContext(uuid, thread_id, _items(cursor, writes), _items(cursor, reads))


def _items(cursor: ByteCursor, count: int) -> tuple[bytes, ...]:
    if 2 * count > len(cursor):
        raise malformed(cursor.name, f"counts {count} items, more than its bytes can hold")
    return tuple(cursor.read(cursor.number(2)) for _ in range(count))


@dataclass(frozen=True, slots=True)
class ViewChange:
    """The membership of the replication group changed."""

    view_id: str
    sequence_number: int


def parse_view_change(body: bytes) -> ViewChange:
    cursor = ByteCursor("VIEW_CHANGE_EVENT", body)
    view_id = cursor.decode(cursor.read(40).split(b"\0")[0])
    return ViewChange(view_id, cursor.number(8))  # the remaining bytes are data for certification


# -- LOAD DATA as a statement ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadBlock:
    """A block of the file that LOAD DATA reads (APPEND_BLOCK, BEGIN_LOAD_QUERY), or its end (EXEC_LOAD, DELETE_FILE;
    no data)."""

    file_id: int
    data: bytes = b""


def parse_load_block(kind: int, body: bytes) -> LoadBlock:
    cursor = ByteCursor(type_name(kind), body)
    file_id = cursor.number(4)
    has_data = kind in (EventType.APPEND_BLOCK, EventType.BEGIN_LOAD_QUERY)
    return LoadBlock(file_id, cursor.rest() if has_data else b"")


@dataclass(frozen=True, slots=True)
class LoadQuery:
    """EXECUTE_LOAD_QUERY: the statement. `duplicates`: 0 = error, 1 = ignore, 2 = replace."""

    query: Query
    file_id: int
    duplicates: int


def parse_load_query(body: bytes) -> LoadQuery:
    query = parse_query(body, load=True)
    cursor = ByteCursor("EXECUTE_LOAD_QUERY_EVENT", body, 13)
    file_id = cursor.number(4)
    cursor.read(8)  # the offsets of the file's name in the statement
    return LoadQuery(query, file_id, cursor.number(1))


@dataclass(frozen=True, slots=True)
class Load:
    """LOAD, NEW_LOAD and CREATE_FILE, which MySQL wrote before 5.0.3. `file_id`: the id in CREATE_FILE, else None."""

    database: str
    table: str
    fields: tuple[str, ...]
    file: str
    thread_id: int
    file_id: int | None


def parse_load(kind: int, body: bytes) -> Load:
    cursor = ByteCursor(type_name(kind), body)
    thread_id = cursor.number(4)
    cursor.read(8)  # the statement's time, and how many lines it skips
    table_size, database_size, count = cursor.number(1), cursor.number(1), cursor.number(4)
    file_id = cursor.number(4) if kind == EventType.CREATE_FILE else None
    if kind == EventType.LOAD:
        # One byte each for field end, quote, line end, line start and escape, and two bytes of flags.
        cursor.read(7)
    else:
        for _ in range(5):
            cursor.read(cursor.number(1))
        cursor.read(1)
    if count > len(cursor):
        raise malformed(cursor.name, f"counts {count} fields, more than its bytes can hold")
    sizes = cursor.read(count)
    fields = tuple(cursor.null_terminated(size) for size in sizes)
    table, database = cursor.null_terminated(table_size), cursor.null_terminated(database_size)
    file = cursor.rest().split(b"\0")[0]
    return Load(database, table, fields, cursor.decode(file), thread_id, file_id)
