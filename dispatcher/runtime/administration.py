"""Executes the orders of administrators: move a consumer to a place in the server's log or back to its start, and pause
or resume its delivery.

`forget` and `seek` use the same operation. The operation moves the consumer to a place that the server's log contains,
and into an epoch that was never used before. It fences all older sessions, because the positions of their readers
belong to an older epoch.
"""

from __future__ import annotations

from typing import Any

from dispatcher.dispatch.messages.events import DeliveryChanged
from dispatcher.dispatch.values.specs import Start
from dispatcher.runtime.client.from_settings import start_spec
from dispatcher.runtime.consumer_sessions import ConsumerSessions
from dispatcher.runtime.store.store_thread import StoreThread
from dispatcher.settings.model import StartSettings


class Administration:
    """Executes the orders. Every method raises BinlogError, and then changes nothing, if no consumer has this name
    (UNKNOWN_CONSUMER). `forget` and `seek` also raise BinlogError if the server's log does not contain the place, or if
    the server cannot be asked (RANGE_UNAVAILABLE)."""

    def __init__(self, sessions: ConsumerSessions, store: StoreThread) -> None:
        self._sessions = sessions
        self._store = store

    async def forget(self, name: str) -> dict[str, Any]:
        """Move a consumer to the `start` of its settings. Returns its new position."""
        return await self._move(name, self._sessions.get(name).consumer.spec.start)

    async def seek(self, name: str, to: StartSettings) -> dict[str, Any]:
        """Move a consumer to a place of the server's log. Returns its new position."""
        return await self._move(name, start_spec(to))

    async def set_paused(self, name: str, paused: bool) -> None:
        """Pause or resume the delivery to a consumer's reader. The order is stored before it takes effect, so that it
        survives a restart."""
        session = self._sessions.get(name)
        async with session.acknowledging:
            self._sessions.require_current(session)
            await self._store.set_paused(name, paused)
            session.runner.step(DeliveryChanged(name, paused))

    async def _move(self, name: str, start: Start) -> dict[str, Any]:
        return (await self._sessions.relocate(name, start)).as_dict()
