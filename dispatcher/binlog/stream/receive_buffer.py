"""The bytes that the splitter's kernel reads: the buffer that a connection or a file writes into.

Behind the received bytes lies a scratch area, once it is needed: small embedded transactions are written there and
read in place. While the splitter reads a large embedded transaction, `bytes` and `fill` are a chunk of that instead.

A connection that is idle most of the time must not keep the memory of a whole buffer. So the usual buffer is a mapping
of its own, of which the system gives only the pages that were written, and after a busy time it is replaced.
"""

from __future__ import annotations

import mmap

import numpy as np

from dispatcher.binlog.kernel.bytes import U8

_BYTES_MIN = 1 << 14
# After so many calls of `compact` with a quarter of what was received at once before, the connection is quiet.
_QUIET_CALLS = 64


class ReceiveBuffer:
    """`bytes[:fill]` were received. `usual`: the size in bytes that the buffer returns to after a large event."""

    def __init__(self, usual: int) -> None:
        self.usual = max(usual, _BYTES_MIN)
        self.bytes = _untouched(self.usual)
        self.fill = 0
        self.scratch = 0  # where the next bytes of embedded transactions go
        self._scratch_bytes = 0  # at the end of the buffer, not for the source
        self._touched = 0  # the largest `fill` since the buffer was made,
        self._most = 0  # and since the last calls of `compact`,
        self._calls = 0  # so many of them

    def room(self) -> memoryview:
        """Where the next bytes from the source belong."""
        return memoryview(self.bytes)[self.fill : len(self.bytes) - self._scratch_bytes]  # type: ignore[arg-type]

    def has_room(self, at: int, size: int) -> bool:
        """True if `size` bytes from offset `at` on fit in front of the scratch area."""
        return at + size <= len(self.bytes) - self._scratch_bytes

    def reserve_scratch(self, size: int) -> bool:
        """True if `size` bytes fit at `scratch`. If False they fit after the next `compact`."""
        if not self._scratch_bytes:
            self._scratch_bytes = self.usual
            larger = _untouched(len(self.bytes) + self._scratch_bytes)
            larger[: self.fill] = self.bytes[: self.fill]
            self.bytes = larger
        return self.scratch + size <= len(self.bytes)

    def compact(self, at: int, front: list[U8], room: int) -> int:
        """Keep the bytes from offset `at` on, behind the copies in `front`; returns their new offset.

        `room`: how many bytes more must fit; 0 if the source writes none before the next call.
        """
        old, kept = self.bytes, self.fill - at
        before = sum(map(len, front))
        need = before + kept + (room + self._scratch_bytes if room else 0)
        usual = self.usual + self._scratch_bytes
        if need > len(old) or len(old) > 4 * max(need, usual) or self._became_quiet():
            self.bytes = _untouched(usual) if need <= usual else np.empty(need, dtype=np.uint8)
            self._touched = self._most = self._calls = 0
        self.fill = before + kept
        # What is kept may lie where the copies go, so it is moved first, within the buffer.
        self.bytes[before : self.fill] = old[at : at + kept]
        end = 0
        for raw in front:
            self.bytes[end : end + len(raw)] = raw
            end += len(raw)
        return before

    def _became_quiet(self) -> bool:
        """True if much less was received since many calls than before."""
        self._most = max(self._most, self.fill)
        self._touched = max(self._touched, self._most)
        self._calls += 1
        if self._calls < _QUIET_CALLS:
            return False
        quiet = self._touched > 4 * max(self._most, _BYTES_MIN)
        self._most = self._calls = 0
        return quiet


def _untouched(size: int) -> U8:
    """Memory without pages. (numpy asks for huge pages from 4 MiB on, of which the first byte makes 2 MiB resident.)"""
    return np.frombuffer(
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=np.uint8
    )
