"""The wire format of a TABLE_MAP's body: names, types with metadata, null bits, optional fields.

`parse` and `optional_metadata` interpret the parts; `enrich` writes the optional fields that a server omits.

An optional field consists of its type (1 byte), its length (packed integer) and its value. In a value that consists of
bits, the most significant bit of a byte comes first; in the null bits, the least significant. `RawTableMap` keeps
unknown fields and `OptionalMetadata` skips them, because a newer server may add fields that replicas can ignore.

Only the daemon writes the fields TABLE_KIND (see `table_kind`), UNKNOWN_DEFINITION and COLUMN_TYPES.
UNKNOWN_DEFINITION says that the definition of the table is not known at this point of the log; its value is the reason
in UTF-8. COLUMN_TYPES has for each column a length byte and the declared type ("uuid", "inet6" ...). The declared type
is empty if the server's fields determine the type. MariaDB's own fields do not distinguish UUID and INET columns from
BINARY(16) and BINARY(4), and lack the fractional digits of temporal columns in MariaDB's old format.

Source: MySQL source, libs/mysql/binlog/event/rows_event.{h,cpp} (Table_map_event, Optional_metadata_field_type).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from dispatcher.binlog.event.cursor import ByteCursor
from dispatcher.binlog.table_map.column_types import LABEL_TYPES, META_BYTES, Type
from dispatcher.model.errors import BinlogError, ErrorKind

NAME = "TABLE_MAP_EVENT"
POST_HEADER_SIZE = 8  # table id (6), flags (2)
_COLUMNS_MAX = 4096


class Field(IntEnum):
    """The optional fields. An event has either a default character set or a character set per column."""

    SIGNEDNESS = 1
    DEFAULT_CHARSET = 2
    COLUMN_CHARSET = 3
    COLUMN_NAME = 4
    SET_STR_VALUE = 5
    ENUM_STR_VALUE = 6
    GEOMETRY_TYPE = 7
    SIMPLE_PRIMARY_KEY = 8
    PRIMARY_KEY_WITH_PREFIX = 9
    ENUM_AND_SET_DEFAULT_CHARSET = 10
    ENUM_AND_SET_COLUMN_CHARSET = 11
    COLUMN_VISIBILITY = 12
    VECTOR_DIMENSIONALITY = 13
    COLUMN_TYPES = 0xBD
    TABLE_KIND = 0xBE
    UNKNOWN_DEFINITION = 0xBF


@dataclass(frozen=True, slots=True)
class RawTableMap:
    """The parts of a TABLE_MAP's body, not interpreted. `types`: (type code, metadata) of each column, where ENUM and
    SET have their own codes in place of STRING. `fields`: value of each optional field by type, in the event's order.
    `start`: the offset in the body at which the number of columns begins; `end`: the offset of the first optional
    field."""

    table_id: int
    database: str
    table: str
    types: tuple[tuple[int, bytes], ...]
    nullable: tuple[bool, ...]
    fields: Mapping[int, bytes]
    start: int
    end: int

    @classmethod
    def of(cls, body: bytes) -> RawTableMap:
        """Parse a body (no header, no checksum).

        Raises `BinlogError`: MALFORMED_EVENT with the offset in the body, UNSUPPORTED_TYPE for a type code whose
        metadata have an unknown size.
        """
        cursor = ByteCursor(NAME, body)
        try:
            return cls._of(cursor)
        except BinlogError as error:
            raise error.at(f"body offset {cursor.at}") from None

    @classmethod
    def _of(cls, cursor: ByteCursor) -> RawTableMap:
        table_id = cursor.number(6)
        cursor.number(2)
        database, table = _name(cursor), _name(cursor)
        start, count = cursor.at, cursor.packed_number()
        if not 1 <= count <= _COLUMNS_MAX:
            raise cursor.malformed(f"has {count} columns")
        codes = cursor.read(count)
        metadata = ByteCursor(f"{NAME} (metadata)", cursor.read(cursor.packed_number()))
        types = tuple(_types(codes, metadata, f"{database}.{table}"))
        nulls = cursor.read((count + 7) // 8)
        nullable = tuple(bool(nulls[i >> 3] >> (i & 7) & 1) for i in range(count))
        end, fields = cursor.at, {}
        while len(cursor):
            code = cursor.number(1)
            fields[code] = cursor.read(cursor.packed_number())
        return cls(table_id, database, table, types, nullable, fields, start, end)


def names_of(body: bytes) -> tuple[str, str]:
    """Return (database, table) of a body, without checking its columns. Raises `BinlogError` MALFORMED_EVENT."""
    cursor = ByteCursor(NAME, body, POST_HEADER_SIZE)
    return _name(cursor), _name(cursor)


def _name(cursor: ByteCursor) -> str:
    return cursor.null_terminated(cursor.number(1))


def _types(codes: bytes, metadata: ByteCursor, label: str) -> Iterator[tuple[int, bytes]]:
    for i, code in enumerate(codes):
        if code not in META_BYTES:
            name = f" ({Type(code).name})" if code in list(Type) else ""
            what = f"table {label}, column {i + 1}: type code {code}{name}"
            raise BinlogError(ErrorKind.UNSUPPORTED_TYPE, what)
        meta = metadata.read(META_BYTES[code])
        yield (meta[0] if code == Type.STRING and meta[0] in LABEL_TYPES else code), meta
    metadata.end()


# -- writing --------------------------------------------------------------------------------------------------


def encode_packed(value: int) -> bytes:
    """Encode an integer in the form that `ByteCursor.packed_number` reads."""
    if value < 251:
        return bytes((value,))
    for first, size in ((252, 2), (253, 3)):
        if value < 1 << 8 * size:
            return bytes((first,)) + value.to_bytes(size, "little")
    return b"\xfe" + value.to_bytes(8, "little")


def length_prefixed(values: Iterable[bytes]) -> bytes:
    """Concatenate the values, each after its length."""
    return b"".join(encode_packed(len(value)) + value for value in values)


def encode_field(code: int, value: bytes) -> bytes:
    return bytes((code,)) + length_prefixed((value,))


def bits(flags: Sequence[bool]) -> bytes:
    """Pack flags into bytes, most significant bit first."""
    out = bytearray((len(flags) + 7) // 8)
    for i, flag in enumerate(flags):
        out[i >> 3] |= flag << 7 - (i & 7)
    return bytes(out)
