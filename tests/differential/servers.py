"""Run generated tables on a server, and let the daemon's own code read back what it logged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pymysql
from pymysql.cursors import Cursor

from dispatcher.binlog.batch import Batch
from dispatcher.binlog.events import MAGIC
from dispatcher.binlog.routes import Filter, Routes
from dispatcher.binlog.scan import Splitter
from dispatcher.binlog.take import Log
from dispatcher.net.server import table_columns
from tests.differential.readings import READINGS, Value
from tests.differential.tables import Table, quoted
from tests.servers import Server
from tests.support.server_log import fresh_log, read_log

# Values out of range are clipped instead of refused; a zero in an AUTO_INCREMENT column would be a number.
_SESSION = (
    "SET SESSION sql_mode = 'ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'",
    "SET SESSION time_zone = '+00:00'",
    "SET NAMES utf8mb4",
)

Row = dict[str, Value]
Snapshot = dict[int, Row]


@dataclass(slots=True)
class Ran:
    """What a server made of a table. `snapshots`: after each transaction, by row number; `refused`: statements that
    the server did not take, with its words; `columns`: names in the server's order."""

    table: Table
    database: str
    snapshots: list[Snapshot] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    definition: Mapping[str, Any] = field(default_factory=dict)
    created: bool = False


@contextmanager
def variables(server: Server, wanted: Mapping[str, str]) -> Iterator[None]:
    """Global variables of the server, put back afterwards."""
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


def run(server: Server, database: str, tables: Sequence[Table]) -> tuple[list[Ran], bytes]:
    """Create, fill, change and empty the tables; what SELECT said on the way, and the log of it."""
    file = fresh_log(server)
    done = []
    reader = server.connect(conv={}, use_unicode=False)
    with closing(reader), reader.cursor() as reading, closing(server.connect()) as connection:
        _set_up(reading, ())
        for table in tables:
            with connection.cursor() as writing:
                _set_up(writing, table.settings)
                ran = Ran(table, database)
                done.append(ran)
                _run(writing, reading, ran)
            if ran.created:
                ran.definition = table_columns(connection, database, table.name)
        log = read_log(server, file)
        with connection.cursor() as writing:
            for ran in done:
                if ran.created:
                    writing.execute(f"DROP TABLE {_place(ran)}")
    return done, log


def _set_up(cursor: Cursor, settings: Sequence[str]) -> None:
    for statement in (*_SESSION, *settings):
        cursor.execute(statement)


def _place(ran: Ran) -> str:
    return f"{quoted(ran.database)}.{quoted(ran.table.name)}"


def _tried(cursor: Cursor, statement: str, ran: Ran) -> bool:
    try:
        cursor.execute(statement)
    except pymysql.MySQLError as error:
        if error.args[0] in (2006, 2013):
            raise  # the connection is gone: that is no refusal
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
        ran.snapshots.append(_select(reading, ran))


def _select(cursor: Cursor, ran: Ran) -> Snapshot:
    columns = ran.table.columns
    readings = [READINGS[column.reading] for column in columns]
    asked = ", ".join(
        reading.select.replace("{}", quoted(column.name))
        for column, reading in zip(columns, readings, strict=True)
    )
    cursor.execute(f"SELECT {asked} FROM {_place(ran)}")
    names = [column.name for column in columns]
    found: Snapshot = {}
    for raw in cursor.fetchall():
        values = (
            None if cell is None else reading.value(cell)
            for reading, cell in zip(readings, raw, strict=True)
        )
        row = dict(zip(names, values, strict=True))
        number = row[ran.table.rid]
        assert isinstance(number, int) and number not in found
        found[number] = row
    return found


def delivered_to(databases: Sequence[str], log: bytes, chunk: int = 1 << 20) -> bytes:
    """What the daemon hands a consumer of these databases from a log file: its own cutting and copying."""
    splitter = Splitter(Routes(), packets=False, checksum=True, buffer_bytes=1 << 16)
    consumer, taken, seq = Filter(databases), Log(), 0
    out, written, raw = bytearray(MAGIC), 0, b""
    for at in range(len(MAGIC), len(log), chunk):
        for batch in splitter.feed(log[at : at + chunk]):
            assert isinstance(batch, Batch)
            if batch.fault is not None:
                raise batch.fault.error
            _, seq = taken.take(
                batch, consumer.wants(splitter.routes), None, epoch=1, seq=seq, packed=False
            )
            if batch.format.raw != raw:
                raw = batch.format.raw
                out += raw
            out += b"".join(taken.read(written, taken.committed))
            written = taken.committed
    return bytes(out)
