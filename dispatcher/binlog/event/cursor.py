"""Reading one event's body field by field: every read is checked, and what is short says which event it is in."""

from __future__ import annotations

from dispatcher.model.errors import BinlogError, ErrorKind


def malformed(name: str, why: str) -> BinlogError:
    return BinlogError(ErrorKind.MALFORMED_EVENT, f"{name} {why}")


class ByteCursor:
    """A place in `data`. `name`: the event's, for messages. Reads raise BinlogError (MALFORMED_EVENT) at the end."""

    def __init__(self, name: str, data: bytes, at: int = 0) -> None:
        self.name = name
        self._data = data
        self.at = at

    def __len__(self) -> int:
        """Bytes that are left."""
        return len(self._data) - self.at

    def bad(self, why: str) -> BinlogError:
        return malformed(self.name, why)

    def take(self, size: int) -> bytes:
        start, end = self.at, self.at + size
        if size < 0 or end > len(self._data):
            raise self.bad(f"of {len(self._data)} bytes is cut short or damaged")
        self.at = end
        return self._data[start:end]

    def rest(self) -> bytes:
        return self.take(len(self))

    def number(self, size: int, *, signed: bool = False) -> int:
        """A little-endian integer of `size` bytes."""
        return int.from_bytes(self.take(size), "little", signed=signed)

    def packed(self) -> int:
        """An integer of the client protocol: one byte below 251, else a mark and 2, 3 or 8 bytes."""
        first = self.number(1)
        if first < 251:
            return first
        if first in (251, 255):
            raise self.bad(f"has {first} where a length begins")
        return self.number({252: 2, 253: 3, 254: 8}[first])

    def all_packed(self) -> list[int]:
        """Such integers up to the end."""
        values = []
        while len(self):
            values.append(self.packed())
        return values

    def varied(self) -> int:
        """An integer of MySQL's serialization library: as many low one bits as bytes follow, then a zero and the value.

        Source: libs/mysql/serialization/readme.md, "Variable-length integers".
        """
        first = self.number(1)
        follow = ((~first & 0xFF) & -(~first & 0xFF)).bit_length() - 1 if first != 0xFF else 8
        value = first | self.number(follow) << 8 if follow else first
        return value >> (follow + 1 if follow < 8 else 8)

    def varied_signed(self) -> int:
        """Likewise with a sign, which is the lowest bit of the value."""
        value = self.varied()
        return -(value >> 1) - 1 if value & 1 else value >> 1

    def text(self, size: int) -> str:
        """UTF-8, as all names in events are."""
        return self.decode(self.take(size))

    def short_text(self) -> str:
        """A text whose size stands before it in one byte."""
        return self.text(self.number(1))

    def zero_ended(self, size: int) -> str:
        """A text of `size` bytes and a zero byte."""
        text = self.text(size)
        if self.number(1):
            raise self.bad("has a name that does not end in a zero byte")
        return text

    def decode(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self.bad(f"holds a name that is not UTF-8: {data[:40]!r}") from None

    def end(self) -> None:
        """Nothing may be left."""
        if len(self):
            raise self.bad(f"has {len(self)} bytes too many")
