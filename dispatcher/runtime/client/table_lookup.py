"""Looks up the present definitions of tables, and the statements that may have altered the tables since an event.

The server returns a definition together with the position of the log at which the server has read the definition. A
look-up then reads the log from the event to that position, over a connection of its own. It keeps only one buffer and
the statements that may have altered the tables, so its memory is bounded.
"""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from functools import partial

from dispatcher.dispatch.messages.effects import FetchSchema
from dispatcher.dispatch.messages.events import SchemaFetched
from dispatcher.dispatch.tables.statements import (
    AlteringStatement,
    TransactionStarts,
    altering_statements,
)
from dispatcher.dispatch.tables.versions import FetchedDefinition, LogPosition
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.runtime.loop.threads import in_thread
from dispatcher.source.protocols import SchemaServer
from dispatcher.stream.routes import Routes

TOUCHES_MAX = 100_000


async def look_up(server: SchemaServer, order: FetchSchema) -> SchemaFetched:
    """Raises `BinlogError` if the server cannot be asked or has purged the log."""
    cancelled = threading.Event()
    try:
        return await in_thread("look up", partial(_look_up, server, order, cancelled))
    finally:
        cancelled.set()


def look_up_failed(order: FetchSchema, error: BinlogError) -> SchemaFetched:
    """Return the answer that tells the rules that a look-up has failed, and that a repetition would fail, too."""
    return SchemaFetched(
        order, tuple(FetchedDefinition(name, order.start, error) for name in order.tables), ()
    )


def _look_up(server: SchemaServer, order: FetchSchema, cancelled: threading.Event) -> SchemaFetched:
    schemas = server.definitions(order.tables)
    end = max(
        (LogPosition(schema.file, schema.offset) for schema in schemas),
        key=lambda position: position.key,
    )
    created = {order.start.file: order.start.created}
    touched = _statements(server, order, end, created, cancelled)
    definitions = tuple(
        FetchedDefinition(
            schema.table,
            LogPosition(schema.file, schema.offset, created.get(schema.file, 0)),
            schema.definition,
            schema.database_collation,
        )
        for schema in schemas
    )
    return SchemaFetched(order, definitions, tuple(touched))


def _statements(
    server: SchemaServer,
    order: FetchSchema,
    end: LogPosition,
    created: dict[str, int],
    cancelled: threading.Event,
) -> list[AlteringStatement]:
    """Return the statements from `order.start` to `end` that may alter the tables of the order.

    Adds to `created` the creation time of each file that it reads.
    """
    start = order.start
    statements: list[AlteringStatement] = []
    if start.key >= end.key:
        return statements
    routes, starts = Routes(), TransactionStarts()
    with closing(server.read_log(start.file, start.offset, routes)) as batches:
        for batch, file_created in batches:
            created[batch.file] = file_created
            statements += [
                # The stream reads the texts of the other statements itself.
                touched if order.all_tables else replace(touched, text=None)
                for touched in altering_statements(batch, file_created, starts)
                if touched.before.key >= start.key and _concerns(order, touched)
            ]
            if len(statements) > TOUCHES_MAX:
                what = f"more than {TOUCHES_MAX} statements that may alter tables lie between {start} and {end}"
                raise BinlogError(ErrorKind.METADATA_MISSING, what)
            starts.after(batch, file_created)
            if cancelled.is_set() or LogPosition(batch.file, batch.offset).key >= end.key:
                return statements
    raise BinlogError(ErrorKind.CONNECTION_LOST, f"the server ended the dump before {end}")


def _concerns(order: FetchSchema, touched: AlteringStatement) -> bool:
    return order.all_tables or any(touched.altered.concerns(name) for name in order.tables)
