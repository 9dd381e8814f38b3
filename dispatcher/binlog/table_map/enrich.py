"""Enriches TABLE_MAP events: writes the optional fields that the server omitted, from a table's definition.

A server with `binlog_row_metadata=FULL` writes columns' names, labels and the primary key into each TABLE_MAP. A server
with MINIMAL, or an older server, does not write these fields. This module adds them from `information_schema`, in the
server's own fields and order, so that decoders see only one kind of TABLE_MAP. It does not change fields that the event
already contains.

A definition of another version of the table may match an event by chance. `dispatch.tables.versions` proves that a
definition belongs to an event; this module only refuses a definition whose types, lengths or nullability contradict the
event.

Sources: MySQL source, sql/log_event.cc (Table_map_log_event::init_metadata_fields); MariaDB sql/log_event_server.cc.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any

from dispatcher.binlog.charset.collations import BINARY
from dispatcher.binlog.event.cursor import ByteCursor
from dispatcher.binlog.table_map import inet
from dispatcher.binlog.table_map.column_definition import defined_columns, fits
from dispatcher.binlog.table_map.column_types import (
    CHARACTER_TYPES,
    LABEL_TYPES,
    OLD_TEMPORALS,
    SIGNED_TYPES,
    Column,
    Type,
)
from dispatcher.binlog.table_map.optional_metadata import TEXTS_OF_MARIADB, OptionalMetadata
from dispatcher.binlog.table_map.parse import TableMap, types_of
from dispatcher.binlog.table_map.table_kind import TableKind, encode_kind
from dispatcher.binlog.table_map.wire import (
    NAME,
    Field,
    RawTableMap,
    bits,
    encode_field,
    encode_packed,
    length_prefixed,
)
from dispatcher.model.errors import SEEK, BinlogError, ErrorKind, full_metadata

Definition = Mapping[str, Any]
"""A table as `mysql.table_schema` describes it."""


class IncompleteError(BinlogError):
    """A derived definition lacks something that the TABLE_MAP lacks, too."""


def names_columns(body: bytes) -> bool:
    """True if a TABLE_MAP names its columns."""
    return Field.COLUMN_NAME in RawTableMap.of(body).fields


class Lacks(Enum):
    """What a definition must supply for a TABLE_MAP."""

    NOTHING = auto()
    KIND = auto()  # only the kind of the table, see `table_kind`
    COLUMNS = auto()


def lacks(body: bytes, *, mariadb: bool) -> Lacks:
    """Returns what the body of a TABLE_MAP lacks. Raises `BinlogError` MALFORMED_EVENT."""
    raw_map = RawTableMap.of(body)
    if Field.COLUMN_NAME not in raw_map.fields or (mariadb and _ambiguous(raw_map)):
        return Lacks.COLUMNS
    return Lacks.KIND if mariadb and _lacks_kind(raw_map.fields, body) else Lacks.NOTHING


def _lacks_kind(fields: Mapping[int, bytes], body: bytes) -> bool:
    return Field.TABLE_KIND not in fields and TableMap.parse(body).kind is TableKind.DOUBT


def lacks_only_declared_types(body: bytes) -> bool:
    """True if a TABLE_MAP lacks at most the declared types of BINARY(n) columns, which MariaDB may have declared as
    UUID, INET4 or INET6. Without the declared type, the values of such columns are bytes."""
    raw_map = RawTableMap.of(body)
    old = any(code in OLD_TEMPORALS for code, _ in raw_map.types)
    return names_columns(body) and not old


def _ambiguous(raw_map: RawTableMap) -> bool:
    """True if the event does not show whether a column is BINARY(n) or a type that MariaDB stores as BINARY(n), or if
    it does not show the size of a column's cells."""
    if Field.COLUMN_TYPES in raw_map.fields:
        return False
    types = types_of(raw_map)
    metadata = OptionalMetadata(types, mariadb=True)
    for code in (Field.DEFAULT_CHARSET, Field.COLUMN_CHARSET):
        if code in raw_map.fields:
            metadata.read(code, ByteCursor(NAME, raw_map.fields[code]))
    return any(
        code in OLD_TEMPORALS
        or (
            code == Type.STRING
            and meta in inet.SIZES.values()
            and metadata.charsets.get(i, BINARY) == BINARY
        )
        for i, (code, meta) in enumerate(types)
    )


