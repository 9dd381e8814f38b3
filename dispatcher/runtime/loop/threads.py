"""Runs a blocking call in a thread of its own.

A thread cannot be cancelled, but the task that waits for the thread can. After a cancellation the thread continues, and
its result, such as a connection, is passed to `discard`. The process can end while such a thread runs.
`asyncio.to_thread` is not suitable: all callers share its few threads, so a few servers that do not answer would block
all other calls. Also, the loop cannot end before each of these threads has ended. Starting a thread takes about 50 µs,
a login takes milliseconds.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(
    name: str, call: Callable[[], T], discard: Callable[[T], None] | None = None
) -> T:
    """Return the result of `call`, or raise its exception. `discard` gets the result if the caller was cancelled."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if not outcome.done():
            if error is None:
                outcome.set_result(result)  # type: ignore[arg-type]
            else:
                outcome.set_exception(error)
        elif error is None and discard is not None:
            discard(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as raised:  # noqa: BLE001 - the caller gets it
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:  # the loop has ended
            if error is None and discard is not None:
                discard(result)  # type: ignore[arg-type]

    threading.Thread(target=run, name=name, daemon=True).start()
    try:
        return await outcome
    except asyncio.CancelledError:
        # The result may have arrived before the cancellation.
        if discard is not None and not outcome.cancelled() and outcome.exception() is None:
            discard(outcome.result())
        raise
