"""Encoders of the events that the front makes: fake ROTATE, FORMAT_DESCRIPTION, HEARTBEAT, empty transactions.

Each function returns whole events that equal the events of a server's dump. The module `relay` puts these events into
packets.

Sources: MySQL source, sql/rpl_binlog_sender.cc (fake_rotate_event, send_format_description_event,
send_heartbeat_event_v1 and _v2), libs/mysql/binlog/event/control_events.cpp, libs/mysql/serialization/readme.md;
MariaDB, sql/sql_repl.cc, sql/log_event_server.cc; all compared with dumps of real servers.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import Enum, auto
from uuid import UUID

from dispatcher.binlog.event.header import (
    CHECKSUM_SIZE,
    FLAG_ARTIFICIAL,
    FLAG_IN_USE,
    FLAGS_AT,
    HEADER,
    HEADER_SIZE,
    LOG_POS_AT,
    MAGIC,
    FormatDescription,
    server_numbers,
)
from dispatcher.binlog.event.types import EventType

# The creation time follows the binlog version and the server's version.
_CREATED_AT = HEADER_SIZE + 52
_LOG_POS_MAX = 0xFFFFFFFF  # an event's header contains the low 32 bits of its position
# LOG_EVENT_SUPPRESS_USE_F: the statement does not depend on the current database.
_SUPPRESS_USE = 0x0008
_MAY_HAVE_STATEMENTS = (
    1  # a flag of MySQL's GTID events, which servers set for an empty transaction
)
_TRANSACTIONAL = 0x04  # a flag of MariaDB's GTID events: the transaction can be rolled back


def made_event(
    kind: int,
    body: bytes,
    *,
    server_id: int,
    checksum: bool,
    timestamp: int = 0,
    log_pos: int = 0,
    flags: int = 0,
) -> bytes:
    """Encode an event. `log_pos`: the offset in the file; the event gets its low 32 bits."""
    size = HEADER_SIZE + len(body) + CHECKSUM_SIZE * checksum
    event = HEADER.pack(timestamp, kind, server_id, size, log_pos & 0xFFFFFFFF, flags) + body
    return event + zlib.crc32(event).to_bytes(4, "little") if checksum else event


def fake_rotate(file: str, offset: int, *, server_id: int, checksum: bool) -> bytes:
    """Encode the ROTATE event that names the file and offset of the events that follow."""
    body = offset.to_bytes(8, "little") + file.encode()
    return made_event(
        EventType.ROTATE, body, server_id=server_id, checksum=checksum, flags=FLAG_ARTIFICIAL
    )


class HeartbeatForm(Enum):
    """How a HEARTBEAT contains its offset. V1: in the header, which has 32 bits for the offset. LONG: MariaDB's form
    for an offset of more bits; the header contains 0, and 8 bytes precede the file's name. V2: MySQL's HEARTBEAT_V2."""

    V1 = auto()
    LONG = auto()
    V2 = auto()

    @classmethod
    def of(cls, offset: int, *, v2: bool, mariadb: bool) -> HeartbeatForm:
        """`v2`: True if the client has asked for HEARTBEAT_V2."""
        is_long = offset > _LOG_POS_MAX
        if mariadb:
            return cls.LONG if is_long else cls.V1
        return cls.V2 if v2 or is_long else cls.V1


def heartbeat(
    file: str, offset: int, *, server_id: int, checksum: bool, form: HeartbeatForm
) -> bytes:
    """Encode a HEARTBEAT event."""
    kind, body, log_pos = EventType.HEARTBEAT, file.encode(), offset
    if form is HeartbeatForm.LONG:
        body, log_pos = offset.to_bytes(8, "little") + body, 0
    elif form is HeartbeatForm.V2:
        kind, at = EventType.HEARTBEAT_V2, encoded_packed(offset)
        body = b"".join(
            (b"\1", encoded_packed(len(body)), body, b"\2", encoded_packed(len(at)), at, b"\0")
        )
    return made_event(kind, body, server_id=server_id, checksum=checksum, log_pos=log_pos)


def format_description(
    format_: FormatDescription, *, begins_file: bool, has_place: bool, checksum: bool
) -> bytes:
    """Return a FORMAT_DESCRIPTION as a server sends it.

    `begins_file`: True if the dump continues with the beginning of the file. Otherwise the event has no creation time,
    because a replica that gets a creation time drops its temporary tables. `has_place`: True if the event has a
    position. Without one, the client keeps the position of the ROTATE. `checksum`: False if the following events are
    sent without their checksums. The FORMAT_DESCRIPTION itself always keeps its checksum.
    """
    event = bytearray(format_.raw)
    flags = int.from_bytes(event[FLAGS_AT : FLAGS_AT + 2], "little") & ~FLAG_IN_USE
    event[FLAGS_AT : FLAGS_AT + 2] = flags.to_bytes(2, "little")
    log_pos = len(MAGIC) + len(event) if has_place else 0
    event[LOG_POS_AT : LOG_POS_AT + 4] = log_pos.to_bytes(4, "little")
    if not begins_file:
        event[_CREATED_AT : _CREATED_AT + 4] = bytes(4)
    if format_.has_algorithm:
        event[-CHECKSUM_SIZE - 1] = format_.checksum and checksum
        event[-CHECKSUM_SIZE:] = zlib.crc32(event[:-CHECKSUM_SIZE]).to_bytes(4, "little")
    return bytes(event)


def without_time(format_: FormatDescription) -> bytes:
    """Return the FORMAT_DESCRIPTION with 0 as its timestamp."""
    event = bytearray(format_.raw)
    event[:4] = bytes(4)
    if format_.has_algorithm:
        # The checksum is that of the event without LOG_EVENT_BINLOG_IN_USE_F.
        event[FLAGS_AT] &= ~FLAG_IN_USE & 0xFF
        event[-CHECKSUM_SIZE:] = zlib.crc32(event[:-CHECKSUM_SIZE]).to_bytes(4, "little")
    return bytes(event)


def same_format(a: FormatDescription, b: FormatDescription) -> bool:
    """True if two FORMAT_DESCRIPTIONs describe the same format of events. Their creation times and positions are not
    compared."""
    return (a.server_version, a.checksum, a.has_algorithm, a.post_headers) == (
        b.server_version,
        b.checksum,
        b.has_algorithm,
        b.post_headers,
    )


# -- empty transactions ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EmptyTransaction:
    """The events of an empty transaction. Between the empty transactions of a source, only the number in the GTID event
    differs.

    `number_at`: offset of the number in the GTID event. `number_size`: the size of the number in bytes. `varied`: False
    for an integer of 8 bytes; True for a variable-length integer, which encodes twice the number.
    """

    gtid: bytes
    rest: tuple[bytes, ...]
    number_at: int
    number_size: int = 8
    varied: bool = False


@dataclass(frozen=True, slots=True)
class MadeTransaction:
    """The properties of an empty transaction other than its GTID. `timestamp`: seconds since 1970 UTC. `offset`: the
    offset in the file after the transaction. `checksum`: True if the transaction's events end in a CRC32."""

    server_version: str
    server_id: int
    timestamp: int
    offset: int
    checksum: bool

    def event(
        self, kind: int, body: bytes, *, server_id: int | None = None, flags: int = 0
    ) -> bytes:
        return made_event(
            kind, body, server_id=self.server_id if server_id is None else server_id, checksum=self.checksum,
            timestamp=self.timestamp, log_pos=self.offset, flags=flags,
        )  # fmt: skip

    def query(self, text: bytes) -> bytes:
        """Encode a QUERY event without database and status variables."""
        return self.event(EventType.QUERY, bytes(14) + text, flags=_SUPPRESS_USE)

    def mysql(self, source: str, number_size: int = 8) -> EmptyTransaction:
        """Return an empty transaction of a source, `uuid` or `uuid:tag`, in the form of the server's version. It
        consists of the events GTID, BEGIN and COMMIT.

        Its logical timestamps (`last_committed`, `sequence_number`) are 0, so a replica with several workers does not
        execute it in parallel with other transactions. `number_size`: if the source has a tag, the size of the encoded
        number in bytes.
        """
        uuid, _, tag = source.partition(":")
        rest = (self.query(b"BEGIN"), self.query(b"COMMIT"))
        length = sum(map(len, rest)) + HEADER_SIZE + CHECKSUM_SIZE * self.checksum
        if tag:
            body, number_at = self._tagged(UUID(uuid), tag, number_size, length)
            gtid = self.event(EventType.GTID_TAGGED, body)
            return EmptyTransaction(gtid, rest, HEADER_SIZE + number_at, number_size, varied=True)
        body = bytes((_MAY_HAVE_STATEMENTS,)) + UUID(uuid).bytes + bytes(8)
        numbers = server_numbers(self.server_version)
        if numbers >= (5, 7):
            body += b"\2" + bytes(16)
        if numbers >= (8,):
            body += self._commit_us.to_bytes(7, "little")
            version = self._version.to_bytes(4, "little")
            length += len(body) + len(version)
            body += encoded_packed(length + (1 if length < 250 else 3)) + version
        return EmptyTransaction(self.event(EventType.GTID, body), rest, HEADER_SIZE + 17)

    def _tagged(self, uuid: UUID, tag: str, number_size: int, length: int) -> tuple[bytes, int]:
        """Return the body of a GTID_TAGGED event with zeros for its number, and the offset of the number. `length`: the
        length of the transaction without this body."""
        head = encoded_varied(0) + encoded_varied(_MAY_HAVE_STATEMENTS)
        head += (
            encoded_varied(1)
            + b"".join(encoded_varied(byte) for byte in uuid.bytes)
            + encoded_varied(2)
        )
        tail = (
            encoded_varied(3)
            + encoded_varied(len(tag))
            + tag.encode()
            + encoded_varied(4)
            + encoded_varied(0)
            + encoded_varied(5)
            + encoded_varied(0)
        )
        tail += encoded_varied(6) + encoded_varied(self._commit_us)
        version = encoded_varied(9) + encoded_varied(self._version)
        size = total = 0
        while True:  # both sizes include the bytes of their own encoding
            start = encoded_varied(1) + encoded_varied(size) + encoded_varied(0) + head
            body = (
                start
                + bytes(number_size)
                + tail
                + encoded_varied(8)
                + encoded_varied(total)
                + version
            )
            if (len(body), length + len(body)) == (size, total):
                return body, len(start)
            size, total = len(body), length + len(body)

    @property
    def _commit_us(self) -> int:
        return self.timestamp * 1_000_000

    @property
    def _version(self) -> int:
        major, minor, patch = (*server_numbers(self.server_version), 0, 0, 0)[:3]
        return major * 10000 + minor * 100 + patch

    def mariadb(self, domain: int, server_id: int) -> EmptyTransaction:
        """Return an empty transaction of a MariaDB domain and server. It consists of the events GTID, which implies
        BEGIN, and COMMIT."""
        body = bytes(8) + struct.pack("<IB", domain, _TRANSACTIONAL) + bytes(6)
        gtid = self.event(EventType.MARIADB_GTID, body, server_id=server_id, flags=_SUPPRESS_USE)
        commit = bytes(14) + b"COMMIT"
        rest = self.event(EventType.QUERY, commit, server_id=server_id, flags=_SUPPRESS_USE)
        return EmptyTransaction(gtid, (rest,), HEADER_SIZE)


# -- integers -------------------------------------------------------------------------------------------------


def encoded_packed(value: int) -> bytes:
    """Encode a packed integer of the client protocol."""
    if value < 251:
        return bytes((value,))
    for mark, size in ((252, 2), (253, 3), (254, 8)):
        if value < 1 << 8 * size:
            return bytes((mark,)) + value.to_bytes(size, "little")
    raise ValueError(value)


def varied_size(value: int) -> int:
    """The number of bytes of `encoded_varied(value)`."""
    return min(max(1, (value.bit_length() + 6) // 7), 9)


def encoded_varied(value: int) -> bytes:
    """Encode an integer of up to 64 bits as a variable-length integer of MySQL's serialization library, in as few bytes
    as possible."""
    size = varied_size(value)
    if size == 9:
        return b"\xff" + value.to_bytes(8, "little")
    return (value << size | (1 << size - 1) - 1).to_bytes(size, "little")
