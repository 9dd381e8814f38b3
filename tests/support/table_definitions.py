"""Answers requests for table definitions, from a log that does not name columns."""

from __future__ import annotations

from dispatcher.dispatch.tables.statements import (
    AlteringStatement,
    TransactionStarts,
    altering_statements,
)
from dispatcher.dispatch.tables.versions import Definition, LogPosition, Name
from dispatcher.dispatch.values.executed_position import Mode, make_executed
from dispatcher.stream.batch import Closed
from dispatcher.stream.routes import Routes
from dispatcher.stream.splitter import Splitter
from tests.support.event_encoder import LogWriter
from tests.support.fake_server import Feed, Server

_BUFFER = 1 << 14


def definition(name: Name, column: str) -> Definition:
    """Returns the definition of a table with one column of type INT."""
    columns = [{"name": column, "mysql_type": "int", "nullable": True, "charset": None}]
    return {
        "database": name[0], "table": name[1], "columns": columns, "key": [], "primary": [], "keys": {},
        "charset": ["latin1", 8],
    }  # fmt: skip


def statements_from(log: LogWriter, start: LogPosition) -> list[AlteringStatement]:
    """Read the log from a position to its end, as `runtime.table_lookup` does. Returns the statements that may alter
    tables."""
    routes, starts = Routes(), TransactionStarts()
    routes.lower_case_table_names = log.lower_case
    feed = Feed(Server(log, Mode.FILE), make_executed(Mode.FILE, "", start.file, start.offset))
    splitter = Splitter(routes, packets=True, checksum=feed.checksum, buffer_bytes=_BUFFER)
    created = {file.name: file.created for file in log.files}
    statements: list[AlteringStatement] = []
    for batch in splitter.feed(feed.take(1 << 40)):
        assert not isinstance(batch, Closed)
        statements += altering_statements(batch, created[batch.file], starts)
        starts.after(batch, created[batch.file])
    return statements
