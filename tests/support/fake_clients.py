"""The clients, sessions and state store of a daemon that reads a fake server, without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import structlog

from dispatcher.dispatch.queue.reader import PollBounds
from dispatcher.dispatch.values.specs import ConsumerSpec, Earliest, Start
from dispatcher.model.position import Position
from dispatcher.runtime.client.client_service import ClientDecl, ConsumerDecl
from dispatcher.runtime.client.from_settings import ClientKey
from dispatcher.runtime.client_registry import ClientRegistry
from dispatcher.runtime.consumer_sessions import ConsumerSessions
from dispatcher.runtime.status.timeline import Timeline
from dispatcher.runtime.store.store_thread import StoreThread
from dispatcher.source.protocols import Source
from tests.support.fake_source import DEADLINE_S, FakeSource
from tests.support.fake_state import FakeState

Json = dict[str, Any]
EARLIEST = Earliest()


async def until(condition: Callable[[], object], what: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - whatever the condition is
            await asyncio.sleep(0.002)
    assert condition(), what


def declared(
    name: str, *databases: str, bytes_max: int = 1 << 20, start: Start = EARLIEST, **more: Any
) -> ConsumerDecl:
    spec = ConsumerSpec(name, databases or ("a",), None, bytes_max, start, **more)
    return ConsumerDecl(spec, marker_s=0.0)


class Daemon:
    """The clients of a daemon with one state store; a test can restart it."""

    def __init__(self, source: FakeSource, state: FakeState) -> None:
        self.source = source
        self.state = state
        self.errors: list[BaseException] = []
        self.wanted: dict[str, list[ConsumerDecl]] = {}
        self.settings: object = None
        self._make()

    def _make(self) -> None:
        self.timeline = Timeline(structlog.get_logger("test"))
        self.store = StoreThread(self.state)
        self.clients = ClientRegistry(
            self.store, None, self.timeline, lambda _, error: self.errors.append(error)
        )

    async def declare(self, *consumers: ConsumerDecl) -> Any:
        self.wanted = {"key": list(consumers)}
        groups: dict[ClientKey, ClientDecl] = {
            key: ClientDecl(key, cast(Source, self.source), tuple(those), settings=self.settings)
            for key, those in self.wanted.items()
            if those
        }
        await self.clients.check(groups)
        return await self.clients.apply(groups)

    async def start(self, *consumers: ConsumerDecl) -> ConsumerSessions:
        await self.declare(*consumers)
        self.clients.start()
        return self.sessions

    async def restart(self) -> ConsumerSessions:
        await self.stop()
        self._make()
        return await self.start(*self.wanted["key"])

    async def stop(self) -> None:
        await self.clients.stop()
        await self.store.close()

    @property
    def sessions(self) -> ConsumerSessions:
        return self.clients.sessions

    def row(self, name: str) -> Json:
        return next(row for row, _ in self.sessions.rows_with_consumers() if row["name"] == name)

    @property
    def tip(self) -> int:
        return len(self.source.fake.log.transactions)

    async def until_queued(self, *names: str) -> None:
        """Wait until the server's whole log is in the queues of these consumers."""

        def queued() -> bool:
            consumers = self.clients.clients()[0].consumers
            return all(consumers[name].queue.queued.seq == self.tip for name in names)

        await until(queued, "everything is queued")


def position(value: Json) -> Position:
    return Position.from_dict(value)


async def open_session(
    readers: ConsumerSessions, name: str, after: Position | None = None
) -> tuple[int, Position]:
    answer = await readers.open_session(name, after, False)
    return answer["session"], position(answer["position"])


async def poll(
    readers: ConsumerSessions, name: str, session: int, after: Position, **more: Any
) -> Json:
    arguments = {"wait_s": 5.0, "markers": True} | more
    bounds = PollBounds(
        **{key: arguments.pop(key) for key in PollBounds._fields if key in arguments}
    )
    return await readers.poll(name, session, after, bounds, **arguments)
