"""The calls of administrators: `forget` and `seek` move a consumer; `pause` stops its delivery, and `resume` continues
it."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from dispatcher.access.tokens import Scope
from dispatcher.api.answers.models import GetAdministrator, PositionBody, StartRequest
from dispatcher.api.calls.route import CONSUMER, OF_CONSUMER, Call, Documented, Json, Route


class SeekRequest(StartRequest):
    """Where the consumer continues."""


class MovedAnswer(BaseModel):
    """`position`: where the consumer continues, in a new epoch."""

    position: PositionBody


class PausedAnswer(BaseModel):
    """`paused`: True if nothing is delivered until `resume`."""

    paused: bool


def administration_routes(administrator: GetAdministrator) -> Iterator[Route]:
    async def forget(call: Call) -> Json:
        """Delete the consumer's stored position: it begins at the `start` of its settings, in a new epoch.

        Open sessions are fenced; a failed consumer starts again. Nothing changes if the server does not have the log.
        """
        return {"position": await administrator().forget(call.consumer)}

    async def seek(call: Call) -> Json:
        """Move the consumer to another position in the server's log, in a new epoch.

        Open sessions are fenced; a failed consumer starts again. Nothing changes if the server does not have the log.
        """
        return {"position": await administrator().seek(call.consumer, call.body.start)}

    async def pause(call: Call) -> Json:
        """Pause the delivery. Until `resume`, also after a restart of the daemon, polls return `paused: true` and no
        new transactions.

        A reader can still fetch and acknowledge the ranges of earlier polls. Other consumers do not wait for this one.
        """
        await administrator().set_paused(call.consumer, True)
        return {"paused": True}

    async def resume(call: Call) -> Json:
        """Resume the delivery at the position at which it was paused."""
        await administrator().set_paused(call.consumer, False)
        return {"paused": False}

    for answer, returns in (
        (forget, MovedAnswer),
        (seek, MovedAnswer),
        (pause, PausedAnswer),
        (resume, PausedAnswer),
    ):
        yield Route(
            "POST",
            f"{CONSUMER}/{answer.__name__}",
            answer,
            [Scope.ADMINISTER],
            SeekRequest if answer is seek else None,
            Documented("administration", returns, OF_CONSUMER),
        )
