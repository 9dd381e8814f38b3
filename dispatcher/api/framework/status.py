"""The calls of operators and supervisors: consumers, health, metrics."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse

from dispatcher.access.tokens import Scope
from dispatcher.api.access.guard import Guard, token_of
from dispatcher.api.answers.long_answer import LongAnswer
from dispatcher.api.answers.models import (
    ConsumerRow,
    Consumers,
    GetRole,
    LeaderAnswer,
    RenderMetrics,
)
from dispatcher.api.calls.probes import LIVEZ, READYZ
from dispatcher.api.framework.guarded_routes import route_class
from dispatcher.api.framework.openapi import EVERY, GUARDED, problems, scopes


def status_routes(
    consumers: Consumers, guard: Guard, metrics: RenderMetrics, role: GetRole
) -> APIRouter:
    """`metrics` renders (text, content type)."""
    router = APIRouter(tags=["status"], route_class=route_class(guard))

    @router.get(
        "/v1/binlogs",
        operation_id="binlogs",
        response_model=list[ConsumerRow],
        openapi_extra=scopes(Scope.READ, Scope.METRICS),
        responses=problems(*GUARDED),
    )
    async def binlogs(request: Request) -> Response:
        """List the consumers that the token is valid for. Each row is a consistent snapshot; the list as a whole is
        not."""
        token = token_of(request)
        rows = [
            json.dumps(row, ensure_ascii=True).encode()
            async for row in consumers().rows()
            if token.may_see(row["name"])
        ]
        return LongAnswer(b"[" + b",".join(rows) + b"]", media_type="application/json")

    @router.get(
        "/v1/leader",
        operation_id="leader",
        openapi_extra=scopes(Scope.READ, Scope.METRICS),
        responses=problems(*GUARDED),
    )
    async def leader(request: Request) -> LeaderAnswer:  # noqa: ARG001 - the route's class checks its token
        """Tell whether this daemon leads, and the address of the leader."""
        known = role()
        answer = (
            {"role": "leader", "term": None, "leader": None} if known is None else known.as_dict()
        )
        return LeaderAnswer.model_validate(answer)

    _document_probes(router)

    @router.get(
        "/metrics",
        operation_id="metrics",
        response_class=PlainTextResponse,
        openapi_extra={"security": [{"token": []}, {}]},
        responses=problems(*EVERY, 401),
    )
    async def metrics_(request: Request) -> Response:
        """Metrics in Prometheus text format. Needs the scope `metrics` unless `api.open` contains metrics."""
        if not guard.is_open("metrics"):
            guard.identify(request).require(Scope.METRICS)
        text, content_type = await metrics()
        return LongAnswer(text, media_type=content_type)

    return router


def _document_probes(router: APIRouter) -> None:
    """Add the routes that `Probes` answers, so that FastAPI describes them and refuses methods other than GET and
    HEAD."""

    @router.get(
        LIVEZ.path,
        operation_id="livez",
        description=LIVEZ.meaning,
        response_class=PlainTextResponse,
        responses=problems(*EVERY),
    )
    async def livez() -> None: ...

    @router.get(
        READYZ.path,
        operation_id="readyz",
        description=READYZ.meaning,
        response_class=PlainTextResponse,
        responses={
            **problems(*EVERY, 401, 422),
            503: {
                "description": "Not ready; the text says why. Too many connections: a problem document.",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
        },
    )
    async def readyz(
        verbose: Annotated[
            str | None,
            Query(
                description="If present: also list the consumers that are connecting, have failed or have an error."
            ),
        ] = None,
        standby: Annotated[
            str | None,
            Query(description="If present: a standby that knows the leader is ready, too."),
        ] = None,
    ) -> None: ...
