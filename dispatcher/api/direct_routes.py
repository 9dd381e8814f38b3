"""Answers the calls of a reader's cycle without the framework: poll, read, binlog, ack.

Routing, dependencies and answers of FastAPI cost more than these calls do. A request that is not plainly one of them
(another path or method, a body that is too large, not JSON or not valid) is passed on to FastAPI, which has the same
routes: it documents them, and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dispatcher.api import auth, problems
from dispatcher.api.guard import Guard
from dispatcher.api.models import AckRequest, PollRequest, RangeRequest
from dispatcher.api.reader_calls import Call, ReaderCalls
from dispatcher.dispatch.reader import Caller
from dispatcher.model.errors import BinlogError

PREFIX = "/v1/consumers/"
_NAME_MAX = 64  # characters of a consumer's name
_WANTED = frozenset((b"authorization", b"content-type", b"content-length", b"user-agent"))


@dataclass(frozen=True, slots=True)
class _Route:
    """`path`: the template, by which requests are counted."""

    path: str
    body: type[BaseModel]
    scope: auth.Scope
    make: Callable[[Call, Any], Awaitable[Response]]


class _Headers(NamedTuple):
    """The headers that matter, of several with one name the first. `content_length`: 0 if it is not announced."""

    authorization: str | None
    is_json: bool
    content_length: int
    user_agent: str


class DirectRoutes:
    """ASGI middleware before `app`, the framework."""

    def __init__(self, app: ASGIApp, guard: Guard, calls: ReaderCalls) -> None:
        self._app = app
        self._guard = guard
        read, acknowledge = auth.Scope.READ, auth.Scope.ACKNOWLEDGE
        routes: dict[str, tuple[type[BaseModel], auth.Scope, Callable[..., Awaitable[Response]]]]
        routes = {
            "poll": (PollRequest, read, calls.poll),
            "read": (PollRequest, read, calls.read),
            "binlog": (RangeRequest, read, calls.binlog),
            "ack": (AckRequest, acknowledge, calls.ack),
        }
        self._routes = {
            name: _Route(f"{PREFIX}{{consumer}}/{name}", *route) for name, route in routes.items()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route, consumer = self._match(scope)
        if route is None:
            await self._app(scope, receive, send)
            return
        headers = _headers_of(scope)
        try:
            token = self._guard.tokens.identify(headers.authorization, scope.get("client"))
            token.require_consumer(consumer)
            token.require(route.scope)
        except BinlogError as error:
            scope["route"] = route
            await problems.problem(error)(scope, receive, send)
            return
        bytes_max = self._guard.limits.max_bytes_in_request
        if headers.is_json and headers.content_length <= bytes_max:
            try:
                body, more = await _read(receive, bytes_max)
            except ClientDisconnect:
                scope["route"] = route
                await problems.disconnected()(scope, receive, send)
                return
            request = None if more else _parsed(route.body, body)
            if request is not None:
                scope["route"] = route
                call = Call(consumer, token, _caller(scope, headers), scope, receive)
                await _answer(route.make(call, request), scope, receive, send)
                return
            receive = _again(body, receive, more=more)
        await self._app(scope, receive, send)

    def _match(self, scope: Scope) -> tuple[_Route | None, str]:
        """Returns the route, if there is one, and the consumer's name."""
        if scope["type"] != "http" or scope["method"] != "POST":
            return None, ""
        path = scope["path"]
        if not path.startswith(PREFIX):
            return None, ""
        consumer, _, name = path[len(PREFIX) :].partition("/")
        return (self._routes.get(name) if 0 < len(consumer) <= _NAME_MAX else None), consumer


async def _answer(made: Awaitable[Response], scope: Scope, receive: Receive, send: Send) -> None:
    try:
        response = await made
    except BinlogError as error:
        response = problems.problem(error)
    except ClientDisconnect:
        response = problems.disconnected()
    except Exception as error:
        await problems.defect(error)(scope, receive, send)
        raise  # the server logs it
    await response(scope, receive, send)


def _headers_of(scope: Scope) -> _Headers:
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _WANTED:
            found.setdefault(name, value)
    authorization = found.get(b"authorization")
    length = found.get(b"content-length", b"")
    return _Headers(
        None if authorization is None else authorization.decode("latin-1"),
        found.get(b"content-type", b"").partition(b";")[0] == b"application/json",
        int(length) if length.isdigit() else 0,
        found.get(b"user-agent", b"").decode("latin-1"),
    )


def _caller(scope: Scope, headers: _Headers) -> Caller:
    client = scope.get("client")
    return Caller.of(client[0] if client else "", headers.user_agent)


async def _read(receive: Receive, bytes_max: int) -> tuple[bytes, bool]:
    """Returns the body, and whether more follows: then it is larger than `bytes_max`. Raises ClientDisconnect."""
    message = await _part(receive)
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        return body, len(body) > bytes_max
    parts, size = [body], len(body)
    while size <= bytes_max:
        message = await _part(receive)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if not message.get("more_body", False):
            break
    return b"".join(parts), size > bytes_max


async def _part(receive: Receive) -> Message:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message


def _parsed(model: type[BaseModel], body: bytes) -> BaseModel | None:
    """The request; None if the body is not JSON, or not valid."""
    try:
        return model.model_validate_json(body)
    except ValidationError:
        return None


def _again(body: bytes, receive: Receive, *, more: bool) -> Receive:
    """A `receive` that begins with what was received already."""
    received: list[Message] = [{"type": "http.request", "body": body, "more_body": more}]

    async def again() -> Message:
        return received.pop() if received else await receive()

    return again
