"""Parses column definitions as information_schema shows them (`int unsigned`, `enum('a','b')`) to `Column`.

The definitions supply the metadata that a log without full metadata omits. They also supply a table's Arrow types
before the daemon or a reader has seen an event of the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dispatcher.binlog.charset import collations
from dispatcher.binlog.table_map import inet
from dispatcher.binlog.table_map.column_types import OLD_TEMPORALS, Column, Type
from dispatcher.model.errors import BinlogError, ErrorKind

_COLUMN_TYPE = re.compile(
    r"\s*([a-z0-9_]+)\s*(?:\((.*)\))?\s*([a-z0-9 ]*)\Z", re.IGNORECASE | re.DOTALL
)
_LABEL = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "b": "\b", "Z": "\x1a"}

_PLAIN = {
    "tinyint": Type.TINY, "smallint": Type.SHORT, "mediumint": Type.INT24, "int": Type.LONG, "integer": Type.LONG,
    "bigint": Type.LONGLONG, "date": Type.DATE, "year": Type.YEAR,
}  # fmt: skip
_FRACTIONAL = {"timestamp": Type.TIMESTAMP2, "datetime": Type.DATETIME2, "time": Type.TIME2}
_PREFIX = {
    "tinyblob": 1, "blob": 2, "mediumblob": 3, "longblob": 4, "tinytext": 1, "text": 2, "mediumtext": 3, "longtext": 4,
}  # fmt: skip
# The numbers of GEOMETRY_TYPE in a TABLE_MAP.
_GEOMETRIES = {
    "geometry": 0, "point": 1, "linestring": 2, "polygon": 3, "multipoint": 4, "multilinestring": 5, "multipolygon": 6,
    "geometrycollection": 7, "geomcollection": 7,
}  # fmt: skip
_COMPRESSED = re.compile(r"\s*/\*M?!\d*\s*compressed\b[^*]*\*/", re.IGNORECASE)
_SAME: dict[int, Type] = {Type.VAR_STRING: Type.VARCHAR, Type.NEWDATE: Type.DATE}
# MariaDB shows this comment for a temporal column in its own old format. Newer columns have MySQL's format.
_OLD_FORM = re.compile(r"\s*/\*\s*mariadb-5\.3\s*\*/", re.IGNORECASE)


def defined_columns(definition: Mapping[str, Any], label: str = "") -> tuple[Column, ...]:
    """Return the columns of a definition, for `change_schema` and `arrow_type`. `definition`: an answer of
    GET /v1/consumers/{c}/tables/{database.table}. `label`: the table's name in messages.

    Raises `BinlogError` UNSUPPORTED_TYPE with table and column.
    """
    label = label or f"{definition.get('database', '')}.{definition.get('table', '')}"
    return tuple(_column(entry, label) for entry in definition["columns"])


def fits(code: int, meta: int, column: Column, size: int | None = None) -> bool:
    """True if a column that has the type (`code`, `meta`) in an event can be `column` of a definition. `size`: the size
    of a CHAR or VARCHAR column of the definition in bytes; None = unknown, because `column.meta` counts characters."""
    code = _SAME.get(code, code)
    if code in OLD_TEMPORALS:
        return column.type == OLD_TEMPORALS[code]
    if code == Type.STRING:
        return column.type == code and size in (None, meta)
    if code in (Type.VARCHAR, Type.MARIADB_VARCHAR_COMPRESSED):
        # A compressed column has one more byte, for the header of the compressed value.
        return column.type == code and size in (None, meta, meta - 1)
    return (column.type, column.meta) == (code, meta)


def _column(entry: Mapping[str, Any], label: str) -> Column:
    """Parse one column. `entry`: {"name", "mysql_type" (COLUMN_TYPE), "nullable", "charset"}."""
    name, text = str(entry["name"]), str(entry["mysql_type"])
    plain, compressed = _COMPRESSED.subn("", text)
    match = _COLUMN_TYPE.match(_OLD_FORM.sub("", plain))
    if match is None:
        raise _unknown(label, name, text)
    word, arguments, rest = match[1].lower(), match[2] or "", match[3].lower().split()
    labels = tuple(map(_unescape, _LABEL.findall(arguments))) if word in ("enum", "set") else ()
    try:
        code, meta = _type(word, arguments, len(labels))
    except ValueError:
        raise _unknown(label, name, text) from None
    if code == Type.VECTOR and entry.get("charset") == "binary":  # a VECTOR of MariaDB
        code, meta = Type.VARCHAR, 4 * int(arguments or 0)
    if compressed:
        code, meta = _compressed(code, meta)
    declared = word if word in inet.SIZES else ""
    return Column(
        name=name,
        type=code,
        meta=meta,
        unsigned="unsigned" in rest or "zerofill" in rest,
        nullable=bool(entry.get("nullable", True)),
        charset=collations.collation_named(entry.get("charset")),
        labels=labels,
        visible=True,
        declared=declared,
        geometry=_GEOMETRIES.get(word, -1),
        dimensions=int(arguments or 0) if code == Type.VECTOR else 0,
    )


def _type(  # noqa: C901, PLR0911, PLR0912 - one return per type
    word: str, arguments: str, labels: int
) -> tuple[int, int]:
    """Return (type, meta) for a type's name and arguments. Raises ValueError for an unknown type."""
    numbers = [] if labels else [int(number) for number in arguments.split(",") if number.strip()]
    first = numbers[0] if numbers else 0
    if word in _PLAIN:
        return _PLAIN[word], 0
    if word in _FRACTIONAL:
        return _FRACTIONAL[word], first
    if word in _PREFIX:
        return Type.BLOB, _PREFIX[word]
    if word in _GEOMETRIES:
        return Type.GEOMETRY, 4
    if word in inet.SIZES:
        return Type.STRING, inet.SIZES[word]
    match word:
        case "json":
            return Type.JSON, 4
        case "vector":
            return Type.VECTOR, 4
        case "decimal" | "numeric":
            return Type.NEWDECIMAL, (first or 10) << 8 | (numbers[1] if len(numbers) > 1 else 0)
        case "float":
            return Type.FLOAT, 4
        case "double" | "real":
            return Type.DOUBLE, 8
        case "bit":
            return Type.BIT, first or 1
        case "char" | "binary":
            return Type.STRING, first
        case "varchar" | "varbinary":
            return Type.VARCHAR, first
        case "enum":
            return Type.ENUM, 1 if labels < 256 else 2
        case "set":
            size = (labels + 7) // 8
            return Type.SET, 8 if size > 4 else size
    raise ValueError(word)


def _compressed(code: int, meta: int) -> tuple[int, int]:
    """Return (type, meta) of the same column if MariaDB compresses it. The size of a VARCHAR includes the header
    byte."""
    if code == Type.VARCHAR:
        return Type.MARIADB_VARCHAR_COMPRESSED, meta + 1
    return (Type.MARIADB_BLOB_COMPRESSED, meta) if code == Type.BLOB else (code, meta)


def _unescape(text: str) -> str:
    return re.sub(
        r"''|\\(.)",
        lambda match: "'" if match[1] is None else _ESCAPES.get(match[1], match[1]),
        text,
        flags=re.DOTALL,
    )


def _unknown(label: str, name: str, text: str) -> BinlogError:
    return BinlogError(ErrorKind.UNSUPPORTED_TYPE, f"table {label}, column {name!r}: type {text}")
