"""The types of columns in a TABLE_MAP event, and the sizes of their cells in a row image.

The parser normalises a column's metadata to one integer, `meta`, whose meaning depends on the type:

    DECIMAL            precision << 8 | scale
    FLOAT, DOUBLE      bytes
    BIT                bits
    CHAR, BINARY       greatest length in bytes (the type is STRING)
    VARCHAR, VARBINARY greatest length in bytes
    ENUM, SET          bytes of the number
    BLOB, TEXT, JSON, GEOMETRY, VECTOR    bytes of the length prefix
    DATETIME2, TIMESTAMP2, TIME2          fractional digits

Source: MySQL source, libs/mysql/binlog/event/rows_event.h (table of types and metadata), sql/field.cc (pack functions).
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum


class Type(IntEnum):
    """The values of `enum_field_types` that occur in a binlog."""

    DECIMAL_OLD = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP_OLD = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME_OLD = 11
    DATETIME_OLD = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    TYPED_ARRAY = 20
    MARIADB_BLOB_COMPRESSED = 140
    MARIADB_VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


# Bytes of metadata per column in the event.
_NO_META = (
    Type.TINY, Type.SHORT, Type.INT24, Type.LONG, Type.LONGLONG, Type.NULL, Type.YEAR, Type.DATE, Type.NEWDATE,
    Type.TIME_OLD, Type.DATETIME_OLD, Type.TIMESTAMP_OLD,
)  # fmt: skip
_ONE_BYTE = (
    Type.FLOAT, Type.DOUBLE, Type.TIME2, Type.DATETIME2, Type.TIMESTAMP2, Type.BLOB, Type.JSON, Type.GEOMETRY,
    Type.VECTOR, Type.MARIADB_BLOB_COMPRESSED,
)  # fmt: skip
_TWO_BYTES = (
    Type.NEWDECIMAL, Type.BIT, Type.ENUM, Type.SET, Type.STRING, Type.VARCHAR, Type.VAR_STRING,
    Type.MARIADB_VARCHAR_COMPRESSED,
)  # fmt: skip
META_BYTES: dict[int, int] = {
    code: size for size, codes in enumerate((_NO_META, _ONE_BYTE, _TWO_BYTES)) for code in codes
}

# The types of columns with a bit in SIGNEDNESS (Field::has_signedness_information_type), and the types of columns with
# an entry in the charset fields.
SIGNED_TYPES = frozenset((
    Type.TINY, Type.SHORT, Type.INT24, Type.LONG, Type.LONGLONG, Type.YEAR, Type.FLOAT, Type.DOUBLE, Type.NEWDECIMAL,
))  # fmt: skip
CHARACTER_TYPES = frozenset((
    Type.STRING, Type.VAR_STRING, Type.VARCHAR, Type.BLOB, Type.VECTOR,
    Type.MARIADB_BLOB_COMPRESSED, Type.MARIADB_VARCHAR_COMPRESSED,
))  # fmt: skip
COMPRESSED_TYPES = frozenset((Type.MARIADB_BLOB_COMPRESSED, Type.MARIADB_VARCHAR_COMPRESSED))
# Maps the temporal types of servers before MySQL 5.6, which have no fractions of a second, to the types that replaced
# them.
OLD_TEMPORALS: dict[int, Type] = {
    Type.TIMESTAMP_OLD: Type.TIMESTAMP2,
    Type.DATETIME_OLD: Type.DATETIME2,
    Type.TIME_OLD: Type.TIME2,
}
LABEL_TYPES = frozenset((Type.ENUM, Type.SET))

_FIXED: dict[int, int] = {
    Type.TINY: 1,
    Type.SHORT: 2,
    Type.INT24: 3,
    Type.LONG: 4,
    Type.LONGLONG: 8,
    Type.FLOAT: 4,
    Type.DOUBLE: 8,
    Type.YEAR: 1,
    Type.DATE: 3,
    Type.NEWDATE: 3,
    Type.TIME_OLD: 3,
    Type.TIMESTAMP_OLD: 4,
    Type.DATETIME_OLD: 8,
}
_FRACTIONAL: dict[int, int] = {Type.TIMESTAMP2: 4, Type.DATETIME2: 5, Type.TIME2: 3}

# A DECIMAL is stored in groups of up to 9 digits. A group of n digits has DIGIT_BYTES[n] bytes.
DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_groups(precision: int, scale: int) -> tuple[tuple[int, int], ...]:
    """Return (bytes, digits) of each group of a DECIMAL(precision, scale), most significant first.

    The whole part is grouped from the point to the left, and the fraction from the point to the right. Source:
    strings/decimal.cc, decimal2bin.
    """
    whole, rest = divmod(precision - scale, 9)
    groups = [(DIGIT_BYTES[rest], rest)] if rest else []
    groups += [(4, 9)] * whole
    full, rest = divmod(scale, 9)
    groups += [(4, 9)] * full
    if rest:
        groups.append((DIGIT_BYTES[rest], rest))
    return tuple(groups)


def cell_width(type_code: int, meta: int) -> int:
    """Return the size in bytes of a cell that is not NULL. If the cell has a length prefix, return the size of the
    prefix as a negative number. If the type has no cells, return 0.

    Raises KeyError for a type that is not in `META_BYTES`.
    """
    if type_code in _FIXED:
        return _FIXED[type_code]
    if type_code in _FRACTIONAL:
        return _FRACTIONAL[type_code] + (meta + 1) // 2
    if type_code in (Type.VARCHAR, Type.VAR_STRING, Type.STRING, Type.MARIADB_VARCHAR_COMPRESSED):
        return -1 if meta < 256 else -2
    if type_code in LABEL_TYPES:
        return meta
    if type_code == Type.NEWDECIMAL:
        return sum(size for size, _ in decimal_groups(meta >> 8, meta & 0xFF))
    if type_code == Type.BIT:
        return (meta + 7) // 8
    if type_code == Type.NULL:
        return 0
    if META_BYTES[type_code] == 1:
        return -meta
    raise KeyError(type_code)


class InvalidDates(StrEnum):
    """What an invalid date such as '0000-00-00' becomes: a NULL that is counted; an error; or text. With TEXT, all
    dates of the column become text."""

    NULL = "null"
    ERROR = "error"
    TEXT = "text"


MASK_SECRET_MIN = 16  # characters of the secret of `Mask`


class MaskForm(StrEnum):
    """What a reader shows in place of a value: a hash, NULL, its last four characters, or a hash that depends on a
    secret."""

    SHA256 = "sha256"
    NULL = "null"
    LAST4 = "last4"
    KEYED = "keyed"


@dataclass(frozen=True, slots=True)
class Mask:
    """How a column is masked. `secret`: the secret of the form `keyed`."""

    form: MaskForm
    secret: bytes = field(default=b"", repr=False)

    def __str__(self) -> str:
        """Returns a text that differs if masked values differ. It does not show the secret."""
        if self.form is not MaskForm.KEYED:
            return self.form.value
        return f"{self.form.value}:{hmac.digest(self.secret, b'mask', 'sha256').hex()[:8]}"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `name`: "" if the server did not write it. `type`, `meta`: see the module's docstring. `charset`:
    collation id, 0 = unknown. `labels`: the labels of an ENUM or SET. `declared`: the type's name if the type code
    stands for several types ("uuid", "inet6", "inet4"), else "". `geometry`: kind of a geometry (0 = GEOMETRY, 1 =
    POINT ..., -1 = unknown). `dimensions`: the dimensions of a VECTOR, 0 = unknown.
    `nulls_invalid`, `mask`: see `ColumnRules`."""

    name: str
    type: int
    meta: int
    unsigned: bool
    nullable: bool
    charset: int
    labels: tuple[str, ...]
    visible: bool
    declared: str = ""
    geometry: int = -1
    dimensions: int = 0
    nulls_invalid: bool = False
    mask: Mask | None = None
