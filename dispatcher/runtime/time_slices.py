"""Long work on the loop, in slices, so that everything else on the loop waits for milliseconds only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

SLICE_S = 0.004


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, each made when it is asked for; other tasks run whenever `SLICE_S` have passed since they last ran.

    What the items are made of may change in between; a generator must expect that.
    """
    began = time.monotonic()
    for item in items:
        yield item
        if time.monotonic() - began >= SLICE_S:
            await asyncio.sleep(0)
            began = time.monotonic()
