"""Parses TRANSACTION_PAYLOAD, a whole transaction compressed into one event, and decompresses it in bounded memory.

The body is a list of fields (type, size, value: all packed integers), an end mark (type 0), and the compressed bytes.
The decompressed bytes are the transaction's events one after the other. These events have no checksums, because the
payload event has one, and their `log_pos` is the `log_pos` of the payload event. The GTID event comes before the
payload event, uncompressed.

Sources: MySQL source, libs/mysql/binlog/event/codecs/binary.cpp, sql/binlog/decompressing_event_object_istream.cc.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import zstandard

from dispatcher.binlog.event.cursor import ByteCursor, malformed
from dispatcher.binlog.event.header import HEADER_SIZE, SIZE_AT, TYPE_AT
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.binlog.kernel.bytes import U8, u32
from dispatcher.binlog.kernel.jit import njit
from dispatcher.model.errors import BinlogError, ErrorKind

CHUNK_BYTES = 1 << 20
NAME = type_name(EventType.TRANSACTION_PAYLOAD)
_PAYLOAD = int(EventType.TRANSACTION_PAYLOAD)
_BAD_SIZE, _NESTED = -1, -2
_HEAD_MAX = 256  # more than the fields need; the data after the fields may have a gigabyte


class Compression(IntEnum):
    ZSTD = 0
    NONE = 255


@dataclass(frozen=True, slots=True)
class Payload:
    """`uncompressed_size`: bytes of all inner events; None if the server did not write this size."""

    compression: Compression
    uncompressed_size: int | None
    data: bytes | memoryview


def parse_payload(body: bytes | memoryview) -> Payload:
    """Parse a TRANSACTION_PAYLOAD_EVENT's body. `data` of the result is a slice of `body`, without a copy if `body` is
    a memoryview.

    Raises `BinlogError`: MALFORMED_EVENT, UNSUPPORTED_EVENT for an unknown compression.
    """
    cursor = ByteCursor(NAME, bytes(body[:_HEAD_MAX]))
    fields: dict[int, int] = {}
    while field := cursor.packed_number():
        value = ByteCursor(NAME, cursor.read(cursor.packed_number()))
        if field in (1, 2, 3):  # payload size, compression, uncompressed size
            fields[field] = value.packed_number()
            value.end()
    if 1 not in fields or 2 not in fields:
        raise malformed(NAME, "does not say its size and compression")
    data = body[cursor.at :]
    if fields[1] != len(data):
        raise malformed(NAME, f"says that it holds {fields[1]} bytes, and holds {len(data)}")
    if fields[2] not in list(Compression):
        raise BinlogError(
            ErrorKind.UNSUPPORTED_EVENT, f"{NAME} of the unknown compression {fields[2]}"
        )
    compression = Compression(fields[2])
    size = fields.get(3)
    if compression is Compression.NONE:
        size = len(data)
    return Payload(compression, size, data)


def decompressed_chunks(payload: Payload) -> Iterator[bytes]:
    """Yield the inner events' bytes, at most CHUNK_BYTES at a time. Raises `BinlogError` MALFORMED_EVENT if the payload
    cannot be decompressed, or if the decompressed size differs from the size in the event."""
    if payload.compression is Compression.NONE:
        for at in range(0, len(payload.data), CHUNK_BYTES):
            yield bytes(payload.data[at : at + CHUNK_BYTES])
        return
    stated, got = payload.uncompressed_size, 0
    reader = zstandard.ZstdDecompressor().stream_reader(payload.data, read_across_frames=True)
    while True:
        try:
            chunk = reader.read(CHUNK_BYTES)
        except zstandard.ZstdError as error:
            raise malformed(NAME, f"cannot be uncompressed: {error}") from None
        got += len(chunk)
        if stated is not None and (got > stated or (got < stated and not chunk)):
            more = "more" if got > stated else "fewer"
            raise malformed(NAME, f"holds {more} bytes than the {stated} that its header states")
        if not chunk:
            return
        yield chunk


def decompress(payload: Payload) -> bytes:
    """Return all inner events' bytes, for a payload whose uncompressed size is known and small. Raises `BinlogError`
    MALFORMED_EVENT like `decompressed_chunks`."""
    stated = payload.uncompressed_size
    if payload.compression is Compression.NONE:
        return bytes(payload.data)
    assert stated is not None
    try:
        size = zstandard.frame_content_size(payload.data)
        # Check the frame's size before decompression, because the library allocates memory of this size.
        if size in (-1, stated):
            data = zstandard.ZstdDecompressor().decompress(
                payload.data, max_output_size=stated, allow_extra_data=False
            )
            size = len(data)
            if size == stated:
                return data
    except zstandard.ZstdError as error:
        raise malformed(NAME, f"cannot be uncompressed: {error}") from None
    more = "more" if size > stated else "fewer"
    raise malformed(NAME, f"holds {more} bytes than the {stated} that its header states")


def event_runs(chunks: Iterable[bytes]) -> Iterator[U8]:
    """Join and split chunks of bytes at the ends of events: yields whole events as soon as all their bytes have
    arrived.

    Raises `BinlogError` after the last whole event if the bytes after it are damaged or incomplete.
    """
    parts: list[bytes] = []  # the beginning of an event
    have, need = 0, HEADER_SIZE
    for chunk in chunks:
        parts.append(chunk)
        have += len(chunk)
        if have < need:
            continue
        src: U8 = np.frombuffer(b"".join(parts), dtype=np.uint8)
        end, need = whole_events(src)
        if end:
            yield src[:end]
        if need < 0:
            raise _bad_event(need)
        parts, have = [src[end:].tobytes()], len(src) - end
    if have:
        raise malformed(NAME, "ends inside an event")


def check_payload(src: U8) -> None:
    """Raise `BinlogError` unless the bytes are whole events, without a TRANSACTION_PAYLOAD among them."""
    end, need = whole_events(src)
    if need < 0:
        raise _bad_event(need)
    if end != len(src):
        raise malformed(NAME, "ends inside an event")


def _bad_event(reason: int) -> BinlogError:
    why = "holds another one" if reason == _NESTED else "holds an event shorter than its header"
    return malformed(NAME, why)


@njit
def whole_events(src: U8) -> tuple[int, int]:
    """Return (size of the whole events at the start, bytes that the next event needs or a negative error code)."""
    at = 0
    while len(src) - at >= HEADER_SIZE:
        size = u32(src, at + SIZE_AT)
        if size < HEADER_SIZE:
            return at, _BAD_SIZE
        if src[at + TYPE_AT] == _PAYLOAD:
            return at, _NESTED
        if size > len(src) - at:
            return at, size
        at += size
    return at, HEADER_SIZE
