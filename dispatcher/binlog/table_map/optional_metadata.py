"""Parses the optional fields of a TABLE_MAP event: names, signedness, character sets, labels, key, and more.

`OptionalMetadata` reads one field at a time and stores the field's values by the column's number in the table. Most
fields contain entries only for some columns: SIGNEDNESS, for example, only for numeric columns. Most of this file maps
the entries of a field to the columns of the table.

Sources: MySQL source, libs/mysql/binlog/event/rows_event.{h,cpp} (Table_map_event::Optional_metadata_fields),
sql/log_event.cc (Table_map_log_event::init_metadata_fields); MariaDB source, sql/log_event_server.cc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dispatcher.binlog.charset import transcode
from dispatcher.binlog.charset.collations import BINARY
from dispatcher.binlog.event.cursor import ByteCursor, malformed
from dispatcher.binlog.table_map import inet
from dispatcher.binlog.table_map.column_types import (
    CHARACTER_TYPES,
    LABEL_TYPES,
    OLD_TEMPORALS,
    SIGNED_TYPES,
    Column,
    Type,
)
from dispatcher.binlog.table_map.table_kind import TableKind, parse_kind
from dispatcher.binlog.table_map.wire import NAME, Field
from dispatcher.model.errors import BinlogError, ErrorKind

TEXTS_OF_MARIADB = CHARACTER_TYPES | {Type.GEOMETRY}
_FRACTION = re.compile(r"\w+\([1-6]\)")


@dataclass(slots=True)
class OptionalMetadata:
    """Collects the optional fields of one event.

    `mariadb`: True if the event may be MariaDB's. MariaDB never writes COLUMN_VISIBILITY (MySQL since 8.0.23 always
    does with full metadata), and writes a character set for geometry columns, too (the binary one).
    """

    types: Sequence[tuple[int, int]]
    mariadb: bool = False
    key: tuple[int, ...] = ()
    default_charset: int = 0
    geometries: dict[int, int] = field(default_factory=dict)
    dimensions: dict[int, int] = field(default_factory=dict)
    declared: dict[int, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    unsigned: set[int] = field(default_factory=set)
    charsets: dict[int, int] = field(default_factory=dict)
    labels: dict[int, list[bytes]] = field(default_factory=dict)
    hidden: set[int] = field(default_factory=set)
    kind: tuple[TableKind, int] | None = None  # None if the event does not show the kind
    unknown: str = ""  # why the definition is unknown

    def read(self, code: int, cursor: ByteCursor) -> None:  # noqa: C901, PLR0912 - one branch per field
        match code:
            case Field.SIGNEDNESS:
                self.unsigned = set(_set_bits(cursor, self._of(SIGNED_TYPES)))
            case Field.DEFAULT_CHARSET:
                self._default_text_charset(cursor)
            case Field.COLUMN_CHARSET:
                self._column_charset(cursor, self._of(CHARACTER_TYPES), more=Type.GEOMETRY)
            case Field.COLUMN_NAME:
                self._names(cursor)
            case Field.SET_STR_VALUE:
                self._labels(cursor, Type.SET)
            case Field.ENUM_STR_VALUE:
                self._labels(cursor, Type.ENUM)
            case Field.GEOMETRY_TYPE:
                self.geometries = self._numbers(cursor, Type.GEOMETRY)
            case Field.SIMPLE_PRIMARY_KEY:
                self._key(cursor, cursor.packed_numbers())
            case Field.PRIMARY_KEY_WITH_PREFIX:
                # Pairs (column, length of the prefix or 0). The lengths are dropped: if the prefixes are unique, the
                # values are, too.
                pairs = cursor.packed_numbers()
                if len(pairs) % 2:
                    raise cursor.malformed("has a key whose last prefix is missing")
                self._key(cursor, pairs[::2])
            case Field.ENUM_AND_SET_DEFAULT_CHARSET:
                self._default_charset(cursor, self._of(LABEL_TYPES))
            case Field.ENUM_AND_SET_COLUMN_CHARSET:
                self._column_charset(cursor, self._of(LABEL_TYPES))
            case Field.COLUMN_VISIBILITY:
                visible = set(_set_bits(cursor, list(range(len(self.types)))))
                self.hidden = set(range(len(self.types))) - visible
            case Field.VECTOR_DIMENSIONALITY:
                self.dimensions = self._numbers(cursor, Type.VECTOR)
            case Field.COLUMN_TYPES:
                self._declared(cursor)
            case Field.TABLE_KIND:
                self.kind = parse_kind(cursor, len(self.types))
            case Field.UNKNOWN_DEFINITION:
                self.unknown = cursor.text(len(cursor))

    def columns(self, nullable: Sequence[bool]) -> tuple[Column, ...]:
        return tuple(self._columns(nullable))

    def _columns(self, nullable: Sequence[bool]) -> Iterator[Column]:
        for i, (code, meta) in enumerate(self.types):
            charset = self.charsets.get(i, 0)
            yield Column(
                name=self.names[i] if self.names else "",
                type=code,
                meta=meta,
                unsigned=i in self.unsigned,
                nullable=nullable[i],
                charset=charset,
                labels=_label_texts(self.labels.get(i, ()), charset),
                visible=i not in self.hidden,
                declared=self._declared_type(i),
                geometry=self.geometries.get(i, -1),
                dimensions=self.dimensions.get(i, 0),
            )

    def _of(self, types: frozenset[Type] | tuple[Type, ...]) -> list[int]:
        return [i for i, (code, _) in enumerate(self.types) if code in types]

    def _numbers(self, cursor: ByteCursor, kind: Type) -> dict[int, int]:
        columns, numbers = self._of((kind,)), cursor.packed_numbers()
        if len(numbers) != len(columns):
            raise cursor.malformed(
                f"describes {len(numbers)} {kind.name} columns of {len(columns)}"
            )
        return dict(zip(columns, numbers, strict=True))

    def _declared(self, cursor: ByteCursor) -> None:
        names = []
        while len(cursor):
            names.append(cursor.sized_text())
        if len(names) != len(self.types):
            raise cursor.malformed(f"declares {len(names)} columns of {len(self.types)}")
        self.declared = {i: name.lower() for i, name in enumerate(names) if name}
        for i, name in self.declared.items():
            if self.types[i][0] in OLD_TEMPORALS and _FRACTION.match(name):
                raise BinlogError(
                    ErrorKind.UNSUPPORTED_TYPE,
                    f"column {i + 1}: {name} in MariaDB's old format, whose size is not in the log",
                    remedy="convert it with mysql56_temporal_format=ON and ALTER TABLE ... FORCE",
                )

    def _declared_type(self, i: int) -> str:
        """Return the declared type of a column. If the declared type contradicts the type code, the type code decides:
        return ""."""
        declared = self.declared.get(i, "")
        code, size = self.types[i]
        fits = code == Type.STRING and inet.SIZES.get(declared) == size
        return declared if fits and self.charsets.get(i, BINARY) == BINARY else ""

    def _default_text_charset(self, cursor: ByteCursor) -> None:
        start = cursor.at
        if self.mariadb and (geometries := self._of((Type.GEOMETRY,))):
            self.default_charset = self._default_charset(cursor, self._of(TEXTS_OF_MARIADB))
            if {self.charsets.pop(i) for i in geometries} == {BINARY}:
                return
            cursor.at = start
        self.default_charset = self._default_charset(cursor, self._of(CHARACTER_TYPES))

    def _default_charset(self, cursor: ByteCursor, columns: list[int]) -> int:
        default = cursor.packed_number()
        self.charsets.update(dict.fromkeys(columns, default))
        exceptions = cursor.packed_numbers()
        for at, collation in zip(exceptions[::2], exceptions[1::2], strict=False):
            if at >= len(columns):
                raise cursor.malformed(
                    f"gives a character set to column {at} of the {len(columns)} that can have one"
                )
            self.charsets[columns[at]] = collation
        if len(exceptions) % 2:
            raise cursor.malformed("names a column without its character set")
        return default

    def _column_charset(
        self, cursor: ByteCursor, columns: list[int], more: Type | None = None
    ) -> None:
        values = cursor.packed_numbers()
        with_more = self._of((*CHARACTER_TYPES, more)) if more else columns
        if len(values) == len(with_more):
            columns = with_more
        elif len(values) != len(columns):  # MySQL 9.0 and 9.1 write no entry for a VECTOR
            columns = [i for i in columns if self.types[i][0] != Type.VECTOR]
        if len(values) != len(columns):
            raise cursor.malformed(f"has {len(values)} character sets for {len(columns)} columns")
        self.charsets.update(zip(columns, values, strict=True))
        for i in self._of((Type.GEOMETRY,)):
            self.charsets.pop(i, None)

    def _names(self, cursor: ByteCursor) -> None:
        self.names = []
        while len(cursor):
            self.names.append(cursor.text(cursor.packed_number()))
        if len(self.names) != len(self.types) or not all(self.names):
            raise cursor.malformed(
                f"has {len(self.names)} column names for {len(self.types)} columns, or an empty one"
            )
        if len(set(self.names)) != len(self.names):
            raise cursor.malformed("names a column twice")

    def _labels(self, cursor: ByteCursor, kind: Type) -> None:
        columns = self._of((kind,))
        at = 0
        while len(cursor):
            if at == len(columns):
                raise cursor.malformed(f"has labels for more {kind.name} columns than there are")
            count = cursor.packed_number()
            if count > len(cursor):
                raise cursor.malformed(f"is cut short: {count} labels in {len(cursor)} bytes")
            self.labels[columns[at]] = [cursor.read(cursor.packed_number()) for _ in range(count)]
            at += 1

    def _key(self, cursor: ByteCursor, columns: list[int]) -> None:
        if any(at >= len(self.types) for at in columns) or len(set(columns)) != len(columns):
            raise cursor.malformed(f"has a primary key of columns {columns}, of {len(self.types)}")
        self.key = tuple(columns)


def _set_bits(cursor: ByteCursor, columns: list[int]) -> Iterator[int]:
    bits = cursor.read((len(columns) + 7) // 8)
    for i, column in enumerate(columns):
        if bits[i >> 3] & 0x80 >> (i & 7):
            yield column


def _label_texts(labels: Sequence[bytes], charset: int) -> tuple[str, ...]:
    """Decode labels from the column's character set. Return () if the character set is unknown; `arrow_type` reports
    this error later. Raises `BinlogError` MALFORMED_EVENT for a label that is invalid in the character set."""
    try:
        texts = [transcode.label(label, charset) for label in labels]
    except ValueError as error:
        raise malformed(NAME, f"holds a label that is not in its character set: {error}") from None
    return () if None in texts else tuple(text for text in texts if text is not None)
