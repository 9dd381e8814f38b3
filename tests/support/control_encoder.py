"""Encoders of all events except rows events and table maps, and of both kinds of compression.

The encoders are based on the descriptions of the formats, not on the decoders. They return bodies of events;
`event_encoder.event` adds the header.

Sources: MySQL source, libs/mysql/binlog/event/*.h and libs/mysql/serialization/readme.md; MariaDB knowledge base, its
pages of events.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from uuid import UUID

import zstandard


def packed(value: int) -> bytes:
    """Returns a length-encoded integer of the client protocol."""
    if value < 251:
        return bytes((value,))
    for mark, size in ((252, 2), (253, 3), (254, 8)):
        if value < 1 << 8 * size:
            return bytes((mark,)) + value.to_bytes(size, "little")
    raise ValueError(value)


def varied(value: int) -> bytes:
    """Returns a variable-length integer of the serialization library, in the shortest form."""
    for size in range(1, 9):
        if value < 1 << 7 * size:
            return ((value << size) | (1 << (size - 1)) - 1).to_bytes(size, "little")
    return b"\xff" + value.to_bytes(8, "little")


def varied_signed(value: int) -> bytes:
    return varied(value << 1 if value >= 0 else (-value - 1) << 1 | 1)


# -- GTIDs ----------------------------------------------------------------------------------------------------


def gtid_tagged_body(
    source: UUID,
    tag: str,
    gno: int,
    *,
    commit_us: int = 0,
    original_us: int | None = None,
    last_needed: int = 0,
    more: bytes = b"",
) -> bytes:
    """`more`: fields of a later version, which come last; `last_needed`: 1 + the number of the last field that a reader
    must not ignore."""
    fields = varied(0) + varied(1)
    fields += varied(1) + b"".join(varied(byte) for byte in source.bytes)
    fields += varied(2) + varied_signed(gno)
    fields += varied(3) + varied(len(tag)) + tag.encode()
    fields += varied(4) + varied_signed(3) + varied(5) + varied_signed(4)
    fields += varied(6) + varied(commit_us)
    if original_us is not None:
        fields += varied(7) + varied(original_us)
    fields += varied(8) + varied(1000) + varied(9) + varied(90704) + more
    size = 1
    while True:  # the value of the size field includes the field's own bytes
        head = varied(1) + varied(size) + varied(last_needed)
        if len(head) + len(fields) == size:
            return head + fields
        size = len(head) + len(fields)


def tagged_set_body(sets: Mapping[tuple[UUID, str], Sequence[tuple[int, int]]]) -> bytes:
    """Encodes PREVIOUS_GTIDS with tags. `sets`: half-open intervals by (uuid, tag)."""
    out = b"\1" + len(sets).to_bytes(6, "little") + b"\1"
    for (uuid, tag), intervals in sets.items():
        out += uuid.bytes + varied(len(tag)) + tag.encode() + len(intervals).to_bytes(8, "little")
        out += b"".join(struct.pack("<QQ", *interval) for interval in intervals)
    return out


def mariadb_gtid_list_body(gtids: Iterable[tuple[int, int, int]]) -> bytes:
    items = [struct.pack("<IIQ", *gtid) for gtid in gtids]
    return len(items).to_bytes(4, "little") + b"".join(items)


def mariadb_gtid_more_body(
    sequence: int, domain: int, flags: int, *, commit_id: int = 0, xid: tuple[int, bytes, bytes] | None = None,
    extra: int | None = None, alter_of: int = 0,
) -> bytes:  # fmt: skip
    """Encodes MariaDB's GTID event with optional fields, padded to 19 bytes as by the server."""
    out = struct.pack("<QIB", sequence, domain, flags)
    if flags & 2:
        out += commit_id.to_bytes(8, "little")
    if xid is not None:
        out += struct.pack("<IBB", xid[0], len(xid[1]), len(xid[2])) + xid[1] + xid[2]
    if extra is not None:
        out += bytes((extra,)) + (b"\2" if extra & 1 else b"")
        out += alter_of.to_bytes(8, "little") if extra & 12 else b""
    return out.ljust(19, b"\0")


# -- statements -----------------------------------------------------------------------------------------------


def intvar_body(kind: int, value: int) -> bytes:
    return bytes((kind,)) + value.to_bytes(8, "little")


def rand_body(first: int, second: int) -> bytes:
    return struct.pack("<QQ", first, second)


