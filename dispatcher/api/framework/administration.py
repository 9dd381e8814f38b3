"""The calls of administrators: `forget` and `seek` move a consumer; `pause` stops its delivery, and `resume` continues
it."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from dispatcher.access.tokens import Scope
from dispatcher.api.access.guard import Guard
from dispatcher.api.answers.models import GetAdministrator, PositionBody, StartRequest
from dispatcher.api.framework.guarded_routes import route_class
from dispatcher.api.framework.openapi import OF_CONSUMER, problems, scopes
from dispatcher.api.framework.routes import ConsumerName


class SeekRequest(StartRequest):
    """Where the consumer continues."""


class MovedAnswer(BaseModel):
    """`position`: where the consumer continues, in a new epoch."""

    position: PositionBody


class PausedAnswer(BaseModel):
    """`paused`: True if nothing is delivered until `resume`."""

    paused: bool


def administration_routes(administrator: GetAdministrator, guard: Guard) -> APIRouter:
    router = APIRouter(
        prefix="/v1/consumers/{consumer}",
        tags=["administration"],
        route_class=route_class(guard),
        responses=problems(*OF_CONSUMER),
    )

    @router.post("/forget", operation_id="forget", openapi_extra=scopes(Scope.ADMINISTER))
    async def forget(consumer: ConsumerName) -> MovedAnswer:
        """Delete the consumer's stored position: it begins at the `start` of its settings, in a new epoch.

        Open sessions are fenced; a failed consumer starts again. Nothing changes if the server does not have the log.
        """
        return MovedAnswer.model_validate({"position": await administrator().forget(consumer)})

    @router.post("/seek", operation_id="seek", openapi_extra=scopes(Scope.ADMINISTER))
    async def seek(consumer: ConsumerName, body: SeekRequest) -> MovedAnswer:
        """Move the consumer to another position in the server's log, in a new epoch.

        Open sessions are fenced; a failed consumer starts again. Nothing changes if the server does not have the log.
        """
        moved = await administrator().seek(consumer, body.start)
        return MovedAnswer.model_validate({"position": moved})

    @router.post("/pause", operation_id="pause", openapi_extra=scopes(Scope.ADMINISTER))
    async def pause(consumer: ConsumerName) -> PausedAnswer:
        """Pause the delivery. Until `resume`, also after a restart of the daemon, polls return `paused: true` and no
        new transactions.

        A reader can still fetch and acknowledge the ranges of earlier polls. Other consumers do not wait for this one.
        """
        await administrator().set_paused(consumer, True)
        return PausedAnswer(paused=True)

    @router.post("/resume", operation_id="resume", openapi_extra=scopes(Scope.ADMINISTER))
    async def resume(consumer: ConsumerName) -> PausedAnswer:
        """Resume the delivery where it was paused."""
        await administrator().set_paused(consumer, False)
        return PausedAnswer(paused=False)

    return router
