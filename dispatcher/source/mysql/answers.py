"""What a server answers to a statement: values as text, understood or a fault of that server.

A server, or whatever stands in its place, may answer anything. `ask` is the one boundary: behind it PyMySQL's parsers
and ours raise ValueError, IndexError, struct.error and others; out of it comes a `BinlogError` CONNECT_FAILED, which
names the statement, and the client tries again as with a server that is down. The original exception is the error's
cause, so a mistake in one of our parsers can still be found. `driver` bounds the size of an answer.

Values come as text (or bytes, where the server says binary): what is a number here is one that `number` has read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import pymysql

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.model.position import FILE_NUMBER_MAX, SEQ_OFFSET_BITS, has_file_number
from dispatcher.source.mysql.driver import Connection
from dispatcher.source.mysql.error_map import client_error

Value = str | bytes | None
Row = Sequence[Value]
T = TypeVar("T")

_NUMBER = re.compile(r"[0-9]{1,19}")
_TOO_LONG = re.compile(r"[0-9]{20}")
_NAME_BYTES_MAX = 255  # of a binlog file, as in a ROTATE
_TEXT_MAX = 200  # characters of a text that a message quotes


def ask(
    connection: Connection,
    statement: str,
    parse: Callable[[Row], T],
    arguments: Sequence[str | int] = (),
) -> list[T]:
    """Each row of a statement's answer, parsed. `parse` raises ValueError or LookupError for a row that is not what the
    statement asked for. Raises `BinlogError`."""
    rows = fetch(connection, statement, arguments)
    try:
        return [parse(row) for row in rows]
    except (ValueError, LookupError) as error:
        raise not_understood(statement, str(error), where_of(connection)) from error


def ask_one(
    connection: Connection,
    statement: str,
    parse: Callable[[Row], T],
    arguments: Sequence[str | int] = (),
) -> T:
    """The same of a statement that is answered with one row."""
    rows = ask(connection, statement, parse, arguments)
    if len(rows) != 1:
        raise not_understood(statement, f"{len(rows)} rows instead of one", where_of(connection))
    return rows[0]


def fetch(connection: Connection, statement: str, arguments: Sequence[str | int] = ()) -> list[Row]:
    """All rows of a statement's answer; raises `BinlogError`. For statements whose answer is not looked at; `ask` for
    all others."""
    with conversing(connection, statement), connection.cursor() as cursor:
        cursor.execute(statement, tuple(arguments) or None)
        return list(cursor.fetchall())


@contextmanager
def conversing(connection: Connection, request: str) -> Iterator[None]:
    """For what PyMySQL says and reads in the block: whatever it raises becomes a `BinlogError`."""
    try:
        yield
    except pymysql.Error as error:
        raise client_error(error, where=where_of(connection)) from error
    except BinlogError:
        raise
    except Exception as error:
        # PyMySQL reads packets on trust: AssertionError, IndexError, UnicodeDecodeError, even a bare Exception.
        raise not_understood(request, repr(error), where_of(connection)) from error


def not_understood(request: str, why: str, where: str = "") -> BinlogError:
    """The fault of a server that answers `request` with something that is no answer to it."""
    return BinlogError(
        ErrorKind.CONNECT_FAILED,
        f"the server's answer to {_short(request)} is not understood: {_short(why)}",
        where=where,
        remedy="connect to a MySQL or MariaDB server itself; what answers is something else, or a proxy",
    )


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."


def where_of(connection: Connection) -> str:
    """`user@host:port`, as messages call the server."""
    return getattr(connection, "where", "")


# -- values: each raises ValueError --------------------------------------------------------------------------


def text(value: Value) -> str:
    if value is None:
        raise ValueError("NULL instead of a text")
    return value.decode() if isinstance(value, bytes) else value


def optional_text(value: Value) -> str | None:
    return None if value is None else text(value)


def number(value: Value) -> int:
    """A whole number, 0 and above, that a signed 64-bit integer holds."""
    digits = text(value)
    if not _NUMBER.fullmatch(digits) or (found := int(digits)) >= 1 << 63:
        raise ValueError(f"{digits!r} instead of a number")
    return found


def log_file(value: Value) -> str:
    """The name of a binlog file."""
    name = text(value)
    if not 0 < len(name.encode()) <= _NAME_BYTES_MAX or not name.isprintable():
        raise ValueError(f"{name[:_TEXT_MAX]!r} instead of the name of a file")
    if not has_file_number(name):
        raise ValueError(f"the file number of {name[:80]!r} is greater than {FILE_NUMBER_MAX}")
    return name


def log_offset(value: Value) -> int:
    """A place in a binlog file, or its size."""
    offset = number(value)
    if offset >> SEQ_OFFSET_BITS:
        raise ValueError(f"{offset} instead of an offset in a file")
    return offset


def gtid_text(value: str, *, mariadb: bool) -> str:
    """A set of GTIDs, as it came but for line ends."""
    gtids = value.replace("\n", "")
    if _TOO_LONG.search(gtids):
        raise ValueError("a number of more than 19 digits in a GTID set")
    try:
        if mariadb:
            MariadbGtids.parse(gtids)
        else:
            len(GtidSet.parse(gtids))
    except BinlogError as error:
        raise ValueError(error.what) from error
    except OverflowError as error:
        raise ValueError("a GTID set of more than 2^63 transactions") from error
    return gtids


def identifier(name: str) -> str:
    """`name` quoted for SQL."""
    return "`" + name.replace("`", "``") + "`"