def decimal_bytes(value: Decimal, precision: int, scale: int) -> bytes:
    """Returns the storage form of a DECIMAL(precision, scale)."""
    assert -int(value.as_tuple().exponent) == scale
    digits = "".join(map(str, value.as_tuple().digits)).rjust(precision, "0")
    whole, part = digits[: precision - scale], digits[precision - scale :]
    groups = [whole[: len(whole) % 9]] + [
        whole[i : i + 9] for i in range(len(whole) % 9, len(whole), 9)
    ]
    groups += [part[i : i + 9] for i in range(0, len(part), 9)]
    out = b"".join(
        int(g).to_bytes((len(g) + 1) // 2 if len(g) < 9 else 4, "big") for g in groups if g
    )
    if value < 0:
        out = bytes(byte ^ 0xFF for byte in out)
    return bytes((out[0] ^ 0x80,)) + out[1:]


def user_var_body(
    name: str, value: str | bytes | float | Decimal | None, *, collation: int = 45
) -> bytes:
    out = len(name.encode()).to_bytes(4, "little") + name.encode()
    if value is None:
        return out + b"\1"
    flags = 0
    if isinstance(value, str | bytes):
        kind, raw = 0, value.encode() if isinstance(value, str) else value
    elif isinstance(value, Decimal):
        scale = -int(value.as_tuple().exponent)
        precision = max(len(value.as_tuple().digits), scale, 1)
        kind, raw = 4, bytes((precision, scale)) + decimal_bytes(value, precision, scale)
    elif isinstance(value, int):
        kind, flags = 2, int(value >= 1 << 63)
        raw = (value & (1 << 64) - 1).to_bytes(8, "little")
    else:
        kind, raw = 1, struct.pack("<d", value)
    return out + b"\0" + struct.pack("<BII", kind, collation, len(raw)) + raw + bytes((flags,))


def load_query_body(
    query: str, database: str = "", status: bytes = b"", *, file_id: int = 1, name: tuple[int, int] = (17, 20)
) -> bytes:  # fmt: skip
    out = struct.pack("<IIBHH", 7, 1, len(database), 0, len(status))
    out += struct.pack("<IIIB", file_id, *name, 2)
    return out + status + database.encode() + b"\0" + query.encode()


def load_body(
    database: str, table: str, fields: Sequence[str], file: str, *, old: bool = False, file_id: int | None = None
) -> bytes:  # fmt: skip
    out = struct.pack("<IIIBBI", 7, 1, 5, len(table), len(database), len(fields))
    out += file_id.to_bytes(4, "little") if file_id is not None else b""
    out += b"\t'\n\0\\\0\0" if old else b"\1\t\1'\1\n\0\1\\\0"
    out += bytes(len(field) for field in fields) + b"".join(f.encode() + b"\0" for f in fields)
    out += table.encode() + b"\0" + database.encode() + b"\0" + file.encode()
    return out + (b"\0block" if file_id is not None else b"")


# -- the rest -------------------------------------------------------------------------------------------------


def xa_prepare_body(xid: tuple[int, bytes, bytes], *, one_phase: bool = False) -> bytes:
    format_id, gtrid, bqual = xid
    return struct.pack("<BiII", one_phase, format_id, len(gtrid), len(bqual)) + gtrid + bqual


def heartbeat_v2_body(file: str, position: int) -> bytes:
    name, at = file.encode(), packed(position)
    return packed(1) + packed(len(name)) + name + packed(2) + packed(len(at)) + at + packed(0)


def binlog_checkpoint_body(file: str) -> bytes:
    return len(file).to_bytes(4, "little") + file.encode()


def start_encryption_body(scheme: int, key_version: int, nonce: bytes) -> bytes:
    return struct.pack("<BI", scheme, key_version) + nonce


def transaction_context_body(
    uuid: str, thread: int, snapshot: bytes, writes: Sequence[bytes], reads: Sequence[bytes]
) -> bytes:
    out = struct.pack("<BI?III", len(uuid), thread, True, len(snapshot), len(writes), len(reads))
    out += uuid.encode() + snapshot
    return out + b"".join(struct.pack("<H", len(item)) + item for item in (*writes, *reads))


def view_change_body(view: str, number: int, certified: Mapping[bytes, bytes]) -> bytes:
    out = struct.pack("<40sQI", view.encode(), number, len(certified))
    return out + b"".join(
        struct.pack("<H", len(key)) + key + struct.pack("<I", len(value)) + value
        for key, value in certified.items()
    )


# -- compression ----------------------------------------------------------------------------------------------


def payload_body(
    events: bytes, *, compression: int = 0, said: int | None = None, unknown: bytes = b"", level: int = 3
) -> bytes:  # fmt: skip
    """Encodes a TRANSACTION_PAYLOAD of events without checksums. `said`: the uncompressed size that the header
    contains, None for the true size; `unknown`: bytes of an unknown field, which is the first in the header."""
    data = zstandard.ZstdCompressor(level=level).compress(events) if compression == 0 else events
    fields = {2: packed(compression)}
    if compression == 0:
        fields[3] = packed(len(events) if said is None else said)
    fields[1] = packed(len(data))
    return (
        unknown + b"".join(packed(f) + packed(len(v)) + v for f, v in fields.items()) + b"\0" + data
    )


def mariadb_compressed(data: bytes, *, said: int | None = None) -> bytes:
    size = len(data) if said is None else said
    length = max(1, (size.bit_length() + 7) // 8)
    return bytes((0x80 | length,)) + size.to_bytes(length, "big") + zlib.compress(data)


def query_compressed_body(body: bytes) -> bytes:
    """Returns the compressed form of a QUERY event's body."""
    at = 13 + int.from_bytes(body[11:13], "little") + body[8] + 1
    return body[:at] + mariadb_compressed(body[at:])


def rows_compressed_body(body: bytes, *, v2: bool, update: bool) -> bytes:
    """Returns the compressed form of a rows event's body: everything after the column bitmaps is compressed."""
    at = 8 + (int.from_bytes(body[8:10], "little") if v2 else 0)
    width = body[at]
    assert width < 251
    at += 1 + (width + 7) // 8 * (2 if update else 1)
    return body[:at] + mariadb_compressed(body[at:])
