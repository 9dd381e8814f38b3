"""TABLE_MAP events made whole: the optional fields that the server left out, written from a table's definition.

A server with `binlog_row_metadata=FULL` names columns, labels and the primary key in each TABLE_MAP; one with MINIMAL,
or one that is too old, does not. What it left out is supplied here from `information_schema`, in the server's own
fields and order, so that whoever decodes the event sees one kind of TABLE_MAP. Fields that are there stay as they are.

Whether a definition is that of the event cannot be told from the two alone (`dispatch.versions` proves it); but types,
lengths and null bits that contradict each other can, and are refused.

One field is our own, `COLUMN_TYPES` (0xBD), because MariaDB writes UUID, INET6 and INET4 columns exactly as
BINARY(16) and BINARY(4), and does not tell the fractional digits of temporal columns in its own old form: for each
column a length byte and its type as text, empty where the other fields say all.
Both servers' tools skip fields that they do not know, as the format asks them to.

Sources: MySQL source, sql/log_event.cc (Table_map_log_event::init_metadata_fields), libs/mysql/binlog/event/
rows_event.h (Optional_metadata_field_type); MariaDB sql/log_event_server.cc.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dispatcher.binlog.charsets import BINARY
from dispatcher.binlog.definition import defined_columns
from dispatcher.binlog.table_map import POST_HEADER_SIZE
from dispatcher.binlog.types import (
    CHARACTER_TYPES,
    LABEL_TYPES,
    META_BYTES,
    OLD_TEMPORALS,
    SIGNED_TYPES,
    Column,
    Type,
)
from dispatcher.model.errors import BinlogError, Kind

SIGNEDNESS, DEFAULT_CHARSET, COLUMN_CHARSET, COLUMN_NAME = 1, 2, 3, 4
SET_STR_VALUE, ENUM_STR_VALUE, GEOMETRY_TYPE = 5, 6, 7
SIMPLE_PRIMARY_KEY, PRIMARY_KEY_WITH_PREFIX = 8, 9
ENUM_AND_SET_DEFAULT_CHARSET, ENUM_AND_SET_COLUMN_CHARSET, COLUMN_VISIBILITY = 10, 11, 12
VECTOR_DIMENSIONALITY = 13
COLUMN_TYPES = 0xBD

# What MariaDB stores as BINARY(n): bytes of the cells, by the type's name.
STORED_AS_BINARY = {"uuid": 16, "inet6": 16, "inet4": 4}
_GEOMETRIES = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"),
    *("multipolygon", "geometrycollection"),
)
_COMPRESSED = re.compile(r"\s*/\*M?!\d*\s*COMPRESSED\s*\*/", re.IGNORECASE)
_PLAIN_TYPE: dict[int, Type] = {
    Type.MARIADB_BLOB_COMPRESSED: Type.BLOB,
    Type.MARIADB_VARCHAR_COMPRESSED: Type.VARCHAR,
}

Definition = Mapping[str, Any]
"""A table as `net.server.table_columns` describes it."""


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The parts of a TABLE_MAP's body. `fields`: the optional ones in their order, type to value; `end`: offset of the
    first of them in the body; `types`: (type code, metadata) per column, ENUM and SET told from CHAR."""

    database: str
    table: str
    types: tuple[tuple[int, bytes], ...]
    nullable: tuple[bool, ...]
    fields: Mapping[int, bytes]
    end: int

    @classmethod
    def of(cls, body: bytes) -> Skeleton:
        """Take a body apart. Raises `BinlogError` MALFORMED_EVENT where it ends too early."""
        try:
            return cls._of(body)
        except IndexError:
            raise BinlogError(Kind.MALFORMED_EVENT, "TABLE_MAP_EVENT is cut short") from None

    @classmethod
    def _of(cls, body: bytes) -> Skeleton:
        at, names = POST_HEADER_SIZE, []
        for _ in range(2):
            size = body[at]
            names.append(body[at + 1 : at + 1 + size].decode("utf-8", "surrogateescape"))
            at += size + 2
        count, at = _packed_at(body, at)
        codes, at = body[at : at + count], at + count
        meta_size, at = _packed_at(body, at)
        types = tuple(_types(codes, body[at : at + meta_size]))
        at += meta_size
        nulls, at = body[at : at + (count + 7) // 8], at + (count + 7) // 8
        nullable = tuple(bool(nulls[i >> 3] >> (i & 7) & 1) for i in range(count))
        end, fields = at, {}
        while at < len(body):
            code = body[at]
            size, at = _packed_at(body, at + 1)
            fields[code] = body[at : at + size]
            at += size
        if at != len(body) or len(types) != count:
            raise IndexError
        return cls(names[0], names[1], types, nullable, fields, end)

    @property
    def named(self) -> bool:
        return COLUMN_NAME in self.fields

    @property
    def ambiguous(self) -> bool:
        """Is there a column of which MariaDB does not say whether it is BINARY(n) or of a type stored as one, or how
        many bytes its cells have?"""
        if COLUMN_TYPES in self.fields:
            return False
        collations = self._collations()
        return any(
            code in OLD_TEMPORALS
            or (
                code == Type.STRING
                and meta in (b"\xfe\x10", b"\xfe\x04")
                and collations.get(i, BINARY) == BINARY
            )
            for i, (code, meta) in enumerate(self.types)
        )

    def _collations(self) -> dict[int, int]:
        """By column, as MariaDB writes them."""
        wanted = CHARACTER_TYPES | {Type.GEOMETRY}
        at = [i for i, (code, _) in enumerate(self.types) if code in wanted]
        each = list(_numbers(self.fields.get(COLUMN_CHARSET, b"")))
        if each:
            return dict(zip(at, each, strict=False))
        default = list(_numbers(self.fields.get(DEFAULT_CHARSET, b"")))
        out = dict.fromkeys(at, default[0] if default else BINARY)
        for n, collation in zip(default[1::2], default[2::2], strict=False):
            if n < len(at):
                out[at[n]] = collation
        return out


def incomplete(body: bytes, *, mariadb: bool) -> bool:
    """Does a TABLE_MAP's body need a definition? Raises `BinlogError` MALFORMED_EVENT."""
    skeleton = Skeleton.of(body)
    return not skeleton.named or (mariadb and skeleton.ambiguous)


def enriched_body(body: bytes, definition: Definition, *, mariadb: bool = False) -> bytes:
    """The body of the TABLE_MAP that a server with full metadata writes for a table of this definition.

    Raises `BinlogError` METADATA_MISSING where the definition contradicts the event, UNSUPPORTED_TYPE for a column type
    that is not known.
    """
    skeleton = Skeleton.of(body)
    columns = _columns(definition)
    _check(skeleton, definition, columns)
    ours = _Fields(skeleton, definition, columns)
    fields = dict(skeleton.fields)
    out = bytearray(body[: skeleton.end])
    for codes, make in ours.in_order(mariadb):
        there = next((code for code in codes if code in fields), None)
        code, value = (there, fields.pop(there)) if there is not None else make()
        if value or there is not None:
            out += bytes((code,)) + _packed(len(value)) + value
    for code, value in fields.items():
        out += bytes((code,)) + _packed(len(value)) + value
    return bytes(out)


# -- the definition -------------------------------------------------------------------------------------------


def _columns(definition: Definition) -> tuple[Column, ...]:
    """As `defined_columns`, with what is only another face of a plain type replaced by that."""
    plain = [
        {**column, "mysql_type": _plain(column["mysql_type"])} for column in definition["columns"]
    ]
    return defined_columns({**definition, "columns": plain})


def _plain(mysql_type: str) -> str:
    size = STORED_AS_BINARY.get(mysql_type.lower())
    return f"binary({size})" if size else _COMPRESSED.sub("", mysql_type)


def _check(skeleton: Skeleton, definition: Definition, columns: Sequence[Column]) -> None:
    if len(columns) != len(skeleton.types):
        raise _other(
            skeleton, f"has {len(columns)} columns where the event has {len(skeleton.types)}"
        )
    names = skeleton.fields.get(COLUMN_NAME)
    if names is not None and names != _texts(column.name for column in columns):
        raise _other(skeleton, "has other column names than the event")
    entries = zip(definition["columns"], columns, skeleton.types, skeleton.nullable, strict=True)
    for entry, column, (code, meta), nullable in entries:
        if not _fits(column, entry.get("bytes"), code, meta):
            raise _other(
                skeleton, f"column {column.name!r} ({entry['mysql_type']}) has another type than the event says"
            )  # fmt: skip
        # A column of the primary key may not be NULL whatever its definition says, so one way only.
        if nullable and not column.nullable:
            raise _other(skeleton, f"column {column.name!r} is NOT NULL, which the event denies")


def _fits(column: Column, size: int | None, code: int, meta: bytes) -> bool:
    code = _PLAIN_TYPE.get(code, code)
    if code in _OLD_FORMS:
        return column.type == _OLD_FORMS[code]
    if code in (Type.VAR_STRING, Type.NEWDATE):
        code = Type.VARCHAR if code == Type.VAR_STRING else Type.DATE
    if code != column.type:
        return False
    if code == Type.STRING:
        length = meta[1] | ((meta[0] & 0x30) ^ 0x30) << 4
        return size is None or length == size
    if code == Type.VARCHAR:
        # A compressed column has one byte more, for the kind of compression.
        return size is None or int.from_bytes(meta, "little") - size in (0, 1)
    if code == Type.BIT:
        return column.meta == meta[0] + 8 * meta[1]
    if code == Type.NEWDECIMAL:
        return column.meta == meta[0] << 8 | meta[1]
    if code in LABEL_TYPES:
        return column.meta == meta[1]
    return not meta or column.meta == int.from_bytes(meta, "little")


_OLD_FORMS: dict[int, Type] = {
    Type.TIMESTAMP_OLD: Type.TIMESTAMP2,
    Type.DATETIME_OLD: Type.DATETIME2,
    Type.TIME_OLD: Type.TIME2,
}


def _other(skeleton: Skeleton, why: str) -> BinlogError:
    return BinlogError(
        Kind.METADATA_MISSING,
        f"the definition known of table {skeleton.database}.{skeleton.table} is not that of the event: it {why}",
        remedy="the table was altered without a trace in the log (sql_log_bin=0, or the position is older than the"
        " alteration): start the consumer after it, or copy the table afresh",
    )


# -- the fields -----------------------------------------------------------------------------------------------


_Field = tuple[int, bytes]


class _Fields:
    """Each method writes one field; an empty value means that the server would leave it out."""

    def __init__(
        self, skeleton: Skeleton, definition: Definition, columns: Sequence[Column]
    ) -> None:
        self.codes = [code for code, _ in skeleton.types]
        self.entries: Sequence[Mapping[str, Any]] = definition["columns"]
        self.columns = columns
        self.primary: Sequence[tuple[str, int]] = definition.get("primary", ())

    def in_order(self, mariadb: bool) -> Iterator[tuple[tuple[int, ...], Callable[[], _Field]]]:
        """Field types, of which an event has at most one, and what writes it; in the server's order."""
        yield (SIGNEDNESS,), self.signedness
        # MariaDB counts geometries among the columns with a character set (the binary one).
        texts = CHARACTER_TYPES | {Type.GEOMETRY} if mariadb else CHARACTER_TYPES
        yield (DEFAULT_CHARSET, COLUMN_CHARSET), lambda: self.charset(texts, DEFAULT_CHARSET)
        yield (GEOMETRY_TYPE,), self.geometry
        yield (VECTOR_DIMENSIONALITY,), self.vectors
        yield (COLUMN_NAME,), lambda: (COLUMN_NAME, _texts(c.name for c in self.columns))
        yield (
            (ENUM_AND_SET_DEFAULT_CHARSET, ENUM_AND_SET_COLUMN_CHARSET),
            lambda: self.charset(LABEL_TYPES, ENUM_AND_SET_DEFAULT_CHARSET),
        )
        yield (SET_STR_VALUE,), lambda: self.labels(Type.SET, SET_STR_VALUE)
        yield (ENUM_STR_VALUE,), lambda: self.labels(Type.ENUM, ENUM_STR_VALUE)
        yield (SIMPLE_PRIMARY_KEY, PRIMARY_KEY_WITH_PREFIX), self.key
        if mariadb:  # which never says what is visible
            yield (COLUMN_TYPES,), self.types
        else:
            yield (COLUMN_VISIBILITY,), self.visibility

    def _of(self, wanted: Iterable[int]) -> list[int]:
        return [i for i, code in enumerate(self.codes) if code in wanted]

    def signedness(self) -> _Field:
        # YEAR counts as a number, and as unsigned.
        at = self._of(SIGNED_TYPES)
        return SIGNEDNESS, _bits(
            [self.columns[i].unsigned or self.codes[i] == Type.YEAR for i in at]
        )

    def charset(self, wanted: frozenset[Type], default_code: int) -> _Field:
        """Either a default and its exceptions or one entry per column, whichever has fewer numbers."""
        collations = [self._collation(i) for i in self._of(wanted)]
        if not collations:
            return default_code, b""
        counted = Counter(collations)
        most = max(counted.values())
        default = min(collation for collation, count in counted.items() if count == most)
        if 1 + 2 * (len(collations) - most) > len(collations):
            return default_code + 1, b"".join(map(_packed, collations))
        out = bytearray(_packed(default))
        for i, collation in enumerate(collations):
            if collation != default:
                out += _packed(i) + _packed(collation)
        return default_code, bytes(out)

    def _collation(self, i: int) -> int:
        return int(self.entries[i].get("collation") or 0) or self.columns[i].charset or BINARY

    def geometry(self) -> _Field:
        out = bytearray()
        for i in self._of((Type.GEOMETRY,)):
            word = str(self.entries[i]["mysql_type"]).split()[0].lower()
            word = "geometrycollection" if word == "geomcollection" else word
            out += _packed(_GEOMETRIES.index(word) if word in _GEOMETRIES else 0)
        return GEOMETRY_TYPE, bytes(out)

    def vectors(self) -> _Field:
        """How many floats: from `vector(n)`."""
        texts = [str(self.entries[i]["mysql_type"]) for i in self._of((Type.VECTOR,))]
        sizes = [int(text.partition("(")[2].rstrip(") ") or 0) for text in texts]
        return VECTOR_DIMENSIONALITY, b"".join(map(_packed, sizes))

    def labels(self, wanted: Type, code: int) -> _Field:
        out = bytearray()
        for i in self._of((wanted,)):
            labels = [bytes.fromhex(label) for label in self.entries[i].get("labels") or ()]
            out += _packed(len(labels))
            for label in labels:
                out += _packed(len(label)) + label
        return code, bytes(out)

    def key(self) -> _Field:
        names = [column.name for column in self.columns]
        parts = [(names.index(name), prefix) for name, prefix in self.primary]
        if any(prefix for _, prefix in parts):
            flat = [number for part in parts for number in part]
            return PRIMARY_KEY_WITH_PREFIX, b"".join(map(_packed, flat))
        return SIMPLE_PRIMARY_KEY, b"".join(_packed(at) for at, _ in parts)

    def visibility(self) -> _Field:
        return COLUMN_VISIBILITY, _bits([bool(e.get("visible", True)) for e in self.entries])

    def types(self) -> _Field:
        all_ = [str(entry["mysql_type"]).lower() for entry in self.entries]
        texts = [text if text in STORED_AS_BINARY else "" for text in all_]
        for i in self._of(OLD_TEMPORALS):
            texts[i] = all_[i].partition("/*")[0].strip()
        return COLUMN_TYPES, _texts(texts) if any(texts) else b""


# -- bytes ----------------------------------------------------------------------------------------------------


def _types(codes: bytes, meta: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    for code in codes:
        size = META_BYTES.get(code)
        if size is None:
            raise BinlogError(Kind.UNSUPPORTED_TYPE, f"type code {code}")
        raw = meta[at : at + size]
        if len(raw) < size:
            raise IndexError
        at += size
        real = raw[0] if code == Type.STRING else code
        yield (real if real in LABEL_TYPES else code), raw
    if at != len(meta):
        raise IndexError


def _packed_at(body: bytes, at: int) -> tuple[int, int]:
    """(value, offset behind it) of a packed integer."""
    first = body[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}.get(first)
    if size is None or at + 1 + size > len(body):
        raise IndexError
    return int.from_bytes(body[at + 1 : at + 1 + size], "little"), at + 1 + size


def _numbers(value: bytes) -> Iterator[int]:
    at = 0
    while at < len(value):
        number, at = _packed_at(value, at)
        yield number


def _packed(value: int) -> bytes:
    if value < 251:
        return bytes((value,))
    for first, size in ((252, 2), (253, 3)):
        if value < 1 << 8 * size:
            return bytes((first,)) + value.to_bytes(size, "little")
    return b"\xfe" + value.to_bytes(8, "little")


def _texts(texts: Iterable[str]) -> bytes:
    raw = [text.encode("utf-8", "surrogateescape") for text in texts]
    return b"".join(_packed(len(text)) + text for text in raw)


def _bits(flags: Sequence[bool]) -> bytes:
    """Most significant bit first."""
    out = bytearray((len(flags) + 7) // 8)
    for i, flag in enumerate(flags):
        out[i >> 3] |= flag << 7 - (i & 7)
    return bytes(out)
