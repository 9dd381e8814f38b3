"""Derives the definitions of tables from the statements of the log.

A derived definition has the form of a looked-up one (`mysql.table_schema`), with these differences:

    "derived"    True
    "primary"    None if the statements do not show which key the server uses as the primary key
    "charset"    of the table: None if the statements do not show it (a new table gets its database's)
    a column's "collation", "bytes", "labels"    None if the statements do not show them

The module follows only statements that the parser understands as a whole. `enrich` refuses a definition whose columns
contradict a TABLE_MAP, or that lacks something that the TABLE_MAP lacks, too.

Sources: MySQL source, sql/sql_table.cc (mysql_prepare_create_table, mysql_prepare_alter_table, sort_keys), sql/table.cc
(which unique key replaces a missing primary key).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dispatcher.binlog.charset.collations import charset_of
from dispatcher.binlog.sql.alter_clauses import ParsedAlter
from dispatcher.binlog.sql.alteration import PlacedColumn, UnclearAlterationError, placed_columns
from dispatcher.binlog.sql.clauses import (
    ConvertCharsetClause,
    PrimaryKeyClause,
    TableCharsetClause,
    VisibilityClause,
)
from dispatcher.binlog.sql.comments import ServerVersion
from dispatcher.binlog.sql.create_table import ParsedCreate
from dispatcher.binlog.sql.data_types import TEXT_WORDS
from dispatcher.binlog.sql.lexer import Name, NotUnderstoodError
from dispatcher.binlog.sql.logged import LoggedStatement, SessionFacts
from dispatcher.binlog.sql.statement import DdlKind, ParsedStatement
from dispatcher.binlog.sql.table_body import parse_index, parse_table_body
from dispatcher.binlog.table_map.derived_columns import Charset, derived_column, with_charset
from dispatcher.binlog.table_map.derived_keys import Keys, altered_keys, created_keys, row_key
from dispatcher.binlog.table_map.table_kind import with_row_times
from dispatcher.model.errors import BinlogError

Definition = Mapping[str, Any]


class Server(NamedTuple):
    """What a statement's meaning depends on besides its text. `collation_of`: returns the id of a database's default
    collation at the statement, 0 if it is not known."""

    version: ServerVersion
    collation_of: Callable[[str], int]


def derived_definitions(
    statement: LoggedStatement,
    parsed: ParsedStatement,
    known: Callable[[Name], Definition | None],
    server: Server,
) -> dict[Name, Definition]:
    """Return the definitions that tables have after a statement, as far as the statement shows them.

    `parsed`: the parsed statement; `known`: returns the definition of a table before the statement, None if it is not
    known.
    """
    if parsed.doubt or parsed.maybe_temporary or statement.facts.unknown_variable is not None:
        return {}
    try:
        match parsed.kind:
            case DdlKind.CREATE_TABLE:
                return _created(statement, parsed.create, known, server)
            case DdlKind.ALTER_TABLE:
                return _altered(statement, parsed.alter, known, server)
            case DdlKind.INDEX:
                return _indexed(statement, parsed.tables[0], known, server)
            case DdlKind.RENAME_TABLE:
                return _renamed(parsed.renamed, known)
    except (NotUnderstoodError, UnclearAlterationError, BinlogError):
        pass  # the definition is looked up
    return {}


def with_database_collation(definition: Definition, collation: int) -> Definition:
    """Return a derived definition whose table has its database's default collation. The definition is returned
    unchanged if the statements show the table's character set."""
    if not definition.get("derived") or definition["charset"] is not None:
        return definition
    charset = Charset(charset_of(collation), collation)
    columns = [
        with_charset(column, charset) if column.get("inherits") else column
        for column in definition["columns"]
    ]
    return {**definition, "columns": columns, "charset": list(charset)}


