"""The frame of packets, the encodings of integers and texts, and the protocol's constants.

A payload is sent in packets. Each packet has three bytes of length, one byte of sequence number, and then at most
0xFFFFFF bytes of the payload. After a packet with exactly 0xFFFFFF bytes, the payload continues in another packet,
which may be empty.

Source: MySQL's source code documentation, "Client/Server Protocol" (page_protocol_basic_packets), and
include/mysql_com.h.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

HEADER_BYTES = 4
PACKET_BYTES_MAX = 0xFFFFFF  # the largest packet; a larger payload is sent in several packets


class Capability(IntFlag):
    """The capability flags of the handshake (CLIENT_… of include/mysql_com.h)."""

    # To MariaDB's clients, a 0 in this bit means that the server has MariaDB's own capabilities.
    LONG_PASSWORD = 1
    FOUND_ROWS = 1 << 1
    LONG_FLAG = 1 << 2
    CONNECT_WITH_DB = 1 << 3
    ODBC = 1 << 6
    IGNORE_SPACE = 1 << 8
    PROTOCOL_41 = 1 << 9
    INTERACTIVE = 1 << 10
    SSL = 1 << 11
    TRANSACTIONS = 1 << 13
    SECURE_CONNECTION = 1 << 15  # the client answers the nonce as clients of MySQL 4.1 or later do
    MULTI_RESULTS = 1 << 17
    PS_MULTI_RESULTS = 1 << 18
    PLUGIN_AUTH = 1 << 19
    CONNECT_ATTRS = 1 << 20
    PLUGIN_AUTH_LENENC = 1 << 21
    DEPRECATE_EOF = 1 << 24


class Command(IntEnum):
    """The first byte of a command. Lists only commands that the front answers or that replicas send."""

    QUIT = 0x01
    INIT_DB = 0x02
    QUERY = 0x03
    FIELD_LIST = 0x04
    STATISTICS = 0x09
    PING = 0x0E
    CHANGE_USER = 0x11
    BINLOG_DUMP = 0x12
    REGISTER_SLAVE = 0x15
    SET_OPTION = 0x1B
    BINLOG_DUMP_GTID = 0x1E
    RESET_CONNECTION = 0x1F


class ServerStatus(IntFlag):
    """The status of the connection in OK and EOF packets (SERVER_STATUS_… of include/mysql_com.h)."""

    AUTOCOMMIT = 2


def framed(payload: bytes | memoryview, sequence: int) -> bytes:
    """Return the packets of a payload. `sequence`: the sequence number of the first packet; it grows by 1 per packet,
    modulo 256."""
    if len(payload) < PACKET_BYTES_MAX:
        return b"".join((_header(len(payload), sequence), payload))
    parts: list[bytes | memoryview] = []
    view = memoryview(payload)
    for start in range(0, len(payload) + 1, PACKET_BYTES_MAX):
        part = view[start : start + PACKET_BYTES_MAX]
        parts += (_header(len(part), sequence), part)
        sequence += 1
    return b"".join(parts)


def packets_in(payload: bytes | memoryview) -> int:
    """Return the number of packets that `framed` makes of a payload. The sequence number grows by this number."""
    return len(payload) // PACKET_BYTES_MAX + 1


def _header(size: int, sequence: int) -> bytes:
    return size.to_bytes(3, "little") + bytes((sequence & 0xFF,))


def lenenc_int(value: int) -> bytes:
    """Return a length-encoded integer of 1, 3, 4 or 9 bytes."""
    if value < 0xFB:
        return bytes((value,))
    for marker, size in ((0xFC, 2), (0xFD, 3), (0xFE, 8)):
        if value < 1 << 8 * size:
            return bytes((marker,)) + value.to_bytes(size, "little")
    raise ValueError(value)


def lenenc_text(text: bytes) -> bytes:
    """Return the length of `text` as a length-encoded integer, followed by `text`."""
    return lenenc_int(len(text)) + text
