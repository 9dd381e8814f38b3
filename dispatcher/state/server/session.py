"""A session with the server of the state's database. The first statement opens the session. If the session is lost, the
next statement opens it again.

A session sets everything that the statements rely on, whatever the server's own settings are:

* `sql_mode`: double quotes enclose names, a value that does not fit is an error, and InnoDB is not replaced by another
  engine.
* `time_zone`: UTC, so that NOW(6) neither jumps nor repeats.
* READ COMMITTED: a statement sees what was committed before the statement began.
* `wait_timeout`, `net_read_timeout`, `net_write_timeout`: if the daemon is stopped or loses the network within a
  transaction, the server ends the session after this many seconds, and with it the transaction and its locks. Without
  these limits the locks would last for hours, and no other daemon could take over.

Every error is a `BinlogError` (STATE_STORE) with a remedy. Its cause is the driver's exception.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pymysql
from pymysql.constants import FIELD_TYPE

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.answers import conversing, identifier
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.error_map import number_of
from dispatcher.mysql.login import Endpoint, connect, tls_of
from dispatcher.settings.model import StateSettings
from dispatcher.state.statements import Rows, Statements

PRIVILEGES = ("CREATE", "ALTER", "SELECT", "INSERT", "UPDATE", "DELETE")
_SQL_MODE = "ANSI_QUOTES,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"
# The errors after which the session is over. 2006 to 2055 are numbers of PyMySQL, without those of a failed connect.
# The others are the server's: the server shuts down (1053), ends the session (1152, 1927, 4031), or has lost the client
# (1158 to 1161).
_ENDED = frozenset({2006, 2013, 2014, 2027, 2055, 1053, 1152, 1927, 4031, *range(1158, 1162)})
# The errors of a server that is read-only (1290, 1836), and of a node of a cluster that accepts no statements (1047).
# After a planned failover the former primary is such a server, and leaves its sessions open. So the daemon ends its
# session; the next session connects to the server to which the address leads then.
_REFUSED = frozenset({1290, 1836, 1047})
_LOST = _ENDED | _REFUSED
# Lock wait timeout, deadlock, and a cluster that rolls a transaction back at its commit.
_CONFLICTS = frozenset({1205, 1213, 3101})
_FULL = (
    "free space on the disk of the database's server; readers wait until then, and nothing is lost"
)
_READ_ONLY = "let the address in state.mysql lead to the server that is writable"
_CHANGED = "the tables were changed by hand: restore the database from a backup"
_REMEDIES = {
    3: _FULL,
    1021: _FULL,
    1114: _FULL,
    1153: "SET GLOBAL max_allowed_packet = 16777216 on the database's server, and the same in its option file",
    1205: "look for the transaction that holds the locks: SHOW PROCESSLIST on the database's server",
    **dict.fromkeys(_REFUSED, _READ_ONLY),
    1054: _CHANGED,
    1146: _CHANGED,
    1665: "set binlog_format=ROW on the database's server",
    3159: "the server accepts TLS only: set state.tls.mode to preferred or stricter",
}
_NO_RIGHTS = frozenset({1044, 1142, 1143, 1227, 1370})
READ_ONLY_VARIABLES = ("read_only", "innodb_read_only")
"""The global variables that make a server refuse writes; any account may read them. MySQL sets `read_only` together
with `super_read_only`."""

T = TypeVar("T")


def _text(value: str | bytes) -> str:
    """Decode a name. Names are stored as bytes, because a collation treats two names as equal that differ only in
    spaces at the end."""
    return value.decode() if isinstance(value, bytes) else value


_NUMBERS = (FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG)
_DECODERS: dict[int, Callable[[Any], Any]] = {
    **dict.fromkeys(_NUMBERS, int),
    FIELD_TYPE.NEWDECIMAL: int,  # sums
    FIELD_TYPE.VAR_STRING: _text,
}


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """`timeout_s`: the longest time for the connect, and for each wait for an answer. In whole seconds: `lock_wait_s`:
    how long a statement waits for a lock; `idle_s`: how long the daemon may be silent before the server ends the
    session."""

    timeout_s: float = 10.0
    lock_wait_s: int = 5
    idle_s: int = 600


class DatabaseSession:
    """`label`: `user@host:port/database`. One thread at a time may use a session; any thread may call `interrupt`."""

    def __init__(
        self,
        state: StateSettings,
        limits: SessionLimits = SessionLimits(),
        *,
        autocommit: bool = False,
        isolation: str = "READ COMMITTED",
    ) -> None:
        """`autocommit`: True if each statement is a transaction of its own."""
        mysql = state.mysql
        assert mysql is not None, "the state is in a file"
        address = mysql.address
        self.label = state.label
        self.database = mysql.database
        self._endpoint = Endpoint(
            address.host, address.port, mysql.user, state.secret, tls_of(state.tls)
        )
        self._limits = limits
        self._autocommit = autocommit
        self._isolation = isolation
        self._connection: Connection | None = None
        self._interrupted = False

    # -- statements ------------------------------------------------------------------------------------------

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        connection = self._connection or self._connect()
        with self._errors(), conversing(connection, statement):
            cursor = connection.cursor()
            rows: Rows = cursor
            cursor.execute(statement.replace("?", "%s"), tuple(values) or None)
        return rows

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]], /) -> object:
        """Execute the statement for each row. Rows of an INSERT or REPLACE are sent together, as many as fit into a
        statement of about 1 MB; any other statement is sent once for each row."""
        connection = self._connection or self._connect()
        with self._errors(), conversing(connection, statement):
            return connection.cursor().executemany(statement.replace("?", "%s"), rows)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Statements]:
        """Commit at the end of the block, or roll back after an error. After an error of the commit itself, the
        transaction may be committed."""
        try:
            yield self
            self.execute("COMMIT")
        except BinlogError:
            self._roll_back()
            raise
        except BaseException:
            self.close()  # part of an answer may be unread
            raise

    def run(self, work: Callable[[Statements], T]) -> T:
        """Return what `work` returns. If the session is lost during `work`, repeat `work` once in a new session.

        `work` is one transaction; in a session that commits each statement, `work` must be safe to repeat.
        """
        self._interrupted = False
        try:
            return self._once(work)
        except BinlogError as error:
            if self._interrupted or not is_lost(error):
                raise
            return self._once(work)

    def _once(self, work: Callable[[Statements], T]) -> T:
        if not self._autocommit:
            with self.transaction() as statements:
                return work(statements)
        return work(self)

    def _roll_back(self) -> None:
        with contextlib.suppress(BinlogError):
            if self._connection is not None:
                self.execute("ROLLBACK")
                return
        self.close()

    # -- the connection --------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """End the call in which another thread waits: that call raises BinlogError. The next call makes a new
        session."""
        self._interrupted = True
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(
                OSError, AttributeError
            ):  # another thread has closed the connection
                connection._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined]  # noqa: SLF001

    def close(self) -> None:
        """Roll back what is not committed. May be called again; the next call makes a new session."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connect(self) -> Connection:
        limits = self._limits
        idle = ", ".join(
            f"{name} = {limits.idle_s}"
            for name in ("wait_timeout", "net_read_timeout", "net_write_timeout")
        )
        settings = (
            f"SET SESSION sql_mode = '{_SQL_MODE}', time_zone = '+00:00', {idle},"
            f" innodb_lock_wait_timeout = {limits.lock_wait_s}, autocommit = {int(self._autocommit)}"
        )
        isolation = f"SET SESSION TRANSACTION ISOLATION LEVEL {self._isolation}, READ WRITE"
        with self._errors():
            connection = connect(self._endpoint, timeout_s=limits.timeout_s)
            connection.decoders = _DECODERS
            try:
                for statement in (f"USE {identifier(self.database)}", settings, isolation):
                    with conversing(connection, statement):
                        connection.query(statement)
            except BaseException:
                connection.close()
                raise
        self._connection = connection
        if self._interrupted:
            self.close()
            raise self.error("interrupted", "the daemon tries again")
        return connection

    # -- errors ----------------------------------------------------------------------------------------------

    def error(self, what: str, remedy: str) -> BinlogError:
        return BinlogError(ErrorKind.STATE_STORE, what, where=self.label, remedy=remedy)

    def read_only_error(self, variables: Mapping[str, object]) -> BinlogError | None:
        """Return the error for a server that refuses writes, None for another server. `variables`: the values of the
        variables `READ_ONLY_VARIABLES` by name, such as 1 or "ON"."""
        for name in READ_ONLY_VARIABLES:
            value = str(variables.get(name, "OFF")).upper()
            if value not in ("OFF", "0"):
                shown = "ON" if value == "1" else value
                return self.error(f"{name}={shown}: the server refuses writes", _READ_ONLY)
        return None

    def refuse_read_only(self, variables: Mapping[str, object]) -> None:
        """If `read_only_error` returns an error, ends the session and raises this error. The error has the number of a
        refused write, so `run` repeats its work in a new session."""
        error = self.read_only_error(variables)
        if error is not None:
            self.close()
            raise error from pymysql.err.OperationalError(1290, error.what)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except BinlogError as error:
            connection = self._connection
            if is_lost(error) or (connection is not None and not connection.open):
                self.close()
            failed = error.kind in (ErrorKind.CONNECT_FAILED, ErrorKind.ACCESS_DENIED)
            what = f"{error.kind}: {error.what}" if failed else error.what
            raise self.error(what, self._remedy(error, failed=failed)) from error.__cause__

    def _remedy(self, error: BinlogError, *, failed: bool) -> str:
        number = number_of(error)
        if number in _NO_RIGHTS:
            return self.grant(PRIVILEGES)
        if number == 1049:  # unknown database
            return f"CREATE DATABASE {identifier(self.database)}, and {self.grant(PRIVILEGES)}"
        connecting = error.remedy.replace("the consumer's tls", "state.tls")
        default = connecting if failed else "nothing to do if it passes: the daemon tries again"
        return _REMEDIES.get(number, default)

    def grant(self, privileges: Sequence[str]) -> str:
        user = self._endpoint.user.replace("'", "''")
        return f"GRANT {', '.join(privileges)} ON {identifier(self.database)}.* TO '{user}'@'...'"


def is_lost(error: BinlogError) -> bool:
    """True if the session has ended with this error. The server then rolls back what was not committed."""
    return number_of(error) in _LOST


def may_pass(error: BinlogError) -> bool:
    """True if the transaction may succeed when the caller repeats it at once."""
    return is_lost(error) or number_of(error) in _CONFLICTS
