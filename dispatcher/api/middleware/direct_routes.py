"""Answers the calls of a reader's cycle without the framework, whose overhead exceeds the cost of these calls."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dispatcher.api.access.guard import Guard
from dispatcher.api.answers import problems
from dispatcher.api.calls.reader_calls import (
    CONSUMERS,
    READER_ROUTES,
    Call,
    ReaderCalls,
    ReaderRoute,
)
from dispatcher.dispatch.queue.reader import Caller
from dispatcher.model.errors import BinlogError, ErrorKind, UserError

_PREFIX = f"{CONSUMERS}/"
_WANTED = frozenset((b"authorization", b"content-type", b"content-length", b"user-agent"))


class _Headers(NamedTuple):
    """The headers that these calls use. If a header occurs several times, its first value is used. `content_length`: 0
    if the request does not have it."""

    authorization: str | None
    content_type: str
    content_length: int
    user_agent: str


class DirectRoutes:
    """ASGI middleware. Passes all other calls to `app`."""

    def __init__(self, app: ASGIApp, guard: Guard, calls: ReaderCalls) -> None:
        self._app = app
        self._guard = guard
        self._calls = calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route, consumer = _match(scope)
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        try:
            response = await self._answer(route, consumer, scope, receive)
        except BinlogError as error:
            response = problems.problem(error)
        except ClientDisconnect:
            response = problems.disconnected()
        except Exception as error:
            await problems.defect(error)(scope, receive, send)
            raise  # uvicorn logs the exception
        await response(scope, receive, send)

    async def _answer(
        self, route: ReaderRoute, consumer: str, scope: Scope, receive: Receive
    ) -> Response:
        """Raises BinlogError, ClientDisconnect."""
        headers, client = _headers_of(scope), scope.get("client")
        token = self._guard.tokens.identify(headers.authorization, client)
        token.require_consumer(consumer)
        token.require(route.scope)
        bytes_max = self._guard.limits.max_bytes_in_request
        body = await _read(receive, bytes_max) if headers.content_length <= bytes_max else None
        if body is None:
            return problems.refusal(413, f"the body is larger than {bytes_max} bytes")
        if headers.content_type != "application/json":
            raise UserError(ErrorKind.REQUEST, "the Content-Type is not application/json")
        caller = Caller.of(client[0] if client else "", headers.user_agent)
        call = Call(consumer, token, caller, scope, receive)
        try:
            request = route.body.model_validate_json(body)
        except ValidationError as error:
            return problems.invalid(error.errors()[0], "body")
        return await route.answer(self._calls, call, request)


def _match(scope: Scope) -> tuple[ReaderRoute | None, str]:
    """Returns the route, if there is one, and the consumer's name."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return None, ""
    path = scope["path"]
    if not path.startswith(_PREFIX):
        return None, ""
    consumer, _, name = path[len(_PREFIX) :].partition("/")
    return (READER_ROUTES.get(name) if consumer else None), consumer


async def _read(receive: Receive, bytes_max: int) -> bytes | None:
    """Returns the body, None if it is larger than `bytes_max`. Raises ClientDisconnect."""
    parts: list[bytes] = []
    size, more = 0, True
    while more and size <= bytes_max:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
    return b"".join(parts) if size <= bytes_max else None


def _headers_of(scope: Scope) -> _Headers:
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _WANTED:
            found.setdefault(name, value)
    authorization = found.get(b"authorization")
    length = found.get(b"content-length", b"")
    return _Headers(
        None if authorization is None else authorization.decode("latin-1"),
        found.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1"),
        int(length) if length.isdigit() else 0,
        found.get(b"user-agent", b"").decode("latin-1"),
    )
