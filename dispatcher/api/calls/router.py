"""Answers requests by the table of routes: finds the route, checks the token, reads and validates the body.

The order of the checks: path (404), method (405), token (401), consumer (404), scope (403), size of the body (413), its
type and content (400, 422).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError
from pydantic_core import to_json
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from dispatcher.access.tokens import Token
from dispatcher.api.access.guard import Guard, request_headers
from dispatcher.api.answers import problems
from dispatcher.api.calls.route import Call, Route
from dispatcher.model.errors import BinlogError, ErrorKind, UserError

_PARAMETER = re.compile(r"\{(.*?)\}")
_NO_TOKEN = Token("", frozenset(), frozenset())


@dataclass(slots=True)
class _Node:
    """The routes whose paths have the same beginning. `parts`: the nodes of the next part of the path; `parameter`: the
    node of a part that may be any text; `methods`: the routes of this path; `names`: the parameters of this path."""

    parts: dict[str, _Node] = field(default_factory=dict)
    parameter: _Node | None = None
    methods: dict[str, Route] = field(default_factory=dict)
    names: tuple[str, ...] = ()


_UNKNOWN = _Node()


class Router:
    """The ASGI application of the API."""

    def __init__(self, routes: Iterable[Route], guard: Guard) -> None:
        self._guard = guard
        self._root = _Node()
        for route in routes:
            node = self._root
            for part in route.path.split("/")[1:]:
                if part.startswith("{"):
                    node.parameter = node = node.parameter or _Node()
                else:
                    node = node.parts.setdefault(part, _Node())
            node.methods[route.method] = route
            node.names = tuple(_PARAMETER.findall(route.path))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        (node, values), method = self._find(scope["path"]), scope["method"]
        methods = node.methods
        if method == "HEAD":  # load balancers and monitoring systems send HEAD
            method, send = "GET", _without_body(send)
        route = methods.get(method)
        scope["route"] = route or next(iter(methods.values()), None)
        try:
            if route is not None:
                names = dict(zip(node.names, values, strict=True))
                response = await self._answer(route, names, scope, receive)
            elif methods:
                allowed = {"Allow": ", ".join(methods)}
                response = problems.refusal(405, "Method Not Allowed", allowed)
            else:
                response = problems.refusal(404, "Not Found")
        except BinlogError as error:
            response = problems.problem(error)
        except ClientDisconnect:
            response = problems.disconnected()
        except Exception as error:
            await problems.defect(error)(scope, receive, send)
            raise  # uvicorn logs the exception
        await response(scope, receive, send)

    def _find(self, path: str) -> tuple[_Node, Sequence[str]]:
        """Returns the node of a path, and the values of the parameters in the path."""
        node, values = self._root, []
        for part in path.split("/")[1:]:
            following = node.parts.get(part)
            if following is None:
                if not part or node.parameter is None:
                    return _UNKNOWN, ()
                following = node.parameter
                values.append(part)
            node = following
        return node, values

    async def _answer(
        self, route: Route, names: Mapping[str, str], scope: Scope, receive: Receive
    ) -> Response:
        """Raises BinlogError, ClientDisconnect."""
        headers, token, body = request_headers(scope), _NO_TOKEN, None
        if route.scopes is not None:
            token = self._guard.tokens.identify(headers.authorization, scope.get("client"))
            if "consumer" in names:
                token.require_consumer(names["consumer"])
            if route.scopes:
                token.require(*route.scopes)
            bytes_max = self._guard.limits.max_bytes_in_request
            data = None
            if headers.content_length <= bytes_max:
                data = await read_body(receive, bytes_max)
            if data is None:
                return problems.refusal(413, f"the body is larger than {bytes_max} bytes")
            if route.body is not None:
                if headers.content_type != "application/json":
                    raise UserError(ErrorKind.REQUEST, "the Content-Type is not application/json")
                try:
                    body = route.body.model_validate_json(data)
                except ValidationError as error:
                    return problems.invalid(error.errors()[0], "body")
        answer = await route.answer(Call(names, token, headers, body, scope, receive))
        if isinstance(answer, Response):
            return answer
        return Response(to_json(answer), media_type="application/json")


async def read_body(receive: Receive, bytes_max: int) -> bytes | None:
    """Returns the body, None if it is larger than `bytes_max`. Raises ClientDisconnect.
    `dispatcher.api.connections.protocol` limits the time."""
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


def _without_body(send: Send) -> Send:
    """Returns a `send` that sends the head of an answer only. It discards a body, or a stream."""
    complete = False

    async def send_head(message: Message) -> None:
        nonlocal complete
        if message["type"] == "http.response.start":
            await send(message)
        elif not complete:
            complete = True
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return send_head
