"""Parses TABLE_MAP events: the columns of the rows that follow.

Every TABLE_MAP contains the columns' types and sizes. Names, signedness, character sets, labels and the primary key are
optional fields. MySQL since 8.0 and MariaDB since 10.5 write all of them with binlog_row_metadata=FULL, and only
signedness and character sets with MINIMAL. Older servers write no optional fields. A definition from information_schema
can supply missing fields (`with_columns`). This module guesses no missing value, so a table whose columns have no names
cannot be decoded.

Source: MySQL source, libs/mysql/binlog/event/rows_event.{h,cpp} (Table_map_event).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from dispatcher.binlog.event.cursor import ByteCursor, malformed
from dispatcher.binlog.table_map.column_definition import defined_columns, fits
from dispatcher.binlog.table_map.column_types import META_BYTES, OLD_TEMPORALS, Column, Type
from dispatcher.binlog.table_map.optional_metadata import OptionalMetadata
from dispatcher.binlog.table_map.table_kind import NOT_VERSIONED, TableKind, may_be_special
from dispatcher.binlog.table_map.wire import NAME, POST_HEADER_SIZE, Field, RawTableMap
from dispatcher.model.errors import BinlogError, ErrorKind, full_metadata


@dataclass(frozen=True, slots=True)
class TableMap:
    """A table's definition. `key`: the primary key as indexes into `columns`; empty if the table has none or the server
    did not write it. `layout`: a hash of database, table, columns and metadata, without the table id.
    `default_charset`: collation id, 0 if the event has one per column. `row_end`: index of the column ROW END of a
    table of the kind VERSIONED. `unknown`: the reason if the daemon has delivered the rows although the table's
    definition is not known; else "". `lower_case_table_names`: the setting of the server; `database` and `table` are
    names of `folded_name` if the reader knows it."""

    table_id: int
    database: str
    table: str
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    layout: str
    default_charset: int = 0
    kind: TableKind = TableKind.TABLE
    row_end: int = NOT_VERSIONED
    unknown: str = ""
    lower_case_table_names: int = 0

    @property
    def label(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def named(self) -> bool:
        return all(column.name for column in self.columns)

    @classmethod
    def parse(cls, body: bytes) -> TableMap:
        """Parse a TABLE_MAP_EVENT's body (no header, no checksum).

        Raises `BinlogError`: MALFORMED_EVENT with the offset in the body, UNSUPPORTED_TYPE for a type code whose cells
        have an unknown length.
        """
        raw_map = RawTableMap.of(bytes(body))
        fields = raw_map.fields
        optional = OptionalMetadata(
            types_of(raw_map), mariadb=Field.COLUMN_VISIBILITY not in fields
        )
        for code, value in fields.items():
            optional.read(code, ByteCursor(f"{NAME} (optional field {code})", value))
        kind, row_end = optional.kind or (_kind(raw_map, optional), NOT_VERSIONED)
        return cls(
            raw_map.table_id,
            raw_map.database,
            raw_map.table,
            optional.columns(raw_map.nullable),
            optional.key,
            layout_id(body),
            optional.default_charset,
            kind,
            row_end,
            optional.unknown,
        )

    def with_columns(self, definition: Mapping[str, Any]) -> TableMap:
        """Return this table map with the fields that the server did not write, taken from `definition`, an answer of
        GET /v1/consumers/{c}/tables/{database.table}.

        Raises `BinlogError` METADATA_MISSING if the definition is of another version of the table.
        """
        supplied = defined_columns(definition, self.label)
        if len(supplied) != len(self.columns):
            raise self._other_version(
                f"it has {len(supplied)} columns, the event has {len(self.columns)}"
            )
        columns = []
        for own, other in zip(self.columns, supplied, strict=True):
            old = own.type in OLD_TEMPORALS
            renamed = own.name and own.name != other.name
            if renamed or (old and other.meta) or not fits(own.type, own.meta, other):
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
        return replace(self, columns=tuple(columns), key=key, unknown="")

    def require_names(self) -> None:
        """Raise `BinlogError` METADATA_MISSING if a column has no name, or if the definition is unknown."""
        if self.unknown:
            raise BinlogError(
                ErrorKind.METADATA_MISSING,
                f"the definition of table {self.label} is not known here: {self.unknown}",
                remedy=f"copy {self.label} afresh, begin after the last statement that altered it, or leave the table"
                f" out; {full_metadata()}, which lets later events name the columns",
            )
        if not self.named:
            raise BinlogError(
                ErrorKind.METADATA_MISSING,
                f"the log holds no column names for table {self.label}",
                remedy=f"{full_metadata()}, or supply the table's definition",
            )

    def with_all_versions(self) -> TableMap:
        """Return this table map without system versioning, so that old row versions in the log are rows like all
        others."""
        return replace(self, kind=TableKind.TABLE, row_end=NOT_VERSIONED)

    def require_kind(self) -> None:
        """Raise `BinlogError` METADATA_MISSING if the log does not show whether this is a sequence, a system-versioned
        table or another table."""
        if self.kind is TableKind.DOUBT:
            raise BinlogError(
                ErrorKind.METADATA_MISSING,
                f"the log does not show whether {self.label} is a table with columns like those of a sequence or of a"
                " system-versioned table of MariaDB, or is one, and its definition at this position is not known",
                remedy=f"leave {self.label} out if it is a sequence; otherwise copy it afresh, or begin after the last"
                " statement that altered it, and let the daemon read from the server (mysql:) with SELECT on it",
            )

    def _other_version(self, why: str) -> BinlogError:
        return BinlogError(
            ErrorKind.METADATA_MISSING,
            f"the definition supplied for table {self.label} does not match the event: {why}",
            remedy="the table was altered in between; set binlog_row_metadata=FULL, or copy the table afresh",
        )


def _kind(raw_map: RawTableMap, optional: OptionalMetadata) -> TableKind:
    """Returns the kind of a table whose event does not show the kind."""
    if not optional.mariadb or not optional.names:
        return TableKind.TABLE
    special = may_be_special(optional.types, raw_map.nullable, optional.names, optional.key)
    return TableKind.DOUBT if special else TableKind.TABLE


def layout_id(body: bytes) -> str:
    """Hash a TABLE_MAP's body without table id and flags: 16 hex digits, equal for equal layouts."""
    return blake2b(body[POST_HEADER_SIZE:], digest_size=8).hexdigest()


