"""Splits long work on the event loop into slices, so that other tasks wait for milliseconds only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

SLICE_S = 0.004


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items. Let other tasks run whenever `SLICE_S` have passed since they last ran.

    While other tasks run, the data from which the items are made may change, so their generator must expect this.
    """
    began = time.monotonic()
    for item in items:
        yield item
        if time.monotonic() - began >= SLICE_S:
            await asyncio.sleep(0)
            began = time.monotonic()
