"""Reads the fields of a payload that a client has sent."""

from __future__ import annotations

from dispatcher.front.wire.errors import bad_handshake


class PayloadReader:
    """Reads the fields in order. Every method raises WireError (1043) if the payload is too short."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._payload) - self._at

    def fixed(self, size: int) -> bytes:
        if size > self.left:
            raise bad_handshake()
        start, self._at = self._at, self._at + size
        return self._payload[start : self._at]

    def integer(self, size: int) -> int:
        """Read an integer of `size` bytes, little-endian."""
        return int.from_bytes(self.fixed(size), "little")

    def until_nul(self) -> bytes:
        end = self._payload.find(0, self._at)
        if end < 0:
            raise bad_handshake()
        text = self.fixed(end - self._at)
        self._at += 1
        return text

    def last_text(self) -> bytes:
        """Read the last text of a payload. Some clients leave out the final NUL of the last field, or the whole
        field."""
        end = self._payload.find(0, self._at)
        return self.fixed(self.left) if end < 0 else self.until_nul()

    def lenenc_text(self) -> bytes:
        """Read a length-encoded integer n, and return the n bytes after it."""
        first = self.integer(1)
        sizes = {0xFC: 2, 0xFD: 3, 0xFE: 8}
        if first < 0xFB:
            return self.fixed(first)
        if first not in sizes:
            raise bad_handshake()
        return self.fixed(self.integer(sizes[first]))
