"""Events that stand in the place of one of the log, in the shape in which the splitter reads all others.

They are those of a compressed transaction, or of a prepared one that is committed. `Unpacking` is what the splitter
looks into instead of its receive buffer while they last: it hands them out a chunk at a time, whole ones only, each
with the delivered format's checksum and with the `log_pos` of the event that they stand for. So memory holds the
compressed bytes (which have come in one event) and a few chunks, or the largest inner event where that is larger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dispatcher.binlog import payload
from dispatcher.binlog.arrays import U8, Events, u32
from dispatcher.binlog.crc import crc32
from dispatcher.binlog.jit import njit
from dispatcher.binlog.memory import copy
from dispatcher.binlog.reading import malformed

_HEADER = 19
_PAYLOAD = 40
_BAD_SIZE, _NESTED = -1, -2


@njit
def reframe(src: U8, out: U8, log_pos: int, checksum: int) -> tuple[int, int]:
    """Copy the whole events of `src`, each with `log_pos` and, if `checksum`, a CRC32.

    Returns the bytes taken and written; for the latter a negative reason where an event is none. `out`: room for
    4 bytes more an event.
    """
    at = o = 0
    while len(src) - at >= _HEADER:
        size = u32(src, at + 9)
        if size < _HEADER:
            return at, _BAD_SIZE
        if src[at + 4] == _PAYLOAD:
            return at, _NESTED
        if at + size > len(src):
            break
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
    return at, o


def reframed_bytes_max(size: int) -> int:
    """What `size` bytes of events need at most when each gets a checksum."""
    return size + 4 * (size // _HEADER + 1)


def into(src: U8, out: U8, log_pos: int, checksum: int) -> int:
    """Write events into `out`, each as it would stand in the log; how many bytes they are. Raises BinlogError."""
    taken, size = reframe(src, out, log_pos, checksum)
    if size >= 0 and taken != len(src):
        raise malformed(payload.NAME, "ends inside an event")
    return _sound(size)


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


def _sound(size: int) -> int:
    if size < 0:
        why = "holds another one" if size == _NESTED else "holds an event shorter than its header"
        raise malformed(payload.NAME, why)
    return size


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
    chunks: Iterator[bytes]
    outer: Unpacking | None = None
    transactions: int = 0
    _parts: list[bytes] = field(default_factory=list)  # the beginning of an event
    _have: int = 0
    _need: int = _HEADER

    def events(self) -> U8 | None:
        """The next whole events, each as it would stand in the log; None behind the last. Raises BinlogError."""
        for chunk in self.chunks:
            self._parts.append(chunk)
            self._have += len(chunk)
            if self._have < self._need:
                continue
            src: U8 = np.frombuffer(b"".join(self._parts), dtype=np.uint8)
            out: U8 = np.empty(reframed_bytes_max(len(src)), dtype=np.uint8)
            taken, size = reframe(src, out, self.end & 0xFFFFFFFF, self.checksum)
            _sound(size)
            rest = src[taken:].tobytes()
            self._parts, self._have = [rest], len(rest)
            self._need = payload.event_size(rest, 0) or _HEADER
            if size:
                return out[:size]
        if self._have:
            raise malformed(payload.NAME, "ends inside an event")
        return None
