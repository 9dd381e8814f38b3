"""Makes the `LoggedStatement` of a QUERY_EVENT: the statement as the server that wrote the log executed it."""

from __future__ import annotations

from dataclasses import fields

from dispatcher.binlog.event.header import FLAG_THREAD_SPECIFIC
from dispatcher.binlog.event.query import AlterPhase, Query, parse_query
from dispatcher.binlog.event.session_variables import SessionVariables
from dispatcher.binlog.sql.comments import ServerVersion, executed_text
from dispatcher.binlog.sql.logged import LoggedStatement, SessionFacts
from dispatcher.binlog.sql.statement import (
    ROUTING_BOUNDS,
    ParsedStatement,
    QueryKind,
    classify,
    first_word,
    parse_statement,
)


def logged_statement(
    query: Query, flags: int, server: ServerVersion, lower_case_table_names: int
) -> LoggedStatement:
    """`flags`: the flags in the event's header. `server`: the server's version, from the log's FORMAT_DESCRIPTION.
    `lower_case_table_names`: the server's setting, which its log does not hold."""
    status = query.status
    facts = SessionFacts(
        **{field.name: getattr(status, field.name) for field in fields(SessionVariables)},
        thread_specific=bool(flags & FLAG_THREAD_SPECIFIC),
        takes_effect=not status.alter_phase & ~AlterPhase.COMMIT,
        lower_case_table_names=lower_case_table_names,
        error=query.error_code,
        mariadb=server.mariadb,
    )
    return LoggedStatement(
        executed_text(query.query, status.sql_mode, server), query.database, facts
    )


def read_statement(
    body: bytes, flags: int, server: ServerVersion, lower_case_table_names: int
) -> LoggedStatement:
    """Parse a QUERY_EVENT's body. Raises `BinlogError` MALFORMED_EVENT."""
    return logged_statement(parse_query(body), flags, server, lower_case_table_names)


def logged_kind(statement: LoggedStatement) -> QueryKind:
    """Returns the statement's kind, see `kind_and_tables`."""
    return kind_and_tables(statement)[0]


def kind_and_tables(statement: LoggedStatement) -> tuple[QueryKind, ParsedStatement | None]:
    """Returns the statement's kind, and the parsed statement, which is None if the kind does not depend on it. CREATE
    TABLE ... SELECT counts as DML, because a server that logs in row format never logs this statement: it logs a CREATE
    TABLE and rows events.

    MariaDB with binlog_alter_two_phase=ON logs a DDL twice. Only COMMIT ALTER is a DDL here: START ALTER shows that the
    statement began, and ROLLBACK ALTER that it failed. Until COMMIT ALTER the log holds rows of the old definition.
    """
    if not statement.facts.takes_effect:
        return QueryKind.DDL_WITHOUT_EFFECT, None
    kind = classify(statement.text)
    if kind is not QueryKind.DDL or first_word(statement.text) != "CREATE":
        return kind, None
    parsed = parse_statement(statement, ROUTING_BOUNDS)
    selects = parsed.create is not None and parsed.create.selects
    return QueryKind.DML if selects else kind, parsed
