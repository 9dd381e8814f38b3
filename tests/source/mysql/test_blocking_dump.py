"""A dump's packets become events, however the network splits them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.source.mysql.blocking_dump import BlockingDump

NEXT = b"the next event, in a packet"
EOF = b"\xfe\0\0\2\0"


def packet(payload: bytes, number: int = 0) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes((number & 255,)) + payload


def dump(stream: bytes, step: int) -> list[bytes]:
    """Return the events of a stream that is received `step` bytes at a time."""
    pieces = iter([stream[at : at + step] for at in range(0, len(stream), step)])

    def recv_into(room: memoryview) -> int:
        piece = next(pieces, b"")
        room[: len(piece)] = piece
        return len(piece)

    connection: Any = SimpleNamespace(_sock=SimpleNamespace(recv_into=recv_into))
    return [event for events in BlockingDump(connection, "u@h:1").events() for event in events]


@pytest.mark.parametrize("step", [1, 3, 7, 1000])
def test_events_are_whole_however_the_network_splits_them(step: int) -> None:
    events = [bytes((number,)) * (19 + number % 40) for number in range(1, 100)]
    stream = b"".join(packet(b"\0" + event, n) for n, event in enumerate(events))
    assert dump(stream + packet(EOF), step) == events


def test_an_event_of_more_than_16_mib_is_joined() -> None:
    event = bytes(range(256)) * (140_000)
    first, rest = (b"\0" + event)[:0xFFFFFF], (b"\0" + event)[0xFFFFFF:]
    again, rest = rest[:0xFFFFFF], rest[0xFFFFFF:]
    stream = (
        packet(first) + packet(again, 1) + packet(rest, 2) + packet(b"\0" + NEXT, 3) + packet(EOF)
    )
    assert dump(stream, 1 << 20) == [event, NEXT]


def test_a_packet_that_is_not_an_event_becomes_an_error() -> None:
    error = (
        b"\xff"
        + (1236).to_bytes(2, "little")
        + b"#HY000Could not find first log file name in binary log index file"
    )
    for stream, kind, said in (
        (packet(error), ErrorKind.POSITION_PURGED, "Could not find first log file"),
        (packet(b"\0event")[:-2], ErrorKind.CONNECTION_LOST, "closed the connection"),
        (packet(b"\x05what"), ErrorKind.CONNECTION_LOST, "unknown packet"),
    ):
        with pytest.raises(BinlogError, match=said) as caught:
            dump(stream, 5)
        assert caught.value.kind is kind
