"""Events that stand in the place of one of the log, in the shape in which the splitter reads all others.

They are those of a compressed transaction, or of a prepared one that is committed. `Unpacking` is what the splitter
looks into instead of its receive buffer while they last: it hands them out a chunk at a time, whole ones only, each
with the delivered format's checksum and with the `log_pos` of the event that they stand for. So memory holds the
compressed bytes (which have come in one event) and a few chunks, or the largest inner event where that is larger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dispatcher.binlog.event import transaction_payload
from dispatcher.binlog.kernel.bytes import U8, u32
from dispatcher.binlog.kernel.crc import crc32
from dispatcher.binlog.kernel.intrinsics import copy
from dispatcher.binlog.kernel.jit import njit
from dispatcher.binlog.stream.batch import Events

_HEADER = 19


@njit
def reframe(src: U8, out: U8, log_pos: int, checksum: int) -> int:
    """Copy whole events, each with `log_pos` and, if `checksum`, a CRC32; returns the bytes written. `out`: room for
    4 bytes more an event."""
    at = o = 0
    while at < len(src):
        size = u32(src, at + 9)
        whole = size + 4 * checksum
        copy(out, o, src, at, size)
        for i in range(4):
            out[o + 9 + i] = (whole >> (8 * i)) & 0xFF
            out[o + 13 + i] = (log_pos >> (8 * i)) & 0xFF
        if checksum:
            crc = crc32(out, o, o + size)
            for i in range(4):
                out[o + size + i] = (crc >> (8 * i)) & 0xFF
        at += size
        o += whole
    return o


def reframed_bytes_max(size: int) -> int:
    """What `size` bytes of events need at most when each gets a checksum."""
    return size + 4 * (size // _HEADER + 1)


def into(src: U8, out: U8, log_pos: int, checksum: int) -> int:
    """Write events into `out`, each as it would stand in the log; how many bytes they are. Raises BinlogError."""
    transaction_payload.check_payload(src)
    return reframe(src, out, log_pos, checksum)


@njit
def unframe(buf: U8, ev: Events, lo: int, hi: int, out: U8, checksum: int) -> int:
    """The other way: copy the events lo..hi of a buffer without their checksums; returns the bytes written."""
    off, size = ev.off, ev.size
    at = 0
    for n in range(lo, hi):
        left = size[n] - 4 * checksum
        copy(out, at, buf, off[n], left)
        for i in range(4):
            out[at + 9 + i] = (left >> (8 * i)) & 0xFF
        at += left
    return at


@dataclass(slots=True)
class Unpacking:
    """`buf`, `fill`, `next`, `packets`: the splitter's receive buffer, its bytes, what follows the event in it,
    and its kind; `start`, `end`: offsets in the file before and after it; `outer`: what that buffer is a chunk of,
    where it is one; `transactions`: how many ended in it."""

    buf: U8
    fill: int
    next: int
    packets: int
    start: int
    end: int
    checksum: int
    runs: Iterator[U8]
    outer: Unpacking | None = None
    transactions: int = 0

    def events(self) -> U8 | None:
        """The next whole events, each as it would stand in the log; None behind the last. Raises BinlogError."""
        src = next(self.runs, None)
        if src is None:
            return None
        out: U8 = np.empty(reframed_bytes_max(len(src)), dtype=np.uint8)
        return out[: reframe(src, out, self.end & 0xFFFFFFFF, self.checksum)]
