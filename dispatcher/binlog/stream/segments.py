"""Memory for logs, lent and taken back.

A segment that is allocated afresh costs a page fault for every 4 KiB, more than copying into it does; one that was in
use a moment ago lies in the processor's cache. But a segment that a log has dropped may still be on its way to a
reader. So each loan is an array of its own over the lasting memory, and the memory comes back when the last view of
that array is gone: views keep the array alive, and its end is what returns the loan.

Segments of a transaction that is too large for memory are lent by somebody else, who maps them to a file. Pages of
those that were written or read are resident until the system wants them back, or until somebody says that they are not
needed for now (`release_pages`).
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

U8 = NDArray[np.uint8]
Allocate = Callable[[int], U8]
"""An array of so many bytes, writable, its content undefined. Raises BinlogError where there is no room for it."""

POOLED_MIN = 1 << 18  # smaller ones are cheap enough


class SegmentPool:
    """`idle_max`: bytes of unused segments that are kept."""

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
        # Through a buffer, because a slice of a slice would refer to the memory itself and not keep the loan alive.
        loan = np.frombuffer(memoryview(memory), dtype=np.uint8)  # type: ignore[arg-type]
        weakref.finalize(loan, self._take_back, memory).atexit = False
        return loan

    def _take_back(self, memory: U8) -> None:
        if self.idle_bytes + len(memory) <= self._idle_max:
            self._idle.setdefault(len(memory), []).append(memory)
            self.idle_bytes += len(memory)


SEGMENT_POOL = SegmentPool(1 << 24)
"""The process's own: 16 MiB serve many logs, since a segment is idle only between two of them."""


class DroppedSegments:
    """Arrays that their owner has let go of while somebody else still has views of them."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}  # by id, which is not used again while the array lives

    def add(self, array: U8) -> None:
        """Count an array for as long as it lives; the caller gives up its reference."""
        self._sizes[id(array)] = len(array)
        weakref.finalize(array, self._sizes.pop, id(array), None).atexit = False

    @property
    def bytes(self) -> int:
        return sum(list(self._sizes.values())) if self._sizes else 0


def release_pages(view: U8 | memoryview | bytes) -> None:
    """Give back the resident memory behind a view of a segment that is mapped to a file; of any other, nothing.

    The bytes stay: the next access takes them from the system's cache or the file. So this is safe at any time, also if
    there are other views.
    """
    # A loan is an array over a memoryview of what was lent.
    array: object = view.obj if isinstance(view, memoryview) else view
    lender: object = array.base if isinstance(array, np.ndarray) else None
    mapping: object = lender.obj if isinstance(lender, memoryview) else None
    if isinstance(mapping, mmap.mmap):
        mapping.madvise(mmap.MADV_DONTNEED)
