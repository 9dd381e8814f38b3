"""A request for the status of a thousand consumers does not block other requests."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dispatcher.access.tokens import EVERYTHING
from dispatcher.api.app import Access, Api
from dispatcher.api.calls.feed import StatusFeed
from dispatcher.app import render_metrics
from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.values.executed_position import Mode, make_executed
from dispatcher.dispatch.values.specs import ConsumerSpec
from dispatcher.runtime.client.consumer_session import ConsumerSession
from dispatcher.runtime.consumer_sessions import ConsumerSessions
from dispatcher.runtime.live_status import LiveStatus
from dispatcher.runtime.status.timeline import Timeline
from dispatcher.settings.api import ApiLimitSettings
from dispatcher.telemetry.metrics import Metrics

CONSUMERS = 1000
STALL_MAX_S = 0.020
ATTEMPTS = 3  # garbage collection may make an attempt too slow

UUID = "3e11fa47-71ca-11e1-9e33-c80aa943{:04x}"


def make_client(label: str, names: list[str]) -> Client:
    """Returns a client that connects, and whose consumers have positions."""
    client = Client(label, [ConsumerSpec(name, (name,), None, 1 << 20) for name in names], {})
    client.start()
    gtids = ",".join(f"{UUID.format(n)}:1-1000:1002-2000" for n in range(4))
    place = make_executed(Mode.GTID, gtids, "binlog.000001", 4)
    for consumer in client.consumers.values():
        consumer.queue.reset("server", Mode.GTID, 1, place, 0)
        consumer.started = True
    return client


@pytest.fixture(scope="module", params=["one connection", "a connection each"])
def clients(request: pytest.FixtureRequest) -> list[Client]:
    names = [f"consumer{n}" for n in range(CONSUMERS)]
    if request.param == "one connection":
        return [make_client("repl@db1:3306", names)]
    return [make_client(f"{name}@db1:3306", [name]) for name in names]


def sessions_of(clients: list[Client]) -> ConsumerSessions:
    readers = ConsumerSessions(cast(Any, SimpleNamespace(faults=())))
    for client in clients:
        runner = cast(Any, SimpleNamespace(client=client))
        for consumer in client.consumers.values():
            readers.add(ConsumerSession(runner, consumer, 0, 60.0))
    return readers


@pytest.fixture
def api(clients: list[Client]) -> Api:
    readers = sessions_of(clients)
    metrics = Metrics("1", readers.rows_with_consumers, lambda: clients)
    return Api(
        lambda: readers,
        Access(),
        ApiLimitSettings(),
        administrator=cast(Any, None),
        declarer=cast(Any, None),
        live=LiveStatus(lambda: readers, lambda: clients, Timeline(cast(Any, None))),
        listen="127.0.0.1",
        version="1",
        metrics=lambda: render_metrics(metrics),
        ready=list,
    )


class Stall:
    """The longest time in s for which one callback blocked the event loop since this object was made.

    This is CPU time of the loop's thread, so other processes of a busy machine do not change the result.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._last = time.thread_time()
        self._timer = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        now = time.thread_time()
        self.longest_s, self._last = max(self.longest_s, now - self._last), now
        self._timer = self._loop.call_soon(self._turn)

    def stop(self) -> float:
        self._timer.cancel()
        return max(self.longest_s, time.thread_time() - self._last)


@pytest.fixture(autouse=True)
def frozen() -> Iterator[None]:
    """Exempt what the tests have imported from garbage collection, as the daemon does with its imports."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


async def get(api: Api, path: str) -> bytes:
    """Returns the body of an answer, without the work of an HTTP client on the loop."""
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": b"", "headers": [(b"host", b"127.0.0.1")], "http_version": "1.1",
        "scheme": "http", "server": ("127.0.0.1", 1), "client": ("127.0.0.1", 2), "state": {},
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await api.asgi(scope, receive, send)
    assert sent[0]["status"] == 200
    return b"".join(message["body"] for message in sent[1:])


@pytest.mark.parametrize("path", ["/metrics", "/v1/binlogs"])
async def test_the_loop_stays_responsive_while_a_thousand_consumers_are_listed(
    api: Api, path: str
) -> None:
    await get(api, "/livez")  # the first request builds the framework's middleware
    stalls = []
    for _ in range(ATTEMPTS):
        stall = Stall()
        answer = await get(api, path)
        stalls.append(stall.stop())
        assert all(b"consumer%d" % n in answer for n in (0, CONSUMERS - 1))
        if stalls[-1] < STALL_MAX_S:
            return
    pytest.fail(f"the loop stood for {stalls} s")


async def test_the_loop_stays_responsive_while_the_status_page_is_watched(
    clients: list[Client],
) -> None:
    live = LiveStatus(partial(sessions_of, clients), lambda: clients, Timeline(cast(Any, None)))
    stalls = []
    for _ in range(ATTEMPTS):
        stall = Stall()
        await live.sample()
        event = await anext(StatusFeed(live, "1").events(lambda: EVERYTHING))
        stalls.append(stall.stop())
        assert all(b"consumer%d" % n in event for n in (0, CONSUMERS - 1))
        if stalls[-1] < STALL_MAX_S:
            return
    pytest.fail(f"the loop stood for {stalls} s")
