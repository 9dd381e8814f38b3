"""Formats GTID events as text, a batch at a time, because a log of small transactions may contain as many GTID events
as rows.

The server id of a MariaDB GTID is in the event's header. The event of a MySQL GTID with a tag (see `event.gtid`) begins
with four fields, which this module parses: flags, the source as 16 integers, the number, the tag. An anonymous GTID has
no text.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dispatcher.binlog.decode.arrow.arrow_buffers import varying
from dispatcher.binlog.decode.formats.number_format import unsigned
from dispatcher.binlog.event import header
from dispatcher.binlog.event.cursor import malformed
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.kernel.bytes import I32, I64, U8, Int, little
from dispatcher.binlog.kernel.intrinsics import copy, prefetch
from dispatcher.binlog.kernel.jit import njit
from dispatcher.binlog.kernel.short_copy import same_bytes

# Room for a UUID (36), ':', a tag (32), ':' and 20 digits, or for 10 + 10 + 20 digits and two '-'.
_TEXT_MAX = 96
_TAG_MAX = 32
_UUID_TEXT = 36
_AHEAD = 8  # distance, in events, from the event that is read to the prefetched event
_BODY_AT = header.HEADER_SIZE
_ANONYMOUS = int(EventType.ANONYMOUS_GTID)
_MARIADB = int(EventType.MARIADB_GTID)
_TAGGED = int(EventType.GTID_TAGGED)


@njit
def put_number(out: U8, o: Int, value: Int) -> Int:
    return unsigned(np.uint64(value), out, o)


@njit
def put_uuid_byte(out: U8, o: Int, k: Int, byte: Int) -> Int:
    """Write byte k of a UUID as two hex digits, and before bytes 4, 6, 8 and 10 a dash."""
    if k == 4 or k == 6 or k == 8 or k == 10:
        out[o] = 45
        o += 1
    high, low = byte >> 4, byte & 15
    out[o] = 48 + high if high < 10 else 87 + high
    out[o + 1] = 48 + low if low < 10 else 87 + low
    return o + 2


@njit
def varied(buf: U8, at: Int, end: Int) -> tuple[Int, Int]:
    """Return (value, offset after the integer) of an integer of MySQL's serialization library. The offset is -1 if the
    integer is truncated."""
    if at < 0 or at >= end:
        return np.int64(0), np.int64(-1)
    first = np.int64(buf[at])
    size = 1
    while size < 9 and first & (1 << (size - 1)):
        size += 1
    if at + size > end:
        return np.int64(0), np.int64(-1)
    if size == 9:
        return little(buf, at + 1, 8), at + 9
    value = np.int64(np.uint64(little(buf, at, size)) >> np.uint64(size))
    return value, at + size


@njit
def put_tagged(buf: U8, body: Int, end: Int, out: U8, start: Int) -> Int:
    """Write `uuid:tag:number` of a GTID_TAGGED event. Return the offset after the text, or -1 if the event is
    damaged."""
    o, at = start, body
    for _ in range(3):  # version, size, last mandatory field
        _, at = varied(buf, at, end)
    number: Int = np.int64(0)
    for field in range(4):
        number_of_field, at = varied(buf, at, end)
        if at < 0 or number_of_field != field:
            return np.int64(-1)
        value: Int = np.int64(0)
        for k in range(16 if field == 1 else 1):
            value, at = varied(buf, at, end)
            if at < 0 or (field == 1 and not 0 <= value < 256):
                return np.int64(-1)
            if field == 1:
                o = put_uuid_byte(out, o, k, value)
        if field == 2:
            number = np.int64(np.uint64(value) >> np.uint64(1))
        elif field == 3:
            if not 0 <= value <= _TAG_MAX or at + value > end:
                return np.int64(-1)
            if value:
                out[o] = 58
                o += 1
            for k in range(value):
                out[o + k] = buf[at + k]
            o += value
    out[o] = 58
    return put_number(out, o + 1, number)


@njit
def gtid_texts(buf: U8, at: I64, offsets: I32, out: U8) -> Int:
    """Write the texts of the GTID events at the offsets `at`; "" for an anonymous GTID and for an offset of -1.

    Returns the offset of a damaged event, or -1.
    """
    o = np.int64(0)
    known, text = (
        np.int64(-1),
        np.int64(0),
    )  # the previous source and the offset of its text: most rows have the same source
    for i in range(len(at)):
        prefetch(buf, at[min(i + _AHEAD, len(at) - 1)] + header.HEADER_SIZE)
        p = at[i]
        if p >= 0 and buf[p + header.TYPE_AT] != _ANONYMOUS:
            body = p + _BODY_AT
            if buf[p + header.TYPE_AT] == _MARIADB:
                o = put_number(out, o, little(buf, body + header.MARIADB_DOMAIN_AT, 4))
                out[o] = 45
                o = put_number(out, o + 1, little(buf, p + header.SERVER_ID_AT, 4))
                out[o] = 45
                o = put_number(out, o + 1, little(buf, body, 8))
            elif buf[p + header.TYPE_AT] == _TAGGED:
                o = put_tagged(buf, body, p + little(buf, p + header.SIZE_AT, 4), out, o)
                if o < 0:
                    return p
            else:
                source = body + header.GTID_SOURCE_AT
                if known >= 0 and same_bytes(buf, source, buf, known, 16):
                    copy(out, int(o), out, int(text), _UUID_TEXT)
                    o += _UUID_TEXT
                else:
                    known, text = source, o
                    for k in range(16):
                        o = put_uuid_byte(out, o, k, np.int64(buf[source + k]))
                out[o] = 58
                o = put_number(out, o + 1, little(buf, body + header.GTID_NUMBER_AT, 8))
        offsets[i + 1] = o
    return np.int64(-1)


def gtid_strings(buf: U8, at: I64) -> pa.Array:
    """Returns the GTIDs as a string array: `uuid:number`, `uuid:tag:number`, MariaDB's `domain-server-sequence`, "" if
    none.

    Raises `BinlogError` MALFORMED_EVENT with the offset.
    """
    offsets = np.zeros(len(at) + 1, dtype=np.int32)
    out = np.empty(len(at) * _TEXT_MAX, dtype=np.uint8)
    if (bad := int(gtid_texts(buf, np.ascontiguousarray(at), offsets, out))) >= 0:
        raise malformed("GTID_TAGGED_EVENT", "is damaged").at(f"offset {bad}")
    return varying(pa.string(), offsets, out[: offsets[-1]].copy())
