"""A waiting call ends early only when its client disconnects. The listener's protocol or ASGI reports the
disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from dispatcher.api.connections.disconnects import EXTENSION, Disconnects, while_connected

DEADLINE_S = 20.0


class Client:
    """A client that can disconnect, under a server with the extension or without it."""

    def __init__(self, *, extension: bool) -> None:
        self.watched = 0
        self._gone = asyncio.Event()
        self._disconnects = Disconnects(self._watch)
        self._extensions = {EXTENSION: self._disconnects} if extension else {}

    def _watch(self) -> None:
        self.watched += 1

    def disconnect(self) -> None:
        self._gone.set()
        self._disconnects.tell()

    async def receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def call(self, work: Awaitable[str]) -> str:
        async with asyncio.timeout(DEADLINE_S):
            return await while_connected({"extensions": self._extensions}, self.receive, work)


@pytest.fixture(params=[True, False], ids=["extension", "ASGI"])
def client(request: pytest.FixtureRequest) -> Client:
    return Client(extension=request.param)


async def answer(future: asyncio.Future[str]) -> str:
    return await future


async def test_the_result_is_returned(client: Client) -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, "done")
    assert await client.call(answer(future)) == "done"


async def test_an_error_is_raised_as_it_is(client: Client) -> None:
    async def fail() -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await client.call(fail())


async def test_the_work_ends_when_the_client_disconnects(client: Client) -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(client.disconnect)
    with pytest.raises(ClientDisconnect):
        await client.call(answer(future))
    assert future.cancelled()
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0


async def test_a_cancelled_call_is_no_disconnect(client: Client) -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(client.call(answer(future)))
        asyncio.get_running_loop().call_soon(task.cancel)
    assert task.cancelled() and future.cancelled()


async def test_a_disconnect_after_the_call_cancels_nothing() -> None:
    client = Client(extension=True)
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    future.set_result("done")
    assert await client.call(answer(future)) == "done"
    client.disconnect()
    await asyncio.sleep(0)
    assert client.watched == 1
