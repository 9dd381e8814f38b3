"""The 19-byte header of every event, and the events that begin and end a file: FORMAT_DESCRIPTION and ROTATE.

The splitter's kernel reads the frequent events (rows, table maps, GTIDs, BEGIN, XID). The modules of this package parse
all other events in Python, one at a time. A parser reads the event's body, without header and checksum, unless the
parser's docstring says otherwise. A parser has no state, and raises a `BinlogError` (MALFORMED_EVENT) that names the
missing field.

Sources: MySQL source, libs/mysql/binlog/event/binlog_event.h and control_events.cpp; MariaDB, sql/log_event.h.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass
from typing import NamedTuple

from dispatcher.binlog.event.cursor import ByteCursor, malformed
from dispatcher.binlog.event.types import EventType
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import SEQ_OFFSET_BITS, has_file_number

MAGIC = b"\xfebin"
HEADER = struct.Struct("<IBIIIH")  # timestamp, type, server_id, event_size, log_pos, flags
HEADER_SIZE = 19
# Offsets of the header's fields (little-endian), for kernels and for code that needs only one field.
TIMESTAMP_AT, TYPE_AT, SERVER_ID_AT, SIZE_AT, LOG_POS_AT, FLAGS_AT = 0, 4, 5, 9, 13, 17
CHECKSUM_SIZE = 4

# Offsets in the bodies of the events that kernels read. A rows event and a TABLE_MAP begin with table id (6 bytes) and
# flags (2). The fixed part of a QUERY holds the sizes of the database's name (1 byte) and of the status variables (2);
# both follow the fixed part. MySQL's GTID: flags, source (16), number (8), clock type, two numbers, commit time (7).
# MariaDB's GTID: sequence number (8), domain (4), flags.
TABLE_ID_SIZE, ROWS_FLAGS_AT, TABLE_HEAD_SIZE = 6, 6, 8
QUERY_DATABASE_SIZE_AT, QUERY_STATUS_SIZE_AT, QUERY_FIXED_SIZE = 8, 11, 13
GTID_SOURCE_AT, GTID_NUMBER_AT, GTID_CLOCK_AT, GTID_COMMIT_AT, GTID_COMMIT_SIZE = 1, 17, 25, 42, 7
MARIADB_DOMAIN_AT, MARIADB_FLAGS_AT, MARIADB_GTID_SIZE_MIN = 8, 12, 12

# No server writes a larger event: max_allowed_packet is at most 1 GiB, and a server adds a few KiB to it. The 32-bit
# offsets of cells rely on this limit.
EVENT_BYTES_MAX = (1 << 30) + (1 << 16)
FILE_NAME_BYTES_MAX = 255  # limit of a binlog file's name, on Linux and in our record

FLAG_IN_USE = (
    0x0001  # in a FORMAT_DESCRIPTION on disk: the file is open, or was open when the server crashed
)
# The statement, or the definition of a table that it opened, used a temporary table or CONNECTION_ID().
FLAG_THREAD_SPECIFIC = 0x0004
FLAG_ARTIFICIAL = 0x0020  # the server made the event for this dump; it is not in the file
FLAG_IGNORABLE = 0x0080
STMT_END_F = 0x0001  # in the flags of a rows event: the event is the last of its statement


class EventHeader(NamedTuple):
    """The fields of an event's header. `type`: a type code, which need not be an `EventType`. `size`: the size of the
    whole event. `log_pos`: the low 32 bits of the offset in the file after the event, 0 = unknown."""

    timestamp: int
    type: int
    server_id: int
    size: int
    log_pos: int
    flags: int

    @classmethod
    def read(cls, data: bytes | memoryview, at: int = 0) -> EventHeader:
        """Return the header at data[at]. Raises struct.error if `data` ends less than 19 bytes after `at`."""
        return cls(*HEADER.unpack_from(data, at))


def has_valid_checksum(event: bytes) -> bool:
    """True if an event ends in the CRC32 of all bytes before it."""
    checksum = int.from_bytes(event[-CHECKSUM_SIZE:], "little")
    return zlib.crc32(event[:-CHECKSUM_SIZE]) == checksum


# -- FORMAT_DESCRIPTION ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FormatDescription:
    """The format of the events that follow.

    `raw`: the whole event. `checksum`: True if each later event ends in 4 bytes of CRC32. `post_headers`: size of the
    fixed part of each event's body, by type code - 1. `created`: when the file was created, seconds since 1970, from
    the header's timestamp (which is right in dumps from the middle of a file, too). `started`: when the server was
    started; 0 in all files but the first one after the start. `in_use`: True if the server has the file open, or
    crashed while it had the file open. `has_algorithm`: True if this event contains a checksum algorithm, and so ends
    in a checksum itself.
    """

    raw: bytes
    server_version: str
    created: int
    checksum: bool
    mariadb: bool
    post_headers: bytes = b""
    version: int = 4
    started: int = 0
    in_use: bool = False
    has_algorithm: bool = True

    @property
    def short_table_ids(self) -> bool:
        """True if table ids take 4 bytes instead of 6, as in 5.1 before 5.1.4."""
        return self.post_headers[EventType.TABLE_MAP - 1 : EventType.TABLE_MAP] == b"\6"

    def with_long_table_id(self, body: bytes) -> bytes:
        """Return the body of a TABLE_MAP or rows event with a table id of 6 bytes."""
        return body[:4] + b"\0\0" + body[4:] if self.short_table_ids else body


def parse_format_description(event: bytes) -> FormatDescription:
    """Read a whole FORMAT_DESCRIPTION_EVENT, header included, and verify its checksum if it has one.

    Since MySQL 5.6.1 and MariaDB 5.3 the event ends in algorithm and checksum, even if the algorithm is "none"; older
    servers wrote neither. If the event contains no server version, it is parsed as an event of a new server. Raises
    `BinlogError`: MALFORMED_EVENT, CHECKSUM_MISMATCH, UNSUPPORTED_EVENT.
    """
    name = "FORMAT_DESCRIPTION_EVENT"
    fixed = HEADER_SIZE + 57
    text = event[HEADER_SIZE + 2 : HEADER_SIZE + 52].split(b"\0")[0].decode("ascii", "replace")
    mariadb, numbers = "mariadb" in text.lower(), server_numbers(text)
    has_algorithm = not numbers or numbers >= ((5, 3) if mariadb else (5, 6, 1))
    if len(event) < fixed + (1 + CHECKSUM_SIZE) * has_algorithm:
        raise malformed(name, f"has {len(event)} bytes")
    algorithm = event[-CHECKSUM_SIZE - 1] if has_algorithm else 0
    if algorithm > 1:
        raise malformed(name, f"names checksum algorithm {algorithm} (0 and 1 are known)")
    if algorithm and not has_valid_checksum(_not_in_use(event)):
        raise BinlogError(ErrorKind.CHECKSUM_MISMATCH, name)
    version = int.from_bytes(event[HEADER_SIZE : HEADER_SIZE + 2], "little")
    header_size = event[fixed - 1]
    if version != 4 or header_size != HEADER_SIZE:
        raise BinlogError(
            ErrorKind.UNSUPPORTED_EVENT,
            f"{name} of binlog version {version} with headers of {header_size} bytes (server {text!r})",
            remedy="only binlogs of version 4 with headers of 19 bytes (MySQL 5.0 and later) are read",
        )
    sizes = event[fixed : -CHECKSUM_SIZE - 1 if has_algorithm else len(event)]
    header = EventHeader.read(event)
    started = int.from_bytes(event[fixed - 5 : fixed - 1], "little")
    return FormatDescription(
        event, text, header.timestamp, algorithm == 1, mariadb, sizes, version, started,
        bool(header.flags & FLAG_IN_USE), has_algorithm,
    )  # fmt: skip


def server_numbers(version: str) -> tuple[int, ...]:
    """Parse a server version: "5.6.1-log" -> (5, 6, 1); () if the text does not begin with numbers. (Up to 10.x,
    MariaDB puts "5.5.5-" before its own version in the handshake, but not in logs.)"""
    match = re.match(r"(\d+)\.(\d+)\.?(\d*)", version)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def _not_in_use(event: bytes) -> bytes:
    # The server computes the checksum with LOG_EVENT_BINLOG_IN_USE_F clear, and sets and clears the bit in place.
    flags = EventHeader.read(event).flags & ~FLAG_IN_USE
    return event[:FLAGS_AT] + flags.to_bytes(2, "little") + event[HEADER_SIZE:]


# -- ROTATE ---------------------------------------------------------------------------------------------------


def parse_rotate(body: bytes) -> tuple[str, int]:
    """Parse a ROTATE event. Returns the file name and offset at which the log continues."""
    cursor = ByteCursor("ROTATE_EVENT", body)
    position, name = cursor.number(8), cursor.rest()
    if not name:
        raise malformed(cursor.name, "names no file")
    if len(name) > FILE_NAME_BYTES_MAX:
        raise malformed(cursor.name, f"names a file by {len(name)} bytes")
    file = cursor.decode(name)
    if not has_file_number(file) or position >> SEQ_OFFSET_BITS:
        raise malformed(
            cursor.name, f"names {file}:{position}, outside the range that servers write"
        )
    return file, position