def enriched_body(body: bytes, definition: Definition, *, mariadb: bool = False) -> bytes:
    """Return the body of the TABLE_MAP that a server with full metadata writes for a table with this definition.

    Raises `BinlogError`: METADATA_MISSING if the definition contradicts the event or lacks a label (`IncompleteError`
    if a derived definition lacks something), UNSUPPORTED_TYPE for an unknown column type.
    """
    raw_map = RawTableMap.of(body)
    columns = defined_columns(definition)
    # The types of a sequence's columns depend on its statement. If the event names the columns, they do not matter.
    if definition.get("kind") != "sequence" or Field.COLUMN_NAME not in raw_map.fields:
        _check(raw_map, definition, columns)
    ours = _Fields(raw_map, definition, columns)
    fields = dict(raw_map.fields)
    out = bytearray(body[: raw_map.end])
    for codes, make in ours.in_order(mariadb):
        there = next((code for code in codes if code in fields), None)
        code, value = (there, fields.pop(there)) if there is not None else make()
        if value or there is not None:
            out += encode_field(code, value)
    for code, value in fields.items():
        out += encode_field(code, value)
    if mariadb and _lacks_kind(fields, bytes(out)) and (kind := encode_kind(definition)):
        out += encode_field(Field.TABLE_KIND, kind)
    return bytes(out)


def marked_unknown(body: bytes, reason: str) -> bytes:
    """Return the body of a TABLE_MAP with the field UNKNOWN_DEFINITION."""
    return body + encode_field(Field.UNKNOWN_DEFINITION, reason.encode())


# -- the definition -------------------------------------------------------------------------------------------


def _check(raw_map: RawTableMap, definition: Definition, columns: Sequence[Column]) -> None:
    if len(columns) != len(raw_map.types):
        raise _other(raw_map, f"it has {len(columns)} columns, the event has {len(raw_map.types)}")
    names = raw_map.fields.get(Field.COLUMN_NAME)
    if names is not None and names != _texts(column.name for column in columns):
        raise _other(raw_map, "it has other column names than the event")
    entries = zip(definition["columns"], columns, types_of(raw_map), raw_map.nullable, strict=True)
    for entry, column, (code, meta), nullable in entries:
        if not fits(code, meta, column, entry.get("bytes")):
            raise _other(
                raw_map, f"column {column.name!r} ({entry['mysql_type']}) has another type than the event says"
            )  # fmt: skip
        # A column that is nullable in the definition may be NOT NULL in the event: a primary key makes it NOT NULL.
        if nullable and not column.nullable:
            raise _other(raw_map, f"column {column.name!r} is NOT NULL, but nullable in the event")


def _other(raw_map: RawTableMap, why: str) -> BinlogError:
    return BinlogError(
        ErrorKind.METADATA_MISSING,
        f"the known definition of table {raw_map.database}.{raw_map.table} does not match the event: {why}",
        remedy="the table was altered without a trace in the log (sql_log_bin=0, or the position is older than the"
        f" alteration): move the consumer past the alteration ({SEEK}), and copy the table afresh",
    )


# -- the fields -----------------------------------------------------------------------------------------------


_Written = tuple[int, bytes]  # type and value


