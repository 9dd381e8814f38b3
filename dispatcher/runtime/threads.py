"""What blocks, in a thread of its own.

A thread cannot be cancelled; who waits for it can. Then the thread goes on unheard, and what it made, such as a
connection, is given to `discard`. The threads end with the process and never keep it from ending.

Not `asyncio.to_thread`: its threads are few and shared, so that half a dozen servers that do not answer would keep all
others waiting, and the loop waits for each of them when it ends. Starting a thread takes some 50 µs, a login
milliseconds.
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
    """The result of `call`, or its exception. `discard` takes a result for which nobody waits any more."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
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
        except BaseException as raised:  # noqa: BLE001 - it is the waiting one's
            error = raised
        try:
            loop.call_soon_threadsafe(tell, result, error)
        except RuntimeError:  # the loop has ended
            if error is None and discard is not None:
                discard(result)  # type: ignore[arg-type]

    threading.Thread(target=run, name=name, daemon=True).start()
    try:
        return await outcome
    except asyncio.CancelledError:
        # It may have come between the result and the one who waits for it.
        if discard is not None and not outcome.cancelled() and outcome.exception() is None:
            discard(outcome.result())
        raise