def types_of(raw_map: RawTableMap) -> tuple[tuple[int, int], ...]:
    """Return (type, meta) of each column, as `column_types` describes them. Raises `BinlogError` MALFORMED_EVENT."""
    return tuple(
        (code, _meta(code, raw, f"column {i + 1}")) for i, (code, raw) in enumerate(raw_map.types)
    )


def _meta(code: int, raw: bytes, column: str) -> int:
    """Return a column's normalised metadata. Raises `BinlogError` MALFORMED_EVENT if the metadata are invalid."""
    match code:
        case Type.STRING:
            # A CHAR has up to 1020 bytes. The byte of the real type contains the two high bits of the length, inverted
            # (Bug#37426).
            if raw[0] | 0x30 != Type.STRING:
                raise malformed(NAME, f"has a string of real type {raw[0]} in {column}")
            meta = raw[1] | (~raw[0] & 0x30) << 4
        case Type.ENUM | Type.SET:
            meta = raw[1]
        case Type.BIT:
            meta = raw[0] + 8 * raw[1] if raw[0] < 8 else 0
        case Type.NEWDECIMAL:
            meta = raw[0] << 8 | raw[1]
        case _:
            meta = int.from_bytes(raw, "little")
    if not _meta_ok(code, meta):
        raise malformed(NAME, f"has metadata {raw.hex()} for the {Type(code).name} {column}")
    return meta


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
        case Type.NEWDECIMAL:
            return 1 <= meta >> 8 <= 65 and meta & 0xFF <= min(meta >> 8, 38)
        case Type.FLOAT:
            return meta == 4
        case Type.DOUBLE:
            return meta == 8
        case Type.DATETIME2 | Type.TIMESTAMP2 | Type.TIME2:
            return meta <= 6
        case Type.BLOB | Type.JSON | Type.GEOMETRY | Type.VECTOR | Type.MARIADB_BLOB_COMPRESSED:
            return 1 <= meta <= 4
    return code in META_BYTES
