"""Reads the definitions of tables from `information_schema` and SHOW INDEX.

`table_columns` answers readers. `definitions` returns the metadata that a TABLE_MAP may lack, with the log position at
which each definition was read.

The labels of ENUM and SET are read as bytes in the column's character set. The server converts the labels, because
Python lacks some of the server's character sets. information_schema is utf8mb3, and shows `?` in place of an emoji, as
SHOW CREATE TABLE does; the module reports such a label as unknown. The labels are needed only if the TABLE_MAP does not
contain them.

Sources: MySQL manual, "The INFORMATION_SCHEMA COLUMNS Table", "SHOW INDEX Statement"; MariaDB knowledge base,
"System-Versioned Tables"; sql/table.cc (which unique key replaces a missing primary key).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dispatcher.binlog.charset.collations import charset_of
from dispatcher.binlog.table_map.column_definition import defined_columns
from dispatcher.binlog.table_map.table_kind import with_row_times
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.mysql.answers import (
    Row,
    ask,
    ask_one,
    fetch,
    identifier,
    not_understood,
    number_value,
    optional_text,
    text_value,
    where_of,
)
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.error_map import number_of
from dispatcher.mysql.server_facts import is_mariadb, log_end, server_version

TableName = tuple[str, str]
"""Database and table."""

Definition = dict[str, Any]
"""See `table_columns` and `table_definition`."""

LOCK_WAIT_S = 3
_LOCK_WAIT_TIMEOUT = 1205
# The error numbers for a missing database or table, and for a missing privilege on it.
_NOT_VISIBLE = frozenset((1049, 1146, 1044, 1142, 1143, 1370))
# Character sets with characters that utf8mb3 lacks.
_BEYOND_UTF8MB3 = frozenset(("utf8mb4", "utf16", "utf16le", "utf32", "gb18030"))
# MariaDB's VECTOR is a VARBINARY with another name; MySQL's VECTOR is a separate type.
_COLUMNS = """
SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE,
IF(DATA_TYPE = 'vector' AND VERSION() LIKE '%%MariaDB%%', 'binary', CHARACTER_SET_NAME)
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_COLUMN_DETAILS = """
SELECT COLUMN_NAME, COLLATION_NAME, CHARACTER_OCTET_LENGTH, EXTRA FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_COLLATIONS = (
    "SELECT COLLATION_NAME, ID FROM information_schema.COLLATIONS WHERE COLLATION_NAME IN ({})"
)
# MariaDB's UCA 14.0.0 collations have a name per character set in COLUMNS, and a short name in COLLATIONS.
_FULL_COLLATIONS = """
SELECT FULL_COLLATION_NAME, ID FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY
WHERE FULL_COLLATION_NAME IN ({})
"""
_TABLE_COLLATION = """
SELECT TABLE_COLLATION FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
"""
_DATABASE_COLLATION = (
    "SELECT DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = %s"
)
_ROW_TIMES = """
SELECT t.TABLE_TYPE, c.COLUMN_NAME FROM information_schema.TABLES t LEFT JOIN information_schema.COLUMNS c
ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME AND c.GENERATION_EXPRESSION = 'ROW END'
WHERE t.TABLE_SCHEMA = %s AND t.TABLE_NAME = %s
"""

_KeyParts = list[tuple[str | None, int]]
"""Columns (None: an expression) with their prefixes in characters (0: the whole column)."""


class SchemaAt(NamedTuple):
    """A table's definition at a position in the server's log, or the error that says why the server does not show the
    definition. `database_collation`: id of the database's default collation, 0 if it is not known."""

    table: TableName
    definition: Definition | BinlogError
    file: str
    offset: int
    database_collation: int = 0


def table_columns(connection: Connection, database: str, table: str) -> Definition:
    """Return {"database", "table", "columns": [{"name", "mysql_type", "nullable", "charset"}], "key": [name]}.

    `key`: the primary key; without a primary key, the first UNIQUE key whose columns are all NOT NULL; [] if there is
    no such key. Raises `BinlogError`; UNKNOWN_TABLE if the account sees no such table.
    """
    return _columns_and_keys(connection, database, table)[0]


def _columns_and_keys(
    connection: Connection, database: str, table: str
) -> tuple[Definition, dict[str, _KeyParts]]:
    """Return the definition that `table_columns` returns, and the unique keys by name."""
    columns = ask(connection, _COLUMNS, _column, (database, table))
    if not columns:
        raise UserError(
            ErrorKind.UNKNOWN_TABLE,
            f"there is no table {database}.{table}, or the account has no SELECT on it",
        )
    keys = _unique_keys(connection, database, table)
    key = _row_key(keys, _not_null(columns), prefixes=True)
    definition = {
        "database": database,
        "table": table,
        "columns": columns,
        "key": [column for column, _ in key],
    }
    return definition, keys