def difference(derived: Definition, shown: Definition) -> str:
    """Return how a derived definition differs from the one that the server shows; "" if it does not differ. Types are
    not compared: `enrich` compares them with the TABLE_MAP."""
    ours, theirs = ([c["name"] for c in d["columns"]] for d in (derived, shown))
    if ours != theirs:
        return f"columns {', '.join(ours)}; and columns {', '.join(theirs)}"
    for own, other in zip(derived["columns"], shown["columns"], strict=True):
        for what in ("labels", "visible"):
            here, there = own.get(what), other.get(what)
            if here is not None and there is not None and here != there:
                return f"{what} of column {own['name']!r}: {here}; and {there}"
    primary = derived["primary"]
    if primary is not None and [list(p) for p in primary] != [list(p) for p in shown["primary"]]:
        return f"primary key {_key_text(primary)}; and {_key_text(shown['primary'])}"
    return ""


def _key_text(primary: Sequence[Sequence[Any]]) -> str:
    return (
        "(" + ", ".join(f"{name}({prefix})" if prefix else name for name, prefix in primary) + ")"
    )


# -- CREATE TABLE ----------------------------------------------------------------------------------------------


def _created(
    statement: LoggedStatement,
    create: ParsedCreate | None,
    known: Callable[[Name], Definition | None],
    server: Server,
) -> dict[Name, Definition]:
    if create is None:
        return {}
    table = create.table
    if create.selects:
        return {}
    if create.if_not_exists:
        # Servers log the statement even if it had no effect.
        there = known(table)
        return {} if there is None else {table: there}
    if create.like is not None:
        model = None if statement.facts.thread_specific else known(create.like)
        return {} if model is None or not _followed(model) else {table: _named(model, table)}
    body = parse_table_body(statement, create)
    charset = _table_charset(create.charset, server)
    if charset is None and not (create.charset.charset or create.charset.collation):
        collation = server.collation_of(table[0])
        charset = Charset(charset_of(collation), collation) if collation else None
    columns = [derived_column(c, charset, server.version, statement.facts) for c in body.columns]
    keys = created_keys(body.columns, body.keys, columns)
    definition = _definition(table, columns, keys, row_key(keys, columns), charset)
    return {table: with_row_times(definition) if create.versioned else definition}


def _followed(definition: Definition) -> bool:
    """True if the definition shows everything that a statement may refer to."""
    return "keys" in definition and definition.get("kind", "table") == "table"


def _table_charset(written: TableCharsetClause, server: Server) -> Charset | None:
    """Return the character set of table options; None without such options, or for DEFAULT."""
    if not written.charset and not written.collation:
        return None
    return Charset.written(written.charset, written.collation, server.version)


def _definition(
    table: Name,
    columns: Sequence[Mapping[str, Any]],
    keys: Keys | None,
    primary: list[list[Any]] | None,
    charset: Charset | None,
) -> dict[str, Any]:
    return {
        "database": table[0],
        "table": table[1],
        "columns": list(columns),
        "primary": primary,
        "keys": keys,
        "charset": None if charset is None else list(charset),
        "kind": "table",
        "derived": True,
    }


def _named(definition: Definition, table: Name) -> Definition:
    """Return the definition of another table with the same columns and keys. Raises NotUnderstoodError if the columns
    depend on the database."""
    if definition["database"] != table[0] and definition.get("charset") is None:
        raise NotUnderstoodError
    return {**definition, "database": table[0], "table": table[1], "derived": True}


# -- the other statements --------------------------------------------------------------------------------------


def _altered(
    statement: LoggedStatement,
    parsed: ParsedAlter | None,
    known: Callable[[Name], Definition | None],
    server: Server,
) -> dict[Name, Definition]:
    if parsed is None:
        return {}
    before = known(parsed.table)
    if before is None or not _followed(before) or parsed.copy_reason or parsed.others:
        return {}
    return {parsed.renamed_to or parsed.table: _after(before, parsed, server, statement.facts)}


def _after(
    before: Definition, parsed: ParsedAlter, server: Server, facts: SessionFacts
) -> Definition:
    table = parsed.renamed_to or parsed.table
    placed = placed_columns([(c["name"], c) for c in before["columns"]], parsed.clauses)
    default = None if before.get("charset") is None else Charset(*before["charset"])
    changed = _changed_charset(parsed, server)
    columns = []
    for column in placed:
        entry = _altered_column(column, default, changed, server, facts)
        if changed and entry.get("inherits"):
            raise NotUnderstoodError  # which of the two character sets the column gets
        columns.append(entry)
    _check_row_id(before, columns)
    _set_visibility(columns, parsed)
    keys = altered_keys(before["keys"], placed, parsed, columns)
    primary = row_key(keys, columns)
    if primary is None and keys is not None and not parsed.definition:
        primary = _kept_key(before, placed)
    return _definition(table, columns, keys, primary, changed or default)


