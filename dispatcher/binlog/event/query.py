"""QUERY events: a statement as text, and the settings of the session that ran it.

The event's status variables name the session's character set, in which the text is, and its sql_mode, without which
double quotes are ambiguous. They are a list of codes and values without sizes, so an unknown code ends the parsing of
the list. The statement behind the list can be read all the same.

MySQL and MariaDB share codes 0 to 11; MySQL's own are 12 to 21, MariaDB's 128 and above.
Sources: MySQL source, libs/mysql/binlog/event/statement_events.cpp; MariaDB, sql/log_event.cc, Query_log_event.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dispatcher.binlog.charset import transcode
from dispatcher.binlog.charset.collations import charset_of
from dispatcher.binlog.event.cursor import ByteCursor, malformed


@dataclass(frozen=True, slots=True)
class Status:
    """A QUERY event's status variables; None (or 0 for ids and flags) if the event does not have one.

    `updated_databases`: the databases that the statement touches; None if the server does not list them, or there are
    too many. `client`, `connection`, `server`: collation ids of the session's character sets. `collations`: MariaDB's
    pairs of a character set and its default collation, both as collation ids. `alter_of`: MariaDB, the sequence number
    of the START ALTER that this statement ends. `unknown`: the unknown code at which parsing ended.
    """

    flags2: int = 0
    sql_mode: int = 0
    catalog: str | None = None
    auto_increment: tuple[int, int] | None = None  # increment, offset
    client: int = 0
    connection: int = 0
    server: int = 0
    time_zone: str | None = None
    lc_time_names: int = 0
    database_collation: int = 0
    table_map_for_update: int = 0
    invoker: tuple[str, str] | None = None  # user, host
    updated_databases: tuple[str, ...] | None = None
    microseconds: int | None = None  # of the statement's time
    explicit_defaults_for_timestamp: bool | None = None
    ddl_xid: int | None = None
    utf8mb4_collation: int = 0
    require_primary_key: bool | None = None
    table_encryption: bool | None = None
    cascade_triggers: bool | None = None
    gtid_extra_flags: int | None = None
    alter_of: int | None = None
    collations: tuple[tuple[int, int], ...] = ()
    unknown: int | None = None


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
        text = text_of(self.raw, self.status.client)
        return text if isinstance(text, str) else self.raw.decode("utf-8", "replace")

    @property
    def updated_databases(self) -> tuple[str, ...] | None:
        return self.status.updated_databases


def parse_query(body: bytes, *, load: bool = False) -> Query:
    """Parse a QUERY_EVENT's body, or (`load`) an EXECUTE_LOAD_QUERY_EVENT's, which has 13 bytes more.

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
    """Decode text in the character set of a collation id; bytes if that is binary, or they are invalid in it."""
    charset = charset_of(collation)
    try:
        if charset == "binary":
            return raw
        text = transcode.label(raw, collation)
    except ValueError:
        return raw
    return raw if text is None else text


# Variables that are one integer: code -> (field, bytes). No release writes 14 and 15.
_INTEGERS: dict[int, tuple[str, int]] = {
    0: ("flags2", 4),
    1: ("sql_mode", 8),
    7: ("lc_time_names", 2),
    8: ("database_collation", 2),
    9: ("table_map_for_update", 8),
    10: ("", 4),  # Q_MASTER_DATA_WRITTEN: in relay logs of servers before 5.0
    13: ("microseconds", 3),
    17: ("ddl_xid", 8),
    18: ("utf8mb4_collation", 2),
    128: ("microseconds", 3),  # MariaDB: Q_HRNOW
    129: ("ddl_xid", 8),  # MariaDB: Q_XID
}
_FLAGS = {
    16: "explicit_defaults_for_timestamp", 19: "require_primary_key", 20: "table_encryption", 21: "cascade_triggers",
}  # fmt: skip
_OVER_MAX_DATABASES = 254
_ALTER_ENDS = 0x04 | 0x08  # FL_COMMIT_ALTER, FL_ROLLBACK_ALTER


def _status(cursor: ByteCursor) -> Status:
    fields: dict[str, Any] = {}
    while len(cursor):
        code = cursor.number(1)
        if code in _INTEGERS:
            name, size = _INTEGERS[code]
            fields[name] = cursor.number(size)
        elif code in _FLAGS:
            fields[_FLAGS[code]] = bool(cursor.number(1))
        elif not _read_compound(cursor, code, fields):
            fields["unknown"] = code
            break
    fields.pop("", None)
    return replace(Status(), **fields)


def _read_compound(cursor: ByteCursor, code: int, fields: dict[str, Any]) -> bool:
    """Read a variable that is more than one integer into `fields`; False if the code is unknown."""
    if code == 2:  # Q_CATALOG of 5.0.0 to 5.0.3: it ends in a zero byte, unless it is empty
        size = cursor.number(1)
        fields["catalog"] = cursor.null_terminated(size) if size else ""
    elif code == 3:
        fields["auto_increment"] = cursor.number(2), cursor.number(2)
    elif code == 4:
        fields["client"], fields["connection"], fields["server"] = (
            cursor.number(2) for _ in range(3)
        )
    elif code == 5:
        fields["time_zone"] = cursor.sized_text()
    elif code == 6:
        fields["catalog"] = cursor.sized_text()
    elif code == 11:
        fields["invoker"] = cursor.sized_text(), cursor.sized_text()
    elif code == 12:
        count = cursor.number(1)
        if count < _OVER_MAX_DATABASES:
            fields["updated_databases"] = tuple(_null_terminated(cursor) for _ in range(count))
    elif code == 130:  # MariaDB: Q_GTID_FLAGS3
        fields["gtid_extra_flags"] = flags = cursor.number(1)
        if flags & _ALTER_ENDS:
            fields["alter_of"] = cursor.number(8)
    elif code == 131:  # MariaDB: Q_CHARACTER_SET_COLLATIONS
        count = cursor.number(1)
        fields["collations"] = tuple((cursor.number(2), cursor.number(2)) for _ in range(count))
    else:
        return False
    return True


def _null_terminated(cursor: ByteCursor) -> str:
    name = bytearray()
    while byte := cursor.read(1)[0]:
        name.append(byte)
    return cursor.decode(bytes(name))