def _column(row: Row) -> dict[str, Any]:
    return {
        "name": text_value(row[0]),
        "mysql_type": text_value(row[1]),
        "nullable": text_value(row[2]) == "YES",
        "charset": optional_text(row[3]),
    }


def _not_null(columns: Sequence[Mapping[str, Any]]) -> set[str]:
    return {column["name"] for column in columns if not column["nullable"]}


def _unique_keys(connection: Connection, database: str, table: str) -> dict[str, _KeyParts]:
    """Return the unique keys in the server's order, the primary key first.

    SHOW INDEX lists keys in the order in which the server prefers them; information_schema.STATISTICS has no order.
    """

    def part(row: Row) -> tuple[int, str, str | None, int]:
        prefix = 0 if row[7] is None else number_value(row[7])
        return number_value(row[1]), text_value(row[2]), optional_text(row[4]), prefix

    keys: dict[str, _KeyParts] = {}
    statement = f"SHOW INDEX FROM {identifier(database)}.{identifier(table)}"
    for non_unique, name, column, prefix in ask(connection, statement, part):
        if not non_unique:
            keys.setdefault(name, []).append((column, prefix))
    return dict(sorted(keys.items(), key=lambda entry: entry[0] != "PRIMARY"))


def _row_key(keys: Mapping[str, _KeyParts], not_null: set[str], *, prefixes: bool) -> _KeyParts:
    """Return the primary key; without a primary key, the first unique key on NOT NULL columns; [] if there is no such
    key.

    `prefixes`: True to accept a unique key on prefixes of columns. An expression (MySQL 8.0) is never accepted, since a
    row's columns do not show its value.
    """
    for name, parts in keys.items():
        whole = prefixes or name == "PRIMARY" or not any(prefix for _, prefix in parts)
        if whole and all(column in not_null for column, _ in parts):
            return parts
    return []


# -- definitions -----------------------------------------------------------------------------------------------


def definitions(connection: Connection, tables: Sequence[TableName]) -> list[SchemaAt]:
    """Return for each table its definition with the log position of the definition, or the error that says why the
    server does not show the definition.

    Each definition is read in a transaction that has the table open. The metadata lock of the transaction blocks every
    ALTER until the transaction ends, so definition and position belong together. The transaction waits up to
    `LOCK_WAIT_S` for the lock, and holds it for milliseconds. Raises `BinlogError` for a temporary fault.
    """
    mariadb = is_mariadb(server_version(connection))
    # The parser of labels follows the quoting rules of the default sql_mode.
    fetch(connection, f"SET SESSION lock_wait_timeout = {LOCK_WAIT_S}, SESSION sql_mode = ''")
    # Since MySQL 8.0.30 the log contains generated invisible primary keys, which the schema may hide.
    hidden = "show_gipk_in_create_table_and_information_schema"
    if fetch(connection, f"SHOW VARIABLES LIKE '{hidden}'"):
        fetch(connection, f"SET SESSION {hidden} = ON")
    return [_definition_at(connection, name, mariadb) for name in tables]


def _definition_at(connection: Connection, name: TableName, mariadb: bool) -> SchemaAt:
    fetch(connection, "START TRANSACTION")
    definition: Definition | BinlogError
    try:
        fetch(connection, f"SELECT 1 FROM {'.'.join(map(identifier, name))} LIMIT 0")
        definition = table_definition(connection, *name, mariadb=mariadb)
    except BinlogError as error:
        definition = _permanent_fault(error, ".".join(name))
    collation = _collation_id(connection, _DATABASE_COLLATION, name[:1])
    file, offset = log_end(connection)
    fetch(connection, "ROLLBACK")
    return SchemaAt(name, definition, file, offset, collation or 0)


def _permanent_fault(error: BinlogError, label: str) -> BinlogError:
    """Return the error for a permanent fault. Its text says why the server does not show the table's columns. Raises
    `BinlogError` for every other error."""
    error_number = number_of(error)
    if error_number == _LOCK_WAIT_TIMEOUT:
        raise BinlogError(
            ErrorKind.RANGE_UNAVAILABLE,
            f"table {label} is locked, its columns cannot be looked up",
            where=error.where,
            remedy="nothing to do; the daemon asks again until the statement that holds the lock ends",
        ) from error
    if error.kind in (ErrorKind.METADATA_MISSING, ErrorKind.UNSUPPORTED_TYPE):
        return error
    if error_number not in _NOT_VISIBLE and error.kind is not ErrorKind.UNKNOWN_TABLE:
        raise error
    return BinlogError(
        ErrorKind.METADATA_MISSING,
        f"the log does not name its columns, and the server does not tell them now: {error.what}",
        where=error.where,
        remedy="GRANT SELECT on the table if it exists; else start the consumer after the statement that dropped it,"
        " or leave the table out of its tables",
    )


