"""The calls of operators and supervisors: consumers, health, metrics."""

from __future__ import annotations

import json

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse

from dispatcher.api.auth import Scope
from dispatcher.api.guard import Guard, token_of
from dispatcher.api.guarded_routes import route_class
from dispatcher.api.long_answer import LongAnswer
from dispatcher.api.models import ConsumerRow, ConsumerService, RenderMetrics
from dispatcher.api.openapi import EVERY, GUARDED, problems, scopes
from dispatcher.api.probes import ALIVE, LIVEZ, READYZ, Ready, readiness


def status_routes(
    daemon: ConsumerService,
    guard: Guard,
    metrics: RenderMetrics,
    ready: Ready,
) -> APIRouter:
    """`metrics` renders (text, content type); `Probes` answers `/livez` and `/readyz` without
    parameters."""
    router = APIRouter(tags=["status"], route_class=route_class(guard))

    @router.get(
        "/v1/binlogs",
        operation_id="binlogs",
        response_model=list[ConsumerRow],
        openapi_extra=scopes(Scope.READ, Scope.METRICS),
        responses=problems(*GUARDED),
    )
    async def binlogs(request: Request) -> Response:
        """List the consumers that the token is valid for. Each row is a consistent snapshot; the list is not."""
        token = token_of(request)
        rows = [
            json.dumps(row, ensure_ascii=True).encode()
            async for row in daemon.rows()
            if token.may_see(row["name"])
        ]
        return LongAnswer(b"[" + b",".join(rows) + b"]", media_type="application/json")

    @router.get(
        LIVEZ, operation_id="livez", response_class=PlainTextResponse, responses=problems(*EVERY)
    )
    async def livez() -> str:
        """Answers as long as the daemon's event loop runs."""
        return f"{ALIVE}\n"

    @router.get(
        READYZ,
        operation_id="readyz",
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
        request: Request,
        verbose: str | None = Query(
            None,
            description="If present: also list the consumers that are connecting, have failed or have an error.",
        ),
    ) -> Response:
        """Ready means: the listener is up and the state store is writable. MySQL servers do not count."""
        line, status = readiness(ready())
        lines = [line]
        if verbose is not None:
            lines += await _failing(request)
        return PlainTextResponse("\n".join(lines) + "\n", status)

    async def _failing(request: Request) -> list[str]:
        token = None if guard.is_open("readyz") else guard.identify(request)
        return [
            f"{row['name']}: {row['state']}: {row['last_error'] or 'no error'}"
            async for row in daemon.rows()
            if (row["state"] in ("connecting", "failed") or row["last_error"])
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
        """Metrics in Prometheus text format. Needs the scope `metrics` unless `api.open` contains metrics."""
        if not guard.is_open("metrics"):
            guard.identify(request).require(Scope.METRICS)
        text, content_type = await metrics()
        return LongAnswer(text, media_type=content_type)

    return router
