"""QUERY events: a statement as text, and the settings of the session that ran it.

The event's status variables contain the session's character set, in which the statement is encoded, and the session's
sql_mode, which determines whether double quotes enclose a name or a text. The variables are a list of codes and values
without sizes, so an unknown code ends the parsing of the list. The statement after the list can still be read.

MySQL and MariaDB share codes 0 to 11. Codes 12 to 21 are MySQL's, and 128 and above are MariaDB's.
Sources: MySQL source, libs/mysql/binlog/event/statement_events.cpp; MariaDB, sql/log_event.cc, Query_log_event.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntFlag
from typing import Any

from dispatcher.binlog.charset import transcode
from dispatcher.binlog.charset.collations import charset_of
from dispatcher.binlog.event.cursor import ByteCursor, malformed
from dispatcher.binlog.event.session_variables import SessionVariables


class AlterPhase(IntFlag):
    """The phases of a DDL that MariaDB logs in two transactions (binlog_alter_two_phase=ON): START when the DDL begins,
    and COMMIT or ROLLBACK when it ends. The bits are those of the GTID event's extra flags, which Q_GTID_FLAGS3
    repeats. Source: MariaDB, sql/log_event.h, Gtid_log_event::FL_START_ALTER_E1 and the flags after it."""

    NONE = 0
    START = 0x02
    COMMIT = 0x04
    ROLLBACK = 0x08

    ENDS = COMMIT | ROLLBACK

    @classmethod
    def of(cls, flags: int) -> AlterPhase:
        """`flags`: the event's extra flags. Bits that do not describe a phase are ignored."""
        return cls(flags & (cls.START | cls.ENDS))


@dataclass(frozen=True, slots=True)
class Status(SessionVariables):
    """The status variables of a QUERY event, except those that the parser skips. If the event lacks a variable, the
    field is None.

    `updated_databases`: the databases that the statement touches; None if the server does not list them, or if there
    are too many. `ddl_xid`: the transaction's number. `alter_phase`: NONE if the statement is logged in one
    transaction.
    """

    updated_databases: tuple[str, ...] | None = None
    ddl_xid: int | None = None
    alter_phase: AlterPhase = AlterPhase.NONE


@dataclass(frozen=True, slots=True)
class Query:
    """`raw`: the statement's bytes, in the session's character set."""

    database: str
    raw: bytes
    status: Status
    error_code: int = 0
    thread_id: int = 0
    execution_s: int = 0

    @property
    def query(self) -> str:
        """The statement as text. Bytes that are invalid in the session's character set become U+FFFD."""
        if not self.raw.isascii() and _WRITTEN_BY_SERVER.match(self.raw) and _is_utf8(self.raw):
            return self.raw.decode("utf-8")
        text = text_of(self.raw, self.status.client)
        return text if isinstance(text, str) else self.raw.decode("utf-8", "replace")

    @property
    def updated_databases(self) -> tuple[str, ...] | None:
        return self.status.updated_databases


# In place of CREATE TABLE ... SELECT, servers log the definition in the form of SHOW CREATE TABLE. This text is in
# UTF-8, although the status variables contain the session's character set. Statements of SQL dumps have the same form;
# if their names are in another character set, they are hardly ever valid UTF-8. Sources: binlog_show_create_table in
# sql/sql_insert.cc of MySQL and MariaDB.
_WRITTEN_BY_SERVER = re.compile(
    rb"CREATE (?:OR REPLACE )?TABLE (?:IF NOT EXISTS )?(?:`(?:[^`]|``)++`\.)?`(?:[^`]|``)++` \(\n  `"
)


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def parse_query(body: bytes, *, load: bool = False) -> Query:
    """Parse the body of a QUERY_EVENT, or with `load` of an EXECUTE_LOAD_QUERY_EVENT, which has 13 more bytes.

    Raises `BinlogError` MALFORMED_EVENT.
    """
    cursor = ByteCursor("EXECUTE_LOAD_QUERY_EVENT" if load else "QUERY_EVENT", body)
    thread_id, execution_s = cursor.number(4), cursor.number(4)
    database_size, error_code, status_size = cursor.number(1), cursor.number(2), cursor.number(2)
    if load:
        cursor.read(13)
    if status_size + database_size + 1 > len(cursor):
        raise malformed(
            cursor.name, "has status variables or a database name that reach past the end"
        )
    status = _status(ByteCursor(f"{cursor.name} (status variables)", cursor.read(status_size)))
    database = cursor.null_terminated(database_size)
    return Query(database, cursor.rest(), status, error_code, thread_id, execution_s)


