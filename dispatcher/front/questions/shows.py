"""Parses SHOW and DESCRIBE."""

from __future__ import annotations

from dispatcher.binlog.sql.lexer import NotUnderstoodError
from dispatcher.front.questions.question import (
    Question,
    ShowColumns,
    ShowCreateTable,
    ShowDatabases,
    ShowGrants,
    ShowLogs,
    ShowLogStatus,
    ShowReplicas,
    ShowStatus,
    ShowTables,
    ShowVariables,
    ShowWarnings,
)
from dispatcher.front.questions.reader import Reader


def read_show(reader: Reader) -> Question:
    full = reader.accept("FULL")
    if reader.accept("TABLES"):
        return ShowTables(reader.database_from(), full, reader.filter())
    if reader.accept_either("COLUMNS", "FIELDS"):
        _expect_from(reader)
        return ShowColumns(reader.table_from(), full)
    if full:
        raise NotUnderstoodError
    scope = reader.scope()
    if reader.accept("VARIABLES"):
        return ShowVariables(scope, reader.filter())
    if reader.accept("STATUS"):
        return ShowStatus(reader.filter())
    question = None if scope else _log(reader) or _rest(reader)
    if question is None:
        raise NotUnderstoodError
    return question


def _log(reader: Reader) -> Question | None:
    if (
        reader.accept("BINARY", "LOG", "STATUS")
        or reader.accept("MASTER", "STATUS")
        or reader.accept("BINLOG", "STATUS")
    ):
        return ShowLogStatus()
    if reader.accept("BINARY", "LOGS") or reader.accept("MASTER", "LOGS"):
        return ShowLogs()
    if reader.accept("REPLICAS"):
        return ShowReplicas(old=False)
    if reader.accept("SLAVE", "HOSTS") or reader.accept("REPLICA", "HOSTS"):
        return ShowReplicas(old=True)
    return None


def _rest(reader: Reader) -> Question | None:
    if reader.accept_either("WARNINGS", "ERRORS"):
        reader.limit()
        return ShowWarnings()
    if reader.accept("GRANTS"):
        if reader.accept("FOR", "CURRENT_USER"):
            reader.accept("(", ")")
        return ShowGrants()
    if reader.accept_either("DATABASES", "SCHEMAS"):
        return ShowDatabases(reader.filter())
    if reader.accept("CREATE", "TABLE"):
        return ShowCreateTable(reader.name())
    return None


def _expect_from(reader: Reader) -> None:
    if not reader.accept_either("FROM", "IN"):
        raise NotUnderstoodError


def read_describe(reader: Reader) -> Question:
    return ShowColumns(reader.name(), full=False)
