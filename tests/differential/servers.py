"""Creates and changes generated tables on a server, and reads the server's log with the daemon's code."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pymysql
from pymysql.converters import encoders
from pymysql.cursors import Cursor

from dispatcher.binlog.event.header import MAGIC, parse_format_description
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.table_map.enrich import enriched_body
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.mysql.table_schema import table_definition
from dispatcher.stream.batch import Batch
from dispatcher.stream.consumer_log import ConsumerLog
from dispatcher.stream.routes import Filter, Routes
from dispatcher.stream.splitter import Splitter
from tests.differential.readings import READINGS, STORED, Unholdable, Value
from tests.differential.tables import Table, quoted
from tests.servers import Server
from tests.support.server_log import fresh_log, read_log

# With these settings, the server clips values that are out of range, and stores a zero in an AUTO_INCREMENT column.
_SESSION = (
    "SET SESSION sql_mode = 'ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'",
    "SET SESSION time_zone = '+00:00'",
    "SET NAMES utf8mb4",
)

Row = dict[str, Value]
Snapshot = dict[int, Row]


@dataclass(slots=True)
class Ran:
    """The results of a table on a server. `snapshots`: the rows after each transaction, by row number; `refused`:
    statements that the server refused, with the server's messages; `definition`: from information_schema; `unholdable`:
    True if SELECT returned text that Arrow cannot represent."""

    table: Table
    database: str
    as_logged: bool
    snapshots: list[Snapshot] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    definition: Mapping[str, Any] = field(default_factory=dict)
    created: bool = False
    unholdable: bool = False


@contextmanager
def variables(server: Server, wanted: Mapping[str, str]) -> Iterator[None]:
    """Set global variables of the server, and restore them afterwards."""
    before = {name: server.execute(f"SELECT @@GLOBAL.{name}")[0][0] for name in wanted}
    try:
        server.execute(*(f"SET GLOBAL {name} = {value}" for name, value in wanted.items()))
        yield
    finally:
        server.execute(*(f"SET GLOBAL {name} = {literal(value)}" for name, value in before.items()))


def literal(value: object) -> str:
    if isinstance(value, bytes):
        value = value.decode()
    return str(value) if isinstance(value, int) else f"'{value}'"


def run(
    server: Server, database: str, tables: Sequence[Table], *, as_logged: bool
) -> tuple[list[Ran], bytes]:
    """Create, fill, change and empty the tables. Returns the results of SELECT after each step, and the log.

    `as_logged`: True if values of a type that the log does not name are read in the form in which the log stores them.
    """
    file = fresh_log(server)
    done = []
    with ExitStack() as open_:
        reading = open_.enter_context(_session(server, (), conv={}, use_unicode=False))
        writing: dict[
            tuple[str, ...], Cursor
        ] = {}  # the settings of one session must not affect the next table
        for table in tables:
            if table.settings not in writing:
                writing[table.settings] = open_.enter_context(_session(server, table.settings))
            ran = Ran(table, database, as_logged)
            done.append(ran)
            _run(writing[table.settings], reading, ran)
    log = read_log(server, file)
    with closing(server.connect(conv=encoders)) as connection, connection.cursor() as cursor:
        for ran in done:
            if ran.created:
                ran.definition = table_definition(
                    connection, database, ran.table.name, mariadb=server.mariadb
                )
                cursor.execute(f"DROP TABLE {_place(ran)}")
    return done, log


@contextmanager
def _session(server: Server, settings: Sequence[str], **options: Any) -> Iterator[Cursor]:
    with closing(server.connect(**options)) as connection, connection.cursor() as cursor:
        for statement in (*_SESSION, *settings):
            cursor.execute(statement)
        yield cursor


def _place(ran: Ran) -> str:
    return f"{quoted(ran.database)}.{quoted(ran.table.name)}"


def _tried(cursor: Cursor, statement: str, ran: Ran) -> bool:
    try:
        cursor.execute(statement)
    except pymysql.MySQLError as error:
        if error.args[0] in (2006, 2013):
            raise  # the connection was lost, so the server has not refused the statement
        ran.refused.append(f"{error.args}: {statement[:2000]}")
        return False
    return True


def _run(writing: Cursor, reading: Cursor, ran: Ran) -> None:
    place = _place(ran)
    if not _tried(writing, ran.table.create(place), ran):
        return
    ran.created = True
    for statements in ran.table.statements(place):
        for statement in statements:
            _tried(writing, statement, ran)
        try:
            ran.snapshots.append(_select(reading, ran))
        except Unholdable:
            ran.unholdable = True


def _select(cursor: Cursor, ran: Ran) -> Snapshot:
    columns = ran.table.columns
    as_logged = STORED if ran.as_logged else {}
    readings = [as_logged.get(column.reading) or READINGS[column.reading] for column in columns]
    asked = ", ".join(
        reading.select.replace("{}", quoted(column.name))
        for column, reading in zip(columns, readings, strict=True)
    )
    cursor.execute(f"SELECT {asked} FROM {_place(ran)}")
    names = [column.name for column in columns]
    snapshot: Snapshot = {}
    for raw in cursor.fetchall():
        values = (
            None if cell is None else reading.value(cell)
            for reading, cell in zip(readings, raw, strict=True)
        )
        row = dict(zip(names, values, strict=True))
        number = row[ran.table.rid]
        assert isinstance(number, int) and number not in snapshot
        snapshot[number] = row
    return snapshot


def enriched(log: bytes, definitions: Mapping[str, Any], *, mariadb: bool) -> bytes:
    """Returns `log` as delivered, with the table maps that the daemon completes from information_schema."""
    out, at = bytearray(log[:4]), 4
    checksum = False
    while at < len(log):
        size, kind = int.from_bytes(log[at + 9 : at + 13], "little"), log[at + 4]
        event = log[at : at + size]
        if kind == EventType.FORMAT_DESCRIPTION:
            checksum = parse_format_description(event).checksum
        if kind == EventType.TABLE_MAP:
            body = event[19 : size - 4 * checksum]
            label = TableMap.parse(body).label
            body = enriched_body(body, definitions[label], mariadb=mariadb)
            size_now = (19 + len(body) + 4 * checksum).to_bytes(4, "little")
            event = event[:9] + size_now + event[13:19] + body
            event += zlib.crc32(event).to_bytes(4, "little") if checksum else b""
        out += event
        at += size
    return bytes(out)


def delivered_to(databases: Sequence[str], log: bytes, chunk: int = 1 << 20) -> bytes:
    """Returns the bytes that the daemon's splitter and copy kernel deliver to a consumer of these databases."""
    splitter = Splitter(Routes(), packets=False, checksum=True, buffer_bytes=1 << 16)
    consumer, taken, seq = Filter(databases), ConsumerLog(), 0
    out, written, raw = bytearray(MAGIC), 0, b""
    for at in range(len(MAGIC), len(log), chunk):
        for batch in splitter.feed(log[at : at + chunk]):
            assert isinstance(batch, Batch)
            if batch.fault is not None:
                raise batch.fault.error
            _, seq = taken.append(
                batch, consumer.route_mask(splitter.routes), None, epoch=1, seq=seq, packed=False
            )
            if batch.format.raw != raw:
                raw = batch.format.raw
                out += raw
            out += b"".join(taken.read(written, taken.committed))
            written = taken.committed
    return bytes(out)
