"""Describes events one by one: keeps the table maps in force, and remembers what it has read.

A log of small transactions consists of the same few bodies over and over (BEGIN, table maps), so bodies that tend to
repeat are read once and remembered, in bounded memory.
"""

from __future__ import annotations

from dispatcher.binlog.event.file import parse_format
from dispatcher.binlog.event.header import FLAG_IGNORABLE, FormatDescription
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.inspect.bodies import READERS, format_fields, table_fields
from dispatcher.inspect.entry import ROWS, Fields
from dispatcher.inspect.tables import DUMMY_ID, Tables, rows_table_id
from dispatcher.model.errors import BinlogError, ErrorKind

K = EventType
# Reading a member of an enumeration takes as long as the rest of what is done with most events.
_FORMAT_DESCRIPTION, _TABLE_MAP = int(K.FORMAT_DESCRIPTION), int(K.TABLE_MAP)
_REMEMBERED_MAX = 4096
_REMEMBERED_BYTES_MAX = 512
_PRE_GA = (K.PRE_GA_WRITE_ROWS, K.PRE_GA_UPDATE_ROWS, K.PRE_GA_DELETE_ROWS)
_REPEATING = frozenset((K.QUERY, K.MARIADB_BINLOG_CHECKPOINT))
_NOTHING = frozenset((K.STOP, K.SLAVE))
_DUMMY = Fields(note="no rows: it ends a statement")
_NO_TABLE = Fields(
    error="no TABLE_MAP_EVENT for this table stands before it in what is read; start at its transaction's beginning"
)


class Describer:
    """Reads bodies. `tables`: the table maps in force, which it keeps up to date."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._remembered: dict[tuple[int, bytes], Fields] = {}

    def describe(
        self, kind: int, raw: bytes, tail: int, flags: int, log: FormatDescription
    ) -> Fields:
        """`raw`: the whole event; `tail`: bytes of checksum at its end. A body that cannot be read gives `error`."""
        if kind in ROWS:
            return self._rows(raw, log)
        try:
            if kind == _FORMAT_DESCRIPTION:
                return format_fields(parse_format(raw))
            body = raw[19 : len(raw) - tail]
            if kind == _TABLE_MAP:
                return self._table_map(body, log)
            if len(body) > _REMEMBERED_BYTES_MAX or kind not in _REPEATING:
                return self._read(kind, raw, body, flags)
            key = (kind, body)
            if (found := self._remembered.get(key)) is None:
                found = self._read(kind, raw, body, flags)
                if len(self._remembered) >= _REMEMBERED_MAX:
                    self._remembered.clear()
                self._remembered[key] = found
            return found
        except BinlogError as error:
            return Fields(error=f"{error.kind}: {error.what}")

    def _rows(self, raw: bytes, log: FormatDescription) -> Fields:
        table = self.tables.of_rows(raw, log)
        if table is None:
            return _DUMMY if rows_table_id(raw, log) == DUMMY_ID else _NO_TABLE
        if table.rows_fields is None:
            table.rows_fields = Fields(
                {"database": table.database, "table": table.name},
                database=table.database,
                table=table.name,
                rows_of=table,
            )
        return table.rows_fields

    def _table_map(self, body: bytes, log: FormatDescription) -> Fields:
        table = self.tables.map(body, log)
        if table.map_fields is None:
            table.map_fields = table_fields(table)
        return table.map_fields

    def _read(self, kind: int, raw: bytes, body: bytes, flags: int) -> Fields:
        if kind in _PRE_GA:
            raise BinlogError(
                ErrorKind.UNSUPPORTED_EVENT,
                f"{type_name(kind)}: rows as MySQL 5.1 wrote them before its release; no server reads them any more",
            )
        reader = READERS.get(kind)
        if reader is not None:
            return reader(kind, raw, body)
        if kind in _NOTHING:
            return Fields()
        if flags & FLAG_IGNORABLE:
            return Fields(note="of an unknown type that may be ignored")
        raise BinlogError(ErrorKind.UNSUPPORTED_EVENT, type_name(kind))
