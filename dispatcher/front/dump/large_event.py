"""Makes the packets of an event that is too large to be copied. The module makes the packets' headers and passes the
event's bytes on."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from dispatcher.binlog.event.header import (
    CHECKSUM_SIZE,
    HEADER_SIZE,
    LOG_POS_AT,
    SIZE_AT,
    EventHeader,
)
from dispatcher.front.wire.packets import PACKET_BYTES_MAX

_PIECE_BYTES = 1 << 20


class LargeEvent:
    """One event, whose bytes come in pieces. `sequence`: sequence number of the next packet."""

    def __init__(
        self,
        header: EventHeader,
        *,
        prefix: bytes,
        strip: int,
        dropped: bool,
        sequence: int,
        placed: bool = True,
        checked: bool = False,
    ) -> None:
        """`prefix`: the bytes that precede the event in its payload. `strip`: how many bytes are removed from the
        event's end. `dropped`: True if the client does not get the event. `placed`: False if the event gets the
        position 0. `checked`: True if the client gets the event with a checksum."""
        self.sequence = sequence
        self._prefix = prefix
        self._size = header.size - strip
        self._left = header.size  # bytes of the event that `take` has not got yet
        self._to_send = 0 if dropped else len(prefix) + self._size
        # The current packet's bytes: all of them, and those not sent yet.
        self._packet_size = self._in_packet = 0
        self._begun = dropped
        self._placed = placed
        # The checksum of the bytes that were sent; None if the event keeps its own.
        self._crc = 0 if checked and not placed and not dropped else None
        self._unchecked = header.size - HEADER_SIZE - CHECKSUM_SIZE  # bytes of the body to come

    @property
    def over(self) -> bool:
        return not self._left

    def take(self, view: memoryview) -> tuple[int, list[bytes | memoryview]]:
        """Take the event's next bytes from `view`. Returns how many bytes were taken, and the packets to send for these
        bytes. The first `view` must contain at least the event's header."""
        taken = view[: self._left]
        self._left -= len(taken)
        out: list[bytes | memoryview] = []
        rest = taken
        if not self._begun:
            self._begun = True
            head = bytearray(self._prefix + taken[:HEADER_SIZE])
            size_at = len(self._prefix) + SIZE_AT
            head[size_at : size_at + 4] = self._size.to_bytes(4, "little")
            if not self._placed:
                log_pos_at = len(self._prefix) + LOG_POS_AT
                head[log_pos_at : log_pos_at + 4] = bytes(4)
            if self._crc is not None:
                self._crc = zlib.crc32(head[len(self._prefix) :])
            out += self._packets(memoryview(bytes(head)))
            rest = taken[HEADER_SIZE:]
        if self._crc is not None:
            rest = rest[: self._unchecked]
            self._unchecked -= len(rest)
            self._crc = zlib.crc32(rest, self._crc)
        out += self._packets(rest)
        if self._crc is not None and self.over:
            out += self._packets(memoryview(self._crc.to_bytes(CHECKSUM_SIZE, "little")))
        return len(taken), out

    def _packets(self, view: memoryview) -> Iterator[bytes | memoryview]:
        view = view[: self._to_send]
        while len(view):
            if not self._in_packet:
                self._in_packet = self._packet_size = min(self._to_send, PACKET_BYTES_MAX)
                yield self._header(self._in_packet)
            piece = view[: min(self._in_packet, _PIECE_BYTES)]
            view = view[len(piece) :]
            self._in_packet -= len(piece)
            self._to_send -= len(piece)
            yield piece
            if not self._to_send and self._packet_size == PACKET_BYTES_MAX:
                yield self._header(0)

    def _header(self, size: int) -> bytes:
        number = self.sequence & 0xFF
        self.sequence += 1
        return size.to_bytes(3, "little") + bytes((number,))
