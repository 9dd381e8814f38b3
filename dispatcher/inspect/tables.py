"""The table maps in force, and how rows are decoded where a table map says too little.

A TABLE_MAP without column names (MySQL before 8.0, binlog_row_metadata=MINIMAL) still says how long each cell is. To
show such rows it is completed with what can be said of them: columns are called @1, @2 ... as mysqlbinlog does, text of
an unknown character set is bytes, ENUM and SET are their numbers. Nothing is guessed: `Table.unsure` lists the columns
whose sign or character set the log does not tell, and the output shows them accordingly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dispatcher.binlog.charsets import BINARY
from dispatcher.binlog.logfile import LogFormat
from dispatcher.binlog.table_map import TableMap
from dispatcher.binlog.types import (
    CHARACTER_TYPES,
    LABEL_TYPES,
    META_BYTES,
    SIGNED_TYPES,
    Column,
    Type,
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

    def map(self, body: bytes, log: LogFormat) -> Table:
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

    def of_rows(self, raw: bytes, log: LogFormat) -> Table | None:
        return self._in_force.get(table_id(raw, log))


def table_id(raw: bytes, log: LogFormat) -> int:
    """Of a whole rows event."""
    return int.from_bytes(raw[19 : 23 if log.short_table_ids else 25], "little")


def _table(body: bytes) -> Table:
    number = int.from_bytes(body[:6], "little")
    try:
        parsed = TableMap.parse(body)
    except BinlogError as error:
        database, name = _names(body)
        table = Table(number, database, name, body, error=f"{error.kind}: {error.what}")
        table.undecodable = table.error
        return table
    names = tuple(column.name or f"@{i + 1}" for i, column in enumerate(parsed.columns))
    table = Table(number, parsed.database, parsed.table, body, parsed)
    if not parsed.named:
        table.no_sign = frozenset(_unsigned_unknown(body, parsed))
        table.no_charset = frozenset(
            i
            for i, column in enumerate(parsed.columns)
            if column.type in CHARACTER_TYPES and not column.charset
        )
        table.body = _completed(body, parsed.columns, names)
    return table


def _names(body: bytes) -> tuple[str, str]:
    """Database and table of a body whose columns cannot be read; raises as TableMap.parse did where they cannot."""
    end = 9 + body[8] if len(body) > 8 else len(body)
    after = end + 2 + body[end + 1] if len(body) > end + 1 else len(body)
    if after >= len(body):
        TableMap.parse(body)
    return body[9:end].decode("utf-8", "replace"), body[end + 2 : after].decode("utf-8", "replace")


def _unsigned_unknown(body: bytes, parsed: TableMap) -> Sequence[int]:
    numeric = [i for i, column in enumerate(parsed.columns) if column.type in SIGNED_TYPES]
    start, _ = _column_bytes(body, len(parsed.columns))
    return (
        () if body[start:].startswith(b"\1") else numeric
    )  # the first optional field is SIGNEDNESS, if there is one


def _column_bytes(body: bytes, count: int) -> tuple[int, list[bytes]]:
    """(offset of the optional fields, type and metadata bytes of each column) of a body that has been parsed."""
    at = 8
    for _ in range(2):
        at += body[at] + 2
    at = _behind_packed(body, at)
    codes = body[at : at + count]
    at = _behind_packed(body, at + count)
    columns = []
    for code in codes:
        columns.append(bytes((code,)) + body[at : at + META_BYTES[code]])
        at += META_BYTES[code]
    return at + (count + 7) // 8, columns


def _behind_packed(body: bytes, at: int) -> int:
    return at + {252: 3, 253: 4, 254: 9}.get(body[at], 1)


def _completed(body: bytes, columns: Sequence[Column], names: Sequence[str]) -> bytes:
    """The table map with names, and with types that can be shown without what is missing."""
    optional_at, raw = _column_bytes(body, len(columns))
    codes, metas, signs, charsets = bytearray(), bytearray(), [], b""
    for column, own in zip(columns, raw, strict=True):
        code, meta, unsigned = own[0], own[1:], column.unsigned
        if column.type in LABEL_TYPES:
            code, meta, unsigned = _INTEGERS[column.meta], b"", True
        elif column.type == Type.STRING and column.charset in (0, BINARY):
            # The log has it without the zero bytes at its end, and nothing tells whether it is CHAR or BINARY.
            code, meta = Type.VARCHAR, column.meta.to_bytes(2, "little")
        codes.append(code)
        metas += meta
        if code in SIGNED_TYPES:
            signs.append(unsigned)
        if code in CHARACTER_TYPES:
            charsets += _packed(column.charset or BINARY)
    bits = bytearray((len(signs) + 7) // 8)
    for i, unsigned in enumerate(signs):
        bits[i >> 3] |= 0x80 >> (i & 7) if unsigned else 0
    encoded = [name.encode() for name in names]
    at = 8
    for _ in range(2):
        at += body[at] + 2
    nulls = body[optional_at - (len(columns) + 7) // 8 : optional_at]
    out = body[:at] + _packed(len(columns)) + codes + _packed(len(metas)) + metas + nulls
    fields = [
        (1, bytes(bits)),
        (3, charsets),
        (4, b"".join(_packed(len(name)) + name for name in encoded)),
    ]
    for code, value in fields:
        if value:
            out += bytes((code,)) + _packed(len(value)) + value
    return bytes(out)


def _packed(n: int) -> bytes:
    if n < 251:
        return bytes((n,))
    return b"\xfc" + n.to_bytes(2, "little") if n < 1 << 16 else b"\xfd" + n.to_bytes(3, "little")
