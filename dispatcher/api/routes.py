"""The calls of readers: sessions, polls, ranges, acknowledgements, tables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Send

from dispatcher.api.auth import Scope
from dispatcher.api.documented import OF_CONSUMER, linked, problems, scopes
from dispatcher.api.guard import Guard, token_of
from dispatcher.api.limits import Slots
from dispatcher.api.models import (
    AckAnswer,
    AckRequest,
    BinlogRequest,
    ConsumerService,
    PollAnswer,
    PollRequest,
    SessionAnswer,
    SessionRequest,
    SlicesAnswer,
    SlicesRequest,
    TableAnswer,
)
from dispatcher.binlog.stream.segments import release_pages

T = TypeVar("T")

TABLE_NAME = r"^[^.]{1,64}\.[^/]{1,64}$"
ConsumerName = Annotated[str, Path(description="Name of a declared consumer.", max_length=64)]
TableName = Annotated[
    str, Path(description="database.table", pattern=TABLE_NAME, examples=["shop.orders"])
]

_RANGE = {
    "session": "$request.body#/session",
    "start": "$request.body#/after",
    "end": "$response.body#/end",
}


def consumer_routes(daemon: ConsumerService, guard: Guard) -> APIRouter:
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
    polls = Slots("polls", guard.limits.polls_max, "api.max_polls_per_consumer")

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
        """Open a reading session. `after` wins over the stored position.

        Older sessions are refused from then on, unless it is read-only: that one fences no other and acknowledges
        nothing. A session that is not read-only needs the scope `acknowledge` too.
        """
        if not body.read_only:
            token_of(request).require(Scope.ACKNOWLEDGE)
        after = body.after.value() if body.after else None
        return SessionAnswer.model_validate(
            await daemon.open_session(consumer, after, body.read_only)
        )

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
        """Acknowledge everything up to `after`, then wait up to `wait_ms` for more.

        In a read-only session (0) it acknowledges nothing; in any other it needs the scope `acknowledge` too.
        """
        if body.session:
            token_of(request).require(Scope.ACKNOWLEDGE)
        with polls.hold(consumer):
            answer = await _while_connected(
                request,
                daemon.poll(
                    consumer,
                    body.session,
                    body.after.value(),
                    body.max_bytes,
                    body.wait_ms / 1000,
                    body.markers,
                ),
            )
        return JSONResponse(answer)

    @router.post("/ack", operation_id="ack", openapi_extra=scopes(Scope.ACKNOWLEDGE))
    async def ack(consumer: ConsumerName, body: AckRequest) -> AckAnswer:
        """Acknowledge everything up to `position` without polling."""
        acknowledged = await daemon.acknowledge(consumer, body.session, body.position.value())
        return AckAnswer.model_validate({"acknowledged": acknowledged})


def _range_routes(router: APIRouter, daemon: ConsumerService, guard: Guard) -> None:
    answers = Slots("answers", guard.limits.answers_max, "api.max_answers_per_consumer")

    @router.post("/slices", operation_id="slices", openapi_extra=scopes(Scope.READ))
    async def slices(consumer: ConsumerName, body: SlicesRequest) -> SlicesAnswer:
        """At most `n` - 1 positions that cut the range (start, end] for reading it in parallel."""
        with answers.hold(consumer):
            cuts = await daemon.slices(
                consumer, body.session, body.start.value(), body.end.value(), body.n
            )
        return SlicesAnswer.model_validate({"cuts": cuts})

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
    async def binlog(consumer: ConsumerName, body: BinlogRequest) -> Response:
        """The range (start, end] as a binlog. Repeatable for any range after the acknowledged position."""
        answers.acquire(consumer)
        try:
            parts = await daemon.binlog(
                consumer, body.session, body.start.value(), body.end.value()
            )
        except BaseException:
            answers.release(consumer)
            raise
        return BinlogAnswer(parts, lambda: answers.release(consumer))

    @router.get("/tables/{name}", operation_id="table", openapi_extra=scopes(Scope.READ))
    async def table(consumer: ConsumerName, name: TableName) -> TableAnswer:
        """Columns and key of one of the consumer's tables, as the server has them now."""
        database, _, table = name.partition(".")
        return TableAnswer.model_validate(await daemon.table(consumer, database, table))


class BinlogAnswer(StreamingResponse):
    """Parts of a binlog, sent as they lie in the queue; `done` is called once, when all are sent or the client went."""

    media_type = "application/octet-stream"

    def __init__(self, parts: list[bytes | memoryview], done: Callable[[], None]) -> None:
        headers = {"Content-Length": str(sum(len(part) for part in parts))}
        super().__init__(_stream(parts), headers=headers)
        self._done = done

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._done()


async def _stream(parts: list[bytes | memoryview]) -> AsyncIterator[bytes | memoryview]:
    """Lets go of each part when it is sent, and in the end of all of them: an answer outlives its sending."""
    parts.reverse()
    sent: bytes | memoryview = b""
    while parts:
        part = parts.pop()
        yield part
        release_pages(sent)  # the one before: this one may not have left yet
        sent = part


async def _while_connected(request: Request, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled when the client closes its connection (ClientDisconnect)."""
    outcome: T | Exception
    try:
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(_raise_when_gone(request.receive))
            try:
                outcome = await work
            except Exception as error:  # noqa: BLE001 - raised again below, outside of the group
                outcome = error
            watch.cancel()
    except* ClientDisconnect:
        raise ClientDisconnect from None
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def _raise_when_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientDisconnect
