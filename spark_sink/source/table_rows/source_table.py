"""Reads the description of a table from the server before its rows are read: columns, key, estimates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dispatcher.binlog.charset.collations import BINARY
from dispatcher.binlog.sql.generated import GeneratedColumn
from dispatcher.binlog.table_map.column_definition import defined_columns
from dispatcher.binlog.table_map.column_types import (
    CHARACTER_TYPES,
    LABEL_TYPES,
    Column,
    Type,
)
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.answers import ask, fetch, number_value, optional_text, text_value
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.server_facts import is_mariadb, server_version
from dispatcher.mysql.table_schema import table_definition
from spark_sink.source.table_rows.text_rows import quoted_name

_ESTIMATES = """
SELECT ENGINE, TABLE_ROWS, AVG_ROW_LENGTH, TABLE_TYPE FROM information_schema.TABLES
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
"""
_EXTRA = """
SELECT COLUMN_NAME, EXTRA FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
# MySQL 5.6 has no generated columns, and its information_schema lacks this column.
_EXPRESSIONS = """
SELECT COLUMN_NAME, GENERATION_EXPRESSION FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
# In MySQL, DEFAULT_GENERATED marks a column whose default is an expression. MariaDB before 10.2 writes VIRTUAL or
# PERSISTENT for generated columns.
_GENERATED = re.compile(r"\b(?:VIRTUAL|STORED|PERSISTENT)\b")
# Since MySQL 8.0.30, a table may have a generated invisible primary key: the log contains its column, but
# information_schema may hide it.
_HIDDEN_KEY = "show_gipk_in_create_table_and_information_schema"


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table on the server.

    `key`: indices in `columns` of the key that identifies rows, () without a key; `key_name`: the name of the index
    with the order of these columns, "" if there is none; `charsets`: the character set of each column, by the server's
    name; `rows`, `row_bytes`: the server's estimates of the number of rows and the bytes of one row; `all_versions`:
    True to read all versions of the rows of a system-versioned table, False to read the current rows; `generated`: its
    generated columns; `order`: the names of all columns on the server in order, () if `columns` has all of them.
    """

    database: str
    table: str
    columns: tuple[Column, ...]
    charsets: tuple[str, ...]
    key: tuple[int, ...]
    key_name: str
    engine: str
    rows: int
    row_bytes: int
    all_versions: bool
    generated: tuple[GeneratedColumn, ...] = ()
    order: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.database}.{self.table}"

    def of_columns(self, kept: Sequence[int]) -> SourceTable:
        """Returns the table with only the columns at the indices `kept`. These include the key's columns."""
        return replace(
            self,
            columns=tuple(self.columns[i] for i in kept),
            charsets=tuple(self.charsets[i] for i in kept),
            key=tuple(kept.index(i) for i in self.key),
            order=self.order or tuple(column.name for column in self.columns),
        )

    @property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(self.columns[i] for i in self.key)

    @property
    def from_clause(self) -> str:
        """The SQL text of the table after FROM. If an index over the table's key exists, the text makes the server use
        this index."""
        name = f"{quoted_name(self.database)}.{quoted_name(self.table)}"
        if self.all_versions:
            name += " FOR SYSTEM_TIME ALL"
        return f"{name} FORCE INDEX ({quoted_name(self.key_name)})" if self.key_name else name


