"""Adds `log_pos` and checksums to the events of embedded transactions, as other events of the log have them. Also
removes checksums."""

from __future__ import annotations

from dispatcher.binlog.event.header import HEADER_SIZE, LOG_POS_AT, SIZE_AT
from dispatcher.binlog.kernel.bytes import U8, u32
from dispatcher.binlog.kernel.crc import crc32
from dispatcher.binlog.kernel.intrinsics import copy
from dispatcher.binlog.kernel.jit import njit
from dispatcher.stream.batch import Events


@njit
def reframe(src: U8, out: U8, log_pos: int, checksum: int) -> int:
    """Copy the events of `src` to `out`, each with `log_pos` and, if `checksum` is 1, with a CRC32. Return the number
    of bytes written. `out` must have room for 4 more bytes per event."""
    at = o = 0
    while at < len(src):
        size = u32(src, at + SIZE_AT)
        whole = size + 4 * checksum
        copy(out, o, src, at, size)
        for i in range(4):
            out[o + SIZE_AT + i] = (whole >> (8 * i)) & 0xFF
            out[o + LOG_POS_AT + i] = (log_pos >> (8 * i)) & 0xFF
        if checksum:
            crc = crc32(out, o, o + size)
            for i in range(4):
                out[o + size + i] = (crc >> (8 * i)) & 0xFF
        at += size
        o += whole
    return o


def reframed_bytes_max(size: int) -> int:
    """The most bytes that `size` bytes of events take when each gets a checksum."""
    return size + 4 * (size // HEADER_SIZE + 1)


@njit
def unframe(buf: U8, ev: Events, lo: int, hi: int, out: U8, checksum: int) -> int:
    """Copy the events [lo, hi) of a buffer to `out`, without their checksums. Return the number of bytes written."""
    off, size = ev.off, ev.size
    at = 0
    for n in range(lo, hi):
        left = size[n] - 4 * checksum
        copy(out, at, buf, off[n], left)
        for i in range(4):
            out[at + SIZE_AT + i] = (left >> (8 * i)) & 0xFF
        at += left
    return at