class _Fields:
    """Writes the optional fields of a definition, one per method. The server omits a field with an empty value."""

    def __init__(
        self, raw_map: RawTableMap, definition: Definition, columns: Sequence[Column]
    ) -> None:
        self.table = f"{raw_map.database}.{raw_map.table}"
        self.codes = [code for code, _ in raw_map.types]
        self.entries: Sequence[Mapping[str, Any]] = definition["columns"]
        self.columns = columns
        self.derived = bool(definition.get("derived"))
        self.primary: Sequence[tuple[str, int]] | None = definition.get("primary", ())

    def in_order(self, mariadb: bool) -> Iterator[tuple[tuple[int, ...], Callable[[], _Written]]]:
        """Yield a pair for each field, in the order in which the server writes them: the alternative types of the
        field, of which an event has at most one, and the method that writes the field."""
        yield (Field.SIGNEDNESS,), self.signedness
        # MariaDB also writes a character set for geometry columns: the binary one.
        texts = TEXTS_OF_MARIADB if mariadb else CHARACTER_TYPES
        yield (
            (Field.DEFAULT_CHARSET, Field.COLUMN_CHARSET),
            lambda: self.charset(texts, Field.DEFAULT_CHARSET),
        )
        yield (Field.GEOMETRY_TYPE,), self.geometry
        yield (Field.VECTOR_DIMENSIONALITY,), self.vectors
        yield (
            (Field.COLUMN_NAME,),
            lambda: (Field.COLUMN_NAME, _texts(c.name for c in self.columns)),
        )
        yield (
            (Field.ENUM_AND_SET_DEFAULT_CHARSET, Field.ENUM_AND_SET_COLUMN_CHARSET),
            lambda: self.charset(LABEL_TYPES, Field.ENUM_AND_SET_DEFAULT_CHARSET),
        )
        yield (Field.SET_STR_VALUE,), lambda: self.labels(Type.SET, Field.SET_STR_VALUE)
        yield (Field.ENUM_STR_VALUE,), lambda: self.labels(Type.ENUM, Field.ENUM_STR_VALUE)
        yield (Field.SIMPLE_PRIMARY_KEY, Field.PRIMARY_KEY_WITH_PREFIX), self.key
        if mariadb:  # MariaDB never writes COLUMN_VISIBILITY
            yield (Field.COLUMN_TYPES,), self.types
        else:
            yield (Field.COLUMN_VISIBILITY,), self.visibility

    def _of(self, types: Iterable[int]) -> list[int]:
        return [i for i, code in enumerate(self.codes) if code in types]

    def signedness(self) -> _Written:
        # To the server, YEAR is an unsigned number.
        at = self._of(SIGNED_TYPES)
        return Field.SIGNEDNESS, bits(
            [self.columns[i].unsigned or self.codes[i] == Type.YEAR for i in at]
        )

    def charset(self, types: frozenset[Type], default_code: int) -> _Written:
        """Write a default character set and the columns that differ from it, or one character set per column: the form
        that has fewer numbers."""
        collations = [self._collation(i) for i in self._of(types)]
        if not collations:
            return default_code, b""
        counted = Counter(collations)
        most = max(counted.values())
        default = min(collation for collation, count in counted.items() if count == most)
        if 1 + 2 * (len(collations) - most) > len(collations):
            return default_code + 1, b"".join(map(encode_packed, collations))
        out = bytearray(encode_packed(default))
        for i, collation in enumerate(collations):
            if collation != default:
                out += encode_packed(i) + encode_packed(collation)
        return default_code, bytes(out)

    def _incomplete(self, what: str) -> IncompleteError:
        return IncompleteError(
            ErrorKind.METADATA_MISSING,
            f"the statements in the log do not show {what} of table {self.table}",
        )

    def _collation(self, i: int) -> int:
        if self.entries[i].get("collation", 0) is None and self.codes[i] not in LABEL_TYPES:
            raise self._incomplete("the character sets")
        return int(self.entries[i].get("collation") or 0) or self.columns[i].charset or BINARY

    def geometry(self) -> _Written:
        kinds = [self.columns[i].geometry for i in self._of((Type.GEOMETRY,))]
        return Field.GEOMETRY_TYPE, b"".join(map(encode_packed, kinds))

    def vectors(self) -> _Written:
        sizes = [self.columns[i].dimensions for i in self._of((Type.VECTOR,))]
        return Field.VECTOR_DIMENSIONALITY, b"".join(map(encode_packed, sizes))

    def labels(self, kind: Type, code: int) -> _Written:
        out = bytearray()
        for i in self._of((kind,)):
            entry = self.entries[i]
            if entry.get("labels", ()) is None and self.derived:
                raise self._incomplete("the labels")
            if entry.get("labels", ()) is None:
                raise BinlogError(
                    ErrorKind.METADATA_MISSING,
                    f"table {self.table}, column {entry['name']!r}: a label holds '?' or a character that the server's"
                    " schema shows as '?'",
                    remedy=f"{full_metadata()}, and move the consumer past the change ({SEEK}), or leave the table"
                    " out of its tables",
                )
            labels = [bytes.fromhex(label) for label in entry.get("labels", ())]
            out += encode_packed(len(labels)) + length_prefixed(labels)
        return code, bytes(out)

    def key(self) -> _Written:
        if self.primary is None:
            raise self._incomplete("the primary key")
        names = [column.name for column in self.columns]
        parts = [(names.index(name), prefix) for name, prefix in self.primary]
        if any(prefix for _, prefix in parts):
            flat = [number for part in parts for number in part]
            return Field.PRIMARY_KEY_WITH_PREFIX, b"".join(map(encode_packed, flat))
        return Field.SIMPLE_PRIMARY_KEY, b"".join(encode_packed(at) for at, _ in parts)

    def visibility(self) -> _Written:
        return Field.COLUMN_VISIBILITY, bits([bool(e.get("visible", True)) for e in self.entries])

    def types(self) -> _Written:
        texts = [column.declared for column in self.columns]
        for i in self._of(OLD_TEMPORALS):
            texts[i] = str(self.entries[i]["mysql_type"]).lower().partition("/*")[0].strip()
        return Field.COLUMN_TYPES, _texts(texts) if any(texts) else b""


def _texts(texts: Iterable[str]) -> bytes:
    return length_prefixed(text.encode() for text in texts)
