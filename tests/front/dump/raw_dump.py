"""A client that requests a dump from a server and keeps the packets unchanged."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, cast

from dispatcher.binlog.event.header import EventHeader
from dispatcher.binlog.event.types import EventType
from dispatcher.model.gtid import GtidSet

CLIENT_ID = 7777
NON_BLOCKING, FLAG_2, THROUGH_GTID = 1, 2, 4
CRC32 = ("SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'",)
NO_CRC = ("SET @master_binlog_checksum = 'NONE', @source_binlog_checksum = 'NONE'",)
MARIADB = ("SET @mariadb_slave_capability = 4",)
# Events that the front never sends to a consumer, because they do not concern the consumer's tables.
_FRAME = (
    EventType.ROTATE, EventType.STOP, EventType.PREVIOUS_GTIDS, EventType.HEARTBEAT, EventType.HEARTBEAT_V2,
    EventType.MARIADB_GTID_LIST, EventType.MARIADB_BINLOG_CHECKPOINT,
)  # fmt: skip
_ARTIFICIAL = 0x20


def by_file(file: str, offset: int = 4, flags: int = NON_BLOCKING) -> bytes:
    return b"\x12" + struct.pack("<IHI", offset, flags, CLIENT_ID) + file.encode()


def by_gtids(gtids: GtidSet, flags: int = NON_BLOCKING | THROUGH_GTID) -> bytes:
    encoded = gtids.encode()
    head = struct.pack("<HIIQI", flags, CLIENT_ID, 0, 4, len(encoded))
    return b"\x1e" + head + encoded


class Connects(Protocol):
    """A server, or a front."""

    def connect(self) -> Any: ...


def raw_dump(
    server: Connects, command: bytes, settings: Iterable[str] = (), *, events_max: int | None = None
) -> bytes:
    """Returns the packets of a dump, up to the packet that ends the dump, or at most `events_max` packets."""
    connection = server.connect()
    with connection.cursor() as cursor:
        for statement in settings:
            cursor.execute(statement)
    sock = cast(socket.socket, connection._sock)
    sock.settimeout(20)
    try:
        sock.sendall(len(command).to_bytes(3, "little") + b"\0" + command)
        out, count = bytearray(), 0
        while True:
            head = _receive(sock, 4)
            body = _receive(sock, int.from_bytes(head[:3], "little"))
            out += head + body
            count += 1
            if body[:1] in (b"\xff", b"\xfe") or count == events_max:
                return bytes(out)
    finally:
        connection._force_close()


def _receive(sock: socket.socket, size: int) -> bytes:
    out = bytearray()
    while len(out) < size:
        more = sock.recv(size - len(out))
        assert more, "the server closed the connection"
        out += more
    return bytes(out)


def payloads(stream: bytes, sequence: int = 1) -> list[bytes]:
    """Returns the payloads of packets. Asserts that the packets are numbered consecutively from `sequence`."""
    out, at, whole = [], 0, b""
    while at < len(stream):
        size = int.from_bytes(stream[at : at + 3], "little")
        assert stream[at + 3] == sequence & 0xFF
        sequence += 1
        whole += stream[at + 4 : at + 4 + size]
        at += 4 + size
        if size < 0xFFFFFF:
            out.append(whole)
            whole = b""
    assert at == len(stream) and not whole
    return out


def events(stream: bytes, sequence: int = 1, prefix: bytes = b"\0") -> list[bytes]:
    """Returns the events in packets, without the packet that ends the dump. `prefix`: the bytes before each event."""
    out = []
    for payload in payloads(stream, sequence):
        if payload[:1] in (b"\xff", b"\xfe"):
            continue
        assert payload.startswith(prefix)
        event = payload[len(prefix) :]
        assert EventHeader.read(event).size == len(event)
        out.append(event)
    return out


def for_a_consumer(events: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the events that the front sends to a consumer of all databases."""
    for event in events:
        header = EventHeader.read(event)
        fake_rotate = header.type == EventType.ROTATE and header.flags & _ARTIFICIAL
        if header.type not in _FRAME or fake_rotate:
            yield event
