"""Finds the generated columns that a CREATE TABLE defines, and the columns from which each is computed.

The log does not show which columns are generated. The server computes their values again if a statement changes the
type of a column from which they are computed.

Sources: MySQL 9.7 manual, "CREATE TABLE and Generated Columns"; MariaDB knowledge base, "Generated Columns".
"""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.binlog.sql.create_table import ParsedCreate
from dispatcher.binlog.sql.lexer import NotUnderstoodError, SqlTokens
from dispatcher.binlog.sql.logged import LoggedStatement


@dataclass(frozen=True, slots=True)
class GeneratedColumn:
    """`sources`: names in lower case, among them all columns from which the column is computed; None if its expression
    is not known."""

    name: str
    sources: tuple[str, ...] | None


def generated_in(
    statement: LoggedStatement, create: ParsedCreate
) -> tuple[GeneratedColumn, ...] | None:
    """Returns the generated columns of the table that a CREATE TABLE makes; None if the statement does not show the
    columns, as with LIKE."""
    if create.columns_at is None:
        return None
    tokens = SqlTokens(statement, at=create.columns_at)
    try:
        tokens.expect("(")
        found, more = [], True
        while more:
            column, more = _item(tokens)
            found += [column] if column is not None else []
    except NotUnderstoodError:
        return None
    return tuple(found) if tokens.complete else None


def _item(tokens: SqlTokens) -> tuple[GeneratedColumn | None, bool]:
    """Consume a column or a key, and the comma or the bracket after it. Returns the column if it is generated, and
    True if a comma follows. `AS` outside brackets begins the expression of a generated column."""
    first, column = tokens.advance(), None
    while (token := tokens.advance()) is not None:
        if token.keyword in (",", ")"):
            return column, token.keyword == ","
        if token.keyword == "(":
            _bracket(tokens)
        elif token.keyword == "AS" and not tokens.accept("ROW"):  # MariaDB: AS ROW START
            tokens.expect("(")
            if first is None or first.name is None:
                raise NotUnderstoodError
            column = GeneratedColumn(first.name, _bracket(tokens))
    raise NotUnderstoodError


def _bracket(tokens: SqlTokens) -> tuple[str, ...]:
    """Consume the rest of an expression in brackets. Returns all its names and words."""
    names, depth = dict[str, None](), 1
    for token in tokens:
        depth += (token.keyword == "(") - (token.keyword == ")")
        if depth == 0:
            return tuple(names)
        if token.name is not None:
            names[token.name.lower()] = None
    raise NotUnderstoodError
