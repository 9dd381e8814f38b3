"""The buffer into which a connection or a file writes bytes, and from which the splitter's kernel reads them.

With the first small embedded transaction, the buffer gets a scratch area at its end. The daemon writes small embedded
transactions there, and the kernel reads them in place. While the splitter reads a large embedded transaction, `bytes`
and `fill` are a chunk of that transaction.

A connection that is idle most of the time must not keep the memory of a whole buffer. So the usual buffer is an
anonymous mapping, for which the system allocates only the pages that are written. When a busy connection becomes quiet,
a new buffer replaces the old one, whose pages are freed.
"""

from __future__ import annotations

import mmap

import numpy as np

from dispatcher.binlog.kernel.bytes import U8

_BYTES_MIN = 1 << 14
# The connection is quiet if this many calls of `compact` in a row saw at most a quarter of the largest `fill` that was
# seen before.
_QUIET_CALLS = 64


class ReceiveBuffer:
    """`bytes[:fill]` are the received bytes. `usual`: the size in bytes to which the buffer returns after a large
    event."""

    def __init__(self, usual: int) -> None:
        self.usual = max(usual, _BYTES_MIN)
        self.bytes = _untouched(self.usual)
        self.fill = 0
        self.scratch = 0  # offset for the next bytes of embedded transactions
        self._scratch_bytes = 0  # size of the scratch area, where the source must not write
        self._touched = 0  # the largest `fill` since the buffer was made
        self._most = 0  # the largest `fill` in the last `_calls` calls of `compact`
        self._calls = 0

    def room(self) -> memoryview:
        """Returns the memory into which the source must write the next bytes."""
        return memoryview(self.bytes)[self.fill : len(self.bytes) - self._scratch_bytes]  # type: ignore[arg-type]

    def has_room(self, at: int, size: int) -> bool:
        """True if `size` bytes fit between offset `at` and the scratch area."""
        return at + size <= len(self.bytes) - self._scratch_bytes

    def reserve_scratch(self, size: int) -> bool:
        """Returns True if `size` bytes fit at `scratch`. If False, the bytes fit after the next `compact`."""
        if not self._scratch_bytes:
            self._scratch_bytes = self.usual
            larger = _untouched(len(self.bytes) + self._scratch_bytes)
            larger[: self.fill] = self.bytes[: self.fill]
            self.bytes = larger
        return self.scratch + size <= len(self.bytes)

    def compact(self, at: int, front: list[U8], room: int) -> int:
        """Move the received bytes that begin at offset `at`, and put copies of `front` before these bytes. Drop all
        other bytes. Return the new offset of the bytes that were at `at`.

        `room`: how many more bytes must fit; 0 if the source writes no bytes before the next call.
        """
        old, kept = self.bytes, self.fill - at
        before = sum(map(len, front))
        need = before + kept + (room + self._scratch_bytes if room else 0)
        usual = self.usual + self._scratch_bytes
        if need > len(old) or len(old) > 4 * max(need, usual) or self._became_quiet():
            self.bytes = _untouched(usual) if need <= usual else np.empty(need, dtype=np.uint8)
            self._touched = self._most = self._calls = 0
        self.fill = before + kept
        # The copies may overwrite the place of the kept bytes, so the kept bytes are moved first.
        self.bytes[before : self.fill] = old[at : at + kept]
        end = 0
        for raw in front:
            self.bytes[end : end + len(raw)] = raw
            end += len(raw)
        return before

    def _became_quiet(self) -> bool:
        """True if the last `_QUIET_CALLS` calls of `compact` saw far fewer bytes than earlier calls."""
        self._most = max(self._most, self.fill)
        self._touched = max(self._touched, self._most)
        self._calls += 1
        if self._calls < _QUIET_CALLS:
            return False
        quiet = self._touched > 4 * max(self._most, _BYTES_MIN)
        self._most = self._calls = 0
        return quiet


def _untouched(size: int) -> U8:
    """Returns memory without resident pages. (For arrays of 4 MiB and more, `np.empty` would ask for huge pages, and
    one written byte would make 2 MiB resident.)"""
    return np.frombuffer(
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=np.uint8
    )
