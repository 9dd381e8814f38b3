"""A table as `information_schema` defines it, whole enough to write the metadata that a TABLE_MAP lacks.

Labels of ENUM and SET are asked for as bytes in their column's character set: the server converts, because no library
of ours knows all of its character sets. What the schema cannot say for certain is an error, never a guess: its own
character set (utf8mb3) has no room for a label's emoji and shows `?` instead, as SHOW CREATE TABLE does.

Sources: MySQL manual, "The INFORMATION_SCHEMA COLUMNS Table", "SHOW INDEX Statement"; MariaDB knowledge base,
"System-Versioned Tables"; sql/table.cc (which unique key stands in for a primary one).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dispatcher.binlog.definition import defined_columns
from dispatcher.model.errors import BinlogError, Kind
from dispatcher.net.login import Connection
from dispatcher.net.server import fetch, table_columns

Definition = dict[str, Any]

# Character sets with characters that utf8mb3 has not.
_BEYOND_UTF8MB3 = frozenset(("utf8mb4", "utf16", "utf16le", "utf32", "gb18030"))
_COLUMNS = """
SELECT COLUMN_NAME, COLLATION_NAME, CHARACTER_OCTET_LENGTH, EXTRA FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_COLLATIONS = (
    "SELECT COLLATION_NAME, ID FROM information_schema.COLLATIONS WHERE COLLATION_NAME IN ({})"
)
# MariaDB's UCA 14.0.0 collations have one name per character set in COLUMNS, and a short one in COLLATIONS.
_FULL_COLLATIONS = """
SELECT FULL_COLLATION_NAME, ID FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY
WHERE FULL_COLLATION_NAME IN ({})
"""
_ROW_TIMES = """
SELECT t.TABLE_TYPE, c.COLUMN_NAME FROM information_schema.TABLES t LEFT JOIN information_schema.COLUMNS c
ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME AND c.GENERATION_EXPRESSION = 'ROW END'
WHERE t.TABLE_SCHEMA = %s AND t.TABLE_NAME = %s
"""


def table_definition(
    connection: Connection, database: str, table: str, *, mariadb: bool
) -> Definition:
    """`net.server.table_columns` and more: {"columns": [{..., "collation" (id, 0 = binary or none), "bytes" (greatest
    length of CHAR, VARCHAR and the like, None of others), "visible", "labels" (hexadecimal, in the column's character
    set)}], "primary": [[column, prefix in characters, 0 = whole]]}.

    Raises `BinlogError` METADATA_MISSING where there is no such table for this account, or a label cannot be told.
    """
    definition = table_columns(connection, database, table)
    more = fetch(connection, _COLUMNS, (database, table))
    collations = _collations(connection, {str(row[1]) for row in more if row[1]})
    for column, (name, collation, size, extra) in zip(definition["columns"], more, strict=True):
        assert column["name"] == name
        column["collation"] = collations[collation] if collation else 0
        column["bytes"] = None if size is None else int(size)
        column["visible"] = "INVISIBLE" not in str(extra).upper().split()
        if column["mysql_type"].lower().startswith(("enum(", "set(")):
            column["labels"] = _labels(connection, column, f"{database}.{table}")
    not_null = {column["name"] for column in definition["columns"] if not column["nullable"]}
    definition["primary"] = _primary(connection, database, table, not_null)
    if mariadb:
        _add_row_times(connection, definition)
    return definition


def _labels(connection: Connection, column: Mapping[str, Any], label: str) -> list[str]:
    (parsed,) = defined_columns({"columns": [column]}, label)
    charset = column["charset"]
    if not charset or charset == "binary":
        return [text.encode("latin-1").hex() for text in parsed.labels]
    if charset in _BEYOND_UTF8MB3 and any("?" in text for text in parsed.labels):
        raise BinlogError(
            Kind.METADATA_MISSING,
            f"table {label}, column {column['name']!r}: a label holds '?' or a character that the server's schema"
            " shows as '?'",
            remedy="SET GLOBAL binlog_row_metadata=FULL, or leave the table out of the consumer's tables",
        )
    converted = ", ".join(f"HEX(CONVERT(%s USING {charset}))" for _ in parsed.labels)
    (row,) = fetch(connection, f"SELECT {converted}", parsed.labels)
    return [str(value).lower() for value in row]


def _collations(connection: Connection, names: set[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for query in (_COLLATIONS, _FULL_COLLATIONS):
        missing = tuple(sorted(name for name in names if name not in found))
        if missing:
            rows = fetch(connection, query.format(", ".join("%s" for _ in missing)), missing)
            found |= {str(name): int(number) for name, number in rows if number}
    return found


def _primary(
    connection: Connection, database: str, table: str, not_null: set[str]
) -> list[list[Any]]:
    """The primary key, or the unique key that the server takes for one: the first without NULLs and prefixes.

    SHOW INDEX keeps the server's order of keys; information_schema.STATISTICS has none.
    """
    keys: dict[str, list[tuple[str | None, int]]] = {}
    names = ".".join("`" + name.replace("`", "``") + "`" for name in (database, table))
    for row in fetch(connection, f"SHOW INDEX FROM {names}"):
        if not int(row[1]):
            column = None if row[4] is None else str(row[4])
            keys.setdefault(str(row[2]), []).append((column, int(row[7] or 0)))
    primary = keys.pop("PRIMARY", None)
    if primary is None:
        whole = (
            parts
            for parts in keys.values()
            if all(column in not_null and not prefix for column, prefix in parts)
        )
        primary = next(whole, [])
    return [[column, prefix] for column, prefix in primary]


def _add_row_times(connection: Connection, definition: Definition) -> None:
    """MariaDB's system-versioned tables: two columns that the schema does not show unless they were declared, and the
    second of them in every key."""
    ((kind, row_end),) = fetch(
        connection, _ROW_TIMES, (definition["database"], definition["table"])
    )
    if str(kind).upper() != "SYSTEM VERSIONED":
        return
    if row_end is None:
        hidden = {
            "mysql_type": "timestamp(6)", "nullable": False, "charset": None, "collation": 0, "bytes": None,
            "visible": False,
        }  # fmt: skip
        definition["columns"] += [{"name": name, **hidden} for name in ("row_start", "row_end")]
        row_end = "row_end"
    if definition["primary"] and row_end not in [name for name, _ in definition["primary"]]:
        definition["primary"].append([row_end, 0])
