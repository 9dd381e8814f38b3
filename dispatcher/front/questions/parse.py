"""Parses a client's statement into a `Question`, or refuses the statement.

Answers are computed only from the `Question`, never from the client's text. A refusal has the error number of a MySQL
server for the most similar case, and a message that names docs/front.md.

The statements of real clients, from the general logs of servers, are recorded in tests/front/questions/recorded.py.
Source of the syntax: MySQL manual, "SQL Statements"; MariaDB knowledge base.
"""

from __future__ import annotations

from collections.abc import Callable

from dispatcher.binlog.sql.comments import ServerVersion, executed_text
from dispatcher.binlog.sql.lexer import NotUnderstoodError
from dispatcher.front.questions.assignments import read_set
from dispatcher.front.questions.question import Kill, Nothing, Question, Use
from dispatcher.front.questions.reader import TOKENS_MAX, Reader
from dispatcher.front.questions.refusals import (
    change_refused,
    empty_query,
    invalid_characters,
    not_answered,
    several_statements,
    syntax_error,
)
from dispatcher.front.questions.selects import read_select
from dispatcher.front.questions.shows import read_describe, read_show
from dispatcher.front.questions.variables import Variables

# Statements that change something at a server, or that need a privilege.
_CHANGES = frozenset((
    "ALTER", "ANALYZE", "BINLOG", "CACHE", "CALL", "CHANGE", "CHECK", "CHECKSUM", "CLONE", "CREATE", "DELETE", "DO",
    "DROP", "EXECUTE", "FLUSH", "GRANT", "HANDLER", "IMPORT", "INSERT", "INSTALL", "LOAD", "LOCK",
    "OPTIMIZE", "PREPARE", "PURGE", "RENAME", "REPAIR", "REPLACE", "RESET", "RESTART", "REVOKE", "SHUTDOWN", "STOP",
    "TRUNCATE", "UNINSTALL", "UPDATE", "XA",
))  # fmt: skip


def parse_question(sql: str, variables: Variables | None = None) -> Question:
    """Parse a client's statement. Raises `WireError` for a refusal.

    `variables`: the variables of the client's connection, including its sql_mode and its default database.
    """
    variables = variables or Variables()
    if not sql.isascii() and any("\ud800" <= character <= "\udfff" for character in sql):
        raise invalid_characters()
    server = ServerVersion(mariadb=variables.mariadb)
    executed = executed_text(sql, variables.sql_mode_bits, server)
    reader = Reader(executed, variables.sql_mode_bits, variables.database)
    if not executed.strip():
        if not sql.strip():
            raise empty_query()
        return Nothing()  # only comments that the server does not execute
    return _parsed(reader, executed)


def _parsed(reader: Reader, sql: str) -> Question:
    first = reader.peek()
    if first is None:
        return Nothing()  # only comments
    read = _STATEMENTS.get(first.keyword)
    if first.keyword in _CHANGES:
        raise change_refused(first.keyword)
    if read is None:
        raise syntax_error(sql, first.end - len(first.text))
    reader.advance()
    try:
        question = read(reader)
        if reader.accept(";") and not reader.at_end():
            raise several_statements()
        if not reader.at_end() or not reader.complete:
            raise NotUnderstoodError
    except NotUnderstoodError as error:
        if not reader.complete and reader.pieces < TOKENS_MAX:  # an unclosed quote
            raise syntax_error(sql, reader.offset) from error
        raise not_answered(sql) from error
    return question


def _use(reader: Reader) -> Question:
    return Use(reader.identifier())


def _kill(reader: Reader) -> Question:
    """Parse KILL. KILL QUERY is refused, because the only long query is a dump, and KILL CONNECTION ends a dump."""
    reader.accept("CONNECTION")
    return Kill(reader.number())


def _begin(reader: Reader) -> Question:
    reader.accept("WORK")
    return Nothing()


def _end_of_transaction(reader: Reader) -> Question:
    """Parse COMMIT and ROLLBACK. ROLLBACK TO is refused, because the front has no savepoints."""
    reader.accept("WORK")
    if reader.accept("AND"):
        reader.accept("NO")
        reader.expect("CHAIN")
    if reader.at("NO", "RELEASE") or reader.at("RELEASE"):
        reader.accept("NO")
        reader.advance()
    return Nothing()


def _start(reader: Reader) -> Question:
    """Parse START TRANSACTION. The front takes no snapshot: each answer shows the state at the time of its question."""
    reader.expect("TRANSACTION")
    while not reader.at_end() and not reader.at(";"):
        if not (
            reader.accept("WITH", "CONSISTENT", "SNAPSHOT")
            or reader.accept("READ", "ONLY")
            or reader.accept("READ", "WRITE")
        ):
            raise NotUnderstoodError
        reader.accept(",")
    return Nothing()


def _unlock(reader: Reader) -> Question:
    """Parse UNLOCK TABLES. The statement has no effect, because a connection of the front holds no locks."""
    if not reader.accept_either("TABLES", "TABLE"):
        raise NotUnderstoodError
    return Nothing()


_STATEMENTS: dict[str, Callable[[Reader], Question]] = {
    "SELECT": read_select,
    "SHOW": read_show,
    "DESCRIBE": read_describe,
    "DESC": read_describe,
    "SET": read_set,
    "USE": _use,
    "KILL": _kill,
    "BEGIN": _begin,
    "COMMIT": _end_of_transaction,
    "ROLLBACK": _end_of_transaction,
    "START": _start,
    "UNLOCK": _unlock,
}
