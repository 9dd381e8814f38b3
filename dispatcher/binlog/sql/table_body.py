"""Parses the columns and keys of CREATE TABLE, and the keys of CREATE INDEX and DROP INDEX.

A statement is understood as a whole or not at all: a word that is not listed here raises NotUnderstoodError.

Sources: MySQL 9.7 manual, "CREATE TABLE Statement", "CREATE INDEX Statement"; MariaDB knowledge base, "CREATE TABLE".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dispatcher.binlog.sql.alter_clauses import KEYS, unique_keys
from dispatcher.binlog.sql.clauses import (
    DefinedColumn,
    DropKeyClause,
    PrimaryKeyClause,
    UniqueKeyClause,
)
from dispatcher.binlog.sql.columns import defined_column
from dispatcher.binlog.sql.create_table import ParsedCreate
from dispatcher.binlog.sql.keys import key_parts
from dispatcher.binlog.sql.lexer import NotUnderstoodError, SqlTokens, upper
from dispatcher.binlog.sql.logged import LoggedStatement


@dataclass(slots=True)
class TableBody:
    columns: list[DefinedColumn] = field(default_factory=list)
    keys: list[PrimaryKeyClause | UniqueKeyClause] = field(default_factory=list)


def parse_table_body(statement: LoggedStatement, create: ParsedCreate) -> TableBody:
    """Parse the columns and keys of a CREATE TABLE. Raises NotUnderstoodError if the statement lists none."""
    if create.columns_at is None:
        raise NotUnderstoodError
    tokens, body = SqlTokens(statement, at=create.columns_at), TableBody()
    tokens.expect("(")
    while True:
        _item(tokens, body)
        if not tokens.accept(","):
            break
    tokens.expect(")")
    if not tokens.complete or not body.columns:
        raise NotUnderstoodError
    return body


def _item(tokens: SqlTokens, body: TableBody) -> None:
    form = KEYS.chosen(tokens)
    if form is not None:
        body.keys += unique_keys(form.match(tokens))
        return
    if tokens.at("PERIOD"):
        raise NotUnderstoodError
    body.columns.append(defined_column(tokens))


def parse_index(
    statement: LoggedStatement,
) -> PrimaryKeyClause | UniqueKeyClause | DropKeyClause | None:
    """Parse CREATE INDEX and DROP INDEX. Return None for an index that is not unique. Raises NotUnderstoodError for
    every other statement."""
    tokens = SqlTokens(statement)
    tokens.skip_set_statement()
    if tokens.accept("DROP"):
        tokens.accept_any("ONLINE", "OFFLINE")
        tokens.expect("INDEX")
        tokens.if_exists()
        name = tokens.identifier()
        tokens.expect("ON")
        return PrimaryKeyClause() if upper(name) == "PRIMARY" else DropKeyClause(name)
    tokens.expect("CREATE")
    tokens.accept("OR", "REPLACE")
    tokens.accept_any("ONLINE", "OFFLINE")
    if not tokens.accept("UNIQUE"):
        return None
    tokens.expect("INDEX")
    exists = tokens.accept("IF", "NOT", "EXISTS")
    name = tokens.identifier()
    while not tokens.at("("):  # USING BTREE ON table
        if tokens.advance() is None:
            raise NotUnderstoodError
    columns, prefixes = key_parts(tokens)
    return UniqueKeyClause(name, columns, prefixes, exists)
