"""The bytes that the splitter's kernel reads: the buffer that a connection or a file writes into.

Behind the received bytes lies a scratch area, once it is needed: small embedded transactions are written there and
read in place. While the splitter reads a large embedded transaction, `bytes` and `fill` are a chunk of that instead.
"""

from __future__ import annotations

import numpy as np

from dispatcher.binlog.kernel.bytes import U8

_BYTES_MIN = 1 << 14


class ReceiveBuffer:
    """`bytes[:fill]` were received. `usual`: the size in bytes that the buffer returns to after a large event."""

    def __init__(self, usual: int) -> None:
        self.usual = max(usual, _BYTES_MIN)
        self.bytes: U8 = np.empty(self.usual, dtype=np.uint8)
        self.fill = 0
        self.scratch = 0  # where the next bytes of embedded transactions go
        self._scratch_bytes = 0  # at the end of the buffer, not for the source

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
            larger: U8 = np.empty(len(self.bytes) + self._scratch_bytes, dtype=np.uint8)
            larger[: self.fill] = self.bytes[: self.fill]
            self.bytes = larger
        return self.scratch + size <= len(self.bytes)

    def compact(self, at: int, front: list[U8], room: int) -> int:
        """Keep the bytes from offset `at` on, behind the copies in `front`; returns their new offset.

        `room`: how many bytes more must fit; 0 if the source writes none before the next call.
        """
        kept = self.bytes[at : self.fill].copy()
        need = sum(map(len, front)) + len(kept) + (room + self._scratch_bytes if room else 0)
        usual = self.usual + self._scratch_bytes
        if need > len(self.bytes) or len(self.bytes) > 4 * max(need, usual):
            self.bytes = np.empty(max(need, usual), dtype=np.uint8)
        end = 0
        for raw in (*front, kept):
            self.bytes[end : end + len(raw)] = raw
            end += len(raw)
        self.fill = end
        return end - len(kept)
