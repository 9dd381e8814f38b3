"""Event types, the 19-byte header, and the few event bodies that are read one at a time in Python.

The firehose (rows, table maps, GTIDs, BEGIN, XID) is read by the kernel in `scan`; what comes once a file or once a
DDL is read here. Every parser takes the event's body without header and checksum and raises `BinlogError`
(MALFORMED_EVENT) naming what is short; nothing here keeps state.

Sources: MySQL source, libs/mysql/binlog/event/binlog_event.h and control_events.cpp; MariaDB, sql/log_event.h.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

from dispatcher.model.errors import BinlogError, Kind

MAGIC = b"\xfebin"
HEADER = struct.Struct("<IBIIIH")  # timestamp, type, server_id, event_size, log_pos, flags
HEADER_SIZE = 19
CHECKSUM_SIZE = 4

FLAG_IN_USE = (
    0x0001  # in a FORMAT_DESCRIPTION on disk: the file is being written, or its writer crashed
)
FLAG_ARTIFICIAL = 0x0020  # made by the server for this dump; not in the file
FLAG_IGNORABLE = 0x0080
STMT_END_F = 0x0001  # in the flags of a rows event: last one of its statement


class EventType(IntEnum):
    """Type codes. Names are those of the MySQL manual (`mysqlbinlog` prints them in another style)."""

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


def type_name(code: int) -> str:
    """`WRITE_ROWS_EVENT`, or `event type 250` for a code that is not known."""
    try:
        return f"{EventType(code).name}_EVENT"
    except ValueError:
        return f"event type {code}"


# -- FORMAT_DESCRIPTION ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FormatDescription:
    """`raw`: the whole event as bytes; `checksum`: does each later event end in 4 bytes of CRC32?"""

    raw: bytes
    server_version: str
    created: int  # the file's creation time, seconds since 1970: the header's timestamp, also in dumps from the middle
    checksum: bool
    mariadb: bool


def parse_format_description(event: bytes) -> FormatDescription:
    """Read a whole FORMAT_DESCRIPTION_EVENT, header and checksum included, and verify its checksum.

    The event always ends in algorithm and checksum since 5.6.1 / MariaDB 5.3, also where the algorithm is "none".
    """
    if len(event) < HEADER_SIZE + 57 + CHECKSUM_SIZE + 1:
        raise malformed("FORMAT_DESCRIPTION_EVENT", f"has {len(event)} bytes")
    version = event[HEADER_SIZE + 2 : HEADER_SIZE + 52].split(b"\0")[0].decode("ascii", "replace")
    if event[HEADER_SIZE + 56] != HEADER_SIZE:
        raise malformed(
            "FORMAT_DESCRIPTION_EVENT", f"names {event[HEADER_SIZE + 56]} bytes of header, not 19"
        )
    algorithm = event[-CHECKSUM_SIZE - 1]
    if algorithm not in (0, 1):
        raise malformed(
            "FORMAT_DESCRIPTION_EVENT", f"names checksum algorithm {algorithm} (0 and 1 are known)"
        )
    if algorithm == 1 and zlib.crc32(_not_in_use(event[:-4])) != int.from_bytes(
        event[-4:], "little"
    ):
        raise BinlogError(Kind.CHECKSUM_MISMATCH, "FORMAT_DESCRIPTION_EVENT")
    created = int.from_bytes(event[:4], "little")
    return FormatDescription(event, version, created, algorithm == 1, "mariadb" in version.lower())


def _not_in_use(event: bytes) -> bytes:
    # The checksum is computed with LOG_EVENT_BINLOG_IN_USE_F clear: the server sets and clears that bit in place.
    flags = int.from_bytes(event[17:19], "little") & ~FLAG_IN_USE
    return event[:17] + flags.to_bytes(2, "little") + event[19:]


# -- ROTATE, HEARTBEAT ----------------------------------------------------------------------------------------


def parse_rotate(body: bytes) -> tuple[str, int]:
    """File name and offset where the log goes on."""
    if len(body) < 9:
        raise malformed("ROTATE_EVENT", f"has a body of {len(body)} bytes")
    return _text("ROTATE_EVENT", body[8:]), int.from_bytes(body[:8], "little")


# -- GTID -----------------------------------------------------------------------------------------------------


def parse_gtid(body: bytes) -> tuple[str, int]:
    """(source uuid, number) of a GTID_EVENT."""
    if len(body) < 25:
        raise malformed("GTID_EVENT", f"has a body of {len(body)} bytes")
    return str(UUID(bytes=body[1:17])), int.from_bytes(body[17:25], "little", signed=True)


# -- QUERY ----------------------------------------------------------------------------------------------------

# Status variables of a fixed size: code -> bytes of value. Codes 14 and 15 never occur in a log.
_Q_FIXED = {
    0: 4,  # Q_FLAGS2
    1: 8,  # Q_SQL_MODE
    3: 4,  # Q_AUTO_INCREMENT
    4: 6,  # Q_CHARSET
    7: 2,  # Q_LC_TIME_NAMES
    8: 2,  # Q_CHARSET_DATABASE
    9: 8,  # Q_TABLE_MAP_FOR_UPDATE
    10: 4,  # Q_MASTER_DATA_WRITTEN
    13: 3,  # Q_MICROSECONDS
    16: 1,  # Q_EXPLICIT_DEFAULTS_FOR_TIMESTAMP
    17: 8,  # Q_DDL_LOGGED_WITH_XID
    18: 2,  # Q_DEFAULT_COLLATION_FOR_UTF8MB4
    19: 1,  # Q_SQL_REQUIRE_PRIMARY_KEY
    20: 1,  # Q_DEFAULT_TABLE_ENCRYPTION
    128: 3,  # MariaDB: Q_HRNOW
    129: 8,  # MariaDB: Q_XID
}
_Q_UPDATED_DB_NAMES = 12
_OVER_MAX_DBS_IN_EVENT = 254


@dataclass(frozen=True, slots=True)
class Query:
    """`updated_databases`: what the server says the statement touches; None where it does not say (or too many)."""

    database: str
    query: str
    updated_databases: tuple[str, ...] | None
    error_code: int


def parse_query(body: bytes) -> Query:
    """Read a QUERY_EVENT's body. Unknown status variables end the list, as in the server: their size is unknown."""
    if len(body) < 13:
        raise malformed("QUERY_EVENT", f"has a body of {len(body)} bytes")
    database_size, error_code, status_size = body[8], *struct.unpack_from("<HH", body, 9)
    status_end = 13 + status_size
    query_start = status_end + database_size + 1
    if query_start > len(body) or body[query_start - 1] != 0:
        raise malformed("QUERY_EVENT", "its status variables or database name reach past the end")
    database = _text("QUERY_EVENT", body[status_end : query_start - 1])
    # A statement may hold bytes of any character set; routing only needs its ASCII parts, so nothing may fail here.
    query = body[query_start:].decode("utf-8", "surrogateescape")
    return Query(database, query, _updated_databases(body[13:status_end]), error_code)


