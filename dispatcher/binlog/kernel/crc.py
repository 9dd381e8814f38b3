"""CRC32 (zlib's polynomial) for kernels: slicing by 16, or folding by 64 if the processor has PCLMULQDQ (`crc_clmul`).

A kernel in nopython mode cannot call `zlib.crc32`, and a Python call per event would cost ten times as much as the
check. Source of the method: M. Kounavis, F. Berry, "A Systematic Approach to Building High Performance Software-based
CRC Generators", 2005.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.kernel.crc_clmul import AVAILABLE, fold
from dispatcher.binlog.kernel.intrinsics import load64
from dispatcher.binlog.kernel.jit import part

_POLYNOMIAL = 0xEDB88320
_U64 = np.uint64


def _tables() -> NDArray[np.uint32]:
    tables = np.zeros((16, 256), dtype=np.uint32)
    row = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        row = np.where(row & 1, (row >> 1) ^ np.uint32(_POLYNOMIAL), row >> 1).astype(np.uint32)
    tables[0] = row
    for i in range(1, 16):
        tables[i] = (tables[i - 1] >> 8) ^ row[tables[i - 1] & 0xFF]
    return tables


_TABLES = _tables()


@part
def _step(a: np.uint64, b: np.uint64) -> np.uint64:
    """Return the CRC after 16 bytes, which are given as two words. The caller has already XORed the CRC of the
    preceding bytes into the first word."""
    mask = _U64(0xFF)
    return _U64(
        _TABLES[15, a & mask]
        ^ _TABLES[14, (a >> _U64(8)) & mask]
        ^ _TABLES[13, (a >> _U64(16)) & mask]
        ^ _TABLES[12, (a >> _U64(24)) & mask]
        ^ _TABLES[11, (a >> _U64(32)) & mask]
        ^ _TABLES[10, (a >> _U64(40)) & mask]
        ^ _TABLES[9, (a >> _U64(48)) & mask]
        ^ _TABLES[8, a >> _U64(56)]
        ^ _TABLES[7, b & mask]
        ^ _TABLES[6, (b >> _U64(8)) & mask]
        ^ _TABLES[5, (b >> _U64(16)) & mask]
        ^ _TABLES[4, (b >> _U64(24)) & mask]
        ^ _TABLES[3, (b >> _U64(32)) & mask]
        ^ _TABLES[2, (b >> _U64(40)) & mask]
        ^ _TABLES[1, (b >> _U64(48)) & mask]
        ^ _TABLES[0, b >> _U64(56)]
    )


@part
def crc32(buf: NDArray[np.uint8], start: int, end: int) -> int:
    """CRC32 of buf[start:end], equal to `zlib.crc32`."""
    # All numbers are unsigned, because numba checks at every load whether a signed index is negative.
    mask = _U64(0xFF)
    crc, at, stop = _U64(0xFFFFFFFF), _U64(start), _U64(end)
    if AVAILABLE and end - start >= 64:
        low, high = fold(buf, start, end - start)
        crc = _step(low, high)
        at += (stop - at) & ~_U64(15)
    while stop - at >= _U64(16):
        crc = _step(load64(buf, at) ^ crc, load64(buf, at + _U64(8)))
        at += _U64(16)
    while at < stop:
        crc = _U64(_TABLES[0, (crc ^ _U64(buf[at])) & mask]) ^ (crc >> _U64(8))
        at += _U64(1)
    return int(np.int64(crc ^ _U64(0xFFFFFFFF)))
