"""Reads the names of the columns of many tables from the server, without the other facts about them."""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.mysql.answers import Row, ask, text_value
from dispatcher.mysql.driver import Connection
from spark_sink.source.table_rows.source_table import show_hidden_keys

_COLUMNS = """
SELECT c.TABLE_SCHEMA, c.TABLE_NAME, t.TABLE_TYPE, c.COLUMN_NAME
FROM information_schema.COLUMNS c JOIN information_schema.TABLES t
ON t.TABLE_SCHEMA = c.TABLE_SCHEMA AND t.TABLE_NAME = c.TABLE_NAME
WHERE t.TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')
AND c.TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')
ORDER BY c.TABLE_SCHEMA, c.TABLE_NAME, c.ORDINAL_POSITION
"""
# An account with privileges on some columns of a table sees only these columns. CHAR(39) is the quote.
_PARTIAL = """
SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM information_schema.COLUMN_PRIVILEGES
WHERE GRANTEE = CONCAT(CHAR(39), REPLACE(CURRENT_USER(), '@', CONCAT(CHAR(39), '@', CHAR(39))), CHAR(39))
"""
_VERSIONED = "SYSTEM VERSIONED"
# information_schema shows these columns of a system-versioned table of MariaDB only if they were declared.
_ROW_TIMES = ("row_start", "row_end")


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The columns of a table that the account sees, in order. `partial`: True if the table may have others."""

    names: tuple[str, ...]
    partial: bool


def read_column_names(connection: Connection) -> dict[tuple[str, str], ColumnNames]:
    """Returns the columns of each table that the account sees, by database and table as the server shows these names.
    Views and the server's own databases are left out. Raises `BinlogError`."""

    def column(row: Row) -> tuple[tuple[str, str], str, str]:
        return (text_value(row[0]), text_value(row[1])), text_value(row[2]), text_value(row[3])

    def table(row: Row) -> tuple[str, str]:
        return text_value(row[0]), text_value(row[1])

    show_hidden_keys(connection)
    partial = set(ask(connection, _PARTIAL, table))
    found: dict[tuple[str, str], list[str]] = {}
    versioned = set()
    for name, kind, column_name in ask(connection, _COLUMNS, column):
        found.setdefault(name, []).append(column_name)
        if kind == _VERSIONED:
            versioned.add(name)
    return {
        name: ColumnNames((*names, *(_ROW_TIMES if name in versioned else ())), name in partial)
        for name, names in found.items()
    }