def _changed_charset(parsed: ParsedAlter, server: Server) -> Charset | None:
    """Return the character set that the table gets. Raises NotUnderstoodError for DEFAULT, and if the statement
    contains two character sets."""
    written = [c for c in parsed.definition if isinstance(c, TableCharsetClause)]
    converts = [c for c in parsed.clauses if isinstance(c, ConvertCharsetClause)]
    if not written and not converts:
        return None
    if converts:
        if written or len(converts) > 1 or converts[0].charset in ("", "binary"):
            raise NotUnderstoodError
        written = [TableCharsetClause(converts[0].charset, converts[0].collation)]
    charset = next((c.charset for c in written if c.charset), "")
    collation = next((c.collation for c in written if c.collation), "")
    found = _table_charset(TableCharsetClause(charset, collation), server)
    if found is None or found.name is None:
        raise NotUnderstoodError
    return found


def _altered_column(
    column: PlacedColumn[Mapping[str, Any]],
    default: Charset | None,
    changed: Charset | None,
    server: Server,
    facts: SessionFacts,
) -> dict[str, Any]:
    if column.definition is not None:
        default = None if changed else default
        entry = derived_column(column.definition, default, server.version, facts)
    else:
        assert column.before is not None
        entry = {**column.before, "name": column.name}
        word = str(entry["mysql_type"]).partition("(")[0].lower()
        if column.converted is not None and changed is not None and word in TEXT_WORDS:
            entry = {**with_charset(entry, changed), "inherits": False}
    if column.in_new_key:
        entry["nullable"] = False
    return entry


def _check_row_id(before: Definition, columns: Sequence[Mapping[str, Any]]) -> None:
    """Raises NotUnderstoodError if the table has a generated invisible primary key: the server chooses the place of
    this column."""
    if any(c["name"] == "my_row_id" for c in (*before["columns"], *columns)):
        raise NotUnderstoodError


def _set_visibility(columns: Sequence[dict[str, Any]], parsed: ParsedAlter) -> None:
    for clause in parsed.definition:
        if isinstance(clause, VisibilityClause):
            named = [c for c in columns if c["name"].lower() == clause.column.lower()]
            if len(named) != 1:
                raise NotUnderstoodError
            named[0]["visible"] = clause.visible


def _kept_key(
    before: Definition, placed: Sequence[PlacedColumn[Mapping[str, Any]]]
) -> list[list[Any]] | None:
    """Return the key that the server used as the primary key before the statement, by the new names; None if one of its
    columns, or another column of a unique key, has a new definition."""
    names = {c.before["name"]: c for c in placed if c.before is not None}
    parts = [part for key in before["keys"].values() for part in key]
    if before["primary"] is None or any(
        name not in names or names[name].definition is not None for name, _ in parts
    ):
        return None
    return [[names[name].name, prefix] for name, prefix in before["primary"]]


def _indexed(
    statement: LoggedStatement,
    table: Name,
    known: Callable[[Name], Definition | None],
    server: Server,
) -> dict[Name, Definition]:
    before, clause = known(table), parse_index(statement)
    if before is None or clause is None:
        return {} if before is None else {table: before}
    if not _followed(before):
        return {}
    parsed = ParsedAlter(table)
    if isinstance(clause, PrimaryKeyClause):
        parsed.clauses.append(clause)
    else:
        parsed.definition.append(clause)
    return {table: _after(before, parsed, server, statement.facts)}


def _renamed(
    renamed: Sequence[tuple[Name, Name]], known: Callable[[Name], Definition | None]
) -> dict[Name, Definition]:
    moved: dict[Name, Definition | None] = {}
    for old, new in renamed:
        found = moved[old] if old in moved else known(old)
        moved[old], moved[new] = None, found
    return {name: _named(found, name) for name, found in moved.items() if found is not None}
