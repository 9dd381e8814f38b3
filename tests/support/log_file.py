"""Binlog files as servers of any version write them: magic, the FORMAT_DESCRIPTION of that version, events with their
positions.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from uuid import UUID

from dispatcher.binlog.event.types import EventType
from tests.support.rows_encoder import Row, Spec, packed, query_body, rows_body, table_map

SERVER = UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")
TIME = 1_700_000_000
STATEMENT_END = 1


def header(
    kind: int, size: int, log_pos: int, *, timestamp: int = TIME, flags: int = 0, server_id: int = 1
) -> bytes:
    return struct.pack("<IBIIIH", timestamp, kind, server_id, size, log_pos & 0xFFFFFFFF, flags)


def format_event(
    version: str, *, checksum: bool | None, in_use: bool = False, sizes: bytes = bytes(40)
) -> bytes:
    """Returns the FORMAT_DESCRIPTION at offset 4. `checksum`: None for the form before 5.6.1, without an algorithm
    byte."""
    body = struct.pack("<H50sIB", 4, version.encode(), TIME, 19) + sizes
    if checksum is not None:
        body += bytes((checksum,))
    size = 19 + len(body) + (4 if checksum is not None else 0)
    event = header(15, size, 4 + size) + body
    if checksum is not None:
        event += zlib.crc32(event).to_bytes(4, "little")
    return event[:17] + bytes((in_use, 0)) + event[19:]


@dataclass
class LogFile:
    """`data`: the file so far; `offsets`: the offsets of its events, including the FORMAT_DESCRIPTION."""

    version: str = "8.0.36"
    checksum: bool | None = True
    in_use: bool = False
    sizes: bytes = bytes(40)
    data: bytearray = field(default_factory=bytearray)
    offsets: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.data += b"\xfebin"
        self.raw(
            format_event(self.version, checksum=self.checksum, in_use=self.in_use, sizes=self.sizes)
        )

    def raw(self, event: bytes) -> None:
        self.offsets.append(len(self.data))
        self.kinds.append(event[4])
        self.data += event

    def add(self, kind: int, body: bytes, *, timestamp: int = TIME, flags: int = 0) -> None:
        size = 19 + len(body) + (4 if self.checksum else 0)
        event = header(kind, size, len(self.data) + size, timestamp=timestamp, flags=flags) + body
        self.raw(event + (zlib.crc32(event).to_bytes(4, "little") if self.checksum else b""))

    def gtid(self, number: int, *, timestamp: int = TIME) -> None:
        body = (
            b"\0" + SERVER.bytes + number.to_bytes(8, "little") + b"\2" + struct.pack("<qq", 0, 1)
        )
        self.add(EventType.GTID, body, timestamp=timestamp)

    def query(
        self, text: str, database: str = "shop", *, timestamp: int = TIME, status: bytes = b""
    ) -> None:
        self.add(EventType.QUERY, query_body(text, database, status), timestamp=timestamp)

    def table(self, columns: list[Spec], *, database: str = "shop", table: str = "orders", table_id: int = 77,
              full: bool = True, timestamp: int = TIME) -> None:  # fmt: skip
        body = table_map(columns, database=database, table=table, table_id=table_id, full=full)
        self.add(EventType.TABLE_MAP, body, timestamp=timestamp)

    def rows(self, kind: int, images: list[Row], *, table_id: int = 77, flags: int = STATEMENT_END,
             timestamp: int = TIME) -> None:  # fmt: skip
        self.add(kind, rows_body(kind, images, table_id=table_id, flags=flags), timestamp=timestamp)

    def xid(self, number: int = 1, *, timestamp: int = TIME) -> None:
        self.add(EventType.XID, number.to_bytes(8, "little"), timestamp=timestamp)

    def bytes(self) -> bytes:
        return bytes(self.data)


def payload_body(events: bytes, compressed: bytes, compression: int = 0) -> bytes:
    """Returns the body of a TRANSACTION_PAYLOAD. `compressed`: the compressed `events`."""
    fields = b""
    for code, value in ((2, compression), (3, len(events)), (1, len(compressed))):
        number = packed(value)
        fields += bytes((code, len(number))) + number
    return fields + b"\0" + compressed
