"""The calls of readers: session, poll, resolve, ack, slices, binlog, tables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Send

from dispatcher.api.auth import Scope
from dispatcher.api.guard import Guard, token_of
from dispatcher.api.limits import Slots
from dispatcher.api.models import (
    AckAnswer,
    AckRequest,
    ConsumerService,
    PollAnswer,
    PollRequest,
    RangeRequest,
    ResolvedAnswer,
    ResolveRequest,
    SessionAnswer,
    SessionRequest,
    SlicesAnswer,
    SlicesRequest,
    TableAnswer,
)
from dispatcher.api.openapi import OF_CONSUMER, linked, problems, scopes
from dispatcher.binlog.stream.segments import release_pages
from dispatcher.dispatch.reader import Caller, PollBounds

T = TypeVar("T")

TABLE_NAME = r"^[^.]{1,64}\.[^/]{1,64}$"
ConsumerName = Annotated[
    str, Path(description="Name of a consumer in the daemon's settings.", max_length=64)
]
TableName = Annotated[
    str, Path(description="database.table", pattern=TABLE_NAME, examples=["shop.orders"])
]

_RANGE = {
    "session": "$request.body#/session",
    "start": "$request.body#/after",
    "end": "$response.body#/end",
}


def consumer_routes(daemon: ConsumerService, guard: Guard) -> APIRouter:
    """The routes under /v1/consumers/{consumer} that readers call."""
    router = APIRouter(
        prefix="/v1/consumers/{consumer}",
        tags=["readers"],
        route_class=guard.route_class(),
        responses=problems(*OF_CONSUMER),
    )
    _session_routes(router, daemon, guard)
    _range_routes(router, daemon, guard)
    return router


def _session_routes(router: APIRouter, daemon: ConsumerService, guard: Guard) -> None:
    polls = Slots("polls", guard.limits.max_polls_per_consumer, "api.max_polls_per_consumer")

    @router.post(
        "/session",
        operation_id="session",
        openapi_extra=scopes(Scope.READ),
        responses=linked(
            poll={
                "session": "$response.body#/session",
                "after": "$response.body#/position",
                "wait_ms": 0,
            }
        ),
    )
    async def session(
        consumer: ConsumerName, body: SessionRequest, request: Request
    ) -> SessionAnswer:
        """Open a reading session at `after`, or at the stored position if `after` is null.

        The session fences all older ones: their calls are refused. A read-only session fences none and cannot
        acknowledge. Other sessions also need the scope `acknowledge`.
        """
        if not body.read_only:
            token_of(request).require(Scope.ACKNOWLEDGE)
        after = body.after.value() if body.after else None
        answer = SessionAnswer.model_validate(
            await daemon.open_session(consumer, after, body.read_only)
        )
        daemon.called(consumer, answer.session, _caller(request))
        return answer

    @router.post(
        "/poll",
        operation_id="poll",
        response_model=PollAnswer,
        openapi_extra=scopes(Scope.READ),
        responses=linked(
            binlog=_RANGE,
            slices={**_RANGE, "n": 4},
            ack={"session": "$request.body#/session", "position": "$response.body#/end"},
        ),
    )
    async def poll(consumer: ConsumerName, body: PollRequest, request: Request) -> Response:
        """Acknowledge everything up to `after`, then wait up to `wait_ms` for new transactions.

        With `min_bytes` the wait is for so many bytes, or for a range that cannot become larger: because of
        `max_bytes` or `max_transactions`, or because the queue has no room.

        A read-only session (0) acknowledges nothing; other sessions also need the scope `acknowledge`.
        """
        if body.session:
            token_of(request).require(Scope.ACKNOWLEDGE)
        daemon.called(consumer, body.session, _caller(request))
        with polls.hold(consumer):
            answer = await _while_connected(
                request,
                daemon.poll(
                    consumer,
                    body.session,
                    body.after.value(),
                    PollBounds(body.max_bytes, body.min_bytes, body.max_transactions),
                    body.wait_ms / 1000,
                    body.markers,
                ),
            )
        return JSONResponse(answer)

    @router.post("/resolve", operation_id="resolve", openapi_extra=scopes(Scope.READ))
    async def resolve(consumer: ConsumerName, body: ResolveRequest) -> ResolvedAnswer:
        """Return the position of a place in the server's log, at which a session may be opened. Changes nothing.

        The server is asked, and a time, a file or MariaDB's GTIDs are searched for in its log.
        """
        with polls.hold(consumer):
            position = await daemon.resolve(consumer, body.start)
        return ResolvedAnswer.model_validate({"position": position})

    @router.post("/ack", operation_id="ack", openapi_extra=scopes(Scope.ACKNOWLEDGE))
    async def ack(consumer: ConsumerName, body: AckRequest, request: Request) -> AckAnswer:
        """Acknowledge everything up to `position` without polling."""
        daemon.called(consumer, body.session, _caller(request))
        acknowledged = await daemon.acknowledge(consumer, body.session, body.position.value())
        return AckAnswer.model_validate({"acknowledged": acknowledged})


def _range_routes(router: APIRouter, daemon: ConsumerService, guard: Guard) -> None:
    answers = Slots(
        "answers", guard.limits.max_answers_per_consumer, "api.max_answers_per_consumer"
    )

    @router.post("/slices", operation_id="slices", openapi_extra=scopes(Scope.READ))
    async def slices(consumer: ConsumerName, body: SlicesRequest, request: Request) -> SlicesAnswer:
        """Return at most `n` - 1 cuts that divide the range (start, end] for parallel reading.

        A cut is a position or, with `inside`, also a point inside of the transaction that ends at a position.
        """
        daemon.called(consumer, body.session, _caller(request))
        with answers.hold(consumer):
            answer = await daemon.slices(
                consumer,
                body.session,
                body.start.value(),
                body.end.value(),
                body.n,
                body.inside,
            )
        return SlicesAnswer.model_validate(answer)

    @router.post(
        "/binlog",
        operation_id="binlog",
        status_code=200,
        response_class=BinlogAnswer,
        openapi_extra=scopes(Scope.READ),
        responses={
            200: {
                "description": "A binlog file",
                "content": {
                    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
                },
            }
        },
    )
    async def binlog(consumer: ConsumerName, body: RangeRequest, request: Request) -> Response:
        """Return the range (start, end] as a binlog file. Repeatable for any range after the acknowledged position.

        `start_event` and `end_event` are points of `slices` inside of the transactions that end at `start` and `end`.
        The header `Binlog-Gap: true` says that the server had purged part of the range, which is missing.
        """
        daemon.called(consumer, body.session, _caller(request))
        answers.acquire(consumer)

        def done() -> None:
            answers.release(consumer)
            daemon.answer_ended(consumer, body.session)

        try:
            parts, gap = await daemon.binlog(
                consumer,
                body.session,
                body.start.value(),
                body.end.value(),
                body.start_event.value() if body.start_event else None,
                body.end_event.value() if body.end_event else None,
            )
        except BaseException:
            answers.release(consumer)
            raise
        return BinlogAnswer(parts, done, gap=gap)

    @router.get("/tables/{name}", operation_id="table", openapi_extra=scopes(Scope.READ))
    async def table(consumer: ConsumerName, name: TableName) -> TableAnswer:
        """Return the current columns and key of one of the consumer's tables."""
        database, _, table = name.partition(".")
        return TableAnswer.model_validate(await daemon.table(consumer, database, table))


