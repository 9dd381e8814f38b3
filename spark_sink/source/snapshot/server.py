"""Asks the server of a snapshot for its tables, their keys, and the ends of chunks."""

from __future__ import annotations

from pathlib import Path

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.model.subscription import SYSTEM_DATABASES
from dispatcher.source.mysql.answers import Row, ask, fetch, optional_text, text_value
from dispatcher.source.mysql.driver import Connection
from dispatcher.source.mysql.login import Endpoint, Tls, TlsMode
from spark_sink.source.options import SourceOptions
from spark_sink.source.selection.table_filter import TableFilter
from spark_sink.source.snapshot.key_order import key_parts
from spark_sink.source.snapshot.rules import (
    Bound,
    KeyPart,
    SnapshotState,
    TableName,
    snapshot_failure,
)
from spark_sink.source.snapshot.selected_tables import selected_tables
from spark_sink.source.snapshot_options import SnapshotSettings
from spark_sink.table_rows.chunks import Chunk, bound_of, boundary_query, chunk_rows
from spark_sink.table_rows.source_table import SourceTable
from spark_sink.table_rows.table_server import TableServer, boundary_row, wait_until_executed

_TABLES = """
SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES
WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')
"""
# One query for all tables, because it returns only the names of tables with a key, not the keys.
_KEYED = """
SELECT DISTINCT s.TABLE_SCHEMA, s.TABLE_NAME FROM information_schema.STATISTICS s WHERE s.NON_UNIQUE = 0
AND NOT EXISTS (SELECT 1 FROM information_schema.STATISTICS n WHERE n.TABLE_SCHEMA = s.TABLE_SCHEMA
AND n.TABLE_NAME = s.TABLE_NAME AND n.INDEX_NAME = s.INDEX_NAME AND (n.NULLABLE = 'YES' OR n.COLUMN_NAME IS NULL))
"""
_LAGS = "read the rows from a server that lags less behind the one that the consumer reads"
_IMAGES = "SHOW GLOBAL VARIABLES LIKE 'binlog_row_image'"


def table_server(settings: SnapshotSettings) -> TableServer:
    """Returns the server that the options name. Raises `UserError` if this process cannot read the password."""
    tls = Tls(TlsMode(settings.tls), Path(settings.ca_file) if settings.ca_file else None)
    return TableServer(
        Endpoint(settings.host, settings.port, settings.user, settings.password(), tls)
    )


class SnapshotServer:
    """The questions of the driver to the server. Every method may raise `BinlogError`."""

    def __init__(self, options: SourceOptions) -> None:
        assert options.snapshot is not None
        self._options = options
        self.tables_of = TableFilter(selected_tables(options))
        self.server = table_server(options.snapshot)

    def check(self) -> None:
        """Raise `BinlogError` if a snapshot is impossible: SERVER_SETTING for row images that are not full,
        UNSUPPORTED_CHANGE for tables without a key, UNKNOWN_TABLE if there is no table."""
        with self.server.session() as connection:
            images = {optional_text(row[1]) for row in fetch(connection, _IMAGES)}
            if images and not images <= {"FULL", "FULL_NODUP"}:
                raise BinlogError(
                    ErrorKind.SERVER_SETTING,
                    f"binlog_row_image={images.pop()}: a change does not hold the whole row, so a row that changes"
                    " while it is read would be incomplete",
                    where=self.server.label,
                    remedy="SET GLOBAL binlog_row_image = 'FULL', and let clients connect again",
                )
            names = self._names(connection)
            if self._options.table is not None and not names:
                label = ".".join(self._options.table)
                raise BinlogError(
                    ErrorKind.UNKNOWN_TABLE,
                    f"there is no table {label}, or the account has no SELECT on it",
                    where=self.server.label,
                    remedy="correct the option table, or grant the account SELECT on it",
                )
            keyed = set(ask(connection, _KEYED, _name))
        if keyless := [name for name in names if name not in keyed]:
            raise _keyless(keyless, self.server.label)

    def tables(self) -> list[TableName]:
        """Returns the tables that the options select, in the order of their names."""
        with self.server.session() as connection:
            return sorted(self._names(connection))

    def _names(self, connection: Connection) -> list[TableName]:
        return [name for name in ask(connection, _TABLES, _name) if self._selects(name)]

    def _selects(self, name: TableName) -> bool:
        named = {database for database, _ in selected_tables(self._options)}
        if name[0] in SYSTEM_DATABASES and name[0] not in named:
            return False
        return self.tables_of.selects_table(*name)

    def table(self, name: TableName) -> SourceTable:
        """Returns a table. Raises `BinlogError` UNSUPPORTED_CHANGE if the table no longer exists or has no key."""
        try:
            source = self.server.table(*name)
        except BinlogError as error:
            if error.kind is not ErrorKind.UNKNOWN_TABLE:
                raise
        else:
            if not source.key:
                raise _keyless([name], self.server.label)
            return source
        raise snapshot_failure(
            name, "it was dropped or renamed, or the account may no longer read it"
        )

    def key(self, name: TableName) -> tuple[KeyPart, ...]:
        return key_parts(self.table(name).key_columns)

    def wait_until_executed(self, position: Position, timeout_s: float) -> None:
        """Wait until the server's rows contain all changes up to a position. Raises `BinlogError` as
        `table_server.wait_until_executed`."""
        with self.server.session() as connection:
            wait_until_executed(connection, position, timeout_s=timeout_s, remedy=_LAGS)

    def chunks(self, state: SnapshotState, size: int) -> list[Chunk]:
        """Divides the state's chunk into ranges of about `size` bytes."""
        assert state.table is not None and state.chunk is not None
        source = self.table(state.table)
        whole = Chunk(state.after, state.chunk.upper)
        return self._divided(source, whole, chunk_rows(source, size), None)

    def next_chunks(
        self, name: TableName, after: Bound | None, size: int, n: int
    ) -> tuple[list[Chunk], int]:
        """Returns the next `n` ranges behind `after` (fewer if the table ends) and the number of rows per range.
        `size`: the approximate number of bytes of a range."""
        source = self.table(name)
        rows = chunk_rows(source, size)
        return self._divided(source, Chunk(after, None), rows, n), rows

    def _divided(
        self, source: SourceTable, whole: Chunk, rows: int, most: int | None
    ) -> list[Chunk]:
        chunks: list[Chunk] = []
        lower = whole.lower
        with self.server.session() as connection:
            while most is None or len(chunks) < most:
                texts = boundary_row(connection, boundary_query(source, lower, rows, whole.upper))
                upper = whole.upper if texts is None else bound_of(source, texts)
                chunks.append(Chunk(lower, upper))
                if texts is None or upper == whole.upper:
                    break
                lower = upper
        return chunks


def _name(row: Row) -> TableName:
    return text_value(row[0]), text_value(row[1])


def _keyless(names: list[TableName], where: str) -> BinlogError:
    shown = ", ".join(".".join(name) for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return BinlogError(
        ErrorKind.UNSUPPORTED_CHANGE,
        f"a snapshot reads rows by ranges of their key, and {shown}{more} has no primary key and no unique key on"
        " NOT NULL columns",
        where=where,
        remedy="give the table a primary key, or leave it out of the option tables",
    )
