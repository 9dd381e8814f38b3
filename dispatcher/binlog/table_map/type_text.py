"""Writes a column's type as information_schema shows it: the inverse of `column_definition`."""

from __future__ import annotations

from dispatcher.binlog.charset.collations import BINARY, charset_of
from dispatcher.binlog.sql.data_types import quoted_label
from dispatcher.binlog.table_map.column_types import SIGNED_TYPES, Column, Type

_NAMES: dict[int, str] = {
    Type.DECIMAL_OLD: "decimal", Type.TINY: "tinyint", Type.SHORT: "smallint", Type.INT24: "mediumint",
    Type.LONG: "int", Type.LONGLONG: "bigint", Type.FLOAT: "float", Type.DOUBLE: "double", Type.NULL: "null",
    Type.DATE: "date", Type.NEWDATE: "date", Type.YEAR: "year", Type.TIMESTAMP_OLD: "timestamp",
    Type.DATETIME_OLD: "datetime", Type.TIME_OLD: "time", Type.JSON: "json", Type.GEOMETRY: "geometry",
    Type.TYPED_ARRAY: "array", Type.VECTOR: "vector",
}  # fmt: skip
_FRACTIONAL: dict[int, str] = {
    Type.TIMESTAMP2: "timestamp",
    Type.DATETIME2: "datetime",
    Type.TIME2: "time",
}
_LABELLED: dict[int, str] = {Type.ENUM: "enum", Type.SET: "set"}
_BLOBS = {1: "tiny", 2: "", 3: "medium", 4: "long"}
_STRINGS: dict[int, tuple[str, str]] = {  # the name of the text type, the name of the binary type
    Type.VARCHAR: ("varchar", "varbinary"),
    Type.VAR_STRING: ("varchar", "varbinary"),
    Type.MARIADB_VARCHAR_COMPRESSED: ("varchar", "varbinary"),
    Type.STRING: ("char", "binary"),
    Type.BLOB: ("text", "blob"),
    Type.MARIADB_BLOB_COMPRESSED: ("text", "blob"),
}
_GEOMETRIES = (
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
    "geometrycollection",
)  # fmt: skip
# The most bytes that a character takes, for character sets with more than one.
CHARACTER_BYTES = {
    "utf8mb4": 4, "utf16": 4, "utf16le": 4, "utf32": 4, "gb18030": 4, "utf8mb3": 3, "ujis": 3, "eucjpms": 3,
    "ucs2": 2, "gbk": 2, "gb2312": 2, "big5": 2, "sjis": 2, "cp932": 2, "euckr": 2,
}  # fmt: skip


def type_text(column: Column) -> str:  # noqa: PLR0911 - one return per family of types
    """Returns the type in the form of COLUMN_TYPE in information_schema, without the character set: `int unsigned`,
    `varchar(40)`, `enum('new','paid')`. The text omits what the event does not contain."""
    kind = column.type
    if column.declared:
        return column.declared
    if kind in _FRACTIONAL:
        return _FRACTIONAL[kind] + (f"({column.meta})" if column.meta else "")
    if kind in _LABELLED:
        labels = ",".join(map(quoted_label, column.labels))
        return _LABELLED[kind] + (f"({labels})" if labels else "")
    if kind in _STRINGS:
        name = _STRINGS[kind][column.charset == BINARY]
        if kind in (Type.BLOB, Type.MARIADB_BLOB_COMPRESSED):
            return _BLOBS.get(column.meta, "") + name
        # If the character set is unknown, the length is in bytes.
        charset = charset_of(column.charset) if column.charset else ""
        # The size of a compressed value includes its header byte.
        size = column.meta - (kind == Type.MARIADB_VARCHAR_COMPRESSED)
        return f"{name}({size // CHARACTER_BYTES.get(charset, 1)})"
    if kind == Type.BIT:
        return f"bit({column.meta})"
    if kind == Type.GEOMETRY:
        return (
            _GEOMETRIES[column.geometry] if 0 <= column.geometry < len(_GEOMETRIES) else "geometry"
        )
    if kind == Type.VECTOR:
        return f"vector({column.dimensions})" if column.dimensions else "vector"
    name = _NAMES.get(kind, f"type {kind}")
    if kind == Type.NEWDECIMAL:
        name = f"decimal({column.meta >> 8},{column.meta & 0xFF})"
    return name + (" unsigned" if column.unsigned and kind in SIGNED_TYPES else "")


def charset_text(column: Column) -> str:
    """Returns the character set, such as `utf8mb4`; "" if the column is not text, or if the event does not hold the
    character set."""
    is_text = column.type in _LABELLED or (column.type in _STRINGS and column.charset != BINARY)
    return charset_of(column.charset) if is_text and column.charset else ""
