"""A cursor that reads one event's body field by field and checks every read against the end of the body."""

from __future__ import annotations

from dispatcher.model.errors import BinlogError, ErrorKind


def malformed(name: str, why: str) -> BinlogError:
    return BinlogError(ErrorKind.MALFORMED_EVENT, f"{name} {why}")


class ByteCursor:
    """Reads `data`, beginning at offset `at`. `name`: the event's name in messages. A read past the end raises
    `BinlogError` (MALFORMED_EVENT)."""

    def __init__(self, name: str, data: bytes, at: int = 0) -> None:
        self.name = name
        self._data = data
        self.at = at

    def __len__(self) -> int:
        """The number of unread bytes."""
        return len(self._data) - self.at

    def malformed(self, why: str) -> BinlogError:
        return malformed(self.name, why)

    def read(self, size: int) -> bytes:
        start, end = self.at, self.at + size
        if size < 0 or end > len(self._data):
            raise self.malformed(f"of {len(self._data)} bytes is cut short or damaged")
        self.at = end
        return self._data[start:end]

    def rest(self) -> bytes:
        return self.read(len(self))

    def number(self, size: int, *, signed: bool = False) -> int:
        """Read a little-endian integer of `size` bytes."""
        return int.from_bytes(self.read(size), "little", signed=signed)

    def packed_number(self) -> int:
        """Read a length-encoded integer of the client protocol: one byte below 251, else a prefix byte and 2, 3 or 8
        bytes."""
        first = self.number(1)
        if first < 251:
            return first
        if first in (251, 255):
            raise self.malformed(f"has {first} where a length begins")
        return self.number({252: 2, 253: 3, 254: 8}[first])

    def packed_numbers(self) -> list[int]:
        """Read length-encoded integers up to the end."""
        values = []
        while len(self):
            values.append(self.packed_number())
        return values

    def varint(self) -> int:
        """Read an integer of MySQL's serialization library.

        The first byte has, beginning at its lowest bit, one set bit for each byte that follows, then a zero bit, then
        the value. Source: libs/mysql/serialization/readme.md, "Variable-length integers".
        """
        first = self.number(1)
        follow = ((~first & 0xFF) & -(~first & 0xFF)).bit_length() - 1 if first != 0xFF else 8
        value = first | self.number(follow) << 8 if follow else first
        return value >> (follow + 1 if follow < 8 else 8)

    def signed_varint(self) -> int:
        """Read a `varint` with a sign, which is the lowest bit of the value."""
        value = self.varint()
        return -(value >> 1) - 1 if value & 1 else value >> 1

    def text(self, size: int) -> str:
        """Read a text of `size` bytes in UTF-8, the character set of all names in events."""
        return self.decode(self.read(size))

    def sized_text(self) -> str:
        """Read a size of one byte, then a text of this size."""
        return self.text(self.number(1))

    def null_terminated(self, size: int) -> str:
        """Read a text of `size` bytes and the zero byte after it."""
        text = self.text(size)
        if self.number(1):
            raise self.malformed("has a name that does not end in a zero byte")
        return text

    def decode(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self.malformed(f"holds a name that is not UTF-8: {data[:40]!r}") from None

    def end(self) -> None:
        """Raise `BinlogError` if there are unread bytes."""
        if len(self):
            raise self.malformed(f"has {len(self)} bytes too many")