def _updated_databases(status: bytes) -> tuple[str, ...] | None:
    at = 0
    while at < len(status):
        code = status[at]
        at += 1
        if code == _Q_UPDATED_DB_NAMES:
            if at >= len(status) or status[at] == _OVER_MAX_DBS_IN_EVENT:
                return None
            names = status[at + 1 :].split(b"\0")[: status[at]]
            return tuple(_text("QUERY_EVENT", name) for name in names if name)
        if code in _Q_FIXED:
            at += _Q_FIXED[code]
        elif code in (2, 6):  # Q_CATALOG (with its zero byte), Q_CATALOG_NZ
            at += 1 + (status[at] if at < len(status) else 0) + (code == 2)
        elif code == 5:  # Q_TIME_ZONE
            at += 1 + (status[at] if at < len(status) else 0)
        elif code == 11:  # Q_INVOKER: user, host
            for _ in range(2):
                at += 1 + (status[at] if at < len(status) else 0)
        else:
            return None
    return None


# -- the record -----------------------------------------------------------------------------------------------

RECORD_MAGIC = b"BD"
RECORD_VERSION = 1
RECORD = struct.Struct(
    "<2sBBIQQqI"
)  # magic, version, name length, epoch, seq, offset, commit_us, first_event
RECORD_SIZE = HEADER_SIZE + RECORD.size  # without file name and checksum


@dataclass(frozen=True, slots=True)
class Record:
    """What a filtered binlog cannot say by itself: stands before each transaction that a consumer receives.

    `file`, `offset`: the source's file and the offset in it just after the transaction; `commit_us`: its commit,
    microseconds since 1970 UTC; `first_event`: index, within the transaction as delivered, of the event that follows.
    """

    epoch: int
    seq: int
    file: str
    offset: int
    commit_us: int
    first_event: int


def encode_record(
    record: Record, *, checksum: bool, timestamp: int = 0, server_id: int = 0
) -> bytes:
    """The record as an IGNORABLE_LOG_EVENT, which the servers' own tools and replicas skip."""
    name = record.file.encode()
    body = RECORD.pack(
        RECORD_MAGIC, RECORD_VERSION, len(name), record.epoch, record.seq, record.offset, record.commit_us,
        record.first_event,
    )  # fmt: skip
    size = RECORD_SIZE + len(name) + (CHECKSUM_SIZE if checksum else 0)
    header = HEADER.pack(
        timestamp, EventType.IGNORABLE, server_id, size, record.offset & 0xFFFFFFFF, FLAG_IGNORABLE
    )
    event = header + body + name
    return event + zlib.crc32(event).to_bytes(4, "little") if checksum else event


def parse_record(body: bytes) -> Record | None:
    """Read the body (no header, no checksum) of an IGNORABLE_LOG_EVENT; None where it is not a record of ours."""
    if body[:2] != RECORD_MAGIC:
        return None
    if len(body) < RECORD.size:
        raise malformed("IGNORABLE_LOG_EVENT", "a record is cut short")
    _, version, name_size, epoch, seq, offset, commit_us, first_event = RECORD.unpack_from(body)
    if version != RECORD_VERSION:
        raise BinlogError(
            Kind.UNSUPPORTED_EVENT,
            f"record of version {version}, this reader knows {RECORD_VERSION}",
            remedy="install the same version of binlog-dispatcher on both sides",
        )
    if len(body) < RECORD.size + name_size:
        raise malformed("IGNORABLE_LOG_EVENT", "a record's file name is cut short")
    name = _text("IGNORABLE_LOG_EVENT", body[RECORD.size : RECORD.size + name_size])
    return Record(epoch, seq, name, offset, commit_us, first_event)


def malformed(name: str, why: str) -> BinlogError:
    return BinlogError(Kind.MALFORMED_EVENT, f"{name} {why}")


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise malformed(name, f"holds a name that is not UTF-8: {data[:40]!r}") from None
