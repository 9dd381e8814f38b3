"""The calls of readers: session, poll, read, resolve, ack, slices, binlog, tables."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from dispatcher.api.auth import Scope
from dispatcher.api.guard import Guard, token_of
from dispatcher.api.guarded_routes import route_class
from dispatcher.api.limits import Holder
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
from dispatcher.api.openapi import OF_CONSUMER, Responses, linked, problems, scopes
from dispatcher.api.reader_calls import BinlogAnswer, Call, ReaderCalls
from dispatcher.dispatch.reader import Caller

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


def consumer_routes(daemon: ConsumerService, guard: Guard, calls: ReaderCalls) -> APIRouter:
    """The routes under /v1/consumers/{consumer} that readers call. `calls`: those that have direct routes, too."""
    router = APIRouter(
        prefix="/v1/consumers/{consumer}",
        tags=["readers"],
        route_class=route_class(guard),
        responses=problems(*OF_CONSUMER),
    )
    _session_routes(router, daemon, calls)
    _range_routes(router, daemon, calls)
    return router


def _session_routes(router: APIRouter, daemon: ConsumerService, calls: ReaderCalls) -> None:

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
        return await calls.poll(_call(consumer, request), body)

    @router.post(
        "/read",
        operation_id="read",
        status_code=200,
        response_class=BinlogAnswer,
        openapi_extra=scopes(Scope.READ),
        responses=_binary(
            "One line with the answer of `poll`, in JSON, then the binlog of the range"
        ),
    )
    async def read(consumer: ConsumerName, body: PollRequest, request: Request) -> Response:
        """Do what `poll` does, and return its answer as one line of JSON, with the range's binlog behind the line feed.

        Without transactions the binlog is empty. The range is acknowledged by the next `read` or `poll`.
        """
        return await calls.read(_call(consumer, request), body)

    @router.post("/resolve", operation_id="resolve", openapi_extra=scopes(Scope.READ))
    async def resolve(
        consumer: ConsumerName, body: ResolveRequest, request: Request
    ) -> ResolvedAnswer:
        """Return the position of a place in the server's log, at which a session may be opened. Changes nothing.

        The server is asked, and a time, a file or MariaDB's GTIDs are searched for in its log.
        """
        with calls.polls.hold(consumer, Holder.of(token_of(request))):
            position = await daemon.resolve(consumer, body.start)
        return ResolvedAnswer.model_validate({"position": position})

    @router.post(
        "/ack",
        operation_id="ack",
        response_model=AckAnswer,
        openapi_extra=scopes(Scope.ACKNOWLEDGE),
    )
    async def ack(consumer: ConsumerName, body: AckRequest, request: Request) -> Response:
        """Acknowledge everything up to `position` without polling."""
        return await calls.ack(_call(consumer, request), body)


def _range_routes(router: APIRouter, daemon: ConsumerService, calls: ReaderCalls) -> None:
    @router.post("/slices", operation_id="slices", openapi_extra=scopes(Scope.READ))
    async def slices(consumer: ConsumerName, body: SlicesRequest, request: Request) -> SlicesAnswer:
        """Return at most `n` - 1 cuts that divide the range (start, end] for parallel reading.

        A cut is a position or, with `inside`, also a point inside of the transaction that ends at a position.
        """
        daemon.called(consumer, body.session, _caller(request))
        holder = Holder.of(token_of(request), body.session)
        with calls.answers.hold(consumer, holder, body.session):
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
        responses=_binary("A binlog file"),
    )
    async def binlog(consumer: ConsumerName, body: RangeRequest, request: Request) -> Response:
        """Return the range (start, end] as a binlog file. Repeatable for any range after the acknowledged position.

        `start_event` and `end_event` are points of `slices` inside of the transactions that end at `start` and `end`.
        The header `Binlog-Gap: true` says that the server had purged part of the range, which is missing.
        """
        return await calls.binlog(_call(consumer, request), body)

    @router.get("/tables/{name}", operation_id="table", openapi_extra=scopes(Scope.READ))
    async def table(consumer: ConsumerName, name: TableName) -> TableAnswer:
        """Return the current columns and key of one of the consumer's tables."""
        database, _, table = name.partition(".")
        return TableAnswer.model_validate(await daemon.table(consumer, database, table))


def _binary(description: str) -> Responses:
    schema = {"type": "string", "format": "binary"}
    content = {"application/octet-stream": {"schema": schema}}
    return {200: {"description": description, "content": content}}


def _call(consumer: str, request: Request) -> Call:
    return Call(consumer, token_of(request), _caller(request), request.scope, request.receive)


def _caller(request: Request) -> Caller:
    address = request.client.host if request.client else ""
    return Caller.of(address, request.headers.get("user-agent", ""))
