"""Which bytes a receive buffer keeps when it is compacted, and how much memory it uses."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dispatcher.binlog.kernel.bytes import U8
from dispatcher.stream.receive_buffer import ReceiveBuffer

USUAL = 1 << 18
QUIET_CALLS = 64


def received(size: int, usual: int = USUAL) -> tuple[ReceiveBuffer, bytes]:
    """Returns a buffer into which a source has written random bytes, and these bytes."""
    buffer = ReceiveBuffer(usual)
    data = random.Random(size).randbytes(size)
    receive(buffer, data)
    return buffer, data


def receive(buffer: ReceiveBuffer, data: bytes) -> None:
    buffer.room()[: len(data)] = data
    buffer.fill += len(data)


def of(data: bytes) -> U8:
    return np.frombuffer(data, dtype=np.uint8).copy()


@pytest.mark.parametrize("kept", [0, 1, 999, 20_000, 150_000])
@pytest.mark.parametrize("front", [(), (10,), (500, 100_000), (70_000,)])
def test_what_is_kept_stands_behind_the_copies(kept: int, front: tuple[int, ...]) -> None:
    buffer, data = received(200_000)
    at = 200_000 - kept
    # The kept bytes may overwrite the bytes that are copied, and the copies may overwrite the kept bytes.
    copies = [data[:size] for size in front]
    room = USUAL // 2
    moved_to = buffer.compact(at, [of(raw) for raw in copies], room)
    before = b"".join(copies)
    assert moved_to == len(before)
    assert buffer.bytes[: buffer.fill].tobytes() == before + data[at:]
    assert len(buffer.room()) >= room


def test_a_large_event_enlarges_the_buffer_and_a_small_one_behind_it_brings_it_back() -> None:
    buffer, data = received(1000)
    buffer.compact(0, [], 10 * USUAL)
    assert len(buffer.room()) >= 10 * USUAL
    assert buffer.bytes[:1000].tobytes() == data
    buffer.compact(990, [], USUAL // 2)
    assert len(buffer.bytes) == USUAL
    assert buffer.bytes[:10].tobytes() == data[990:]


def compactions(buffer: ReceiveBuffer, count: int, size: int) -> None:
    for _ in range(count):
        receive(buffer, bytes(size))
        buffer.compact(buffer.fill, [], USUAL // 2)


def test_memory_of_a_busy_time_is_given_back_in_a_quiet_one() -> None:
    buffer, data = received(200_000)
    address = buffer.bytes.ctypes.data
    compactions(buffer, QUIET_CALLS, 10)  # the first of these calls followed a busy time
    assert buffer.bytes.ctypes.data == address
    compactions(buffer, QUIET_CALLS - 1, 10)
    receive(buffer, data[:9])
    touched = buffer.bytes
    buffer.compact(buffer.fill - 9, [], USUAL // 2)
    assert buffer.bytes is not touched and len(buffer.bytes) == USUAL
    assert buffer.bytes[:9].tobytes() == data[:9]


def test_a_buffer_that_is_used_stays_and_so_does_one_that_never_was() -> None:
    for usual_size in (10, 20_000):
        buffer, _ = received(usual_size)
        memory = buffer.bytes
        compactions(buffer, 4 * QUIET_CALLS, usual_size)
        assert buffer.bytes is memory


def test_memory_that_nothing_was_received_into_is_not_resident() -> None:
    def resident_bytes() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * 4096

    before = resident_bytes()
    buffers = [ReceiveBuffer(64 << 20) for _ in range(4)]
    for buffer in buffers:
        receive(buffer, b"a heartbeat")
    assert resident_bytes() - before < 32 << 20
