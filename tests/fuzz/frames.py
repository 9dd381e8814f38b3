"""Converts the bytes of a fuzzer to the events of a log. For each event, the bytes contain type, flags, body size and
body.

A fuzzer would hardly ever make valid sizes, positions and checksums. So this module computes them, and the fuzzer
chooses only type, flags and body of each event. `bodies` converts a log of an encoder to such bytes, as a seed.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.event_encoder import event, event_packet, format_description

_HEAD = 4  # type, flags, size of the body


def events(data: bytes, *, checksum: bool, start: int) -> Iterator[bytes]:
    """Yields the events. `start`: the offset of the first event in its file."""
    at, place = 0, start
    while at + _HEAD <= len(data):
        kind, flags = data[at], data[at + 1]
        size = int.from_bytes(data[at + 2 : at + 4], "little")
        body = data[at + _HEAD : at + _HEAD + size]
        at += _HEAD + size
        raw = event(
            kind,
            body,
            checksum=checksum,
            log_pos=place + 19 + len(body) + 4 * checksum,
            flags=flags,
        )
        place += len(raw)
        yield raw


def bodies(log: bytes, *, checksum: bool) -> bytes:
    """Returns the bytes from which `events` makes the events of this log that have at most 65,535 bytes. Magic number
    and FORMAT_DESCRIPTION are omitted."""
    out, at = bytearray(), 4
    while at + 19 <= len(log):
        size = int.from_bytes(log[at + 9 : at + 13], "little")
        body = log[at + 19 : at + size - 4 * checksum]
        if log[at + 4] != 15 and len(body) < 1 << 16:
            out += bytes((log[at + 4], log[at + 17])) + len(body).to_bytes(2, "little") + body
        at += size
    return bytes(out)


def format_event(*, checksum: bool, mariadb: bool) -> bytes:
    version = "10.11.6-MariaDB" if mariadb else "9.7.4"
    return format_description(checksum=checksum, version=version, log_pos=4 + 19 + 57 + 45)


def packets(raws: Iterator[bytes]) -> bytes:
    return b"".join(event_packet(raw, number & 0xFF) for number, raw in enumerate(raws))
