"""The pool takes the memory of a segment back when the last view of the segment is freed, and not before."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from dispatcher.stream.segments import (
    POOLED_MIN,
    SLAB_BYTES,
    TRIM_EVERY_S,
    SegmentPool,
    release_pages,
)


def test_memory_comes_back_with_its_last_view() -> None:
    pool = SegmentPool(4 * POOLED_MIN)
    loan = pool.allocate(POOLED_MIN)
    loan[5] = 7
    view = memoryview(loan)[5:10]  # type: ignore[arg-type]
    del loan
    assert pool.idle_bytes == 0 and view[0] == 7
    del view
    assert pool.idle_bytes == POOLED_MIN


def test_a_slice_of_an_array_holds_the_loan() -> None:
    pool = SegmentPool(4 * POOLED_MIN)
    part = pool.allocate(POOLED_MIN)[3:][2:]
    assert pool.idle_bytes == 0 and len(part) == POOLED_MIN - 5
    del part
    assert pool.idle_bytes == POOLED_MIN


def test_idle_memory_is_lent_again_and_belongs_to_one_at_a_time() -> None:
    pool = SegmentPool(4 * POOLED_MIN)
    first = pool.allocate(POOLED_MIN)
    address = first.ctypes.data
    del first
    second, third = pool.allocate(POOLED_MIN), pool.allocate(POOLED_MIN)
    assert second.ctypes.data == address != third.ctypes.data
    assert pool.idle_bytes == 0
    assert second.flags.writeable and third.flags.writeable


def test_no_more_is_kept_than_allowed() -> None:
    pool = SegmentPool(POOLED_MIN)
    loans = [pool.allocate(POOLED_MIN) for _ in range(3)]
    loans.clear()
    assert pool.idle_bytes == POOLED_MIN


def test_memory_that_is_not_needed_between_two_trims_is_given_back() -> None:
    pool = SegmentPool(8 * POOLED_MIN, POOLED_MIN)
    loans = [pool.allocate(POOLED_MIN) for _ in range(6)]
    loans.clear()
    pool.trim(10.0)  # the memory was in use since the last trim
    assert pool.idle_bytes == 6 * POOLED_MIN
    loans = [pool.allocate(POOLED_MIN) for _ in range(2)]
    loans.clear()
    pool.trim(10.0 + TRIM_EVERY_S / 2)
    assert pool.idle_bytes == 6 * POOLED_MIN
    pool.trim(10.0 + TRIM_EVERY_S)
    assert pool.idle_bytes == 3 * POOLED_MIN  # two were needed, one always stays
    pool.trim(10.0 + 2 * TRIM_EVERY_S)
    assert pool.idle_bytes == POOLED_MIN


@pytest.mark.parametrize("size", [0, 1, POOLED_MIN - 1])
def test_small_ones_are_not_pooled(size: int) -> None:
    pool = SegmentPool(1 << 24)
    loan = pool.allocate(size)
    assert len(loan) == size and loan.dtype == np.uint8
    del loan
    assert pool.idle_bytes == 0


def test_pages_that_are_not_kept_are_given_back_though_others_of_their_slab_are_in_use() -> None:
    pool = SegmentPool(0)
    dropped, used = pool.allocate(POOLED_MIN + 5), pool.allocate(POOLED_MIN)
    dropped[:], used[:] = 7, 8
    address = dropped.ctypes.data
    del dropped
    # The slab stays mapped as long as the other piece exists, so the test can read these bytes. Pages that were
    # returned to the system read as zeros.
    assert not np.frombuffer(ctypes.string_at(address, POOLED_MIN + 5), np.uint8).any()
    assert (used == 8).all() and pool.idle_bytes == 0


@pytest.mark.parametrize("size", [POOLED_MIN, POOLED_MIN + 1, SLAB_BYTES // 4 + 1, SLAB_BYTES + 3])
def test_segments_do_not_overlap(size: int) -> None:
    pool = SegmentPool(0)
    segments = [pool.allocate(size) for _ in range(2 * SLAB_BYTES // size + 2)]
    for number, segment in enumerate(segments):
        assert len(segment) == size
        segment[:] = number
    assert all((segment == number).all() for number, segment in enumerate(segments))


def test_memory_of_the_pool_is_not_released_as_that_of_files_is() -> None:
    segment = SegmentPool(0).allocate(1 << 22)
    segment[:] = 3
    release_pages(segment)
    release_pages(memoryview(segment)[5:])  # type: ignore[arg-type]
    assert (segment == 3).all()
