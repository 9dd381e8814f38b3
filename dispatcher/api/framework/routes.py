"""The calls of readers: session, resolve, slices and tables, and the API documents of the calls with direct routes."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request

from dispatcher.access.tokens import Scope
from dispatcher.api.access.guard import Guard, token_of
from dispatcher.api.answers.models import (
    AckAnswer,
    Consumers,
    PollAnswer,
    ResolvedAnswer,
    ResolveRequest,
    SessionAnswer,
    SessionRequest,
    SlicesAnswer,
    SlicesRequest,
    TableAnswer,
)
from dispatcher.api.calls.reader_calls import CONSUMERS, READER_ROUTES, BinlogAnswer, ReaderCalls
from dispatcher.api.connections.limits import Holder
from dispatcher.api.framework.guarded_routes import route_class
from dispatcher.api.framework.openapi import OF_CONSUMER, Responses, linked, problems, scopes
from dispatcher.dispatch.queue.reader import Caller

TABLE_NAME = r"^[^.]{1,64}\.[^/]{1,64}$"
ConsumerName = Annotated[str, Path(description="Name of a consumer.", max_length=64)]
TableName = Annotated[
    str, Path(description="database.table", pattern=TABLE_NAME, examples=["shop.orders"])
]

_RANGE = {
    "session": "$request.body#/session",
    "start": "$request.body#/after",
    "end": "$response.body#/end",
}


def consumer_routes(consumers: Consumers, guard: Guard, calls: ReaderCalls) -> APIRouter:
    """The routes under /v1/consumers/{consumer} that readers call. They share the limits of `calls`."""
    router = APIRouter(
        prefix=f"{CONSUMERS}/{{consumer}}",
        tags=["readers"],
        route_class=route_class(guard),
        responses=problems(*OF_CONSUMER),
    )
    _session_routes(router, consumers, calls)
    _range_routes(router, consumers, calls)
    return router


def _session_routes(router: APIRouter, consumers: Consumers, calls: ReaderCalls) -> None:

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

        The session fences all older sessions: the daemon refuses their calls. A read-only session does not fence other
        sessions and cannot acknowledge. Sessions that are not read-only also need the scope `acknowledge`.
        """
        if not body.read_only:
            token_of(request).require(Scope.ACKNOWLEDGE)
        after = body.after.value() if body.after else None
        daemon = consumers()
        answer = SessionAnswer.model_validate(
            await daemon.open_session(
                consumer, after, body.read_only, unknown_definitions=body.unknown_definitions
            )
        )
        daemon.called(consumer, answer.session, _caller(request))
        return answer

    _document(
        router,
        "poll",
        response_model=PollAnswer,
        responses=linked(
            binlog=_RANGE,
            slices={**_RANGE, "n": 4},
            ack={"session": "$request.body#/session", "position": "$response.body#/end"},
        ),
    )
    _document(
        router,
        "read",
        status_code=200,
        response_class=BinlogAnswer,
        responses=_binary(
            "One line with the answer of `poll`, in JSON, then the binlog of the range"
        ),
    )

    @router.post("/resolve", operation_id="resolve", openapi_extra=scopes(Scope.READ))
    async def resolve(
        consumer: ConsumerName, body: ResolveRequest, request: Request
    ) -> ResolvedAnswer:
        """Return the position of a place in the server's log, at which a session may be opened. Changes nothing.

        The daemon asks the server, and searches the server's log for a time, a file or MariaDB's GTIDs.
        """
        with calls.polls.hold(consumer, Holder.of(token_of(request))):
            position = await consumers().resolve(consumer, body.start)
        return ResolvedAnswer.model_validate({"position": position})

    _document(router, "ack", response_model=AckAnswer)


def _range_routes(router: APIRouter, consumers: Consumers, calls: ReaderCalls) -> None:
    @router.post("/slices", operation_id="slices", openapi_extra=scopes(Scope.READ))
    async def slices(consumer: ConsumerName, body: SlicesRequest, request: Request) -> SlicesAnswer:
        """Return at most `n` - 1 cuts that divide the range (start, end] for parallel reading.

        A cut is a position. With `inside`, a cut may also be a point inside of the transaction that ends at the
        position.
        """
        daemon = consumers()
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

    _document(
        router,
        "binlog",
        status_code=200,
        response_class=BinlogAnswer,
        responses=_binary("A binlog file"),
    )

    @router.get("/tables/{name}", operation_id="table", openapi_extra=scopes(Scope.READ))
    async def table(consumer: ConsumerName, name: TableName) -> TableAnswer:
        """Return the current columns and key of one of the consumer's tables."""
        database, _, table = name.partition(".")
        return TableAnswer.model_validate(await consumers().table(consumer, database, table))


def _binary(description: str) -> Responses:
    schema = {"type": "string", "format": "binary"}
    content = {"application/octet-stream": {"schema": schema}}
    return {200: {"description": description, "content": content}}


def _document(router: APIRouter, name: str, **documented: Any) -> None:
    """Add a route that `DirectRoutes` answers, so that FastAPI describes it and refuses methods other than POST."""
    route = READER_ROUTES[name]

    async def endpoint(consumer: ConsumerName, body: Any) -> None: ...

    endpoint.__annotations__["body"] = route.body
    router.add_api_route(
        f"/{name}",
        endpoint,
        methods=["POST"],
        name=name,
        operation_id=name,
        description=inspect.getdoc(route.answer),
        openapi_extra=scopes(route.scope),
        **documented,
    )


def _caller(request: Request) -> Caller:
    address = request.client.host if request.client else ""
    return Caller.of(address, request.headers.get("user-agent", ""))
