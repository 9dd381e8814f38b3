"""A pool of memory for the segments of logs.

New memory costs a page fault for every page; with pages of 4 KiB the faults cost eight times as much as copying into
the segment. Memory that was in use a moment ago costs no fault, and is still in the processor's cache. But a reader may
still send bytes of a segment that the log has dropped. So each segment is a new array over the pool's memory, and the
pool takes the memory back when that array is freed. Views of the segment keep the array alive.

The pool cuts new memory from *slabs*: mappings of 8 MiB for segments of up to 2 MiB, and one mapping for each larger
segment. For slabs, the pool asks the system for huge pages, so that one page fault maps 2 MiB.

Segments of a transaction that is too large for memory come from another allocator, which maps them to a file. Their
pages stay resident after use until the system needs the memory, or until `release_pages` gives it back.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

U8 = NDArray[np.uint8]
Allocate = Callable[[int], U8]
"""Returns a writable array of the given size in bytes, with undefined content. Raises BinlogError if there is no
room."""

POOLED_MIN = 1 << 18  # bytes; smaller segments are cheap to allocate
SLAB_BYTES = 1 << 23
TRIM_EVERY_S = 5.0


class _Piece(NamedTuple):
    """Part of a slab. `memory` keeps the mapping alive."""

    slab: mmap.mmap
    at: int
    memory: U8

    def release(self) -> None:
        """Give the pages back to the system. The memory must not be in use."""
        self.slab.madvise(mmap.MADV_DONTNEED, self.at, _whole_pages(len(self.memory)))


class SegmentPool:
    """Allocates segments and reuses their memory. `idle_max`: the most bytes that are kept for reuse; `idle_min`: bytes
    that `trim` leaves."""

    def __init__(self, idle_max: int, idle_min: int = 0) -> None:
        self._idle_max = idle_max
        self._idle_min = idle_min
        self._idle: dict[int, list[_Piece]] = {}
        self.idle_bytes = 0
        self._unused = 0  # the least `idle_bytes` since the last trim
        self._trimmed_at = 0.0
        self._slab: mmap.mmap | None = None  # the slab from which new memory is cut
        self._cut_to = 0

    def allocate(self, size: int) -> U8:
        """Returns an array of `size` bytes with undefined content."""
        if size < POOLED_MIN:
            return np.empty(size, dtype=np.uint8)
        idle = self._idle.get(size)
        if idle:
            piece = idle.pop()
            self.idle_bytes -= size
            self._unused = min(self._unused, self.idle_bytes)
        else:
            piece = self._cut(size)
        # The array is made over a memoryview, so that views of the segment keep the array alive. Views of an array over
        # a numpy slice would keep only the memory alive.
        segment = np.frombuffer(memoryview(piece.memory), dtype=np.uint8)  # type: ignore[arg-type]
        weakref.finalize(segment, self._take_back, piece).atexit = False
        return segment

    def trim(self, now: float) -> None:
        """Give back to the system the memory that no segment has needed since the last trim, at most once in
        `TRIM_EVERY_S`. `now`: a monotonic time in seconds."""
        if now < self._trimmed_at + TRIM_EVERY_S:
            return
        self._trimmed_at = now
        rest = self._unused - self._idle_min
        for size, pieces in self._idle.items():
            count = min(len(pieces), max(0, rest) // size)
            for piece in pieces[:count]:
                piece.release()
            del pieces[:count]
            rest -= count * size
            self.idle_bytes -= count * size
        self._unused = self.idle_bytes

    def _cut(self, size: int) -> _Piece:
        """Return new memory. A slab is unmapped when its last piece is freed."""
        pages = _whole_pages(size)
        if pages > SLAB_BYTES // 4:
            slab, at = _map(pages), 0
        else:
            if self._slab is None or self._cut_to + pages > SLAB_BYTES:
                self._slab, self._cut_to = _map(SLAB_BYTES), 0
            slab, at = self._slab, self._cut_to
            self._cut_to += pages
        return _Piece(slab, at, np.frombuffer(slab, dtype=np.uint8, count=size, offset=at))

    def _take_back(self, piece: _Piece) -> None:
        size = len(piece.memory)
        if self.idle_bytes + size <= self._idle_max:
            self._idle.setdefault(size, []).append(piece)
            self.idle_bytes += size
        else:
            piece.release()  # the slab may stay mapped for other pieces


def _whole_pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _map(size: int) -> mmap.mmap:
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # only on Linux
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


SEGMENT_POOL = SegmentPool(1 << 26, 1 << 24)
"""The process's pool. 16 MiB serve many logs, since a segment is idle only between one log's use and the next. But a
reader that acknowledges all of a full queue frees more at once, and the queue needs it again at the next burst."""


class DroppedSegments:
    """Counts the bytes of segments that their log has dropped while a reader still has views of them."""

    def __init__(self) -> None:
        # The sizes by the id of the array, which is unique until the array is freed.
        self.sizes: dict[int, int] = {}

    def add(self, array: U8) -> None:
        """Count an array until it is freed; the caller drops its own reference."""
        self.sizes[id(array)] = len(array)
        weakref.finalize(array, self.sizes.pop, id(array), None).atexit = False

    @property
    def bytes(self) -> int:
        return sum(list(self.sizes.values())) if self.sizes else 0


def release_pages(view: U8 | memoryview | bytes) -> None:
    """Give back to the system the resident pages of a segment that is mapped to a file. `view`: a view of the segment;
    any other view is ignored.

    The bytes stay readable, from the system's cache or the file. So the call is safe while other views are in use.
    """
    # A segment is an array over a memoryview of its memory.
    array: object = view.obj if isinstance(view, memoryview) else view
    lender: object = array.base if isinstance(array, np.ndarray) else None
    mapping: object = lender.obj if isinstance(lender, memoryview) else None
    if isinstance(mapping, mmap.mmap):
        mapping.madvise(mmap.MADV_DONTNEED)
