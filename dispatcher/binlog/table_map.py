"""TABLE_MAP events: which columns the rows that follow have.

A TABLE_MAP names types and sizes always. Names, signedness, character sets, labels and the primary key stand in
optional fields behind them: all since MySQL 8.0.14 / MariaDB 10.5 with binlog_row_metadata=FULL, signedness and
character sets alone with MINIMAL, nothing before. What is not written can be supplied from information_schema
(`with_columns`); it is never guessed, and a table whose columns have no names cannot be decoded.

Source: MySQL source, libs/mysql/binlog/event/rows_event.{h,cpp} (Table_map_event).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from dispatcher.binlog.definition import defined_columns
from dispatcher.binlog.table_fields import COLUMN_TYPES, COLUMN_VISIBILITY, Cursor, Optional
from dispatcher.binlog.types import CHARACTER_TYPES, META_BYTES, Column, Type
from dispatcher.model.errors import BinlogError, Kind

__all__ = ["COLUMN_TYPES", "Column", "TableMap", "defined_columns", "layout_id"]

POST_HEADER_SIZE = 8  # table id (6), flags (2)
MAX_COLUMNS = 4096


@dataclass(frozen=True, slots=True)
class TableMap:
    """`key`: primary key as indices into `columns`, empty where there is none or the server did not say; `layout`:
    equal for equal database, table, columns and metadata, whatever the table id; `key_prefixes`: characters of each key
    column that are in the key, 0 = the whole; `default_charset`: collation id, 0 where each column's is written."""

    table_id: int
    database: str
    table: str
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    layout: str
    key_prefixes: tuple[int, ...] = ()
    default_charset: int = 0

    @property
    def label(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def named(self) -> bool:
        return all(column.name for column in self.columns)

    @classmethod
    def parse(cls, body: bytes) -> TableMap:
        """Read a TABLE_MAP_EVENT's body (no header, no checksum).

        Raises `BinlogError`: MALFORMED_EVENT with the offset in the body, UNSUPPORTED_TYPE for a type code whose cells
        have a length that is not known.
        """
        cursor = Cursor(bytes(body))
        table_id = cursor.integer(6)
        cursor.integer(2)
        database, table = cursor.name(), cursor.name()
        count = cursor.packed()
        if not 1 <= count <= MAX_COLUMNS:
            raise cursor.bad(f"has {count} columns")
        codes = cursor.take(count)
        meta_size = cursor.packed()
        types = _types(
            Cursor(cursor.take(meta_size), cursor.at - meta_size), codes, f"{database}.{table}"
        )
        null_bits = cursor.take((count + 7) // 8)
        optional = Optional(types)
        fields = []
        while cursor.at < cursor.end:
            code, size = cursor.integer(1), cursor.packed()
            fields.append((code, Cursor(cursor.take(size), cursor.at - size)))
        optional.mariadb = COLUMN_VISIBILITY not in (code for code, _ in fields)
        for code, value in fields:
            optional.read(code, value)
        columns = optional.columns([bool(null_bits[i >> 3] >> (i & 7) & 1) for i in range(count)])
        return cls(
            table_id,
            database,
            table,
            columns,
            optional.key,
            layout_id(body),
            optional.prefixes,
            optional.default_charset,
        )

    def with_columns(self, definition: Mapping[str, Any]) -> TableMap:
        """The table map with what the server did not write taken from `definition`, the answer of
        GET /v1/consumers/{c}/tables/{database.table}.

        Raises `BinlogError` METADATA_MISSING where the definition is of another version of the table.
        """
        supplied = defined_columns(definition, self.label)
        if len(supplied) != len(self.columns):
            raise self._other_version(f"has {len(supplied)} columns, the event {len(self.columns)}")
        columns = []
        for own, other in zip(self.columns, supplied, strict=True):
            if not _fits(own, other):
                raise self._other_version(
                    f"column {other.name!r} has another type than the event says"
                )
            columns.append(
                own
                if own.name
                else replace(
                    own,
                    name=other.name,
                    unsigned=other.unsigned,
                    charset=own.charset or other.charset,
                    labels=own.labels or other.labels,
                    declared=own.declared or other.declared,
                )
            )
        names = [column.name for column in columns]
        key = self.key or tuple(
            names.index(name) for name in definition.get("key", ()) if name in names
        )
        return replace(self, columns=tuple(columns), key=key)

    def require_names(self) -> None:
        """Raises `BinlogError` METADATA_MISSING where a column has no name."""
        if not self.named:
            raise BinlogError(
                Kind.METADATA_MISSING,
                f"the log holds no column names for table {self.label}",
                remedy="SET PERSIST binlog_row_metadata=FULL on the server (MySQL 8.0.14, MariaDB 10.5 or newer), or"
                " supply the table's definition",
            )

    def _other_version(self, why: str) -> BinlogError:
        return BinlogError(
            Kind.METADATA_MISSING,
            f"the definition supplied for table {self.label} is not that of the event: it {why}",
            remedy="the table was altered meanwhile; set binlog_row_metadata=FULL, or copy the table afresh",
        )


def layout_id(body: bytes) -> str:
    """Layout of a TABLE_MAP's body: 16 hex digits over everything but table id and flags."""
    return blake2b(body[POST_HEADER_SIZE:], digest_size=8).hexdigest()


def _types(cursor: Cursor, codes: bytes, label: str) -> list[tuple[int, int]]:
    types = []
    for i, code in enumerate(codes):
        if code not in META_BYTES:
            name = f" ({Type(code).name})" if code in list(Type) else ""
            what = f"table {label}, column {i + 1}: type code {code}{name}"
            raise BinlogError(Kind.UNSUPPORTED_TYPE, what)
        types.append(_normalised(cursor, code, cursor.take(META_BYTES[code])))
    if cursor.at != cursor.end:
        raise cursor.bad(f"has {cursor.end - cursor.at} bytes of column metadata too many")
    return types


def _normalised(cursor: Cursor, code: int, raw: bytes) -> tuple[int, int]:
    """(type, meta) as `types` describes it, checked."""
    if code == Type.STRING:
        code, meta = _string(raw[0], raw[1])
        if code not in (Type.STRING, Type.ENUM, Type.SET):
            raise cursor.bad(f"has a string of real type {code}")
    elif code == Type.BIT:
        meta = raw[0] + 8 * raw[1]
        if raw[0] > 7:
            raise cursor.bad(f"has a BIT of {raw[0]} odd bits")
    elif code == Type.NEWDECIMAL:
        meta = raw[0] << 8 | raw[1]
        if not (1 <= raw[0] <= 65 and raw[1] <= min(raw[0], 38)):
            raise cursor.bad(f"has a DECIMAL({raw[0]},{raw[1]})")
    else:
        meta = int.from_bytes(raw, "little")
    if not _meta_ok(code, meta):
        raise cursor.bad(f"has metadata {meta} for type {Type(code).name}")
    return code, meta


def _string(first: int, second: int) -> tuple[int, int]:
    # CHAR up to 1020 bytes folds the two high bits of its length, inverted, into the real type (Bug#37426).
    if first & 0x30 != 0x30:
        return first | 0x30, second | ((first & 0x30) ^ 0x30) << 4
    return first, second


def _meta_ok(code: int, meta: int) -> bool:  # noqa: PLR0911 - one return per type
    match code:
        case Type.STRING:
            return meta <= 1023
        case Type.ENUM:
            return meta in (1, 2)
        case Type.SET:
            return meta in (1, 2, 3, 4, 8)
        case Type.BIT:
            return 1 <= meta <= 64
        case Type.FLOAT:
            return meta == 4
        case Type.DOUBLE:
            return meta == 8
        case Type.DATETIME2 | Type.TIMESTAMP2 | Type.TIME2:
            return meta <= 6
        case Type.BLOB | Type.JSON | Type.GEOMETRY | Type.VECTOR | Type.MARIADB_BLOB_COMPRESSED:
            return 1 <= meta <= 4
    return code in META_BYTES


def _fits(own: Column, other: Column) -> bool:
    if own.name and own.name != other.name:
        return False
    old_forms = {
        Type.TIMESTAMP_OLD: Type.TIMESTAMP2,
        Type.DATETIME_OLD: Type.DATETIME2,
        Type.TIME_OLD: Type.TIME2,
    }
    if own.type in old_forms:
        return other.type == old_forms[Type(own.type)] and other.meta == 0
    # CHAR and VARCHAR lengths are in bytes here and in characters there; ENUM and SET sizes follow from the labels.
    return own.type == other.type and (own.type in CHARACTER_TYPES or own.meta == other.meta)
