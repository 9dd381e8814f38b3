"""Derives a column of a table's definition from the column's definition in a statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dispatcher.binlog.charset.collations import charset_of, collation_named
from dispatcher.binlog.sql.clauses import Computed, DefinedColumn
from dispatcher.binlog.sql.comments import ServerVersion
from dispatcher.binlog.sql.data_types import (
    TEXT_WORDS,
    DataType,
    charset_of_collation,
    in_charset,
)
from dispatcher.binlog.sql.lexer import NotUnderstoodError
from dispatcher.binlog.sql.logged import SessionFacts
from dispatcher.binlog.table_map.column_definition import defined_columns
from dispatcher.binlog.table_map.type_text import CHARACTER_BYTES

_LABELLED = ("enum", "set")
_SIZED = ("char", "varchar")
_BINARY_SIZED = ("binary", "varbinary")
_UTF8 = ("utf8mb3", "utf8mb4")
# `_NOT_ASCII`: character sets in which an ASCII character is not the single byte of its ASCII code. `_UNITS`: Python's
# codecs for those of them that encode Unicode.
_NOT_ASCII = ("swe7", "ucs2", "utf16", "utf16le", "utf32", "binary")
_UNITS = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}
# MariaDB's `character_set_collations` sets the default collations of these character sets.
_UNICODE = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")
_MYSQL_80 = 80000


class Charset(NamedTuple):
    """`name`: the character set's name, None if unknown; `collation`: the collation's id, None if unknown."""

    name: str | None
    collation: int | None

    @classmethod
    def written(cls, charset: str, collation: str, version: ServerVersion) -> Charset:
        """Return the character set and collation that a statement names. `charset`: the name after CHARACTER SET;
        `collation`: the name after COLLATE; "" if the statement does not contain it."""
        name = charset or charset_of_collation(collation) or None
        if name == "utf8mb3" and version.mariadb:
            return cls(None, None)  # the variable `old_mode` decides what `utf8` means
        certain = not collation and name is not None and not _default_varies(name, version)
        return cls(name, collation_named(name) or None if certain else None)


def _default_varies(charset: str, version: ServerVersion) -> bool:
    if version.mariadb:
        return charset in _UNICODE
    return charset == "utf8mb4" and version.number >= _MYSQL_80


def derived_column(
    defined: DefinedColumn,
    default: Charset | None,
    version: ServerVersion,
    facts: SessionFacts,
) -> dict[str, Any]:
    """Return a column that a statement defines. `default`: the table's character set, None if it is not known.

    Raises NotUnderstoodError, or `BinlogError` UNSUPPORTED_TYPE.
    """
    kind, own = defined.type, None
    if version.mariadb and kind == "json":
        kind, own = "longtext", Charset("utf8mb4", collation_named("utf8mb4") + 1)  # utf8mb4_bin
    word = kind.partition("(")[0]
    entry: dict[str, Any] = {
        "name": defined.name,
        "mysql_type": kind,
        "charset": None,
        "collation": 0,
        "bytes": None,
        "visible": defined.visible,
        **_nullable(defined, word, facts),
    }
    if word in _BINARY_SIZED:
        entry["bytes"] = _size(kind)
    if word == "vector" and version.mariadb:
        entry["charset"], entry["bytes"] = "binary", 4 * _size(kind)
    if word not in TEXT_WORDS:
        _check_type(entry)
        return entry
    if own is None and (defined.charset or defined.collation):
        own = _own_charset(defined, default, version)
    if word in _LABELLED and not _kept(kind, charset_of(facts.connection)):
        raise NotUnderstoodError  # the server converts texts to the session's character_set_connection
    entry = with_charset(entry, own or default or Charset(None, None))
    if own is None:
        entry["inherits"] = True
    _check_type(entry)
    return entry


def _kept(text: str, charset: str) -> bool:
    """True if a conversion to the character set keeps every character of a text."""
    if text.isascii():
        return True
    return charset == "utf8mb4" or (charset == "utf8mb3" and max(text) <= "\uffff")


def _own_charset(
    defined: DefinedColumn, default: Charset | None, version: ServerVersion
) -> Charset:
    if defined.charset:
        return Charset.written(defined.charset, defined.collation, version)
    # The attribute BINARY, or a collation that exists for several character sets: the character set is the table's.
    if default is None or default.name is None:
        raise NotUnderstoodError
    return Charset(default.name, None)


def _nullable(defined: DefinedColumn, word: str, facts: SessionFacts) -> dict[str, Any]:
    if defined.primary or defined.computed is Computed.AUTO_INCREMENT:
        return {"nullable": False}
    if word == "timestamp" and defined.nullable is None:
        if facts.explicit_defaults_for_timestamp is None:
            return {"nullable": True, "nullable_unknown": True}
        return {"nullable": facts.explicit_defaults_for_timestamp}
    return {"nullable": defined.nullable is not False}


def with_charset(entry: Mapping[str, Any], charset: Charset) -> dict[str, Any]:
    """Return a text column with a character set: the column's size, collation and labels, as far as they are known."""
    kind = str(entry["mysql_type"])
    if charset.name == "binary":
        kind = in_charset(DataType(kind), "binary").text
        if kind.startswith(_LABELLED):
            raise NotUnderstoodError
        size = _size(kind) if "(" in kind else None
        return {**entry, "mysql_type": kind, "charset": None, "collation": 0, "bytes": size}
    out = {**entry, "charset": charset.name, "collation": charset.collation, "bytes": None}
    word = kind.partition("(")[0]
    if word in _SIZED and charset.name is not None:
        out["bytes"] = _size(kind) * CHARACTER_BYTES.get(charset.name, 1)
    if word in _LABELLED:
        (column,) = defined_columns({"columns": [{**out, "charset": None}]})
        out["labels"] = _labels(column.labels, charset.name)
    return out


def _size(kind: str) -> int:
    return int(kind.partition("(")[2].rstrip(")"))


def _labels(labels: tuple[str, ...], charset: str | None) -> list[str] | None:
    """Return the labels in the column's character set, hexadecimal; None if they are not known."""
    encoded = [_encoded(label, charset) for label in labels]
    return None if None in encoded else [raw.hex() for raw in encoded if raw is not None]


def _encoded(label: str, charset: str | None) -> bytes | None:
    basic = all(character <= "\uffff" for character in label)
    if charset is None or "\ufffd" in label:
        return None
    if charset in _UTF8:
        return label.encode() if basic or charset == "utf8mb4" else None
    if charset in _UNITS:
        return label.encode(_UNITS[charset]) if basic else None
    return label.encode() if label.isascii() and charset not in _NOT_ASCII else None


def _check_type(entry: Mapping[str, Any]) -> None:
    """Raises `BinlogError` UNSUPPORTED_TYPE for a type that `defined_columns` does not know."""
    defined_columns({"columns": [entry]})
