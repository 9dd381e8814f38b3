"""Ends a call whose client disconnects.

In plain ASGI a task has to wait for the message that the client disconnected, which costs more than most polls do. So
the listener's protocol offers an extension in ASGI's scope, which calls a callback when the client disconnects. Under a
server without this extension, a task waits for the message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

T = TypeVar("T")

EXTENSION = "binlog-dispatcher.disconnects"
"""Key in the scope's `extensions`; the value is a `Disconnects`."""


class Disconnects:
    """Calls the added callbacks when the client of one connection disconnects."""

    def __init__(
        self,
        watch: Callable[[], None],
        wait: Callable[[bool], None] = lambda _waits: None,
    ) -> None:
        """`watch` is called when a callback is added; it must resume reading, because only a read notices the end of a
        connection. `wait` is called with True when the connection may be closed to make room for a new one, and with
        False when it must stay open again."""
        self._watch = watch
        self.wait = wait
        self._callbacks: list[Callable[[], None]] = []

    def add(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)
        self._watch()

    def remove(self, callback: Callable[[], None]) -> None:
        self._callbacks.remove(callback)

    def tell(self) -> None:
        """Call the callbacks, because the client has disconnected."""
        for callback in list(self._callbacks):
            callback()


@contextmanager
def waiting(scope: Scope) -> Iterator[None]:
    """While the context is open, the server may close the request's connection to make room for a new connection, as if
    the connection were idle."""
    disconnects = scope.get("extensions", {}).get(EXTENSION)
    if not isinstance(disconnects, Disconnects):
        yield
        return
    disconnects.wait(True)
    try:
        yield
    finally:
        disconnects.wait(False)


async def while_connected(scope: Scope, receive: Receive, work: Awaitable[T]) -> T:
    """Return the result of `work`; cancel it and raise ClientDisconnect if the client disconnects."""
    disconnects = scope.get("extensions", {}).get(EXTENSION)
    if isinstance(disconnects, Disconnects):
        return await _until_told(disconnects, work)
    return await _until_received(receive, work)


async def _until_told(disconnects: Disconnects, work: Awaitable[T]) -> T:
    task, gone = asyncio.current_task(), False
    assert task is not None, "a request has a task"

    def cancel() -> None:
        nonlocal gone
        gone = True
        task.cancel()

    disconnects.add(cancel)
    try:
        return await work
    except asyncio.CancelledError:
        if gone and task.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        disconnects.remove(cancel)


async def _until_received(receive: Receive, work: Awaitable[T]) -> T:
    outcome: T | Exception
    try:
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(_raise_on_disconnect(receive))
            try:
                outcome = await work
            except Exception as error:  # noqa: BLE001 - raised below, outside of the group
                outcome = error
            watch.cancel()
    except* ClientDisconnect:
        raise ClientDisconnect from None
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def _raise_on_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientDisconnect
