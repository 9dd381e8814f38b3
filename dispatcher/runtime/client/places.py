"""Asks a server for the position of a place in its log. A place is, for example, `earliest` or a time."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dispatcher.dispatch.client import seeking
from dispatcher.dispatch.messages.events import RelocationRequested
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import Start, starts_to_search
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import Position
from dispatcher.runtime.client.client_runner import cannot_ask
from dispatcher.runtime.client.consumer_session import ConsumerSession
from dispatcher.source.protocols import ViewRequest


async def position_of(session: ConsumerSession, start: Start) -> Position:
    """Return the position of a place. A reader may open a session at this position. Changes nothing.

    Raises BinlogError if the server does not have the place, or cannot be asked (RANGE_UNAVAILABLE).
    """
    view = await _view(session, start, ())
    return seeking.reader_position(session.consumer, start, view, int(time.time()))


async def relocation_to(session: ConsumerSession, start: Start) -> RelocationRequested:
    """Return the order that moves a consumer to a place. Raises as `position_of` does."""
    view = await _view(session, start, ())
    epoch_min = int(time.time())
    place = seeking.relocation_target(session.consumer, start, view, epoch_min).executed
    # The relocation also needs the creation time of the file: it shows whether the server's log was reset meanwhile.
    if place.file and place.file not in view.created:
        view = await _view(session, start, [place.file])
        seeking.relocation_target(session.consumer, start, view, epoch_min)
    return RelocationRequested(session.consumer.name, start, view, epoch_min)


async def log_was_replaced(session: ConsumerSession) -> bool:
    """True if the log that the server has now is not the one that the consumer has read. Raises BinlogError
    (RANGE_UNAVAILABLE) if the server cannot be asked."""
    file = session.queue.queued.file if session.consumer.started else ""
    view = await session.runner.survey_with(file, "the log that the consumer has read")
    return seeking.has_left_log(session.consumer, view)


async def _view(session: ConsumerSession, start: Start, files: Sequence[str]) -> ServerView:
    try:
        request = ViewRequest(files, starts_to_search([start]))
        return (await session.runner.ask("administration", request))[0]
    except BinlogError as error:
        where = f"{session.where}, {error.where}" if error.where else session.where
        raise cannot_ask("the place", error, where) from error
