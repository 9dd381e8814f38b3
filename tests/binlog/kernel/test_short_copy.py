"""Copies of short texts touch nothing outside of their arrays, and nothing before the text."""

from __future__ import annotations

import numpy as np
import pytest

from dispatcher.binlog.kernel.bytes import U8, Int
from dispatcher.binlog.kernel.jit import njit
from dispatcher.binlog.kernel.short_copy import BLOCK, copy_short, same_bytes


@njit
def copied(out: U8, to: Int, buf: U8, start: Int, size: Int) -> None:
    copy_short(out, to, buf, start, size)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 31, 32, 33, 127, 128, 129, 1000])
@pytest.mark.parametrize("behind", [0, 1, BLOCK - 1, BLOCK])
@pytest.mark.parametrize("room", [0, 1, BLOCK - 1, BLOCK])
def test_a_text_is_copied_and_only_a_block_behind_it_may_change(
    size: int, behind: int, room: int
) -> None:
    buf: U8 = np.random.default_rng(size).integers(1, 255, 5 + size + behind, dtype=np.uint8)
    # The array is a part of a larger array, so that the test detects a byte written outside of it.
    whole: U8 = np.zeros(64 + 7 + size + room + 64, dtype=np.uint8)
    out = whole[64 : 64 + 7 + size + room]
    copied(out, 7, buf, 5, size)
    assert out[7 : 7 + size].tobytes() == buf[5 : 5 + size].tobytes()
    assert not whole[: 64 + 7].any()
    assert not whole[64 + 7 + size + room :].any()
    assert not out[7 + size + BLOCK - 1 :].any()


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 25])
def test_bytes_are_compared_to_the_last_one_and_no_further(size: int) -> None:
    text = bytes(range(1, size + 1))
    buf: U8 = np.frombuffer(b"?" + text + b"x" + text + b"y", dtype=np.uint8)
    assert same_bytes(buf, 1, buf, size + 2, size)
    for k in range(size):
        changed = buf.copy()
        changed[1 + k] ^= 0x80
        assert not same_bytes(changed, 1, changed, size + 2, size)
