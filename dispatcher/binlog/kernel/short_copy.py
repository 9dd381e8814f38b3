"""Copies short texts inside kernels: most values are so short that a call of memcpy costs more than the copy.

The text is copied in blocks of 16 bytes, each with two instructions. So up to 15 bytes after the text are copied, too.
If these bytes would lie outside the source or the target array, only the bytes of the text are copied.
"""

from __future__ import annotations

import numpy as np

from dispatcher.binlog.kernel.bytes import U8, Int
from dispatcher.binlog.kernel.intrinsics import copy, load64
from dispatcher.binlog.kernel.jit import njit, part

BLOCK = 16
_SHORT = 128  # bytes; memcpy is as fast for longer texts


def padded(text: bytes) -> U8:
    """Return the text followed by a block of zero bytes, so that `copy_short` can copy the end of the text in blocks,
    too."""
    return np.frombuffer(text + bytes(BLOCK), dtype=np.uint8)


@part
def copy_short(out: U8, to: Int, buf: U8, start: Int, size: Int) -> None:
    """Copy `size` bytes from offset `start` of `buf` to offset `to` of `out`. Up to 15 bytes of `out` after the copy
    may be overwritten."""
    blocks = size + (BLOCK - 1)
    if size <= _SHORT and start + blocks <= len(buf) and to + blocks <= len(out):
        for k in range(0, size, BLOCK):
            copy(out, to + k, buf, start + k, 16)
    else:
        copy(out, to, buf, start, size)


@njit
def same_bytes(buf: U8, a: Int, other: U8, b: Int, size: Int) -> bool:
    """True if the `size` bytes of `buf` at `a` and of `other` at `b` are equal."""
    k = np.int64(0)
    while k + 8 <= size:
        if load64(buf, np.uint64(a + k)) != load64(other, np.uint64(b + k)):
            return False
        k += 8
    while k < size:
        if buf[a + k] != other[b + k]:
            return False
        k += 1
    return True
