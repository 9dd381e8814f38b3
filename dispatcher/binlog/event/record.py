"""The record: an IGNORABLE_LOG_EVENT that the daemon adds to a delivered binlog before each transaction, and (in slices
and parts of transactions) at each place where events are left out.

The servers' tools and replicas skip an event with the flag LOG_EVENT_IGNORABLE_F, so `mysqlbinlog` can read a delivered
binlog.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from dispatcher.binlog.event.cursor import ByteCursor, malformed
from dispatcher.binlog.event.header import (
    CHECKSUM_SIZE,
    FILE_NAME_BYTES_MAX,
    FLAG_IGNORABLE,
    HEADER,
    HEADER_SIZE,
)
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.model.errors import BinlogError, ErrorKind

RECORD_MAGIC = b"BD"
RECORD_VERSION = 2
# magic, version, name length, epoch, seq, offset, commit_us, first_event, lower_case_table_names
RECORD = struct.Struct("<2sBBIQQqIB")
RECORD_SIZE = HEADER_SIZE + RECORD.size  # without file name and checksum
# Offsets of these fields in the event, for kernels.
(
    MAGIC_AT,
    VERSION_AT,
    NAME_SIZE_AT,
    EPOCH_AT,
    SEQ_AT,
    OFFSET_AT,
    COMMIT_US_AT,
    FIRST_EVENT_AT,
    LOWER_CASE_AT,
) = (HEADER_SIZE + at for at in (0, 2, 3, 4, 8, 16, 24, 32, 36))


@dataclass(frozen=True, slots=True)
class Record:
    """The position and time of a transaction in the source. The events of a filtered binlog do not contain these facts.

    `file`, `offset`: the source's file, and the offset just after the transaction. `commit_us`: the commit time,
    microseconds since 1970 UTC. `first_event`: index of the event that follows, in the delivered transaction.
    `lower_case_table_names`: the setting of the server, without which a statement's names have no certain meaning.
    """

    epoch: int
    seq: int
    file: str
    offset: int
    commit_us: int
    first_event: int
    lower_case_table_names: int = 0


def encode_record(
    record: Record, *, checksum: bool, timestamp: int = 0, server_id: int = 0
) -> bytes:
    """Encode the record as an IGNORABLE_LOG_EVENT. Raises BinlogError for a file name of more than 255 bytes."""
    name = record.file.encode()
    if len(name) > FILE_NAME_BYTES_MAX:
        raise malformed("a record", f"names a file by {len(name)} bytes")
    body = RECORD.pack(
        RECORD_MAGIC, RECORD_VERSION, len(name), record.epoch, record.seq, record.offset, record.commit_us,
        record.first_event, record.lower_case_table_names,
    )  # fmt: skip
    size = RECORD_SIZE + len(name) + (CHECKSUM_SIZE if checksum else 0)
    header = HEADER.pack(
        timestamp, EventType.IGNORABLE, server_id, size, record.offset & 0xFFFFFFFF, FLAG_IGNORABLE
    )
    event = header + body + name
    return event + zlib.crc32(event).to_bytes(4, "little") if checksum else event


def continued_record(record: bytes, first_event: int, *, checksum: bool) -> bytes:
    """Return a copy of the record (a whole event) for a place inside its transaction: before the event with the index
    `first_event`."""
    event = bytearray(record[:-CHECKSUM_SIZE] if checksum else record)
    event[FIRST_EVENT_AT : FIRST_EVENT_AT + 4] = first_event.to_bytes(4, "little")
    return bytes(event) + (zlib.crc32(event).to_bytes(4, "little") if checksum else b"")


def parse_record(body: bytes) -> Record | None:
    """Parse the body (no header, no checksum) of an IGNORABLE_LOG_EVENT. Returns None if the event is not a record of
    the daemon. Raises `BinlogError`: MALFORMED_EVENT, UNSUPPORTED_EVENT for another version of the record."""
    if body[:2] != RECORD_MAGIC:
        return None
    if len(body) < RECORD.size:
        raise malformed(type_name(EventType.IGNORABLE), "a record is cut short")
    _, version, name_size, *values, lower_case = RECORD.unpack_from(body)
    if version != RECORD_VERSION:
        raise BinlogError(
            ErrorKind.UNSUPPORTED_EVENT,
            f"record of version {version}, this reader knows {RECORD_VERSION}",
            remedy="install the same version of binlog-dispatcher on both sides",
        )
    if len(body) < RECORD.size + name_size:
        raise malformed(type_name(EventType.IGNORABLE), "a record's file name is cut short")
    name = ByteCursor(type_name(EventType.IGNORABLE), body, RECORD.size).text(name_size)
    epoch, seq, offset, commit_us, first_event = values
    return Record(epoch, seq, name, offset, commit_us, first_event, lower_case)
