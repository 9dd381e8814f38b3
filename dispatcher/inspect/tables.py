"""The current table map of each table id, in one form for decoding rows events and in another for the output.

A TABLE_MAP without column names (MySQL before 8.0, binlog_row_metadata=MINIMAL) still shows how long each cell is. To
decode rows with such a map, this module completes it. Columns get the names @1, @2 ..., as in mysqlbinlog. Text of
an unknown character set is decoded as bytes, and ENUM and SET as their numbers. `Table.no_sign` and `Table.no_charset`
list the columns whose sign or character set the log does not contain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dispatcher.binlog.charset.collations import BINARY
from dispatcher.binlog.event.header import HEADER_SIZE, TABLE_ID_SIZE, FormatDescription
from dispatcher.binlog.table_map.column_types import (
    CHARACTER_TYPES,
    LABEL_TYPES,
    SIGNED_TYPES,
    Column,
    Type,
)
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.binlog.table_map.type_text import charset_text, type_text
from dispatcher.binlog.table_map.wire import (
    Field,
    RawTableMap,
    bits,
    encode_field,
    encode_packed,
    length_prefixed,
    names_of,
)
from dispatcher.inspect.entry import Fields, Table, error_text
from dispatcher.model.errors import BinlogError
from dispatcher.model.printable import printable

DUMMY_ID = 0xFFFFFF  # the table id of a rows event that has no rows and only ends a statement
_CACHED_MAX = 4096
_INTEGERS = {1: Type.TINY, 2: Type.SHORT, 3: Type.INT24, 4: Type.LONG, 8: Type.LONGLONG}


class Tables:
    """The tables by id, as the TABLE_MAP events define them so far."""

    def __init__(self) -> None:
        self._in_force: dict[int, Table] = {}
        self._cached: dict[bytes, Table] = {}

    def clear(self) -> None:
        """Forget the table map of each table id, because in another file an id may mean another table."""
        self._in_force.clear()

    def map(self, body: bytes, log: FormatDescription) -> Table:
        """Parse the body of a TABLE_MAP, and make it the current table map of its table id. Raises `BinlogError` if the
        table's name cannot be read."""
        body = log.with_long_table_id(body)
        if (table := self._cached.get(body)) is None:
            table = _table(body)
            if len(self._cached) >= _CACHED_MAX:
                self._cached.clear()
            self._cached[body] = table
        self._in_force[table.id] = table
        return table

    def cached(self, body: bytes) -> Table | None:
        """Returns the table of a TABLE_MAP body that was parsed before, None if the body is not cached."""
        return self._cached.get(body)

    def bring_into_force(self, table: Table) -> None:
        self._in_force[table.id] = table

    def of_rows(self, raw: bytes, log: FormatDescription) -> Table | None:
        """Returns the table of a whole rows event."""
        return self._in_force.get(rows_table_id(raw, log))


def rows_table_id(raw: bytes, log: FormatDescription) -> int:
    """Returns the table id of a whole rows event."""
    size = 4 if log.short_table_ids else TABLE_ID_SIZE
    return int.from_bytes(raw[HEADER_SIZE : HEADER_SIZE + size], "little")


def _table(body: bytes) -> Table:
    number = int.from_bytes(body[:TABLE_ID_SIZE], "little")
    try:
        parsed = TableMap.parse(body)
    except BinlogError as error:
        text = error_text(error)
        return Table(number, *names_of(body), body, error=text, undecodable=text)
    table = Table(number, parsed.database, parsed.table, body, parsed)
    if not parsed.named:
        raw_map = RawTableMap.of(body)
        columns = list(enumerate(parsed.columns))
        if Field.SIGNEDNESS not in raw_map.fields:
            table.no_sign = frozenset(i for i, c in columns if c.type in SIGNED_TYPES)
        table.no_charset = frozenset(
            i for i, c in columns if c.type in CHARACTER_TYPES and not c.charset
        )
        table.body = _completed(raw_map, body, parsed.columns)
    return table


def _completed(raw_map: RawTableMap, body: bytes, columns: Sequence[Column]) -> bytes:
    """Completes a table map that was written without full metadata. The result contains column names, and types that
    can be decoded without the missing metadata."""
    codes, metas, signs, charsets = bytearray(), bytearray(), [], b""
    for column, (code, meta) in zip(columns, raw_map.types, strict=True):
        unsigned = column.unsigned
        if code in LABEL_TYPES:
            code, meta, unsigned = _INTEGERS[column.meta], b"", True  # noqa: PLW2901
        elif code == Type.STRING and column.charset in (0, BINARY):
            # The server strips trailing zero bytes of BINARY, and a log without metadata does not distinguish CHAR from
            # BINARY.
            code, meta = Type.VARCHAR, column.meta.to_bytes(2, "little")  # noqa: PLW2901
        codes.append(code)
        metas += meta
        if code in SIGNED_TYPES:
            signs.append(unsigned)
        if code in CHARACTER_TYPES:
            charsets += encode_packed(column.charset or BINARY)
    names = [(column.name or f"@{i + 1}").encode() for i, column in enumerate(columns)]
    fields = {
        Field.SIGNEDNESS: bits(signs),
        Field.COLUMN_CHARSET: charsets,
        Field.COLUMN_NAME: length_prefixed(names),
    }
    nulls = body[raw_map.end - (len(columns) + 7) // 8 : raw_map.end]
    return b"".join((
        body[: raw_map.start], encode_packed(len(columns)), codes, length_prefixed((bytes(metas),)), nulls,
        *(encode_field(code, value) for code, value in fields.items() if value),
    ))  # fmt: skip


def table_fields(table: Table) -> Fields:
    """Returns the fields of a table's TABLE_MAP event."""
    data: dict[str, Any] = {"database": table.database, "table": table.name, "table_id": table.id}
    note = f"{table.label}  id {table.id}"
    fields = Fields(data, database=table.database, table=table.name, note=note)
    if table.map is None:
        fields.error = table.error
        return fields
    columns, lines = [], []
    for number, column in enumerate(table.map.columns, 1):
        name, type_, charset = column.name or f"@{number}", type_text(column), charset_text(column)
        described: dict[str, Any] = {"name": name, "type": type_}
        line = f"#   {name} {type_}"
        if charset:
            described["charset"] = charset
            line += f" character set {charset}"
        described["nullable"] = column.nullable
        if not column.nullable:
            line += " not null"
        if not column.visible:
            described["visible"] = False
            line += " invisible"
        columns.append(described)
        lines.append(printable(line))
    data["columns"] = columns
    data["key"] = [columns[i]["name"] for i in table.map.key]
    if data["key"]:
        lines.append(printable(f"#   primary key ({', '.join(data['key'])})"))
    fields.lines = "\n".join(lines) + "\n"
    return fields
