"""Decompresses MariaDB's compressed events (`log_bin_compress`) into plain events.

In a QUERY_COMPRESSED event the statement is compressed. In a compressed rows event, all bytes after the column bitmaps
are compressed. The compressed part is a byte 0x80 | algorithm << 4 | n, the uncompressed size in n bytes, big-endian,
and a zlib stream. The bytes before the compressed part are as in the plain event, so decompression needs no TABLE_MAP.

Sources: MariaDB, sql/log_event.cc: query_event_uncompress, row_log_event_uncompress, binlog_buf_uncompress.
"""

from __future__ import annotations

import zlib

from dispatcher.binlog.event import header
from dispatcher.binlog.event.cursor import ByteCursor, malformed
from dispatcher.binlog.event.header import EventHeader
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.model.errors import BinlogError, ErrorKind

_FIRST, _LAST = (
    int(EventType.MARIADB_QUERY_COMPRESSED),
    int(EventType.MARIADB_DELETE_ROWS_COMPRESSED),
)
_PLAIN = {
    EventType.MARIADB_QUERY_COMPRESSED: EventType.QUERY,
    EventType.MARIADB_WRITE_ROWS_COMPRESSED_V1: EventType.WRITE_ROWS_V1,
    EventType.MARIADB_UPDATE_ROWS_COMPRESSED_V1: EventType.UPDATE_ROWS_V1,
    EventType.MARIADB_DELETE_ROWS_COMPRESSED_V1: EventType.DELETE_ROWS_V1,
    EventType.MARIADB_WRITE_ROWS_COMPRESSED: EventType.WRITE_ROWS,
    EventType.MARIADB_UPDATE_ROWS_COMPRESSED: EventType.UPDATE_ROWS,
    EventType.MARIADB_DELETE_ROWS_COMPRESSED: EventType.DELETE_ROWS,
}
_UPDATES = (EventType.MARIADB_UPDATE_ROWS_COMPRESSED_V1, EventType.MARIADB_UPDATE_ROWS_COMPRESSED)
SIZE_MAX = 1 << 30  # no server writes a larger event


def is_compressed(kind: int) -> bool:
    return _FIRST <= kind <= _LAST


def plain_event(event: bytes, *, checksum: bool) -> bytes:
    """Decompress a whole event. If the event is not compressed, return it unchanged. `checksum`: True if the event ends
    in a CRC32. Then the function verifies this CRC32, and the result ends in a new one.

    Raises `BinlogError`: MALFORMED_EVENT, CHECKSUM_MISMATCH.
    """
    if len(event) < header.HEADER_SIZE or not is_compressed(event[header.TYPE_AT]):
        return event
    kind = EventType(event[header.TYPE_AT])
    if checksum and not header.has_valid_checksum(event):
        raise BinlogError(ErrorKind.CHECKSUM_MISMATCH, type_name(kind))
    plain = plain_body(
        kind, event[header.HEADER_SIZE : len(event) - header.CHECKSUM_SIZE * checksum]
    )
    size = header.HEADER_SIZE + len(plain) + header.CHECKSUM_SIZE * checksum
    out = (
        header.HEADER.pack(*EventHeader.read(event)._replace(type=_PLAIN[kind], size=size)) + plain
    )
    return out + zlib.crc32(out).to_bytes(4, "little") if checksum else out


def plain_body(kind: int, body: bytes) -> bytes:
    """Decompress an event's body (without header and checksum). No checksum is verified. Raises `BinlogError`
    (MALFORMED_EVENT)."""
    cursor = ByteCursor(type_name(kind), body)
    if kind == EventType.MARIADB_QUERY_COMPRESSED:
        cursor.read(8)
        database_size = cursor.number(1)
        cursor.read(2)
        cursor.read(cursor.number(2) + database_size + 1)
    else:
        cursor.read(8)
        if kind >= EventType.MARIADB_WRITE_ROWS_COMPRESSED:
            extra = cursor.number(2)
            if extra < 2:
                raise malformed(cursor.name, f"has {extra} bytes of extra data")
            cursor.read(extra - 2)
        width = (cursor.packed_number() + 7) // 8
        cursor.read(2 * width if kind in _UPDATES else width)
    return body[: cursor.at] + _uncompress(cursor)


def _uncompress(cursor: ByteCursor) -> bytes:
    head = cursor.number(1)
    if not head & 0x80 or head & 0x70:
        raise malformed(cursor.name, f"has an unknown compression ({head:#04x})")
    size = int.from_bytes(cursor.read(head & 7), "big")
    if not 0 < size <= SIZE_MAX:
        raise malformed(cursor.name, f"says that it holds {size} bytes")
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(cursor.rest(), size + 1)
    except zlib.error as error:
        raise malformed(cursor.name, f"cannot be uncompressed: {error}") from None
    if len(data) != size or not stream.eof or stream.unused_data:
        raise malformed(cursor.name, f"does not hold the {size} bytes that it says")
    return data


def plain_log(data: bytes | memoryview) -> bytes | memoryview:
    """Decompress every compressed event of a whole binlog (magic first). Return `data` itself if no event is
    compressed.

    `log_pos` in the headers is not changed, so it does not match the offsets in the result. Raises `BinlogError` with
    the offset in `data`. Other damaged events are copied unchanged; the code that reads the result reports them.
    """
    if data[: len(header.MAGIC)] != header.MAGIC:
        return data
    out: list[bytes | memoryview] = []
    at = copied = len(header.MAGIC)
    checksum = False
    while len(data) - at >= header.HEADER_SIZE:
        _, kind, _, size, _, _ = EventHeader.read(data, at)
        if size < header.HEADER_SIZE or at + size > len(data):
            break
        try:
            if kind == EventType.FORMAT_DESCRIPTION:
                checksum = header.parse_format_description(bytes(data[at : at + size])).checksum
            elif is_compressed(kind):
                event = bytes(data[at : at + size])
                out += (data[copied:at], plain_event(event, checksum=checksum))
                copied = at + size
        except BinlogError as error:
            raise error.at(f"offset {at}") from None
        at += size
    return b"".join((data[: len(header.MAGIC)], *out, data[copied:])) if out else data
