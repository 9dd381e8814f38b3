"""Routes. Errors of the rules become RFC 9457 problem documents here, and only here.

Binlog ranges go out as they lie in the queues: views of the segments, one write each, with the length known ahead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from dispatcher.api.auth import Tokens
from dispatcher.api.models import (
    AckAnswer,
    AckRequest,
    BinlogRequest,
    Daemon,
    PollAnswer,
    PollRequest,
    Problem,
    SessionAnswer,
    SessionRequest,
    SlicesAnswer,
    SlicesRequest,
)
from dispatcher.binlog.segments import cool
from dispatcher.model.errors import Action, BinlogError, Kind, UserError

_STATUS = {
    Kind.UNKNOWN_CONSUMER: 404,
    Kind.SESSION_FENCED: 409,
    Kind.POSITION_UNKNOWN: 409,
    Kind.UNAUTHORIZED: 401,
    Kind.SETTINGS: 422,
    Kind.INTERNAL: 500,
}
RETRY_AFTER_S = 1
PROBLEM_JSON = "application/problem+json"


def status_of(error: BinlogError) -> int:
    """409/404/401 for the request's own faults, 503 for what may pass, 410 for a consumer that has failed for good."""
    if error.kind in _STATUS:
        return _STATUS[error.kind]
    if error.action in (Action.RETRY, Action.OPERATOR):
        return 503
    return 410 if error.action is Action.FATAL else 422


def problem(error: BinlogError) -> JSONResponse:
    status = status_of(error)
    body = Problem(
        title=error.kind.value,
        status=status,
        detail=str(error),
        kind=error.kind.name,
        hint=error.remedy,
    )
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(body.model_dump(), status, headers, PROBLEM_JSON)


def create_app(
    daemon: Daemon,
    tokens: Tokens,
    *,
    version: str,
    metrics: Callable[[], tuple[bytes, str]],
    ready: Callable[[], Sequence[str]],
) -> FastAPI:
    """`metrics` renders (text, content type); `ready` lists what keeps the daemon from being ready."""
    app = FastAPI(title="binlog-dispatcher", version=version, redoc_url=None)
    app.add_exception_handler(BinlogError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.include_router(_consumer_routes(daemon, tokens))
    app.include_router(_status_routes(daemon, tokens, metrics, ready))
    return app


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, BinlogError)
    return problem(error)


async def _on_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    fault = UserError(
        Kind.SETTINGS, f"{place}: {first['msg']}", remedy="see /docs for the form of the request"
    )
    return problem(fault)


def _consumer_routes(daemon: Daemon, tokens: Tokens) -> APIRouter:
    async def allowed(consumer: str, request: Request) -> None:
        tokens.check(request.headers.get("authorization"), consumer)

    router = APIRouter(
        prefix="/v1/consumers/{consumer}", tags=["readers"], dependencies=[Depends(allowed)]
    )

    @router.post("/session")
    async def session(consumer: str, body: SessionRequest) -> SessionAnswer:
        """Open a reading session; older ones are refused from then on. `after` wins over the stored position."""
        after = body.after.value() if body.after else None
        return SessionAnswer.model_validate(
            await daemon.open_session(consumer, after, body.read_only)
        )

    @router.post("/poll", response_model=PollAnswer)
    async def poll(consumer: str, body: PollRequest) -> Response:
        """Acknowledge everything up to `after`, then wait for more."""
        answer = await daemon.poll(
            consumer,
            body.session,
            body.after.value(),
            body.max_bytes,
            body.wait_ms / 1000,
            body.markers,
        )
        return JSONResponse(answer)

    @router.post("/slices")
    async def slices(consumer: str, body: SlicesRequest) -> SlicesAnswer:
        """Cut points of a range for reading it in parallel."""
        cuts = await daemon.slices(
            consumer, body.session, body.start.value(), body.end.value(), body.n
        )
        return SlicesAnswer.model_validate({"cuts": cuts})

    @router.post("/binlog", response_class=StreamingResponse)
    async def binlog(consumer: str, body: BinlogRequest) -> Response:
        """The range (start, end] as a binlog. Repeatable for any range after the acknowledged position."""
        parts = await daemon.binlog(consumer, body.session, body.start.value(), body.end.value())
        headers = {"Content-Length": str(sum(len(part) for part in parts))}
        return StreamingResponse(
            _stream(parts), headers=headers, media_type="application/octet-stream"
        )

    @router.post("/ack")
    async def ack(consumer: str, body: AckRequest) -> AckAnswer:
        """Acknowledge without polling."""
        acknowledged = await daemon.acknowledge(consumer, body.session, body.position.value())
        return AckAnswer.model_validate({"acknowledged": acknowledged})

    @router.get("/tables/{name}")
    async def table(consumer: str, name: str) -> dict[str, Any]:
        """Columns and key of `database.table`."""
        database, dot, table = name.partition(".")
        if not dot or not database or not table:
            raise UserError(
                Kind.SETTINGS, f"{name!r} is not a table", remedy="write it as database.table"
            )
        return await daemon.table(consumer, database, table)

    return router


async def _stream(parts: list[bytes | memoryview]) -> AsyncIterator[bytes | memoryview]:
    """Lets go of each part when it is sent, and in the end of all of them: an answer outlives its sending."""
    parts.reverse()
    sent: bytes | memoryview = b""
    while parts:
        part = parts.pop()
        yield part
        cool(sent)  # the one before: this one may not have left yet
        sent = part


def _status_routes(
    daemon: Daemon,
    tokens: Tokens,
    metrics: Callable[[], tuple[bytes, str]],
    ready: Callable[[], Sequence[str]],
) -> APIRouter:
    router = APIRouter(tags=["status"])

    @router.get("/v1/binlogs")
    async def binlogs(request: Request) -> list[dict[str, Any]]:
        """One object per consumer that the token may see."""
        allowed = tokens.allowed(request.headers.get("authorization"))
        return [row for row in daemon.rows() if allowed is None or row["name"] in allowed]

    @router.get("/livez", response_class=PlainTextResponse)
    async def livez() -> str:
        """The loop turns."""
        return "ok\n"

    @router.get("/readyz", response_class=PlainTextResponse)
    async def readyz(request: Request) -> Response:
        """Settings read, listener up, store writable. Not MySQL: a server that is down must not stop the others."""
        reasons = ready()
        lines = ["not ready: " + "; ".join(reasons)] if reasons else ["ok"]
        if "verbose" in request.query_params:
            lines += [
                f"{row['name']}: {row['state']}: {row['last_error'] or 'no error'}"
                for row in daemon.rows()
                if row["state"] in ("connecting", "failed")
            ]
        return PlainTextResponse("\n".join(lines) + "\n", 503 if reasons else 200)

    @router.get("/metrics")
    async def metrics_() -> Response:
        """Prometheus text."""
        text, content_type = metrics()
        return Response(text, media_type=content_type)

    return router
