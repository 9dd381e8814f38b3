"""The daemon loads FastAPI at the first call that needs it: not at the start, for probes, or for a reader's cycle."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from starlette.types import ASGIApp, Receive, Scope, Send

from dispatcher.api.app import OnDemand

_CALLS = """
import asyncio, sys
import httpx
import dispatcher.app
from dispatcher.api.app import Access, Api
from dispatcher.settings.api import ApiLimitSettings
from tests.support.fake_readers import FakeReaders

async def metrics():
    return b"", "text/plain"

async def call():
    readers = FakeReaders()
    api = Api(lambda: readers, Access(), ApiLimitSettings(), administrator=lambda: readers, declarer=lambda: None,
              live=readers,
              listen="127.0.0.1", version="1", metrics=metrics, ready=list)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api.asgi), base_url="http://127.0.0.1") as client:
        for path in ("/livez", "/readyz", "/readyz?verbose", "/v1/binlogs"):
            answer = await client.get(path)
            print(path, answer.status_code, "fastapi" in sys.modules)

asyncio.run(call())
"""


def test_the_start_and_probes_do_not_load_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CALLS], check=False, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [
        "/livez 200 False",
        "/readyz 200 False",
        "/readyz?verbose 200 False",
        "/v1/binlogs 200 True",
    ], done.stderr


async def test_calls_that_come_together_load_it_once() -> None:
    loaded: list[int] = []
    answered: list[str] = []

    def load() -> ASGIApp:
        loaded.append(1)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            answered.append(scope["path"])

        return app

    async def receive() -> dict[str, str]:
        raise AssertionError("the request has no body")

    async def send(_: object) -> None:
        raise AssertionError("nothing is answered")

    app = OnDemand(load)
    await asyncio.gather(*(app({"path": path}, receive, send) for path in "abc"))
    await app({"path": "d"}, receive, send)
    assert (loaded, sorted(answered)) == ([1], ["a", "b", "c", "d"])
