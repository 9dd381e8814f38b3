"""Parses CREATE TABLE: where the table's columns and rows come from, and the table's options.

The list of columns and keys is skipped as a group in brackets: nothing in it names another table whose rows change.
After it, table options, partitioning and a query may follow; anything else is in doubt. `table_body` and `generated`
parse the list, which begins at `ParsedCreate.columns_at`.

Sources: MySQL 9.7 manual, "CREATE TABLE Statement"; MariaDB knowledge base, "CREATE TABLE"; sql_yacc.yy of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dispatcher.binlog.sql.clauses import TableCharsetClause
from dispatcher.binlog.sql.forms import Form
from dispatcher.binlog.sql.lexer import Name, NotUnderstoodError, SqlTokens
from dispatcher.binlog.sql.table_options import CREATE_OPTIONS, SLOTS, table_charset

_ACTIONS = ("CASCADE", "SET")
# The first words of a query, after `AS` or without it.
_QUERY = ("SELECT", "WITH", "TABLE", "VALUES", "(")
_PARTITIONING = Form("<partitioning>", SLOTS)
_NO_CHARSET = TableCharsetClause()


@dataclass(frozen=True, slots=True)
class ParsedCreate:
    """`like`: the table whose columns the new table gets, None without LIKE. `selects`: True if the statement itself
    adds rows. `columns_at`: where the bracket of the columns and keys begins in the text, None without one. `charset`:
    the options CHARACTER SET and COLLATE; `versioned`: True for WITH SYSTEM VERSIONING; `sequence`: True for MariaDB's
    SEQUENCE=1, which makes a sequence. `doubt`: the words that are not understood, "" if the whole statement is."""

    table: Name
    like: Name | None = None
    selects: bool = False
    replaces: bool = False
    if_not_exists: bool = False
    columns_at: int | None = None
    charset: TableCharsetClause = _NO_CHARSET
    versioned: bool = False
    sequence: bool = False
    doubt: str = ""


def created_table(tokens: SqlTokens, *, replaces: bool) -> ParsedCreate:
    """Consume the rest of a CREATE TABLE statement after the word TABLE."""
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
        made = replace(made, columns_at=tokens.offset)
        tokens.skip_brackets()
    made = _options(tokens, made)
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


def _options(tokens: SqlTokens, made: ParsedCreate) -> ParsedCreate:
    """Consume table options, which spaces or commas separate."""
    charset = made.charset
    while (form := CREATE_OPTIONS.chosen(tokens)) is not None:
        option = form.match(tokens)
        if ("WITH", "SYSTEM", "VERSIONING") in option.words:
            made = replace(made, versioned=True)
        elif ("SEQUENCE",) in option.words:
            if option.first("number") not in ("0", "1"):
                raise NotUnderstoodError
            made = replace(made, sequence=option.first("number") == "1")
        elif (given := table_charset(option)) is not None:
            charset = TableCharsetClause(
                given.charset or charset.charset, given.collation or charset.collation
            )
        tokens.accept(",")
    return replace(made, charset=charset)


def cascades_of(tokens: SqlTokens) -> tuple[str, ...]:
    """Return, without duplicates, those actions of the foreign keys in the tokens that change rows of the table, such
    as `ON DELETE CASCADE`."""
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
