"""The table maps in force, as rows events need them and as the output shows them.

A TABLE_MAP without column names (MySQL before 8.0, binlog_row_metadata=MINIMAL) still tells the length of each cell. To
decode such rows, the map is completed with what is known of its columns: they are called @1, @2 ... as in mysqlbinlog,
text of an unknown character set is bytes, ENUM and SET are their numbers. `Table.no_sign` and `Table.no_charset` list
the columns whose sign or character set the log does not tell; the output shows them accordingly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dispatcher.binlog.charset.collations import BINARY, charset_of
from dispatcher.binlog.event.header import HEADER_SIZE, TABLE_ID_SIZE, FormatDescription
from dispatcher.binlog.table_map.column_types import (
    CHARACTER_TYPES,
    LABEL_TYPES,
    SIGNED_TYPES,
    Column,
    Type,
)
from dispatcher.binlog.table_map.parse import TableMap
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

DUMMY_ID = 0xFFFFFF  # the table id of a rows event without rows, which only ends a statement
_CACHED_MAX = 4096
_INTEGERS = {1: Type.TINY, 2: Type.SHORT, 3: Type.INT24, 4: Type.LONG, 8: Type.LONGLONG}
_NAMES: dict[int, str] = {
    Type.DECIMAL_OLD: "decimal", Type.TINY: "tinyint", Type.SHORT: "smallint", Type.INT24: "mediumint",
    Type.LONG: "int", Type.LONGLONG: "bigint", Type.FLOAT: "float", Type.DOUBLE: "double", Type.NULL: "null",
    Type.DATE: "date", Type.NEWDATE: "date", Type.YEAR: "year", Type.TIMESTAMP_OLD: "timestamp",
    Type.DATETIME_OLD: "datetime", Type.TIME_OLD: "time", Type.JSON: "json", Type.GEOMETRY: "geometry",
    Type.TYPED_ARRAY: "array", Type.VECTOR: "vector",
}  # fmt: skip
_FRACTIONAL: dict[int, str] = {
    Type.TIMESTAMP2: "timestamp",
    Type.DATETIME2: "datetime",
    Type.TIME2: "time",
}
_LABELLED: dict[int, str] = {Type.ENUM: "enum", Type.SET: "set"}
_BLOBS = {1: "tiny", 2: "", 3: "medium", 4: "long"}
_STRINGS: dict[int, tuple[str, str]] = {  # as text, as bytes
    Type.VARCHAR: ("varchar", "varbinary"),
    Type.VAR_STRING: ("varchar", "varbinary"),
    Type.MARIADB_VARCHAR_COMPRESSED: ("varchar", "varbinary"),
    Type.STRING: ("char", "binary"),
    Type.BLOB: ("text", "blob"),
    Type.MARIADB_BLOB_COMPRESSED: ("text", "blob"),
}
_CHARACTER_BYTES = {
    "utf8mb4": 4, "utf16": 4, "utf16le": 4, "utf32": 4, "gb18030": 4, "utf8mb3": 3, "ujis": 3, "eucjpms": 3,
    "ucs2": 2, "gbk": 2, "gb2312": 2, "big5": 2, "sjis": 2, "cp932": 2, "euckr": 2,
}  # fmt: skip


class Tables:
    """The tables by id, as the TABLE_MAP events define them so far."""

    def __init__(self) -> None:
        self._in_force: dict[int, Table] = {}
        self._cached: dict[bytes, Table] = {}

    def clear(self) -> None:
        """Forget the ids: in another file they may mean other tables."""
        self._in_force.clear()

    def map(self, body: bytes, log: FormatDescription) -> Table:
        """Put a TABLE_MAP's body into force. Raises `BinlogError` if not even the table's name can be read."""
        body = log.with_long_table_id(body)
        if (table := self._cached.get(body)) is None:
            table = _table(body)
            if len(self._cached) >= _CACHED_MAX:
                self._cached.clear()
            self._cached[body] = table
        self._in_force[table.id] = table
        return table

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
    """Returns the table map with column names, and with types that can be decoded without the missing metadata."""
    codes, metas, signs, charsets = bytearray(), bytearray(), [], b""
    for column, (code, meta) in zip(columns, raw_map.types, strict=True):
        unsigned = column.unsigned
        if code in LABEL_TYPES:
            code, meta, unsigned = _INTEGERS[column.meta], b"", True  # noqa: PLW2901
        elif code == Type.STRING and column.charset in (0, BINARY):
            # The log strips trailing zero bytes of BINARY, and does not tell CHAR from BINARY here.
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
        lines.append(line)
    data["columns"] = columns
    data["key"] = [columns[i]["name"] for i in table.map.key]
    if data["key"]:
        lines.append(f"#   primary key ({', '.join(data['key'])})")
    fields.lines = "\n".join(lines) + "\n"
    return fields


def type_text(column: Column) -> str:
    """Returns the type as COLUMN_TYPE of information_schema has it, without the character set, as far as the event
    tells it: `int unsigned`, `varchar(40)`, `enum('new','paid')`."""
    kind = column.type
    if kind in _FRACTIONAL:
        return _FRACTIONAL[kind] + (f"({column.meta})" if column.meta else "")
    if kind in _LABELLED:
        labels = ",".join("'" + label.replace("'", "''") + "'" for label in column.labels)
        return _LABELLED[kind] + (f"({labels})" if labels else "")
    if kind in _STRINGS:
        name = _STRINGS[kind][column.charset == BINARY]
        if kind in (Type.BLOB, Type.MARIADB_BLOB_COMPRESSED):
            return _BLOBS.get(column.meta, "") + name
        # Without a character set, the length in bytes is all that the event tells.
        charset = charset_of(column.charset) if column.charset else ""
        return f"{name}({column.meta // _CHARACTER_BYTES.get(charset, 1)})"
    if kind == Type.BIT:
        return f"bit({column.meta})"
    name = _NAMES.get(kind, f"type {kind}")
    if kind == Type.NEWDECIMAL:
        name = f"decimal({column.meta >> 8},{column.meta & 0xFF})"
    return name + (" unsigned" if column.unsigned and kind in SIGNED_TYPES else "")


def charset_text(column: Column) -> str:
    """Returns the character set, such as `utf8mb4`; "" if the column is not text, or the event does not tell it."""
    is_text = column.type in _LABELLED or (column.type in _STRINGS and column.charset != BINARY)
    return charset_of(column.charset) if is_text and column.charset else ""
