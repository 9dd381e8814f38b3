"""CRC32 (zlib's polynomial) for use inside kernels: slicing by 16, 16 bytes per step, tables built at import.

A kernel cannot call `zlib.crc32` without leaving nopython mode, and one Python call per event costs ten times the
check itself. Source of the method: M. Kounavis, F. Berry, "A Systematic Approach to Building High Performance
Software-based CRC Generators", 2005.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.jit import njit

_POLYNOMIAL = 0xEDB88320


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


@njit
def crc32(buf: NDArray[np.uint8], start: int, end: int) -> int:
    """CRC32 of buf[start:end], equal to `zlib.crc32`."""
    crc = np.uint32(0xFFFFFFFF)
    at = start
    while end - at >= 16:
        a = np.uint32(buf[at]) | np.uint32(buf[at + 1]) << np.uint32(8)
        a |= np.uint32(buf[at + 2]) << np.uint32(16) | np.uint32(buf[at + 3]) << np.uint32(24)
        a ^= crc
        crc = (
            _TABLES[15, a & np.uint32(0xFF)]
            ^ _TABLES[14, (a >> np.uint32(8)) & np.uint32(0xFF)]
            ^ _TABLES[13, (a >> np.uint32(16)) & np.uint32(0xFF)]
            ^ _TABLES[12, a >> np.uint32(24)]
            ^ _TABLES[11, buf[at + 4]]
            ^ _TABLES[10, buf[at + 5]]
            ^ _TABLES[9, buf[at + 6]]
            ^ _TABLES[8, buf[at + 7]]
            ^ _TABLES[7, buf[at + 8]]
            ^ _TABLES[6, buf[at + 9]]
            ^ _TABLES[5, buf[at + 10]]
            ^ _TABLES[4, buf[at + 11]]
            ^ _TABLES[3, buf[at + 12]]
            ^ _TABLES[2, buf[at + 13]]
            ^ _TABLES[1, buf[at + 14]]
            ^ _TABLES[0, buf[at + 15]]
        )
        at += 16
    while at < end:
        crc = _TABLES[0, (crc ^ np.uint32(buf[at])) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        at += 1
    return int(~crc & np.uint32(0xFFFFFFFF))
