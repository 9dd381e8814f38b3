"""Memory for the segments of logs: a pool that reuses it.

A segment that is allocated afresh costs a page fault for every 4 KiB, more than copying into it does; one that was in
use a moment ago lies in the processor's cache. But a reader may still send a segment that its log has dropped. So the
pool hands out an array of its own over the lasting memory, and takes the memory back when that array is freed: views
keep the array alive.

Segments of a transaction that is too large for memory come from another allocator, which maps them to a file. Their
pages are resident after use until the system needs the memory, or `release_pages` gives it back.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

U8 = NDArray[np.uint8]
Allocate = Callable[[int], U8]
"""An array of so many bytes, writable, its content undefined. Raises BinlogError if there is no room for it."""

POOLED_MIN = 1 << 18  # smaller ones are cheap enough


class SegmentPool:
    """Allocates segments and reuses their memory. `idle_max`: bytes that are kept for reuse."""

    def __init__(self, idle_max: int) -> None:
        self._idle_max = idle_max
        self._idle: dict[int, list[U8]] = {}
        self.idle_bytes = 0

    def allocate(self, size: int) -> U8:
        """An array of `size` bytes, their content undefined."""
        if size < POOLED_MIN:
            return np.empty(size, dtype=np.uint8)
        idle = self._idle.get(size)
        if idle:
            memory = idle.pop()
            self.idle_bytes -= size
        else:
            memory = np.empty(size, dtype=np.uint8)
        # Through a buffer, because a slice of a slice would refer to the memory itself and not keep this array alive.
        segment = np.frombuffer(memoryview(memory), dtype=np.uint8)  # type: ignore[arg-type]
        weakref.finalize(segment, self._take_back, memory).atexit = False
        return segment

    def _take_back(self, memory: U8) -> None:
        if self.idle_bytes + len(memory) <= self._idle_max:
            self._idle.setdefault(len(memory), []).append(memory)
            self.idle_bytes += len(memory)


SEGMENT_POOL = SegmentPool(1 << 24)
"""The process's pool: 16 MiB serve many logs, since a segment is idle only between two of them."""


class DroppedSegments:
    """Counts the bytes of segments that their log has dropped while a reader still has views of them."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}  # by id, which is not used again while the array lives

    def add(self, array: U8) -> None:
        """Count an array until it is freed; the caller drops its own reference."""
        self.sizes[id(array)] = len(array)
        weakref.finalize(array, self.sizes.pop, id(array), None).atexit = False

    @property
    def bytes(self) -> int:
        return sum(list(self.sizes.values())) if self.sizes else 0


def release_pages(view: U8 | memoryview | bytes) -> None:
    """Give back the resident memory behind a view of a segment that is mapped to a file; any other stays as it is.

    The bytes stay readable, from the system's cache or the file. So this is safe at any time, whatever other views
    there are.
    """
    # A segment is an array over a memoryview of the memory behind it.
    array: object = view.obj if isinstance(view, memoryview) else view
    lender: object = array.base if isinstance(array, np.ndarray) else None
    mapping: object = lender.obj if isinstance(lender, memoryview) else None
    if isinstance(mapping, mmap.mmap):
        mapping.madvise(mmap.MADV_DONTNEED)
