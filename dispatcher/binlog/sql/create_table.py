"""Parses the parts of CREATE TABLE that show where the table's columns and rows come from.

Sources: MySQL 9.7 manual, "CREATE TABLE Statement"; MariaDB knowledge base, "CREATE TABLE".
"""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.binlog.sql.lexer import Bounds, Name, NotUnderstoodError, SqlTokens
from dispatcher.binlog.sql.logged import LoggedStatement

_ACTIONS = ("CASCADE", "SET")


@dataclass(frozen=True, slots=True)
class ParsedCreate:
    """`like`: the table whose columns the new table gets, None without LIKE. `selects`: True if the statement itself
    adds rows. `cascades`: actions of the table's foreign keys that change its rows, such as `ON DELETE CASCADE`,
    without duplicates."""

    table: Name
    like: Name | None = None
    selects: bool = False
    replaces: bool = False
    if_not_exists: bool = False
    cascades: tuple[str, ...] = ()


def parse_create_table(statement: LoggedStatement, bounds: Bounds | None = None) -> ParsedCreate:
    """Parse a CREATE TABLE statement, in linear time. Raises NotUnderstoodError for another statement, or for a
    statement that exceeds `bounds`."""
    tokens = SqlTokens(statement, bounds)
    if tokens.accept("SET", "STATEMENT") and not tokens.skip_to("FOR"):
        raise NotUnderstoodError
    tokens.expect("CREATE")
    replaces = tokens.accept("OR", "REPLACE")
    tokens.expect("TABLE")
    exists = tokens.accept("IF", "NOT", "EXISTS")
    table = tokens.name()
    like = _like(tokens)
    selects, cascades = (False, ()) if like is not None else _body(tokens)
    if not tokens.complete:
        raise NotUnderstoodError
    return ParsedCreate(table, like, selects, replaces, exists, cascades)


def _like(tokens: SqlTokens) -> Name | None:
    if tokens.accept("LIKE") or tokens.accept("(", "LIKE"):
        return tokens.name()
    return None


def _body(tokens: SqlTokens) -> tuple[bool, tuple[str, ...]]:
    """Consume the statement after the table's name. Return a pair: True if the statement adds rows, and the actions of
    foreign keys."""
    selects, depth, before = False, 0, ["", ""]
    cascades: dict[str, None] = {}
    for token in tokens:
        word = token.keyword
        # In brackets, SELECT is a row source only as the first word. WITH, TABLE and VALUES are row sources only after
        # AS: VALUES LESS THAN and a column's WITH are not.
        selects |= word == "SELECT" and (depth == 0 or before[1] == "(")
        selects |= depth == 0 and word in ("WITH", "TABLE", "VALUES") and before[1] == "AS"
        if before[0] == "ON" and before[1] in ("DELETE", "UPDATE") and word in _ACTIONS:
            following = tokens.peek()
            action = f"SET {following.keyword}" if word == "SET" and following is not None else word
            cascades[f"ON {before[1]} {action}"] = None
        depth += (word == "(") - (word == ")")
        before = [before[1], word]
    return selects, tuple(cascades)


def cascades_of(tokens: SqlTokens) -> tuple[str, ...]:
    """Return the actions of the foreign keys in the remaining tokens, such as `ON DELETE CASCADE`, without
    duplicates."""
    return _body(tokens)[1]