def _caller(request: Request) -> Caller:
    address = request.client.host if request.client else ""
    return Caller.of(address, request.headers.get("user-agent", ""))


class BinlogAnswer(StreamingResponse):
    """Sends parts of a queue without a copy. Calls `done` once, after the last part or when the client disconnects."""

    media_type = "application/octet-stream"

    def __init__(
        self, parts: list[bytes | memoryview], done: Callable[[], None], *, gap: bool
    ) -> None:
        headers = {"Content-Length": str(sum(len(part) for part in parts))}
        if gap:
            headers["Binlog-Gap"] = "true"
        super().__init__(_stream(parts), headers=headers)
        self._done = done

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._done()


async def _stream(parts: list[bytes | memoryview]) -> AsyncIterator[bytes | memoryview]:
    """Yield the parts, and release each once it is sent: the response object lives longer than its parts must."""
    parts.reverse()
    sent: bytes | memoryview = b""
    while parts:
        part = parts.pop()
        yield part
        release_pages(sent)  # the previous part; the transport may still hold this one
        sent = part


async def _while_connected(request: Request, work: Awaitable[T]) -> T:
    """Return the result of `work`; cancel it and raise ClientDisconnect if the client disconnects."""
    outcome: T | Exception
    try:
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(_raise_on_disconnect(request.receive))
            try:
                outcome = await work
            except Exception as error:  # noqa: BLE001 - raised below, outside of the group
                outcome = error
            watch.cancel()
    except* ClientDisconnect:
        raise ClientDisconnect from None
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def _raise_on_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientDisconnect
