"""Opens sessions that read rows exactly: logs in, sets variables, and reads the rows of a statement as Arrow batches.

The variables of a session determine how the server writes values: it writes text in each column's character set,
TIMESTAMP values in UTC, CHAR values without trailing spaces, and invalid dates unchanged. A session is read-only, and
its statements read committed rows without locks.

PyMySQL would convert each value to a Python object. So this module does not let PyMySQL read rows: it receives bytes
from PyMySQL's socket into one buffer, in which `text_kernels.find_cells` finds the cells.

Source: MySQL manual, "COM_QUERY Response", "Column Definition".
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pymysql.constants.COMMAND import COM_QUERY

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.answers import conversing, fetch, not_understood, text_value
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.error_map import server_error
from dispatcher.mysql.login import Endpoint, connect
from dispatcher.mysql.replication_commands import connection_lost, drop, socket_of
from spark_sink.source.table_rows import text_kernels
from spark_sink.source.table_rows.text_rows import TextDecoder

BUFFER_BYTES = 4 << 20
BATCH_ROWS = 65_536
_CELLS_MAX = 1 << 21
_ROW_BYTES_MAX = (1 << 31) - (1 << 25)
_TIMEOUT_S = 300.0

# With ALLOW_INVALID_DATES, the server compares a bound such as '2023-02-31' unchanged.
SESSION = (
    "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', SESSION time_zone = '+00:00', character_set_results = NULL,"
    " SESSION autocommit = 1, SESSION sql_big_selects = 1, SESSION sql_select_limit = 18446744073709551615,"
    " SESSION net_write_timeout = 600, SESSION lock_wait_timeout = 60"
)
_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
# MySQL has READ ONLY since 5.6, MariaDB since 10.0. A server knows one of the two variables for a time limit, or
# neither.
_READ_ONLY = "SET SESSION TRANSACTION READ ONLY"
_TIME_LIMITS = ("max_execution_time", "max_statement_time")

_UNSIGNED_FLAG = 32


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """The properties of a column in a result set that determine how the texts of its cells are parsed."""

    type: int
    charset: int
    length: int
    unsigned: bool

    @classmethod
    def parse(cls, packet: bytes) -> ResultColumn:
        """Parse a column definition: six texts, a byte with the length of the rest, ten bytes with fixed meanings, and
        two unused bytes."""
        tail = packet[-12:]
        if len(packet) < 19 or packet[-13] != 12:
            raise ValueError(f"a column definition of {len(packet)} bytes")
        return cls(
            type=tail[6],
            charset=int.from_bytes(tail[:2], "little"),
            length=int.from_bytes(tail[2:6], "little"),
            unsigned=bool(tail[7] & _UNSIGNED_FLAG),
        )


def open_session(endpoint: Endpoint) -> Connection:
    """Return a connection whose session is set up to read rows. Raises `BinlogError`."""
    connection = connect(endpoint, timeout_s=_TIMEOUT_S)
    try:
        fetch(connection, SESSION)
        fetch(connection, _ISOLATION)
        fetch(connection, _READ_ONLY)
        names = ", ".join(f"'{name}'" for name in _TIME_LIMITS)
        for row in fetch(connection, f"SHOW VARIABLES WHERE Variable_name IN ({names})"):
            fetch(connection, f"SET SESSION {text_value(row[0])} = 0")
    except BaseException:
        drop(connection)
        raise
    return connection


class RowReader:
    """Reads the rows of one statement at a time. Raises `BinlogError`. After an error, the connection is closed."""

    def __init__(self, connection: Connection, label: str) -> None:
        self._connection = connection
        self._socket: socket.socket = socket_of(connection)
        self._label = label
        self._buf = np.empty(BUFFER_BYTES, dtype=np.uint8)
        self._state = np.zeros(3, dtype=np.int64)

    def batches(
        self,
        statement: str,
        decoder: TextDecoder,
        expected: tuple[ResultColumn, ...] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows. `expected`: the columns of the statement's result when the copy began."""
        done = False
        try:
            columns = self._ask(statement)
            if len(columns) != len(decoder.columns):
                raise self._changed(decoder.label)
            if expected is not None and columns != expected:
                raise self._changed(decoder.label)
            yield from self._rows(decoder)
            done = True
        finally:
            if not done:
                drop(self._connection)

    def result_columns(self, statement: str, decoder: TextDecoder) -> tuple[ResultColumn, ...]:
        """Return the columns of a statement's result, which has no rows."""
        columns = self._ask(statement)
        for _ in self._rows(decoder):
            raise not_understood(statement, "rows where there are none", self._label)
        return columns

    # -- the answer ------------------------------------------------------------------------------------------

    def _ask(self, statement: str) -> tuple[ResultColumn, ...]:
        self._state[:] = 0
        with conversing(self._connection, statement):
            self._connection._execute_command(COM_QUERY, statement)  # type: ignore[attr-defined]  # noqa: SLF001
        first = self._packet()
        if first[:1] == b"\xff":
            raise self._error(first)
        count = first[0] if first[0] < 251 else int.from_bytes(first[1:3], "little")
        if not count or first[0] > 252:
            raise not_understood(statement, "no result set", self._label)
        try:
            columns = tuple(ResultColumn.parse(self._packet()) for _ in range(count))
        except ValueError as error:
            raise not_understood(statement, str(error), self._label) from error
        end = self._packet()
        if end[:1] != b"\xfe" or len(end) >= 9:
            raise not_understood(statement, "no end of the column definitions", self._label)
        return columns

    def _packet(self) -> bytes:
        """Read one packet of less than 16 MiB."""
        state = self._state
        while True:
            at, end = int(state[text_kernels.NEXT]), int(state[text_kernels.END])
            if end - at >= 4:
                stop = at + 4 + int.from_bytes(self._buf[at : at + 3].tobytes(), "little")
                if stop <= end:
                    state[text_kernels.NEXT] = stop
                    return self._buf[at + 4 : stop].tobytes()
            self._receive()

    def _rows(self, decoder: TextDecoder) -> Iterator[pa.RecordBatch]:
        count = len(decoder.columns)
        rows_max = max(1, min(BATCH_ROWS, _CELLS_MAX // count))
        cells = np.empty((2, count, rows_max), dtype=np.int32)
        at, size = cells[0], cells[1]
        state = self._state
        while True:
            result = text_kernels.find_cells(self._buf, state, at, size)
            rows = int(state[text_kernels.ROWS])
            if result == text_kernels.MORE and not self._crowded(rows):
                self._receive()
                continue
            if result == text_kernels.MALFORMED:
                raise not_understood("SELECT", "bytes that are no row", self._label)
            if rows:
                yield decoder.decode(self._buf, at[:, :rows], size[:, :rows])
                state[text_kernels.ROWS] = 0
            if result == text_kernels.FAILED:
                raise self._error(self._packet())
            if result == text_kernels.DONE:
                self._packet()
                return

    def _crowded(self, rows: int) -> bool:
        """True if the rows that were found must be decoded before more bytes are received."""
        return bool(rows and len(self._buf) - self._state[text_kernels.END] < len(self._buf) >> 4)

    def _receive(self) -> None:
        """Receive more bytes. If one row fills the buffer, use a larger buffer."""
        state, buf = self._state, self._buf
        if not state[text_kernels.ROWS] and state[text_kernels.NEXT]:
            # All complete rows are decoded, so the bytes of the incomplete row are moved to the buffer's start.
            at, end = int(state[text_kernels.NEXT]), int(state[text_kernels.END])
            buf[: end - at] = buf[at:end].copy()
            state[text_kernels.NEXT], state[text_kernels.END] = 0, end - at
        end = int(state[text_kernels.END])
        if end == len(buf):
            if 2 * len(buf) > _ROW_BYTES_MAX:
                raise not_understood("SELECT", "a row of more than 1 GiB", self._label)
            self._buf = np.concatenate([buf, np.empty_like(buf)])
        try:
            received = self._socket.recv_into(self._buf.data[end:])
        except OSError as error:
            raise connection_lost(error.strerror or str(error), self._label) from error
        if not received:
            raise connection_lost("the server closed the connection", self._label)
        state[text_kernels.END] = end + received

    def _error(self, packet: bytes) -> BinlogError:
        number = int.from_bytes(packet[1:3], "little")
        text = packet[3:].decode(errors="replace")
        if text[:1] == "#":
            text = text[6:]
        return server_error(number, text, where=self._label)

    def _changed(self, table: str) -> BinlogError:
        return changed_during_copy(table, self._label)


def changed_during_copy(table: str, where: str) -> BinlogError:
    return BinlogError(
        ErrorKind.UNSUPPORTED_CHANGE,
        f"table {table} was altered while it was read",
        where=where,
        remedy="nothing to do; the copy of the table begins again",
    )


def was_altered(error: BinlogError) -> bool:
    """True if the error means that a table no longer exists, or that it no longer has the columns that were to be
    read."""
    altered = error.kind is ErrorKind.UNSUPPORTED_CHANGE and "was altered while" in error.what
    return altered or error.kind is ErrorKind.UNKNOWN_TABLE
