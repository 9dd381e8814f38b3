"""Parses CREATE TABLE: where the table's columns and rows come from.

The list of columns and keys is skipped as a group in brackets: nothing in it names another table whose rows change.
After it, table options, partitioning and a query may follow; anything else is in doubt.

Sources: MySQL 9.7 manual, "CREATE TABLE Statement"; MariaDB knowledge base, "CREATE TABLE"; sql_yacc.yy of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dispatcher.binlog.sql.forms import Form
from dispatcher.binlog.sql.lexer import Name, NotUnderstoodError, SqlTokens
from dispatcher.binlog.sql.table_options import OPTIONS, SLOTS

_ACTIONS = ("CASCADE", "SET")
# The first words of a query, after `AS` or without it.
_QUERY = ("SELECT", "WITH", "TABLE", "VALUES", "(")
_PARTITIONING = Form("<partitioning>", SLOTS)


@dataclass(frozen=True, slots=True)
class ParsedCreate:
    """`like`: the table whose columns the new table gets, None without LIKE. `selects`: True if the statement itself
    adds rows. `doubt`: the words that are not understood, "" if the whole statement is."""

    table: Name
    like: Name | None = None
    selects: bool = False
    replaces: bool = False
    if_not_exists: bool = False
    doubt: str = ""


def created_table(tokens: SqlTokens, *, replaces: bool) -> ParsedCreate:
    """Consume the rest of a CREATE TABLE statement behind the word TABLE."""
    exists = tokens.accept("IF", "NOT", "EXISTS")
    made = ParsedCreate(tokens.name(), replaces=replaces, if_not_exists=exists)
    start = tokens.offset
    try:
        made = _body(tokens, made)
        if not tokens.at_end():
            start = tokens.offset
            raise NotUnderstoodError
    except NotUnderstoodError:
        words = tokens.words_from(start)
        tokens.skip_all()
        return replace(made, doubt=words or "the end of the statement")
    return made


def _body(tokens: SqlTokens, made: ParsedCreate) -> ParsedCreate:
    if tokens.accept("LIKE"):
        return replace(made, like=tokens.name())
    if tokens.accept("(", "LIKE"):
        made = replace(made, like=tokens.name())
        tokens.expect(")")
        return made
    has_columns = tokens.at("(") and not any(tokens.at(word, n=1) for word in _QUERY)
    if has_columns:
        tokens.skip_brackets()
    _options(tokens)
    if tokens.at("PARTITION", "BY"):
        _PARTITIONING.match(tokens)
    if not tokens.at_end():
        tokens.accept_either("IGNORE", "REPLACE")
        tokens.accept("AS")
        if any(map(tokens.at, _QUERY)):
            tokens.skip_all()
            return replace(made, selects=True)
    elif not has_columns:
        raise NotUnderstoodError
    return made


def _options(tokens: SqlTokens) -> None:
    """Consume table options, which spaces or commas separate."""
    while True:
        if not tokens.accept("START", "TRANSACTION") and not tokens.accept(
            "WITH", "SYSTEM", "VERSIONING"
        ):
            form = OPTIONS.chosen(tokens)
            if form is None:
                return
            form.match(tokens)
        tokens.accept(",")


def cascades_of(tokens: SqlTokens) -> tuple[str, ...]:
    """Return the actions of foreign keys in the tokens that change rows of the table, such as `ON DELETE CASCADE`,
    without duplicates."""
    before = ["", ""]
    cascades: dict[str, None] = {}
    for token in tokens:
        word = token.keyword
        if before[0] == "ON" and before[1] in ("DELETE", "UPDATE") and word in _ACTIONS:
            following = tokens.peek()
            action = f"SET {following.keyword}" if word == "SET" and following is not None else word
            cascades[f"ON {before[1]} {action}"] = None
        before = [before[1], word]
    return tuple(cascades)
