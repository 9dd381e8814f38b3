"""Columns of a TABLE_MAP as people write them: `int unsigned`, `varchar(40)`, `enum('new','paid')`."""

from __future__ import annotations

from dispatcher.binlog.charset.collations import BINARY, charset_of
from dispatcher.binlog.table_map.column_types import SIGNED_TYPES, Column, Type

_NAMES: dict[int, str] = {
    Type.DECIMAL_OLD: "decimal", Type.TINY: "tinyint", Type.SHORT: "smallint", Type.INT24: "mediumint",
    Type.LONG: "int", Type.LONGLONG: "bigint", Type.FLOAT: "float", Type.DOUBLE: "double", Type.NULL: "null",
    Type.DATE: "date", Type.NEWDATE: "date", Type.YEAR: "year", Type.TIMESTAMP_OLD: "timestamp",
    Type.DATETIME_OLD: "datetime", Type.TIME_OLD: "time", Type.JSON: "json", Type.GEOMETRY: "geometry",
    Type.TYPED_ARRAY: "array",
}  # fmt: skip
_FRACTIONAL: dict[int, str] = {
    Type.TIMESTAMP2: "timestamp",
    Type.DATETIME2: "datetime",
    Type.TIME2: "time",
}
_BLOBS = {1: "tiny", 2: "", 3: "medium", 4: "long"}
_CHARACTER_BYTES = {
    "utf8mb4": 4, "utf16": 4, "utf16le": 4, "utf32": 4, "gb18030": 4, "utf8mb3": 3, "ujis": 3, "eucjpms": 3,
    "ucs2": 2, "gbk": 2, "gb2312": 2, "big5": 2, "sjis": 2, "cp932": 2, "euckr": 2,
}  # fmt: skip


def type_text(column: Column) -> str:  # noqa: PLR0911 - one return per type
    """The type as COLUMN_TYPE of information_schema has it, as far as the event tells. Character sets stand apart."""
    if column.type in _FRACTIONAL:
        return _FRACTIONAL[column.type] + (f"({column.meta})" if column.meta else "")
    match column.type:
        case Type.NEWDECIMAL:
            text = f"decimal({column.meta >> 8},{column.meta & 0xFF})"
            return text + (" unsigned" if column.unsigned else "")
        case Type.BIT:
            return f"bit({column.meta})"
        case Type.ENUM | Type.SET:
            labels = ",".join("'" + label.replace("'", "''") + "'" for label in column.labels)
            name = "enum" if column.type == Type.ENUM else "set"
            return f"{name}({labels})" if column.labels else name
        case Type.VECTOR:
            return "vector"
        case Type.BLOB | Type.MARIADB_BLOB_COMPRESSED:
            return _BLOBS.get(column.meta, "") + ("text" if _is_text(column) else "blob")
        case Type.VARCHAR | Type.VAR_STRING | Type.MARIADB_VARCHAR_COMPRESSED:
            return f"{'varchar' if _is_text(column) else 'varbinary'}({_characters(column)})"
        case Type.STRING:
            return f"{'char' if _is_text(column) else 'binary'}({_characters(column)})"
    name = _NAMES.get(column.type, f"type {column.type}")
    return name + (" unsigned" if column.unsigned and column.type in SIGNED_TYPES else "")


def charset_text(column: Column) -> str:
    """`utf8mb4` ...; "" for what is no text, or of a character set that the event does not name."""
    has_one = bool(column.charset) and (_is_text(column) or column.type in (Type.ENUM, Type.SET))
    return charset_of(column.charset) if has_one else ""


def _is_text(column: Column) -> bool:
    return (
        column.charset != BINARY
        and column.type not in (Type.ENUM, Type.SET, Type.JSON)
        and _stringy(column)
    )


def _stringy(column: Column) -> bool:
    return column.type in (
        Type.BLOB, Type.VARCHAR, Type.VAR_STRING, Type.STRING, Type.MARIADB_BLOB_COMPRESSED,
        Type.MARIADB_VARCHAR_COMPRESSED,
    )  # fmt: skip


def _characters(column: Column) -> int:
    if not column.charset:  # then the event tells bytes alone
        return column.meta
    return column.meta // _CHARACTER_BYTES.get(charset_of(column.charset), 1)
