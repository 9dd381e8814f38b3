"""`LoggedStatement`: the statement of a QUERY_EVENT as the server that wrote the log executed it. Its kind and its
objects depend on the event's flags and on the server's version, not only on the text."""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.binlog.event.header import FLAG_THREAD_SPECIFIC
from dispatcher.binlog.event.query import Query, parse_query
from dispatcher.binlog.sql.comments import ServerVersion, executed_text
from dispatcher.binlog.sql.create_table import parse_create_table
from dispatcher.binlog.sql.lexer import Bounds, NotUnderstoodError
from dispatcher.binlog.sql.statement import (
    ROUTING_BOUNDS,
    ParsedStatement,
    QueryKind,
    classify,
    parse_statement,
)


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """`database`: the session's default database. `text`: see `executed_text`. `thread_specific`: True if the event has
    LOG_EVENT_THREAD_SPECIFIC_F, the flag of statements that may have used a temporary table."""

    database: str
    text: str
    sql_mode: int = 0
    thread_specific: bool = False

    @classmethod
    def of(cls, query: Query, flags: int, server: ServerVersion) -> LoggedStatement:
        """`flags`: the flags in the event's header. `server`: the server's version, from the log's
        FORMAT_DESCRIPTION."""
        text = executed_text(query.query, query.status.sql_mode, server)
        return cls(query.database, text, query.status.sql_mode, bool(flags & FLAG_THREAD_SPECIFIC))

    @classmethod
    def read(cls, body: bytes, flags: int, server: ServerVersion) -> LoggedStatement:
        """Parse a QUERY_EVENT's body. Raises `BinlogError` MALFORMED_EVENT."""
        return cls.of(parse_query(body), flags, server)

    @property
    def kind(self) -> QueryKind:
        """The statement's kind. CREATE TABLE ... SELECT counts as DML, because a server that logs in row format never
        logs this statement: it logs a CREATE TABLE and rows events."""
        kind = classify(self.text)
        return QueryKind.DML if kind is QueryKind.DDL and self._creates_rows() else kind

    def _creates_rows(self) -> bool:
        try:
            return parse_create_table(
                self.text, self.database, self.sql_mode, ROUTING_BOUNDS
            ).selects
        except NotUnderstoodError:
            return False

    def parsed(self, bounds: Bounds | None = None) -> ParsedStatement:
        return parse_statement(
            self.text, self.database, self.sql_mode, bounds, thread_specific=self.thread_specific
        )
