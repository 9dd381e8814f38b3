"""The 19-byte header, the events that frame a file, our own record; and the door to all other parsers of one event.

The firehose (rows, table maps, GTIDs, BEGIN, XID) is read by the kernel in `scan`; what comes once a file or once a
DDL is read one event at a time in Python: QUERY in `statements`, GTIDs in `gtid_events`, all others in `control`. Every
parser takes the event's body without header and checksum and raises `BinlogError` (MALFORMED_EVENT) naming what is
short; nothing keeps state.

Sources: MySQL source, libs/mysql/binlog/event/binlog_event.h and control_events.cpp; MariaDB, sql/log_event.h.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass

from dispatcher.binlog.event.cursor import ByteCursor, malformed
from dispatcher.binlog.event.gtid import Gtid, MariadbGtid, parse_gtid_event, parse_mariadb_gtid
from dispatcher.binlog.event.query import Query, parse_query
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import SEQ_OFFSET_BITS, has_file_number

# What other modules take from here although it is defined elsewhere.
__all__ = [
    "EventType", "Gtid", "MariadbGtid", "Query", "malformed", "parse_gtid_event", "parse_mariadb_gtid", "parse_query",
    "type_name",
]  # fmt: skip

MAGIC = b"\xfebin"
HEADER = struct.Struct("<IBIIIH")  # timestamp, type, server_id, event_size, log_pos, flags
HEADER_SIZE = 19
CHECKSUM_SIZE = 4

# No server writes a larger event: max_allowed_packet, which bounds them, is 1 GiB at most, and what a server adds to it
# has a few KiB. Cells are found by 32-bit offsets.
EVENT_BYTES_MAX = (1 << 30) + (1 << 16)
# Of a file's name, on Linux and in our record.
FILE_NAME_BYTES_MAX = 255

FLAG_IN_USE = (
    0x0001  # in a FORMAT_DESCRIPTION on disk: the file is being written, or its writer crashed
)
FLAG_ARTIFICIAL = 0x0020  # made by the server for this dump; not in the file
FLAG_IGNORABLE = 0x0080
STMT_END_F = 0x0001  # in the flags of a rows event: last one of its statement


# -- FORMAT_DESCRIPTION ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FormatDescription:
    """`raw`: the whole event as bytes; `checksum`: does each later event end in 4 bytes of CRC32? `post_headers`: the
    size of the fixed part of each event's body, by type code - 1. `created`: of the file, seconds since 1970: the
    header's timestamp, also in dumps from the middle; `started`: likewise of the server, 0 in all files but its first.
    `in_use`: the file is being written, or its writer crashed. `has_algorithm`: does this event name an algorithm at
    all, and so end in a checksum itself?"""

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
        """Do table ids take 4 bytes, as in 5.1 before 5.1.4, and not 6?"""
        return self.post_headers[EventType.TABLE_MAP - 1 : EventType.TABLE_MAP] == b"\6"


def parse_format_description(event: bytes) -> FormatDescription:
    """Read a whole FORMAT_DESCRIPTION_EVENT, header included, and verify its checksum if it has one.

    It ends in algorithm and checksum, also where the algorithm is "none", since MySQL 5.6.1 and MariaDB 5.3; older
    servers wrote neither. One that names no version is taken for a new one. Raises `BinlogError`: MALFORMED_EVENT,
    CHECKSUM_MISMATCH, UNSUPPORTED_EVENT.
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
    checksum = int.from_bytes(event[-4:], "little")
    if algorithm and zlib.crc32(_not_in_use(event[:-4])) != checksum:
        raise BinlogError(ErrorKind.CHECKSUM_MISMATCH, name)
    version, header_size = int.from_bytes(event[19:21], "little"), event[fixed - 1]
    if version != 4 or header_size != HEADER_SIZE:
        raise BinlogError(
            ErrorKind.UNSUPPORTED_EVENT,
            f"{name} of binlog version {version} with headers of {header_size} bytes (server {text!r})",
            remedy="only version 4 with headers of 19 bytes, which MySQL writes since 5.0, is read",
        )
    sizes = event[fixed : -CHECKSUM_SIZE - 1 if has_algorithm else len(event)]
    started, in_use = int.from_bytes(event[71:75], "little"), bool(event[17] & FLAG_IN_USE)
    return FormatDescription(
        event, text, int.from_bytes(event[:4], "little"), algorithm == 1, mariadb, sizes, version, started, in_use,
        has_algorithm,
    )  # fmt: skip


def server_numbers(version: str) -> tuple[int, ...]:
    """ "5.6.1-log" -> (5, 6, 1), () where there are none. MariaDB up to 10.x put "5.5.5-" before its own where a client
    asks, not into logs."""
    match = re.match(r"(\d+)\.(\d+)\.?(\d*)", version)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def _not_in_use(event: bytes) -> bytes:
    # The checksum is computed with LOG_EVENT_BINLOG_IN_USE_F clear: the server sets and clears that bit in place.
    flags = int.from_bytes(event[17:19], "little") & ~FLAG_IN_USE
    return event[:17] + flags.to_bytes(2, "little") + event[19:]


# -- ROTATE ---------------------------------------------------------------------------------------------------


def parse_rotate(body: bytes) -> tuple[str, int]:
    """File name and offset where the log goes on."""
    read = ByteCursor("ROTATE_EVENT", body)
    position, name = read.number(8), read.rest()
    if not name:
        raise malformed(read.name, "names no file")
    if len(name) > FILE_NAME_BYTES_MAX:
        raise malformed(read.name, f"names a file by {len(name)} bytes")
    file = read.decode(name)
    if not has_file_number(file) or position >> SEQ_OFFSET_BITS:
        raise malformed(read.name, f"names {file}:{position}, beyond what a server writes")
    return file, position


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
    """The record as an IGNORABLE_LOG_EVENT, which the servers' own tools and replicas skip. Raises BinlogError for a
    file name of more than 255 bytes."""
    name = record.file.encode()
    if len(name) > FILE_NAME_BYTES_MAX:
        raise malformed("a record", f"names a file by {len(name)} bytes")
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
        raise malformed(type_name(EventType.IGNORABLE), "a record is cut short")
    _, version, name_size, epoch, seq, offset, commit_us, first_event = RECORD.unpack_from(body)
    if version != RECORD_VERSION:
        raise BinlogError(
            ErrorKind.UNSUPPORTED_EVENT,
            f"record of version {version}, this reader knows {RECORD_VERSION}",
            remedy="install the same version of binlog-dispatcher on both sides",
        )
    if len(body) < RECORD.size + name_size:
        raise malformed(type_name(EventType.IGNORABLE), "a record's file name is cut short")
    name = ByteCursor(type_name(EventType.IGNORABLE), body, RECORD.size).text(name_size)
    return Record(epoch, seq, name, offset, commit_us, first_event)