def read_source_table(
    connection: Connection, database: str, table: str, *, all_versions: bool = False
) -> SourceTable:
    """Read the description of a table from the server. `all_versions`: see `SourceTable`.

    Raises `BinlogError`: UNKNOWN_TABLE, UNSUPPORTED_TYPE, UNSUPPORTED_CHANGE for a view or a sequence.
    """
    mariadb = is_mariadb(server_version(connection))
    show_hidden_keys(connection)
    definition = table_definition(connection, database, table, mariadb=mariadb)
    parsed = defined_columns(definition, f"{database}.{table}")
    columns = tuple(map(_as_logged, parsed, definition["columns"]))
    names = [column.name for column in columns]
    # The primary key of a versioned table also contains the column that holds the time at which a row version ended.
    parts = [name for name, _ in definition["primary"]] or definition["key"]
    estimates = ask(
        connection,
        _ESTIMATES,
        lambda row: (
            optional_text(row[0]) or "",
            number_value(row[1] or "0"),
            number_value(row[2] or "0"),
            text_value(row[3]).upper(),
        ),
        (database, table),
    )
    engine, rows, row_bytes, kind = estimates[0] if estimates else ("", 0, 0, "")
    if kind == "VIEW":
        raise BinlogError(
            ErrorKind.UNSUPPORTED_CHANGE,
            f"{database}.{table} is a view, whose rows are not in the log",
            remedy="leave it out; copy the tables that it reads",
        )
    if kind == "SEQUENCE":
        raise BinlogError(
            ErrorKind.UNSUPPORTED_CHANGE,
            f"{database}.{table} is a sequence, which is not mirrored",
            remedy="leave it out",
        )
    return SourceTable(
        database,
        table,
        columns,
        tuple(entry["charset"] or "" for entry in definition["columns"]),
        tuple(names.index(name) for name in parts),
        _index_of(connection, database, table, parts),
        engine,
        rows,
        row_bytes,
        all_versions and kind == "SYSTEM VERSIONED",
        _generated(connection, database, table),
    )


def show_hidden_keys(connection: Connection) -> None:
    """Make information_schema show the columns of generated invisible primary keys in this session. Raises
    `BinlogError`."""
    if fetch(connection, f"SHOW VARIABLES LIKE '{_HIDDEN_KEY}'"):
        fetch(connection, f"SET SESSION {_HIDDEN_KEY} = ON")


def _generated(connection: Connection, database: str, table: str) -> tuple[GeneratedColumn, ...]:
    def pair(row: object) -> tuple[str, str]:
        assert isinstance(row, tuple)
        return text_value(row[0]), optional_text(row[1]) or ""

    extra = ask(connection, _EXTRA, pair, (database, table))
    if not any(_GENERATED.search(text.upper()) for _, text in extra):
        return ()
    names = [name for name, _ in extra]
    expressions = dict(ask(connection, _EXPRESSIONS, pair, (database, table)))
    return tuple(
        GeneratedColumn(name, _sources(expressions[name], names))
        for name, text in extra
        if _GENERATED.search(text.upper())
    )


def _sources(expression: str, names: Sequence[str]) -> tuple[str, ...] | None:
    """Returns, in lower case, the names that the expression may contain, including `default` if the expression calls
    the function DEFAULT. The servers quote names with backticks."""
    text = expression.lower()
    found = [name.lower() for name in names if quoted_name(name.lower()) in text]
    found += ["default"] if "default(" in text else []
    return tuple(found) if text else None


def _as_logged(column: Column, entry: Mapping[str, Any]) -> Column:
    """Return a column in the form in which a TABLE_MAP of the log describes it: with its collation and its length in
    bytes."""
    charset = entry["collation"] or column.charset or BINARY
    if column.type not in CHARACTER_TYPES | LABEL_TYPES:
        charset = 0
    meta = column.meta
    if entry["bytes"] is not None and column.type in (Type.STRING, Type.VARCHAR):
        meta = entry["bytes"]
    elif entry["bytes"] is not None and column.type == Type.MARIADB_VARCHAR_COMPRESSED:
        meta = entry["bytes"] + 1
    unsigned = column.unsigned or column.type == Type.YEAR  # the log treats a YEAR as a number
    return replace(column, charset=charset, meta=meta, unsigned=unsigned, visible=entry["visible"])


def _index_of(connection: Connection, database: str, table: str, parts: list[str]) -> str:
    """Return the name of the unique index on these columns; "" if no index has exactly these columns, or if the only
    such index is over prefixes of them or over a hash (MariaDB indexes long values by a hash)."""
    indexes: dict[str, list[str | None]] = {}

    def part(row: object) -> tuple[str, str | None]:
        assert isinstance(row, tuple)
        whole = row[7] is None and text_value(row[10]) != "HASH"
        return text_value(row[2]), optional_text(row[4]) if whole else None

    statement = f"SHOW INDEX FROM {quoted_name(database)}.{quoted_name(table)} WHERE NOT Non_unique"
    for name, column in ask(connection, statement, part):
        indexes.setdefault(name, []).append(column)
    return next((name for name, columns in indexes.items() if columns == parts and parts), "")
