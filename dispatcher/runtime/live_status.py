"""What the status page shows: consumers, connections, samples of the last minutes, and the timeline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.topology import connection_view
from dispatcher.runtime.consumer_sessions import ConsumerSessions
from dispatcher.runtime.loop.time_slices import in_slices
from dispatcher.runtime.status.history import SAMPLE_EVERY_S, StatusHistory
from dispatcher.runtime.status.timeline import Timeline, TimelineEvent


class LiveStatus:
    """`clients` returns the present clients of the daemon."""

    def __init__(
        self,
        sessions: ConsumerSessions,
        clients: Callable[[], Sequence[Client]],
        timeline: Timeline,
    ) -> None:
        self._sessions = sessions
        self._clients = clients
        self._timeline = timeline
        self._history = StatusHistory()

    async def sample_regularly(self) -> None:
        """Fill the history for ever."""
        while True:
            await asyncio.sleep(SAMPLE_EVERY_S)
            await self.sample()

    async def sample(self) -> None:
        """Add a sample of each consumer to the history."""
        samples = self._sessions.samples()
        async for _ in in_slices(self._history.fill(time.time(), samples)):
            pass

    def rows(self) -> AsyncIterator[dict[str, Any]]:
        return self._sessions.rows()

    def row(self, consumer: str) -> dict[str, Any]:
        """Raises UserError (UNKNOWN_CONSUMER)."""
        return self._sessions.row(consumer)

    def connections(self) -> AsyncIterator[dict[str, Any]]:
        rate = self._sessions.rates
        return in_slices(connection_view(client, rate.latest) for client in self._clients())

    def history(self, consumer: str) -> dict[str, list[float]]:
        return self._history.of(consumer)

    def events(self) -> tuple[int, Sequence[TimelineEvent]]:
        """The version of the timeline, and its events, oldest first."""
        return self._timeline.version, self._timeline.events()
