"""Orders of administrators: move a consumer to a place in the server's log, or back to its start; pause its delivery.

Both moves are one operation: they need a place that the server has, and an epoch that was never used before. It fences
older sessions, and their positions belong to another epoch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dispatcher.dispatch import seeking
from dispatcher.dispatch.events import DeliveryChanged, RelocationRequested
from dispatcher.dispatch.server_view import ServerView
from dispatcher.dispatch.specs import Start, starts_to_search
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.runtime.client_runner import cannot_ask
from dispatcher.runtime.consumer_session import ConsumerSession
from dispatcher.runtime.consumer_sessions import ConsumerSessions
from dispatcher.runtime.from_settings import start_spec
from dispatcher.runtime.store_thread import StoreThread
from dispatcher.settings.model import StartSettings
from dispatcher.source.protocols import ViewRequest


class Administration:
    """Every method raises BinlogError, and changes nothing, for a consumer that is not declared (UNKNOWN_CONSUMER), for
    a place that the server does not have, and if the server cannot be asked (RANGE_UNAVAILABLE)."""

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
        """Pause or resume the delivery to a consumer's reader: stored first, so that a restart does not change it."""
        session = self._sessions.get(name)
        async with session.acknowledging:
            self._check_current(session)
            await self._store.set_paused(name, paused)
            session.runner.step(DeliveryChanged(name, paused))

    def _check_current(self, session: ConsumerSession) -> None:
        if self._sessions.get(session.consumer.name) is not session:
            what = "the consumer's settings were changed meanwhile"
            raise BinlogError(ErrorKind.RANGE_UNAVAILABLE, what, where=session.where)

    async def _move(self, name: str, start: Start) -> dict[str, Any]:
        session = self._sessions.get(name)
        order = await _order(session, start)
        async with session.acknowledging:
            self._check_current(session)
            session.begin(await self._store.next_session(name), moved=True)
            session.runner.step(order)
            await session.runner.flush()
        session.wake()  # waiting calls find that their session is over
        return session.acknowledged.as_dict()


async def _order(session: ConsumerSession, start: Start) -> RelocationRequested:
    """Return the order that moves a consumer, after asking the server. Raises BinlogError if the server refuses."""
    view = await _view(session, start, ())
    epoch_min = int(time.time())
    place = seeking.relocation_target(session.consumer, start, view, epoch_min).executed
    if place.file and place.file not in view.created:  # the creation time reveals a later reset
        view = await _view(session, start, [place.file])
        seeking.relocation_target(session.consumer, start, view, epoch_min)
    return RelocationRequested(session.consumer.name, start, view, epoch_min)


async def _view(session: ConsumerSession, start: Start, files: Sequence[str]) -> ServerView:
    try:
        request = ViewRequest(files, starts_to_search([start]))
        return (await session.runner.ask("administration", request))[0]
    except BinlogError as error:
        where = f"{session.where}, {error.where}" if error.where else session.where
        raise cannot_ask("the place", error, where) from error
