"""The table maps in force, and how rows are decoded where a table map says too little.

A TABLE_MAP without column names (MySQL before 8.0, binlog_row_metadata=MINIMAL) still says how long each cell is. To
show such rows it is completed with what can be said of them: columns are called @1, @2 ... as mysqlbinlog does, text of
an unknown character set is bytes, ENUM and SET are their numbers. Nothing is guessed: `Table.unsure` lists the columns
whose sign or character set the log does not tell, and the output shows them accordingly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dispatcher.binlog.charset.collations import BINARY
from dispatcher.binlog.event.header import FormatDescription
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
from dispatcher.inspect.entry import Fields
from dispatcher.model.errors import BinlogError

DUMMY_ID = 0xFFFFFF  # of a rows event without rows, that only ends a statement
_REMEMBERED_MAX = 4096
_INTEGERS = {1: Type.TINY, 2: Type.SHORT, 3: Type.INT24, 4: Type.LONG, 8: Type.LONGLONG}


@dataclass(slots=True, eq=False)
class Table:
    """One layout of one table. `body`: of a TABLE_MAP that names all columns; `map`: None where `error` says why;
    `no_sign`, `no_charset`: indices of columns of which the log does not tell it."""

    id: int
    database: str
    name: str
    body: bytes
    map: TableMap | None = None
    error: str = ""
    no_sign: frozenset[int] = frozenset()
    no_charset: frozenset[int] = frozenset()
    undecodable: str = ""
    map_fields: Fields | None = None
    rows_fields: Fields | None = None

    @property
    def label(self) -> str:
        return ".".join("`" + name.replace("`", "``") + "`" for name in (self.database, self.name))


class Tables:
    """Table id to table, as the log says so far."""

    def __init__(self) -> None:
        self._in_force: dict[int, Table] = {}
        self._known: dict[bytes, Table] = {}

    def forget(self) -> None:
        """Another file begins: ids may mean other tables."""
        self._in_force.clear()

    def map(self, body: bytes, log: FormatDescription) -> Table:
        """Take a TABLE_MAP's body into force. Raises `BinlogError` where not even its table can be read."""
        if log.short_table_ids:
            body = body[:4] + b"\0\0" + body[4:]
        if (table := self._known.get(body)) is None:
            table = _table(body)
            if len(self._known) >= _REMEMBERED_MAX:
                self._known.clear()
            self._known[body] = table
        self._in_force[table.id] = table
        return table

    def of_rows(self, raw: bytes, log: FormatDescription) -> Table | None:
        return self._in_force.get(rows_table_id(raw, log))


def rows_table_id(raw: bytes, log: FormatDescription) -> int:
    """Of a whole rows event."""
    return int.from_bytes(raw[19 : 23 if log.short_table_ids else 25], "little")


def _table(body: bytes) -> Table:
    number = int.from_bytes(body[:6], "little")
    try:
        parsed = TableMap.parse(body)
    except BinlogError as error:
        database, name = names_of(body)
        table = Table(number, database, name, body, error=f"{error.kind}: {error.what}")
        table.undecodable = table.error
        return table
    table = Table(number, parsed.database, parsed.table, body, parsed)
    if not parsed.named:
        skeleton = RawTableMap.of(body)
        if Field.SIGNEDNESS not in skeleton.fields:
            table.no_sign = frozenset(
                i for i, column in enumerate(parsed.columns) if column.type in SIGNED_TYPES
            )
        table.no_charset = frozenset(
            i
            for i, column in enumerate(parsed.columns)
            if column.type in CHARACTER_TYPES and not column.charset
        )
        table.body = _completed(skeleton, body, parsed.columns)
    return table


def _completed(skeleton: RawTableMap, body: bytes, columns: Sequence[Column]) -> bytes:
    """The table map with names, and with types that can be shown without what is missing."""
    codes, metas, signs, charsets = bytearray(), bytearray(), [], b""
    for column, (code, meta) in zip(columns, skeleton.types, strict=True):
        unsigned = column.unsigned
        if code in LABEL_TYPES:
            code, meta, unsigned = _INTEGERS[column.meta], b"", True  # noqa: PLW2901
        elif code == Type.STRING and column.charset in (0, BINARY):
            # The log has it without the zero bytes at its end, and nothing tells whether it is CHAR or BINARY.
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
    nulls = body[skeleton.end - (len(columns) + 7) // 8 : skeleton.end]
    return b"".join((
        body[: skeleton.start], encode_packed(len(columns)), codes, length_prefixed((bytes(metas),)), nulls,
        *(encode_field(code, value) for code, value in fields.items() if value),
    ))  # fmt: skip
