"""What administrators may order: move a consumer to a place of the server's log, or have it begin at its start again.

Both are one operation, since both need a place that the server was found to have and an epoch that was never used
before. Readers of before are fenced, and their positions are of another epoch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from dispatcher.dispatch import relocation
from dispatcher.dispatch.events import RelocationRequested
from dispatcher.dispatch.server_view import ServerView
from dispatcher.dispatch.specs import Start, starts_to_search
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.runtime.consumer_session import ConsumerSession, ConsumerSessions
from dispatcher.runtime.from_settings import start_of
from dispatcher.runtime.store_thread import StoreThread
from dispatcher.runtime.threads import in_thread
from dispatcher.settings.model import StartSettings


class Administration:
    """Every method raises BinlogError, and has changed nothing then, for a consumer that is not declared
    (UNKNOWN_CONSUMER), a place that the server does not have, and a server that cannot be asked (RANGE_UNAVAILABLE)."""

    def __init__(self, readers: ConsumerSessions, store: StoreThread) -> None:
        self._readers = readers
        self._store = store

    async def forget(self, name: str) -> dict[str, Any]:
        """Drop what is stored of a consumer; it begins at the `start` of its settings. Returns its new position."""
        return await self._move(name, self._readers.reader(name).consumer.spec.start)

    async def seek(self, name: str, to: StartSettings) -> dict[str, Any]:
        """Move a consumer to a place of the server's log. Returns its new position."""
        return await self._move(name, start_of(to))

    async def _move(self, name: str, start: Start) -> dict[str, Any]:
        reader = self._readers.reader(name)
        order = await _order(reader, start)
        async with reader.acknowledging:
            if self._readers.reader(name) is not reader:
                what = "the consumer's settings were changed meanwhile"
                raise BinlogError(ErrorKind.RANGE_UNAVAILABLE, what, where=reader.where)
            reader.session = max(reader.session, await self._store.next_session(name))
            reader.runner.step(order)
            await reader.runner.flush()
        reader.runner.wake(name)  # readers that wait are told that their session is over
        return reader.acknowledged.as_dict()


async def _order(reader: ConsumerSession, start: Start) -> RelocationRequested:
    """The order to move a consumer, of which the server was just asked. Raises BinlogError where that is refused."""
    view = await _view(reader, start, ())
    epoch_min = int(time.time())
    place = relocation.target(reader.consumer, start, view, epoch_min).place
    if place.file and place.file not in view.created:  # by which a later reset is recognised
        view = await _view(reader, start, [place.file])
        relocation.target(reader.consumer, start, view, epoch_min)
    return RelocationRequested(reader.consumer.name, start, view, epoch_min)


async def _view(reader: ConsumerSession, start: Start, files: Sequence[str]) -> ServerView:
    ask = partial(reader.runner.source.survey, files, starts_to_search([start]))
    try:
        with reader.runner.guarded("administration"):
            view, _ = await in_thread(f"find {reader.consumer.name}", ask)
    except BinlogError as error:
        what = f"the server cannot be asked whether it has the place: {error.kind}: {error.what}"
        where = f"{reader.where}, {error.where}" if error.where else reader.where
        raise BinlogError(
            ErrorKind.RANGE_UNAVAILABLE, what, where=where, remedy=error.remedy
        ) from error
    return view
