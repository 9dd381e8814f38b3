"""The optional fields of a TABLE_MAP event: names, signedness, character sets, labels, key, and more.

Optional fields are type (1 byte), length (packed integer), value. Bits are most significant first; the null bits are
not. Unknown fields are skipped: a newer server adds fields that an older replica may ignore by definition.

One field is the daemon's own: COLUMN_TYPES, for each column a length byte and the declared type ("uuid", "inet6" ...),
empty where the server's fields say all. MariaDB's log does not tell such columns from BINARY(16) and BINARY(4).

Each field is read into `Optional` as it comes; what it says of a column is kept by the column's number, because most
fields count only the columns that they are about. How they count is the subject of most of this file.

Sources: MySQL source, libs/mysql/binlog/event/rows_event.{h,cpp} (Table_map_event::Optional_metadata_fields),
sql/log_event.cc (Table_map_log_event::init_metadata_fields); MariaDB source, sql/log_event_server.cc.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from dispatcher.binlog import addresses, texts
from dispatcher.binlog.charsets import BINARY
from dispatcher.binlog.types import (
    CHARACTER_TYPES,
    LABEL_TYPES,
    OLD_TEMPORALS,
    SIGNED_TYPES,
    Column,
    Type,
)
from dispatcher.model.errors import BinlogError, Kind

TEXTS_OF_MARIADB = CHARACTER_TYPES | {Type.GEOMETRY}
COLUMN_VISIBILITY = 12
COLUMN_TYPES = 0xBD
_FRACTION = re.compile(r"\w+\([1-6]\)")


class Cursor:
    """Reads forward, raises `BinlogError` at the first byte that is not there. `base`: offset of data in the body."""

    __slots__ = ("at", "base", "data", "end")

    def __init__(self, data: bytes, base: int = 0) -> None:
        self.data, self.base, self.at, self.end = data, base, 0, len(data)

    def bad(self, why: str) -> BinlogError:
        return BinlogError(
            Kind.MALFORMED_EVENT,
            f"TABLE_MAP_EVENT {why}",
            where=f"body offset {self.base + self.at}",
        )

    def take(self, size: int) -> bytes:
        if size > self.end - self.at:
            raise self.bad(f"is cut short: {size} bytes wanted, {self.end - self.at} left")
        self.at += size
        return self.data[self.at - size : self.at]

    def integer(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def packed(self) -> int:
        first = self.integer(1)
        if first < 251:
            return first
        if first not in (252, 253, 254):
            raise self.bad(f"has {first} where a length begins")
        return self.integer({252: 2, 253: 3, 254: 8}[first])

    def name(self) -> str:
        """Length (1 byte), name, zero byte."""
        text = self.text(self.integer(1))
        if self.integer(1) != 0:
            raise self.bad("has a name without its zero byte")
        return text

    def text(self, size: int) -> str:
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise self.bad("holds a name that is not UTF-8") from None

    def all(self, read: Callable[[], int]) -> list[int]:
        values = []
        while self.at < self.end:
            values.append(read())
        return values


@dataclass(slots=True)
class Optional:
    """Collects the optional fields of one event. `mariadb`: it may be of MariaDB, which never says what is visible, as
    MySQL always does with full metadata since 8.0.23, and which counts geometries among the columns with a character
    set (the binary one)."""

    types: list[tuple[int, int]]
    mariadb: bool = False
    key: tuple[int, ...] = ()
    prefixes: tuple[int, ...] = ()
    default_charset: int = 0
    geometries: dict[int, int] = field(default_factory=dict)
    dimensions: dict[int, int] = field(default_factory=dict)
    declared: dict[int, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    unsigned: set[int] = field(default_factory=set)
    charsets: dict[int, int] = field(default_factory=dict)
    labels: dict[int, list[bytes]] = field(default_factory=dict)
    hidden: set[int] = field(default_factory=set)

    def read(self, code: int, cursor: Cursor) -> None:  # noqa: C901, PLR0912 - one branch per field
        match code:
            case 1:  # SIGNEDNESS
                self.unsigned = set(_set_bits(cursor, self._of(SIGNED_TYPES)))
            case 2:  # DEFAULT_CHARSET
                self._default_text_charset(cursor)
            case 3:  # COLUMN_CHARSET
                self._column_charset(cursor, self._of(CHARACTER_TYPES), more=Type.GEOMETRY)
            case 4:  # COLUMN_NAME
                self._names(cursor)
            case 5:  # SET_STR_VALUE
                self._labels(cursor, Type.SET)
            case 6:  # ENUM_STR_VALUE
                self._labels(cursor, Type.ENUM)
            case 7:  # GEOMETRY_TYPE
                self.geometries = self._numbers(cursor, Type.GEOMETRY)
            case 8:  # SIMPLE_PRIMARY_KEY
                self._key(cursor, cursor.all(cursor.packed))
            case 9:  # PRIMARY_KEY_WITH_PREFIX: (column, length of the prefix or 0). A unique prefix makes the whole so.
                pairs = cursor.all(cursor.packed)
                if len(pairs) % 2:
                    raise cursor.bad("has a key whose last prefix is missing")
                self._key(cursor, pairs[::2])
                self.prefixes = tuple(pairs[1::2])
            case 10:  # ENUM_AND_SET_DEFAULT_CHARSET
                self._default_charset(cursor, self._of(LABEL_TYPES))
            case 11:  # ENUM_AND_SET_COLUMN_CHARSET
                self._column_charset(cursor, self._of(LABEL_TYPES))
            case 12:  # COLUMN_VISIBILITY
                visible = set(_set_bits(cursor, list(range(len(self.types)))))
                self.hidden = set(range(len(self.types))) - visible
            case 13:  # VECTOR_DIMENSIONALITY
                self.dimensions = self._numbers(cursor, Type.VECTOR)
            case _ if code == COLUMN_TYPES:
                self._declared(cursor)

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

    def _of(self, wanted: frozenset[Type] | tuple[Type, ...]) -> list[int]:
        return [i for i, (code, _) in enumerate(self.types) if code in wanted]

    def _numbers(self, cursor: Cursor, wanted: Type) -> dict[int, int]:
        columns, numbers = self._of((wanted,)), cursor.all(cursor.packed)
        if len(numbers) != len(columns):
            raise cursor.bad(f"tells of {len(numbers)} {wanted.name} columns of {len(columns)}")
        return dict(zip(columns, numbers, strict=True))

    def _declared(self, cursor: Cursor) -> None:
        names = [
            cursor.text(size)
            for size in iter(lambda: cursor.integer(1) if cursor.at < cursor.end else -1, -1)
        ]
        if len(names) != len(self.types):
            raise cursor.bad(f"declares {len(names)} columns of {len(self.types)}")
        self.declared = {i: name.lower() for i, name in enumerate(names) if name}
        for i, name in self.declared.items():
            if self.types[i][0] in OLD_TEMPORALS and _FRACTION.match(name):
                raise BinlogError(
                    Kind.UNSUPPORTED_TYPE,
                    f"column {i + 1}: {name} in MariaDB's old form, whose size is not in the log",
                    remedy="ALTER TABLE ... FORCE, with mysql56_temporal_format=ON, gives it the new form",
                )

    def _declared_type(self, i: int) -> str:
        """ "" for what contradicts the column: then it is read as what the server says."""
        declared = self.declared.get(i, "")
        code, size = self.types[i]
        fits = code == Type.STRING and addresses.SIZES.get(declared) == size
        return declared if fits and self.charsets.get(i, BINARY) == BINARY else ""

    def _default_text_charset(self, cursor: Cursor) -> None:
        start = cursor.at
        if self.mariadb and (geometries := self._of((Type.GEOMETRY,))):
            self.default_charset = self._default_charset(cursor, self._of(TEXTS_OF_MARIADB))
            if {self.charsets.pop(i) for i in geometries} == {BINARY}:
                return
            cursor.at = start
        self.default_charset = self._default_charset(cursor, self._of(CHARACTER_TYPES))

    def _default_charset(self, cursor: Cursor, columns: list[int]) -> int:
        default = cursor.packed()
        self.charsets.update(dict.fromkeys(columns, default))
        exceptions = cursor.all(cursor.packed)
        for at, collation in zip(exceptions[::2], exceptions[1::2], strict=False):
            if at >= len(columns):
                raise cursor.bad(f"gives a character set to column {at} of {len(columns)} with one")
            self.charsets[columns[at]] = collation
        if len(exceptions) % 2:
            raise cursor.bad("names a column without its character set")
        return default

    def _column_charset(self, cursor: Cursor, columns: list[int], more: Type | None = None) -> None:
        values = cursor.all(cursor.packed)
        with_more = self._of((*CHARACTER_TYPES, more)) if more else columns
        if len(values) == len(with_more):
            columns = with_more
        elif len(values) != len(columns):  # MySQL 9.0 and 9.1 have none for a VECTOR
            columns = [i for i in columns if self.types[i][0] != Type.VECTOR]
        if len(values) != len(columns):
            raise cursor.bad(f"has {len(values)} character sets for {len(columns)} columns")
        self.charsets.update(zip(columns, values, strict=True))
        for i in self._of((Type.GEOMETRY,)):
            self.charsets.pop(i, None)

    def _names(self, cursor: Cursor) -> None:
        self.names = []
        while cursor.at < cursor.end:
            self.names.append(cursor.text(cursor.packed()))
        if len(self.names) != len(self.types) or not all(self.names):
            raise cursor.bad(
                f"has {len(self.names)} column names for {len(self.types)} columns, or an empty one"
            )
        if len(set(self.names)) != len(self.names):
            raise cursor.bad("names a column twice")

    def _labels(self, cursor: Cursor, wanted: Type) -> None:
        columns = self._of((wanted,))
        at = 0
        while cursor.at < cursor.end:
            if at == len(columns):
                raise cursor.bad(f"has labels for more {wanted.name} columns than there are")
            count = cursor.packed()
            if count > cursor.end - cursor.at:
                raise cursor.bad(f"is cut short: {count} labels in {cursor.end - cursor.at} bytes")
            self.labels[columns[at]] = [cursor.take(cursor.packed()) for _ in range(count)]
            at += 1

    def _key(self, cursor: Cursor, columns: list[int]) -> None:
        if any(at >= len(self.types) for at in columns) or len(set(columns)) != len(columns):
            raise cursor.bad(f"has a primary key of columns {columns}, of {len(self.types)}")
        self.key = tuple(columns)


def _set_bits(cursor: Cursor, columns: list[int]) -> Iterator[int]:
    bits = cursor.take((len(columns) + 7) // 8)
    for i, column in enumerate(columns):
        if bits[i >> 3] & 0x80 >> (i & 7):
            yield column


def _label_texts(labels: Sequence[bytes], charset: int) -> tuple[str, ...]:
    """Labels stand in the column's character set; () where that is not known, which `arrow_type` then says."""
    try:
        found = [texts.label(label, charset) for label in labels]
    except ValueError as error:
        raise BinlogError(
            Kind.MALFORMED_EVENT,
            f"TABLE_MAP_EVENT holds a label that is not in its character set: {error}",
        ) from None
    return () if None in found else tuple(text for text in found if text is not None)
