"""Look-ups: what a table is now, and which statements lie between an event and now.

The definition is read inside a transaction that has the table open, whose metadata lock keeps every ALTER out until it
ends; so definition and position, both asked for in it, belong together, and no second look is needed. It does not
wait long for that lock, and holds it for milliseconds.

Then the log is read from the event to that position, by a dump of its own under an identity of its own (the server
would cut the other one for a duplicate), through a splitter of its own: only statements are looked at, so memory is a
buffer and what those say. It reads by file and offset in every mode, because there nothing is skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from dispatcher.binlog.stream.batch import Closed
from dispatcher.binlog.stream.routes import Routes
from dispatcher.dispatch.effects import FetchSchema
from dispatcher.dispatch.events import SchemaFetched
from dispatcher.dispatch.executed_position import Mode, make_executed
from dispatcher.dispatch.versions import (
    Definition,
    FetchedDefinition,
    LogPosition,
    Name,
    Touched,
    TransactionStarts,
    touches,
)
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.runtime.threads import in_thread
from dispatcher.source.mysql.answers import ask_one, fetch, text
from dispatcher.source.mysql.driver import Connection
from dispatcher.source.mysql.error_map import number_of
from dispatcher.source.mysql.server_facts import log_end
from dispatcher.source.mysql.source import ServerSource
from dispatcher.source.mysql.table_schema import table_definition

BUFFER_BYTES = 1 << 20
TOUCHES_MAX = 100_000
LOCK_WAIT_S = 3
_LOCK_WAIT_TIMEOUT = 1205
# No such database, no such table; no privilege on it.
_NOT_THERE = frozenset((1049, 1146, 1044, 1142, 1143, 1370))

_Raw = tuple[Name, Definition | BinlogError, str, int]  # file and offset


async def look_up(server: ServerSource, order: FetchSchema) -> SchemaFetched:
    """Raises `BinlogError` where the server cannot be asked, or no longer has the log."""
    answers = await in_thread("look up", partial(_definitions, server, order.tables))
    end = max(
        (LogPosition(file, offset) for _, _, file, offset in answers), key=lambda mark: mark.key
    )
    ahead = _Ahead(server, order, end)
    await ahead.read()
    found = tuple(
        FetchedDefinition(name, LogPosition(file, offset, ahead.created.get(file, 0)), definition)
        for name, definition, file, offset in answers
    )
    return SchemaFetched(order, found, tuple(ahead.touches))


def not_looked_up(order: FetchSchema, error: BinlogError) -> SchemaFetched:
    """The answer where asking is of no use."""
    return SchemaFetched(
        order, tuple(FetchedDefinition(name, order.start, error) for name in order.tables), ()
    )


# -- what a table is ------------------------------------------------------------------------------------------


def _definitions(server: ServerSource, tables: Sequence[Name]) -> list[_Raw]:
    connection = server.connect()
    try:
        mariadb = _prepare(connection)
        return [_definition(connection, name, mariadb) for name in tables]
    finally:
        connection.close()


def _prepare(connection: Connection) -> bool:
    """Prepare the session for the questions; True if the server is MariaDB."""
    version = ask_one(connection, "SELECT VERSION()", lambda row: text(row[0]))
    # Labels are unquoted by the rules of the default sql_mode.
    fetch(connection, f"SET SESSION lock_wait_timeout = {LOCK_WAIT_S}, SESSION sql_mode = ''")
    # MySQL 8.0.30: the invisible primary key that the server made is logged, and may be hidden from the schema.
    hidden = "show_gipk_in_create_table_and_information_schema"
    if fetch(connection, f"SHOW VARIABLES LIKE '{hidden}'"):
        fetch(connection, f"SET SESSION {hidden} = ON")
    return "mariadb" in version.lower()


def _definition(connection: Connection, name: Name, mariadb: bool) -> _Raw:
    quoted = ".".join("`" + part.replace("`", "``") + "`" for part in name)
    found: Definition | BinlogError
    fetch(connection, "START TRANSACTION")
    try:
        fetch(connection, f"SELECT 1 FROM {quoted} LIMIT 0")
        found = table_definition(connection, *name, mariadb=mariadb)
    except BinlogError as error:
        found = _refused(error, ".".join(name))
    file, offset = log_end(connection)
    fetch(connection, "ROLLBACK")
    return name, found, file, offset


def _refused(error: BinlogError, label: str) -> BinlogError:
    """What the server does not tell of a table, and will not tell next time either. Raises all other faults."""
    number = number_of(error)
    if number == _LOCK_WAIT_TIMEOUT:
        raise BinlogError(
            ErrorKind.RANGE_UNAVAILABLE,
            f"table {label} is locked, its columns cannot be looked up",
            where=error.where,
            remedy="nothing to do; asked again until the statement that holds the lock ends",
        ) from error
    if error.kind in (ErrorKind.METADATA_MISSING, ErrorKind.UNSUPPORTED_TYPE):
        return error
    if number not in _NOT_THERE and error.kind is not ErrorKind.UNKNOWN_TABLE:
        raise error
    return BinlogError(
        ErrorKind.METADATA_MISSING,
        f"the log does not name its columns, and the server does not tell them now: {error.what}",
        where=error.where,
        remedy="GRANT SELECT on the table if it is there; else start the consumer after the statement that dropped it,"
        " or leave the table out of its tables",
    )


# -- what lies between ----------------------------------------------------------------------------------------


class _Ahead:
    """Reads the log from where the order begins to `end`. `created`: creation times of its files."""

    def __init__(self, server: ServerSource, order: FetchSchema, end: LogPosition) -> None:
        self.touches: list[Touched] = []
        self.created = {order.start.file: order.start.created}
        self._server = server
        self._order = order
        self._end = end

    async def read(self) -> None:
        start = self._order.start
        if start.key >= self._end.key:
            return
        # Behind 4 GiB it begins at the file's beginning, where `_keep` leaves out what is not asked for.
        place = make_executed(Mode.FILE, "", start.file, start.offset)
        routes, marks = Routes(), TransactionStarts()
        opened = await in_thread("look up", self._server.open_once, lambda made: made.close())
        try:
            ask = partial(opened.dump, Mode.FILE, place, routes, BUFFER_BYTES)
            stream = await in_thread("look up", ask, lambda made: made.close())
        except BaseException:
            opened.close()
            raise
        stream.splitter.file, stream.splitter.prepared = start.file, None
        try:
            while True:
                for batch in await stream.batches():
                    if isinstance(batch, Closed):
                        raise stream.ended(batch)
                    created = stream.splitter.created.get(batch.file, 0)
                    self.created[batch.file] = created
                    self._keep(touches(batch, created, marks, routes))
                    marks.after(batch, created)
                    if LogPosition(batch.file, batch.offset).key >= self._end.key:
                        return
                await asyncio.sleep(0)
        finally:
            stream.close()

    def _keep(self, found: Sequence[Touched]) -> None:
        order = self._order
        for touched in found:
            concerns = order.all_tables or any(
                touched.touch.concerns(name) for name in order.tables
            )
            if concerns and touched.place.key >= order.start.key:
                self.touches.append(touched)
        if len(self.touches) > TOUCHES_MAX:
            raise BinlogError(
                ErrorKind.METADATA_MISSING,
                f"more than {TOUCHES_MAX} statements that may alter tables lie between {order.start} and {self._end}",
            )
