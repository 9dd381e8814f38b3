"""The calls of administrators: move a consumer, have it begin again."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from fastapi import APIRouter
from pydantic import BaseModel, Field, field_validator

from dispatcher.api.auth import Scope
from dispatcher.api.documented import OF_CONSUMER, problems, scopes
from dispatcher.api.guard import Guard
from dispatcher.api.models import Natural, PositionBody, RequestBody
from dispatcher.api.routes import ConsumerName
from dispatcher.settings.model import StartSettings


class ToGtid(RequestBody):
    """Just after this executed GTID set; MariaDB: domain-server-sequence per domain."""

    gtid: str = Field(max_length=1 << 20)


class ToFile(RequestBody):
    """A place in a binlog file at which a transaction begins."""

    file: str = Field(min_length=1, max_length=255)
    offset: Natural


class ToTimestamp(RequestBody):
    """The first transaction committed then or later: ISO 8601, UTC unless it says otherwise."""

    timestamp: str = Field(max_length=64)


class SeekRequest(RequestBody):
    to: Literal["earliest", "latest"] | ToGtid | ToFile | ToTimestamp

    @field_validator("to")
    @classmethod
    def _is_a_start(cls, value: str | BaseModel) -> str | BaseModel:
        _start(value)
        return value

    @property
    def start(self) -> StartSettings:
        return _start(self.to)


def _start(to: str | BaseModel) -> StartSettings:
    """Raises ValueError."""
    return StartSettings.parse(to if isinstance(to, str) else to.model_dump())


class MovedAnswer(BaseModel):
    """`position`: where the consumer goes on, in a new epoch."""

    position: PositionBody


class Administrator(Protocol):
    """What administrators may ask of the daemon; every method may raise BinlogError."""

    async def forget(self, name: str) -> dict[str, Any]: ...

    async def seek(self, name: str, to: StartSettings) -> dict[str, Any]: ...


def administration_routes(administrator: Administrator, guard: Guard) -> APIRouter:
    router = APIRouter(
        prefix="/v1/consumers/{consumer}",
        tags=["administration"],
        route_class=guard.route_class(),
        responses=problems(*OF_CONSUMER),
    )

    @router.post("/forget", operation_id="forget", openapi_extra=scopes(Scope.ADMINISTER))
    async def forget(consumer: ConsumerName) -> MovedAnswer:
        """Drop what is stored of the consumer: it begins at the `start` of its settings, in a new epoch.

        Open sessions are fenced, a consumer that has failed goes on. If the server lacks the place, nothing changes.
        """
        return MovedAnswer.model_validate({"position": await administrator.forget(consumer)})

    @router.post("/seek", operation_id="seek", openapi_extra=scopes(Scope.ADMINISTER))
    async def seek(consumer: ConsumerName, body: SeekRequest) -> MovedAnswer:
        """Move the consumer to a place of the server's log, in a new epoch.

        Open sessions are fenced, a consumer that has failed goes on. If the server lacks the place, nothing changes.
        """
        moved = await administrator.seek(consumer, body.start)
        return MovedAnswer.model_validate({"position": moved})

    return router