def text_of(raw: bytes, collation: int) -> str | bytes:
    """Decode text in the character set of a collation id. Return the bytes if the character set is binary, or if the
    bytes are invalid in the character set."""
    charset = charset_of(collation)
    try:
        if charset == "binary":
            return raw
        text = transcode.label(raw, collation)
    except ValueError:
        return raw
    return raw if text is None else text


# Sizes in bytes of the variables that the parser skips, by code. No release writes 14 and 15.
_UNUSED = {
    0: 4,  # flags of the session
    3: 4,  # auto_increment: increment, offset
    7: 2,  # lc_time_names
    9: 8,  # the tables of a multi-table UPDATE
    10: 4,  # Q_MASTER_DATA_WRITTEN: in relay logs of servers before 5.0
    13: 3,  # microseconds of the statement's time
    18: 2,  # the default collation of utf8mb4
    19: 1,  # sql_require_primary_key
    20: 1,  # default_table_encryption
    21: 1,  # whether cascades fire triggers
    128: 3,  # MariaDB: Q_HRNOW, microseconds
}
# Fields of `Status` that are numbers, with their sizes in bytes, by code. 129: MariaDB's Q_XID.
_NUMBERS = {
    1: ("sql_mode", 8),
    8: ("database_collation", 2),
    17: ("ddl_xid", 8),
    129: ("ddl_xid", 8),
}
_OVER_MAX_DATABASES = 254


def _status(cursor: ByteCursor) -> Status:
    found: dict[str, Any] = {}
    while len(cursor):
        code = cursor.number(1)
        if code in _UNUSED:
            cursor.read(_UNUSED[code])
        elif code in _NUMBERS:
            name, size = _NUMBERS[code]
            found[name] = cursor.number(size)
        elif code == 4:
            found |= {name: cursor.number(2) for name in ("client", "connection", "server")}
        elif code == 5:
            found["time_zone"] = cursor.sized_text()
        elif code == 12:
            count = cursor.number(1)
            if count < _OVER_MAX_DATABASES:
                found["updated_databases"] = tuple(_null_terminated(cursor) for _ in range(count))
        elif code == 16:
            found["explicit_defaults_for_timestamp"] = bool(cursor.number(1))
        elif code == 130:
            found["alter_phase"] = _alter_phase(cursor)
        elif not _skip(cursor, code):
            found["unknown_variable"] = code
            break
    return Status(**found)


def _alter_phase(cursor: ByteCursor) -> AlterPhase:
    """Parse MariaDB's Q_GTID_FLAGS3: flags, and the sequence number of the START that a DDL ends."""
    phase = AlterPhase.of(cursor.number(1))
    cursor.read(8 if phase & AlterPhase.ENDS else 0)
    return phase


def _skip(cursor: ByteCursor, code: int) -> bool:
    """Skip a variable that is not needed and has no fixed size. False if the code is unknown."""
    if (
        code == 2
    ):  # Q_CATALOG of 5.0.0 to 5.0.3: the name ends in a zero byte, unless the name is empty
        size = cursor.number(1)
        cursor.read(size + 1 if size else 0)
    elif code == 6:  # the catalog
        cursor.read(cursor.number(1))
    elif code == 11:  # the invoker: user, host
        cursor.read(cursor.number(1))
        cursor.read(cursor.number(1))
    elif (
        code == 131
    ):  # MariaDB: Q_CHARACTER_SET_COLLATIONS, pairs of a character set and its default collation
        cursor.read(4 * cursor.number(1))
    else:
        return False
    return True


def _null_terminated(cursor: ByteCursor) -> str:
    name = bytearray()
    while byte := cursor.read(1)[0]:
        name.append(byte)
    return cursor.decode(bytes(name))
