"""Reads a server's answers to statements, and parses or rejects each value.

A server, or another program in its place, may send any answer. For some answers, the parsers of PyMySQL and of this
module raise ValueError, IndexError, struct.error and others. `ask` turns all these exceptions into a `BinlogError`
(CONNECT_FAILED) that contains the statement. The client then retries as if the server were down. The original exception
is the error's cause, so that a defect in a parser of this module can be found. `driver` bounds the size of an answer.

Values come as text, or as bytes if the server says that they are binary. `number_value` parses and checks numbers.
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
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.error_map import client_error

Value = str | bytes | None
Row = Sequence[Value]
T = TypeVar("T")

_NUMBER = re.compile(r"[0-9]{1,19}")
_TOO_LONG = re.compile(r"[0-9]{20}")
_NAME_BYTES_MAX = 255  # the limit for the name of a binlog file, as in a ROTATE
_TEXT_MAX = 200  # how many characters of a text a message quotes


def ask(
    connection: Connection,
    statement: str,
    parse: Callable[[Row], T],
    arguments: Sequence[str | int] = (),
) -> list[T]:
    """Return each row of a statement's answer, parsed. `parse` must raise ValueError or LookupError for an invalid row.
    Raises `BinlogError`."""
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
    """Return the only row of a statement's answer, parsed; see `ask`. Raises `BinlogError`, also if the number of rows
    is not 1."""
    rows = ask(connection, statement, parse, arguments)
    if len(rows) != 1:
        raise not_understood(statement, f"{len(rows)} rows instead of one", where_of(connection))
    return rows[0]


def fetch(connection: Connection, statement: str, arguments: Sequence[str | int] = ()) -> list[Row]:
    """Return all rows of a statement's answer, unparsed. Raises `BinlogError`. Use `ask` to read the values."""
    with conversing(connection, statement), connection.cursor() as cursor:
        cursor.execute(statement, tuple(arguments) or None)
        return list(cursor.fetchall())


@contextmanager
def conversing(connection: Connection, request: str) -> Iterator[None]:
    """Turn every exception of PyMySQL in the block into a `BinlogError`."""
    try:
        yield
    except pymysql.Error as error:
        raise client_error(error, where=where_of(connection)) from error
    except BinlogError:
        raise
    except Exception as error:
        # PyMySQL does not validate packets: AssertionError, IndexError, UnicodeDecodeError, even a bare Exception.
        raise not_understood(request, repr(error), where_of(connection)) from error


def not_understood(request: str, why: str, where: str = "") -> BinlogError:
    """Return the error for an answer that does not fit `request`."""
    return BinlogError(
        ErrorKind.CONNECT_FAILED,
        f"the server's answer to {_short(request)} is not understood: {_short(why)}",
        where=where,
        remedy="connect to a MySQL or MariaDB server itself; a proxy or another program answers here",
    )


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."


def where_of(connection: Connection) -> str:
    """Return the server's name in messages, `user@host:port`."""
    return getattr(connection, "where", "")


# -- values: each raises ValueError --------------------------------------------------------------------------


def text_value(value: Value) -> str:
    if value is None:
        raise ValueError("NULL instead of a text")
    return value.decode() if isinstance(value, bytes) else value


def optional_text(value: Value) -> str | None:
    return None if value is None else text_value(value)


def number_value(value: Value) -> int:
    """Return a whole number from 0 to 2^63 - 1."""
    digits = text_value(value)
    if not _NUMBER.fullmatch(digits) or (parsed := int(digits)) >= 1 << 63:
        raise ValueError(f"{digits!r} instead of a number")
    return parsed


def log_file(value: Value) -> str:
    """Return the name of a binlog file."""
    name = text_value(value)
    if not 0 < len(name.encode()) <= _NAME_BYTES_MAX or not name.isprintable():
        raise ValueError(f"{name[:_TEXT_MAX]!r} instead of the name of a file")
    if not has_file_number(name):
        raise ValueError(f"the file number of {name[:80]!r} is greater than {FILE_NUMBER_MAX}")
    return name


def log_offset(value: Value) -> int:
    """Return an offset in a binlog file, or its size."""
    offset = number_value(value)
    if offset >> SEQ_OFFSET_BITS:
        raise ValueError(f"{offset} instead of an offset in a file")
    return offset


def gtid_text(value: str, *, mariadb: bool) -> str:
    """Return a valid GTID set in the server's spelling, without line ends."""
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
