"""Tells MariaDB's sequences and system-versioned tables from other tables.

A TABLE_MAP does not say what kind of table it describes:

* A sequence is logged like a table with eight columns and one row. NEXTVAL and SETVAL log a WRITE_ROWS event, whose row
  replaces this row. The events of a table with the same columns are equal byte for byte.
* A system-versioned table is logged with all versions of its rows. A statement that ends a version changes the column
  ROW END of the current row, or inserts a copy of the old row. The TABLE_MAP does not say which column is ROW END.

The server's schema shows the kind. The daemon writes it into the field TABLE_KIND of each TABLE_MAP that could describe
such a table (`may_be_special`): the kind (1 byte), and for a versioned table the index of ROW END (packed integer). If
the kind at this point of the log is not known, the field is absent, and readers refuse the rows (`TableKind.DOUBT`).

Tables whose versions are numbered by transactions (ROW START is BIGINT UNSIGNED) do not occur: MariaDB logs their
changes as statements, also with binlog_format=ROW.

Source: MariaDB source, sql/sql_sequence.cc (sequence_structure), sql/sql_class.cc (THD::decide_logging_format).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import Any

from dispatcher.binlog.event.cursor import ByteCursor
from dispatcher.binlog.table_map.column_types import Type
from dispatcher.binlog.table_map.wire import encode_packed

SEQUENCE_COLUMNS = (
    *("next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment"),
    *("cache_size", "cycle_option", "cycle_count"),
)
_INTEGERS = frozenset((Type.TINY, Type.SHORT, Type.INT24, Type.LONG, Type.LONGLONG))
_FRACTION = 6  # row times are TIMESTAMP(6)


class TableKind(IntEnum):
    TABLE = 0
    SEQUENCE = 1
    VERSIONED = 2
    DOUBT = 3  # never written: the log does not show the kind


NOT_VERSIONED = -1  # in place of the index of ROW END


def may_be_special(
    types: Sequence[tuple[int, int]],
    nullable: Sequence[bool],
    names: Sequence[str],
    key: Collection[int],
) -> bool:
    """True if a table of MariaDB with these columns could be a sequence or a system-versioned table. `types`: (type,
    metadata) of each column. `key`: indexes of the primary key's columns. ROW START and ROW END are TIMESTAMP(6) NOT
    NULL, and ROW END is part of each key."""
    if tuple(names) == SEQUENCE_COLUMNS and not key and not any(nullable):
        return all(code in _INTEGERS for code, _ in types)
    times = [i for i, kind in enumerate(types) if _is_row_time(*kind) and not nullable[i]]
    return len(times) > 1 and (not key or not set(times).isdisjoint(key))


def _is_row_time(code: int, meta: int) -> bool:
    return code == Type.TIMESTAMP_OLD or (code == Type.TIMESTAMP2 and meta == _FRACTION)


def sequence_definition(database: str, table: str) -> dict[str, Any]:
    """Returns the definition of a sequence, in the form of `mysql.table_schema`. (A sequence that was created with AS
    has other integer types.)"""
    return {
        "database": database,
        "table": table,
        "columns": [_sequence_column(name) for name in SEQUENCE_COLUMNS],
        "key": [],
        "primary": [],
        "kind": "sequence",
    }


def with_row_times(definition: dict[str, Any], row_end: str | None = None) -> dict[str, Any]:
    """Returns a table's definition as that of a system-versioned table. Adds the columns row_start and row_end, which
    the server adds if they are not declared (`row_end` None). ROW END is part of every key."""
    columns = list(definition["columns"])
    if row_end is None:
        hidden = {
            "mysql_type": "timestamp(6)", "nullable": False, "charset": None, "collation": 0, "bytes": None,
            "visible": False,
        }  # fmt: skip
        columns += [{"name": name, **hidden} for name in ("row_start", "row_end")]
        row_end = "row_end"
    primary = definition["primary"]
    if primary and row_end not in [name for name, _ in primary]:
        primary = [*primary, [row_end, 0]]
    versioned = {"columns": columns, "primary": primary, "kind": "versioned", "row_end": row_end}
    return {key: value for key, value in definition.items() if key != "keys"} | versioned


def _sequence_column(name: str) -> dict[str, Any]:
    kinds = {"cache_size": "bigint(21) unsigned", "cycle_option": "tinyint(1) unsigned"}
    return {
        "name": name,
        "mysql_type": kinds.get(name, "bigint(21)"),
        "nullable": False,
        "charset": None,
        "collation": 0,
        "bytes": None,
        "visible": True,
    }


def encode_kind(definition: Mapping[str, Any]) -> bytes:
    """Returns the value of TABLE_KIND for a definition; b"" if the definition does not show the kind."""
    match definition.get("kind"):
        case "table":
            return bytes((TableKind.TABLE,))
        case "sequence":
            return bytes((TableKind.SEQUENCE,))
        case "versioned":
            names = [column["name"] for column in definition["columns"]]
            at = names.index(definition["row_end"])
            return bytes((TableKind.VERSIONED,)) + encode_packed(at)
    return b""


def parse_kind(cursor: ByteCursor, columns: int) -> tuple[TableKind, int]:
    """Returns the kind and the index of ROW END, or `NOT_VERSIONED`. `columns`: how many columns the table has. Raises
    `BinlogError` MALFORMED_EVENT."""
    code = cursor.number(1)
    if code not in (TableKind.TABLE, TableKind.SEQUENCE, TableKind.VERSIONED):
        raise cursor.malformed(f"names the table kind {code}")
    if code != TableKind.VERSIONED:
        return TableKind(code), NOT_VERSIONED
    row_end = cursor.packed_number()
    if row_end >= columns:
        raise cursor.malformed(f"names column {row_end + 1} of {columns} as ROW END")
    return TableKind.VERSIONED, row_end
