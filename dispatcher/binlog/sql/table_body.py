"""Parses the columns, keys and character set of CREATE TABLE, and the keys of CREATE INDEX and DROP INDEX.

A statement is understood as a whole or not at all: a word that is not listed here raises NotUnderstoodError.

Sources: MySQL 9.7 manual, "CREATE TABLE Statement", "CREATE INDEX Statement"; MariaDB knowledge base, "CREATE TABLE".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dispatcher.binlog.sql.alter_clauses import KEYS, table_charset, unique_keys
from dispatcher.binlog.sql.clauses import (
    DefinedColumn,
    DropKeyClause,
    PrimaryKeyClause,
    TableCharsetClause,
    UniqueKeyClause,
)
from dispatcher.binlog.sql.columns import defined_column
from dispatcher.binlog.sql.forms import Form
from dispatcher.binlog.sql.keys import key_parts
from dispatcher.binlog.sql.lexer import NotUnderstoodError, SqlTokens, upper
from dispatcher.binlog.sql.logged import LoggedStatement
from dispatcher.binlog.sql.table_options import OPTIONS, SLOTS

_PARTITIONING = Form("<partitioning>", SLOTS)


@dataclass(slots=True)
class TableBody:
    """`charset`: the table's options CHARACTER SET and COLLATE; `versioned`: True for WITH SYSTEM VERSIONING."""

    columns: list[DefinedColumn] = field(default_factory=list)
    keys: list[PrimaryKeyClause | UniqueKeyClause] = field(default_factory=list)
    charset: TableCharsetClause = field(default_factory=TableCharsetClause)
    versioned: bool = False


def parse_table_body(statement: LoggedStatement) -> TableBody:
    """Parse a CREATE TABLE with columns. Raises NotUnderstoodError for every other statement."""
    tokens = SqlTokens(statement)
    tokens.expect("CREATE")
    tokens.accept("OR", "REPLACE")
    tokens.expect("TABLE")
    tokens.if_exists()
    tokens.name()
    tokens.expect("(")
    body = TableBody()
    while True:
        _item(tokens, body)
        if not tokens.accept(","):
            break
    tokens.expect(")")
    _options(tokens, body)
    if not tokens.complete or not body.columns:
        raise NotUnderstoodError
    return body


def _item(tokens: SqlTokens, body: TableBody) -> None:
    form = KEYS.chosen(tokens)
    if form is not None:
        body.keys += unique_keys(form.match(tokens))
        return
    if tokens.at("PERIOD") or tokens.at("LIKE"):
        raise NotUnderstoodError
    body.columns.append(defined_column(tokens))


def _options(tokens: SqlTokens, body: TableBody) -> None:
    while not tokens.at_end():
        if tokens.accept(",") or tokens.accept("START", "TRANSACTION"):
            continue
        if tokens.accept("WITH", "SYSTEM", "VERSIONING"):
            body.versioned = True
            continue
        if tokens.at("PARTITION", "BY"):
            _PARTITIONING.match(tokens)
            continue
        form = OPTIONS.chosen(tokens)
        if form is None:
            raise NotUnderstoodError
        charset = table_charset(form.match(tokens))
        if charset is not None:
            body.charset = TableCharsetClause(
                charset.charset or body.charset.charset, charset.collation or body.charset.collation
            )


def parse_index(
    statement: LoggedStatement,
) -> PrimaryKeyClause | UniqueKeyClause | DropKeyClause | None:
    """Parse CREATE INDEX and DROP INDEX. Return None for an index that is not unique. Raises NotUnderstoodError for
    every other statement."""
    tokens = SqlTokens(statement)
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
