"""The calls of people and supervisors: consumers, health, metrics."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse

from dispatcher.api.auth import Scope
from dispatcher.api.documented import EVERY, GUARDED, problems, scopes
from dispatcher.api.guard import Guard, token_of
from dispatcher.api.models import ConsumerRow, ConsumerService

RenderMetrics = Callable[[], Awaitable[tuple[bytes, str]]]


def status_routes(
    daemon: ConsumerService,
    guard: Guard,
    metrics: RenderMetrics,
    ready: Callable[[], Sequence[str]],
) -> APIRouter:
    """`metrics` renders (text, content type); `ready` lists what keeps the daemon from being ready."""
    router = APIRouter(tags=["status"], route_class=guard.route_class())

    @router.get(
        "/v1/binlogs",
        operation_id="binlogs",
        response_model=list[ConsumerRow],
        openapi_extra=scopes(Scope.READ, Scope.METRICS),
        responses=problems(*GUARDED),
    )
    async def binlogs(request: Request) -> Response:
        """One object per consumer that the token is for. Each is of one moment, all together are not."""
        token = token_of(request)
        rows = [
            json.dumps(row, ensure_ascii=True).encode()
            async for row in daemon.rows()
            if token.may_see(row["name"])
        ]
        return Response(b"[" + b",".join(rows) + b"]", media_type="application/json")

    @router.get(
        "/livez",
        operation_id="livez",
        response_class=PlainTextResponse,
        responses=problems(*EVERY),
    )
    async def livez() -> str:
        """Answers while the daemon's loop turns."""
        return "ok\n"

    @router.get(
        "/readyz",
        operation_id="readyz",
        response_class=PlainTextResponse,
        responses={
            **problems(*EVERY, 401, 422),
            503: {
                "description": "Not ready; the text says why. Or a problem document: too many connections.",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
        },
    )
    async def readyz(
        request: Request,
        verbose: str | None = Query(
            None, description="If present: list the consumers that are connecting or failed."
        ),
    ) -> Response:
        """Settings read, listener up, store writable. Not MySQL: a server that is down must not stop the others."""
        reasons = ready()
        lines = ["not ready: " + "; ".join(reasons)] if reasons else ["ok"]
        if verbose is not None:
            lines += await _troubled(request)
        return PlainTextResponse("\n".join(lines) + "\n", 503 if reasons else 200)

    async def _troubled(request: Request) -> list[str]:
        token = None if guard.is_open("readyz") else guard.identify(request)
        return [
            f"{row['name']}: {row['state']}: {row['last_error'] or 'no error'}"
            async for row in daemon.rows()
            if row["state"] in ("connecting", "failed")
            and (token is None or token.may_see(row["name"]))
        ]

    @router.get(
        "/metrics",
        operation_id="metrics",
        response_class=PlainTextResponse,
        openapi_extra={"security": [{"token": []}, {}]},
        responses=problems(*EVERY, 401),
    )
    async def metrics_(request: Request) -> Response:
        """Prometheus text. Needs the scope `metrics`, unless `api.open` names metrics."""
        if not guard.is_open("metrics"):
            guard.identify(request).require(Scope.METRICS)
        text, content_type = await metrics()
        return Response(text, media_type=content_type)

    return router