def table_definition(
    connection: Connection, database: str, table: str, *, mariadb: bool
) -> Definition:
    """Return the definition of `table_columns` with more keys: {"columns": [{..., "collation" (id, 0 = binary or none),
    "bytes" (greatest length of CHAR, VARCHAR and the like, None for others), "visible", "labels" (hexadecimal, in the
    column's character set; None if the schema cannot represent them)}], "primary": [[column, prefix in characters,
    0 = whole]], "keys": {name of a unique key: as "primary", column None for an expression}, "charset": [character set,
    collation id] of the table}. A system-versioned table has no "keys".

    Raises `BinlogError`; UNKNOWN_TABLE if the account sees no such table.
    """
    definition, keys = _columns_and_keys(connection, database, table)
    columns = definition["columns"]
    details = ask(connection, _COLUMN_DETAILS, _column_details, (database, table))
    if [column["name"] for column in columns] != [name for name, *_ in details]:
        raise not_understood(_COLUMN_DETAILS, "other columns than before", where_of(connection))
    collations = _collations(connection, {collation for _, collation, _, _ in details if collation})
    for column, (_, collation, size, extra) in zip(columns, details, strict=True):
        column["collation"] = collations[collation] if collation else 0
        column["bytes"] = size
        column["visible"] = "INVISIBLE" not in extra.upper().split()
        if column["mysql_type"].lower().startswith(("enum(", "set(")):
            column["labels"] = _labels(connection, column, f"{database}.{table}")
    # If there is no primary key, the server replaces it only with a key without prefixes.
    primary = _row_key(keys, _not_null(columns), prefixes=False)
    definition["primary"] = [list(part) for part in primary]
    definition["keys"] = {name: [list(part) for part in parts] for name, parts in keys.items()}
    default = _collation_id(connection, _TABLE_COLLATION, (database, table))
    definition["charset"] = None if default is None else [charset_of(default), default]
    return _with_kind(connection, definition) if mariadb else definition


def _column_details(row: Row) -> tuple[str, str, int | None, str]:
    """Return name, collation or "", greatest length in bytes, EXTRA."""
    name, collation, size, extra = row
    length = None if size is None else number_value(size)
    return text_value(name), optional_text(collation) or "", length, optional_text(extra) or ""


def _labels(connection: Connection, column: Mapping[str, Any], label: str) -> list[str] | None:
    (parsed,) = defined_columns({"columns": [column]}, label)
    charset = column["charset"]
    if not charset or charset == "binary":
        return [label.encode("latin-1").hex() for label in parsed.labels]
    if charset in _BEYOND_UTF8MB3 and any("?" in label for label in parsed.labels):
        return None
    converted = ", ".join(f"HEX(CONVERT(%s USING {charset}))" for _ in parsed.labels)
    return ask_one(
        connection,
        f"SELECT {converted}",
        lambda row: [text_value(row[n]).lower() for n in range(len(parsed.labels))],
        parsed.labels,
    )


def _collation_id(connection: Connection, query: str, arguments: tuple[str, ...]) -> int | None:
    """Return the id of the collation that is the answer of a query; None if the answer has no collation."""
    names = [
        name
        for name in ask(connection, query, lambda row: optional_text(row[0]), arguments)
        if name
    ]
    return _collations(connection, set(names))[names[0]] if names else None


def _collations(connection: Connection, names: set[str]) -> dict[str, int]:
    """Return the id of each collation in `names`. Raises `BinlogError` if the server reports no id for one of these
    names."""
    ids: dict[str, int] = {}
    for query in (_COLLATIONS, _FULL_COLLATIONS):
        missing = tuple(sorted(names - ids.keys()))
        if missing:
            statement = query.format(", ".join("%s" for _ in missing))
            rows = ask(connection, statement, _collation, missing)
            ids |= {name: collation_id for name, collation_id in rows if collation_id}
    if unknown := names - ids.keys():
        raise not_understood(_COLLATIONS, f"no number for {min(unknown)}", where_of(connection))
    return ids


def _collation(row: Row) -> tuple[str, int]:
    """Return name and id; 0 if the collation has no id."""
    return text_value(row[0]), 0 if row[1] is None else number_value(row[1])


def _with_kind(connection: Connection, definition: Definition) -> Definition:
    """Return the definition of a table of MariaDB with "kind": "table", "sequence", or "versioned" with "row_end", the
    name of the column ROW END.

    A system-versioned table also gets its columns row_start and row_end, because information_schema shows these columns
    only if they were declared. row_end is part of every key.
    """
    kind, row_end = ask_one(
        connection,
        _ROW_TIMES,
        lambda row: (text_value(row[0]), optional_text(row[1])),
        (definition["database"], definition["table"]),
    )
    kinds = {"SYSTEM VERSIONED": "versioned", "SEQUENCE": "sequence"}
    kind = kinds.get(kind.upper(), "table")
    return (
        with_row_times(definition, row_end) if kind == "versioned" else {**definition, "kind": kind}
    )
