"""Asks the server of a snapshot for its tables, their keys, and the ends of chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.names import folded_name
from dispatcher.model.position import Position
from dispatcher.model.subscription import NamePatterns, is_pattern
from dispatcher.mysql.answers import (
    ask,
    fetch,
    identifier,
    optional_text,
    text_value,
)
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.login import Endpoint, Tls, TlsMode
from dispatcher.mysql.server_facts import (
    lower_case_table_names,
    read_grants,
    visible_databases,
)
from spark_sink.source.options import SourceOptions
from spark_sink.source.selection.table_filter import TableFilter
from spark_sink.source.snapshot.key_order import key_parts
from spark_sink.source.snapshot.remedies import with_own_remedy
from spark_sink.source.snapshot.repeats import with_retries
from spark_sink.source.snapshot.rules import (
    Bound,
    KeyPart,
    SnapshotState,
    TableName,
    snapshot_failure,
)
from spark_sink.source.snapshot.selected_tables import named_tables, selected_tables
from spark_sink.source.snapshot_options import SnapshotSettings
from spark_sink.source.table_rows.chunks import Chunk, chunk_rows
from spark_sink.source.table_rows.source_table import SourceTable, read_source_table
from spark_sink.source.table_rows.table_server import TableServer, next_bound, wait_until_executed

_TABLES = """
SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES
WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')
"""
# This query returns only the names of the tables with a key, not the keys, so one query for all tables is enough.
_KEYED = """
SELECT DISTINCT s.TABLE_SCHEMA, s.TABLE_NAME FROM information_schema.STATISTICS s WHERE s.NON_UNIQUE = 0
AND NOT EXISTS (SELECT 1 FROM information_schema.STATISTICS n WHERE n.TABLE_SCHEMA = s.TABLE_SCHEMA
AND n.TABLE_NAME = s.TABLE_NAME AND n.INDEX_NAME = s.INDEX_NAME AND (n.NULLABLE = 'YES' OR n.COLUMN_NAME IS NULL))
"""
_GENERATED = """
SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
AND (EXTRA LIKE 'VIRTUAL%%' OR EXTRA LIKE 'STORED%%' OR EXTRA LIKE 'PERSISTENT%%')
"""
WAIT_EXECUTED_S = 600.0
LAGS = "read the rows from a server that lags less behind the one that the consumer reads"
_IMAGES = "SHOW GLOBAL VARIABLES LIKE 'binlog_row_image'"


T = TypeVar("T")


class SnapshotTableServer(TableServer):
    """A server whose errors name options of the source in their remedies."""

    __slots__ = ()

    @contextmanager
    def session(self) -> Iterator[Connection]:
        try:
            with super().session() as connection:
                yield connection
        except BinlogError as error:
            with_own_remedy(error)
            raise


def table_server(settings: SnapshotSettings) -> TableServer:
    """Returns the server that the options name. Raises `UserError` if this process cannot read the password."""
    tls = Tls(TlsMode(settings.tls), Path(settings.ca_file) if settings.ca_file else None)
    return SnapshotTableServer(
        Endpoint(settings.host, settings.port, settings.user, settings.password(), tls)
    )


class SnapshotServer:
    """The questions of the driver to the server. Every method may raise `BinlogError`. Every method but `check` repeats
    its questions after a lost connection, for `retryTimeoutSeconds`."""

    def __init__(self, options: SourceOptions) -> None:
        assert options.snapshot is not None
        self._options = options
        self._filter = TableFilter(selected_tables(options))
        self._lower_case: int | None = None  # lower_case_table_names; None until known
        self.server = table_server(options.snapshot)

    def check(self) -> list[TableName]:
        """Returns the tables that the snapshot reads, in the order of their names.

        Raises `BinlogError` if a snapshot is impossible: SERVER_SETTING for row images that are not full,
        UNSUPPORTED_CHANGE for tables without a key, UNKNOWN_TABLE if a table that the options name does not exist or if
        there is no table, GRANT_MISSING if the account may not see all tables of a database.
        """
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
            everything = self._names(connection, _TABLES)
            names = list(filter(self.selects, everything))
            self._require_named(everything)
            self._require_grants(connection)
            if not names:
                raise self._nothing_to_read()
            keyed = set(self._names(connection, _KEYED))
        if keyless := [name for name in names if name not in keyed]:
            raise _keyless(keyless, self.server.label)
        return sorted(names)

    def _require_named(self, present: Sequence[TableName]) -> None:
        """Raise `BinlogError` if the options name a table that information_schema does not show. It shows only tables
        on which the account has a privilege."""
        existing = set(present)
        missing = sorted(
            name for name in named_tables(self._options) if self._folded(name) not in existing
        )
        if not missing:
            return
        spelled = {".".join(name).casefold(): ".".join(name) for name in present}
        shown = []
        for text in map(".".join, missing):
            near = spelled.get(text.casefold())
            shown.append(text + (f", did you mean {near}?" if near else ""))
        raise BinlogError(
            ErrorKind.UNKNOWN_TABLE,
            f"there is no table {_listed(shown)}, or the account has no SELECT on it (a view is no table)",
            where=self.server.label,
            remedy=f"correct the option {self._option}, or {_grant(missing[0])}",
        )

    @property
    def _option(self) -> str:
        return "tables" if self._options.table is None else "table"

    def _require_grants(self, connection: Connection) -> None:
        """Raise `BinlogError` if the options select tables of a database by a pattern, and the account may not read all
        tables of this database: the stream would silently leave out the tables that the account cannot see."""
        patterns = [pair for pair in self._options.tables or () if any(map(is_pattern, pair))]
        if not patterns:
            return
        grants = read_grants(connection)
        if grants.has("SELECT"):
            return
        visible = visible_databases(connection) or frozenset()
        of_database = NamePatterns([database for database, _ in patterns], self._lower_case or 0)
        for database in sorted(filter(of_database.match_database, visible)):
            if grants.lacking(database, ["SELECT"]):
                raise BinlogError(
                    ErrorKind.GRANT_MISSING,
                    f"the option tables selects tables of {database} by a pattern, but the account lacks SELECT on the"
                    " whole database, so it does not see all tables",
                    where=self.server.label,
                    remedy=f"GRANT SELECT ON {identifier(database)}.* TO {grants.account or 'the account'}, or name"
                    " the tables in the option tables",
                )

    def _nothing_to_read(self) -> BinlogError:
        patterns = list(map(".".join, self._options.tables or ()))
        return BinlogError(
            ErrorKind.UNKNOWN_TABLE,
            f"no table matches {_listed(patterns)}, or the account has no SELECT on the tables that match",
            where=self.server.label,
            remedy=f"correct the option {self._option}, or GRANT SELECT ON the databases TO the account",
        )

    def _repeated(self, request: Callable[[Connection], T]) -> T:
        """Returns what `request` returns in a new session. Repeats this after an error that may be temporary."""

        def asked() -> T:
            with self.server.session() as connection:
                return request(connection)

        return with_retries(asked, self._options.address.retry_timeout_s)

    def tables(self) -> list[TableName]:
        """Returns the tables that the options select, in the order of their names."""
        present = self._repeated(lambda connection: self._names(connection, _TABLES))
        return sorted(filter(self.selects, present))

    def selects(self, name: TableName) -> bool:
        """True if the options select a table."""
        if self._lower_case is None:
            self._lower_case = self._repeated(lower_case_table_names)
        return self._filter.selects_table(*name, self._lower_case)

    def _names(self, connection: Connection, query: str) -> list[TableName]:
        """Returns the names of the tables in a query's rows, spelled as in the log and in the daemon."""
        self._lower_case = lower_case_table_names(connection)
        return ask(
            connection, query, lambda row: self._folded((text_value(row[0]), text_value(row[1])))
        )

    def _folded(self, name: TableName) -> TableName:
        assert self._lower_case is not None
        return folded_name(name[0], self._lower_case), folded_name(name[1], self._lower_case)

    def table(self, name: TableName) -> SourceTable:
        """Returns a table. Raises `BinlogError` UNSUPPORTED_CHANGE if the table no longer exists or has no key."""
        try:
            source = self._repeated(lambda connection: read_source_table(connection, *name))
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

    def wait_until_executed(self, position: Position) -> None:
        """Wait until the server's rows contain all changes up to a position. Raises the `BinlogError` of
        `table_server.wait_until_executed`."""
        self._repeated(
            lambda connection: wait_until_executed(
                connection, position, timeout_s=WAIT_EXECUTED_S, remedy=LAGS
            )
        )

    def chunks(self, state: SnapshotState, size: int) -> list[Chunk]:
        """Divides the state's chunk into ranges of about `size` bytes."""
        assert state.table is not None and state.chunk is not None
        source = self.table(state.table)
        whole = Chunk(state.after, state.chunk.upper)
        return self._divided(source, whole, chunk_rows(source, size), None)

    def next_chunks(
        self, name: TableName, after: Bound | None, size: int, n: int
    ) -> tuple[list[Chunk], int]:
        """Returns the next `n` ranges after `after` (fewer if the table ends) and the number of rows per range.
        `size`: the approximate number of bytes of a range."""
        source = self.table(name)
        rows = chunk_rows(source, size)
        return self._divided(source, Chunk(after, None), rows, n), rows

    def _divided(
        self, source: SourceTable, whole: Chunk, rows: int, most: int | None
    ) -> list[Chunk]:
        def divided(connection: Connection) -> list[Chunk]:
            chunks: list[Chunk] = []
            lower = whole.lower
            while most is None or len(chunks) < most:
                bound = next_bound(connection, source, lower, rows, whole.upper)
                upper = whole.upper if bound is None else bound
                chunks.append(Chunk(lower, upper))
                if bound is None or upper == whole.upper:
                    break
                lower = upper
            return chunks

        return self._repeated(divided)


def generated_columns(connection: Connection, name: TableName) -> frozenset[str]:
    """Returns the names of a table's generated columns. MariaDB may leave these out of row images."""
    return frozenset(ask(connection, _GENERATED, lambda row: text_value(row[0]), name))


def _listed(texts: Sequence[str]) -> str:
    """Returns the first texts of a list, and the number of the remaining ones, as one text."""
    more = f" and {len(texts) - 5} more" if len(texts) > 5 else ""
    return ", ".join(texts[:5]) + more


def _grant(name: TableName) -> str:
    return f"GRANT SELECT ON {'.'.join(map(identifier, name))} TO the account"


def _keyless(names: list[TableName], where: str) -> BinlogError:
    shown = _listed(list(map(".".join, names)))
    return BinlogError(
        ErrorKind.UNSUPPORTED_CHANGE,
        f"a snapshot reads rows by ranges of their key, and {shown} has no primary key and no unique key on"
        " NOT NULL columns",
        where=where,
        remedy="give the table a primary key, or leave it out of the option tables",
    )
