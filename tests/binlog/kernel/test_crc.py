"""The kernel's CRC32 is zlib's."""

from __future__ import annotations

import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.binlog.kernel.crc import crc32


@given(st.binary(max_size=300), st.integers(0, 40), st.integers(0, 40))
def test_any_slice(data: bytes, start: int, cut: int) -> None:
    end = max(len(data) - cut, 0)
    start = min(start, end)
    buf = np.frombuffer(data, dtype=np.uint8).copy()
    assert crc32(buf, start, end) == zlib.crc32(data[start:end])


def test_every_length_and_alignment() -> None:
    data = bytes(range(256)) * 20
    buf = np.frombuffer(data, dtype=np.uint8).copy()
    for length in (*range(400), 1024, 4096, 5000):
        for start in (0, 1, 7, 8, 15):
            assert crc32(buf, start, start + length) == zlib.crc32(data[start : start + length])
