"""What the status page shows: consumers, connections, samples of the last minutes, and the timeline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.topology import connection_view
from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.runtime.consumer_sessions import ConsumerSessions
from dispatcher.runtime.loop.time_slices import in_slices
from dispatcher.runtime.status.history import SAMPLE_EVERY_S, StatusHistory
from dispatcher.runtime.status.timeline import Timeline, TimelineEvent


class LiveStatus:
    """`sessions` returns the sessions of all consumers, None on a standby; `clients` returns the present clients."""

    def __init__(
        self,
        sessions: Callable[[], ConsumerSessions | None],
        clients: Callable[[], Sequence[Client]],
        timeline: Timeline,
    ) -> None:
        self._sessions = sessions
        self._clients = clients
        self._timeline = timeline
        self._history = StatusHistory()

    async def sample_regularly(self) -> None:
        """Call `sample` every `SAMPLE_EVERY_S`. Never returns."""
        while True:
            await asyncio.sleep(SAMPLE_EVERY_S)
            await self.sample()

    async def sample(self) -> None:
        """Add a sample of each consumer to the history."""
        sessions = self._sessions()
        if sessions is not None:
            async for _ in in_slices(self._history.fill(time.time(), sessions.samples())):
                pass

    def rows(self) -> AsyncIterator[dict[str, Any]]:
        sessions = self._sessions()
        return in_slices(()) if sessions is None else sessions.rows()

    def row(self, consumer: str) -> dict[str, Any]:
        """Raises UserError (UNKNOWN_CONSUMER)."""
        sessions = self._sessions()
        if sessions is None:
            raise UserError(ErrorKind.UNKNOWN_CONSUMER, repr(consumer))
        return sessions.row(consumer)

    def connections(self) -> AsyncIterator[dict[str, Any]]:
        sessions = self._sessions()
        if sessions is None:
            return in_slices(())
        rate = sessions.rates
        return in_slices(connection_view(client, rate.latest) for client in self._clients())

    def history(self, consumer: str) -> dict[str, list[float]]:
        return self._history.of(consumer)

    def events(self) -> tuple[int, Sequence[TimelineEvent]]:
        """The version of the timeline, and its events, oldest first."""
        return self._timeline.version, self._timeline.events()
