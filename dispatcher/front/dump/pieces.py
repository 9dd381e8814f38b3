"""Joins events that are split between the parts of a delivered range. A part may end at any byte of an event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dispatcher.binlog.event.header import HEADER_SIZE, MAGIC, SIZE_AT
from dispatcher.front.dump.relay_kernel import LARGE_BYTES


def without_magic(parts: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """Yield the parts of a delivered range, without the magic bytes at its beginning."""
    first = True
    for part in parts:
        view = memoryview(part).cast("B")
        yield view[len(MAGIC) :] if first and view[: len(MAGIC)] == MAGIC else view
        first = False


def join(joined: bytearray, view: memoryview) -> int:
    """Append bytes from the beginning of `view` to the incomplete event `joined`: the missing bytes of its header or,
    if the header is complete, the missing bytes of the event. Return how many bytes were appended."""
    need = HEADER_SIZE if len(joined) < HEADER_SIZE else _size(joined)
    more = view[: need - len(joined)]
    joined += more
    return len(more)


def is_whole(joined: bytearray) -> bool:
    """True if the kernel can read `joined`, because it is a whole event or at least the header of a large event."""
    if len(joined) < HEADER_SIZE:
        return False
    size = _size(joined)
    return len(joined) >= size or size > LARGE_BYTES


def _size(event: bytearray) -> int:
    return int.from_bytes(event[SIZE_AT : SIZE_AT + 4], "little")
