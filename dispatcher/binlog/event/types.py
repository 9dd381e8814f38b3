"""The type codes of events, and the names of the types.

Sources: MySQL source, libs/mysql/binlog/event/binlog_event.h; MariaDB, sql/log_event.h.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

_VERSION = re.compile(r"(.+?)(_V[0-9]+)?\Z")


class EventType(IntEnum):
    """Type codes, with the names of the MySQL manual. (`mysqlbinlog` prints them in another style.)"""

    UNKNOWN = 0
    START_V3 = 1
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    LOAD = 6
    SLAVE = 7
    CREATE_FILE = 8
    APPEND_BLOCK = 9
    EXEC_LOAD = 10
    DELETE_FILE = 11
    NEW_LOAD = 12
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    PRE_GA_WRITE_ROWS = 20
    PRE_GA_UPDATE_ROWS = 21
    PRE_GA_DELETE_ROWS = 22
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    MARIADB_ANNOTATE_ROWS = 160
    MARIADB_BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    MARIADB_GTID_LIST = 163
    MARIADB_START_ENCRYPTION = 164
    MARIADB_QUERY_COMPRESSED = 165
    MARIADB_WRITE_ROWS_COMPRESSED_V1 = 166
    MARIADB_UPDATE_ROWS_COMPRESSED_V1 = 167
    MARIADB_DELETE_ROWS_COMPRESSED_V1 = 168
    MARIADB_WRITE_ROWS_COMPRESSED = 169
    MARIADB_UPDATE_ROWS_COMPRESSED = 170
    MARIADB_DELETE_ROWS_COMPRESSED = 171
    MARIADB_PARTIAL_ROW_DATA = 172


HEARTBEATS = (EventType.HEARTBEAT, EventType.HEARTBEAT_V2)
"""Events that a server makes for a dump. They are not in the server's log."""


@lru_cache(256)
def type_name(code: int) -> str:
    """Returns the name of a type code in messages, metrics and all output: `WRITE_ROWS_EVENT`, followed by the version
    as in the server's source (`WRITE_ROWS_EVENT_V1`). MySQL's and MariaDB's GTID events are both `GTID_EVENT`. An
    unknown code gives `UNKNOWN_EVENT_250`."""
    try:
        name = EventType(code).name.removeprefix("MARIADB_")
    except ValueError:
        return f"UNKNOWN_EVENT_{code}"
    plain, version = _VERSION.match(name).groups()  # type: ignore[union-attr] # matches every name
    return f"{plain}_EVENT{version or ''}"
