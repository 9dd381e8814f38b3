"""A table as `information_schema` defines it, whole enough to write the metadata that a TABLE_MAP lacks.

Labels of ENUM and SET are asked for as bytes in their column's character set: the server converts, because no library
of ours knows all of its character sets. What the schema cannot say for certain is said to be unknown, never guessed:
its own character set (utf8mb3) has no room for a label's emoji and shows `?` instead, as SHOW CREATE TABLE does. Who
needs the labels refuses then; a TABLE_MAP that holds them does not need them.

Sources: MySQL manual, "The INFORMATION_SCHEMA COLUMNS Table", "SHOW INDEX Statement"; MariaDB knowledge base,
"System-Versioned Tables"; sql/table.cc (which unique key stands in for a primary one).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dispatcher.binlog.table_map.column_definition import defined_columns
from dispatcher.source.mysql.answers import (
    Row,
    ask,
    ask_one,
    not_understood,
    number,
    text,
    where_of,
)
from dispatcher.source.mysql.driver import Connection
from dispatcher.source.mysql.server_facts import index_row, table_columns

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
    set; None where the schema does not tell them)}], "primary": [[column, prefix in characters, 0 = whole]]}.

    Raises `BinlogError` UNKNOWN_TABLE where there is no such table for this account.
    """
    definition = table_columns(connection, database, table)
    more = ask(connection, _COLUMNS, _more_of_column, (database, table))
    if [column["name"] for column in definition["columns"]] != [name for name, *_ in more]:
        raise not_understood(_COLUMNS, "other columns than before", where_of(connection))
    collations = _collations(connection, {collation for _, collation, _, _ in more if collation})
    for column, (_, collation, size, extra) in zip(definition["columns"], more, strict=True):
        column["collation"] = collations[collation] if collation else 0
        column["bytes"] = size
        column["visible"] = "INVISIBLE" not in extra.upper().split()
        if column["mysql_type"].lower().startswith(("enum(", "set(")):
            column["labels"] = _labels(connection, column, f"{database}.{table}")
    not_null = {column["name"] for column in definition["columns"] if not column["nullable"]}
    definition["primary"] = _primary(connection, database, table, not_null)
    if mariadb:
        _add_row_times(connection, definition)
    return definition


def _more_of_column(row: Row) -> tuple[str, str, int | None, str]:
    """Name, collation or "", greatest length in bytes, what else the schema says."""
    name, collation, size, extra = row
    return (
        text(name),
        "" if collation is None else text(collation),
        None if size is None else number(size),
        "" if extra is None else text(extra),
    )


def _labels(connection: Connection, column: Mapping[str, Any], label: str) -> list[str] | None:
    (parsed,) = defined_columns({"columns": [column]}, label)
    charset = column["charset"]
    if not charset or charset == "binary":
        return [text.encode("latin-1").hex() for text in parsed.labels]
    if charset in _BEYOND_UTF8MB3 and any("?" in text for text in parsed.labels):
        return None
    converted = ", ".join(f"HEX(CONVERT(%s USING {charset}))" for _ in parsed.labels)
    return ask_one(
        connection,
        f"SELECT {converted}",
        lambda row: [text(row[n]).lower() for n in range(len(parsed.labels))],
        parsed.labels,
    )


def _collations(connection: Connection, names: set[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for query in (_COLLATIONS, _FULL_COLLATIONS):
        missing = tuple(sorted(name for name in names if name not in found))
        if missing:
            statement = query.format(", ".join("%s" for _ in missing))
            rows = ask(connection, statement, _collation, missing)
            found |= {name: identity for name, identity in rows if identity}
    if unknown := names - found.keys():
        raise not_understood(_COLLATIONS, f"no number for {min(unknown)}", where_of(connection))
    return found


def _collation(row: Row) -> tuple[str, int]:
    """Name and number; 0 where the server gives it none."""
    return text(row[0]), 0 if row[1] is None else number(row[1])


def _primary(
    connection: Connection, database: str, table: str, not_null: set[str]
) -> list[list[Any]]:
    """The primary key, or the unique key that the server takes for one: the first without NULLs and prefixes.

    SHOW INDEX keeps the server's order of keys; information_schema.STATISTICS has none.
    """
    keys: dict[str, list[tuple[str | None, int]]] = {}
    names = ".".join("`" + name.replace("`", "``") + "`" for name in (database, table))
    for non_unique, key, column, prefix in ask(connection, f"SHOW INDEX FROM {names}", index_row):
        if not non_unique:
            keys.setdefault(key, []).append((column, prefix))
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
    kind, row_end = ask_one(
        connection,
        _ROW_TIMES,
        lambda row: (text(row[0]), None if row[1] is None else text(row[1])),
        (definition["database"], definition["table"]),
    )
    if kind.upper() != "SYSTEM VERSIONED":
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
