"""A route of the API, with its documentation, and one request to a route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel
from starlette.requests import Request
from starlette.types import Receive, Scope

from dispatcher.access.tokens import Scope as TokenScope
from dispatcher.access.tokens import Token
from dispatcher.api.access.guard import Headers
from dispatcher.dispatch.queue.reader import Caller

CONSUMERS = "/v1/consumers"
CONSUMER = f"{CONSUMERS}/{{consumer}}"

# Statuses that any request can get before a route handles it.
EVERY = (400, 403, 408, 431, 500, 503)
GUARDED = (*EVERY, 401, 413, 422, 429)
OF_CONSUMER = (*GUARDED, 404, 409, 410)

Json = dict[str, Any]


class Call(NamedTuple):
    """One request to a route. `names`: the parameters of its path; `token`: permits nothing if the route checks the
    token itself; `body`: an instance of the route's `body`; `scope`, `receive`: the arguments of the ASGI application.
    """

    names: Mapping[str, str]
    token: Token
    headers: Headers
    body: Any
    scope: Scope
    receive: Receive

    @property
    def consumer(self) -> str:
        return self.names["consumer"]

    @property
    def caller(self) -> Caller:
        client = self.scope.get("client")
        return Caller.of(client[0] if client else "", self.headers.user_agent)

    @property
    def request(self) -> Request:
        return Request(self.scope, self.receive)


@dataclass(frozen=True, slots=True)
class Documented:
    """What the OpenAPI document says of a route. `returns`: the model of the answer, or the response in OpenAPI's form;
    `problems`: the statuses of its problem documents; `links`: the bodies of the next calls, by operation, as runtime
    expressions; `query`: the parameters of the query, with their meaning; `more`: further responses, by status."""

    tag: str
    returns: Any
    problems: Sequence[int]
    links: Mapping[str, Json] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[int, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Route:
    """`path`: the template of the path, which is also the label `route` of the metrics; `answer`: returns a response,
    or a value that is sent as JSON; the OpenAPI document contains the docstring of `answer`; `scopes`: the token must
    have at least one of these scopes ((): any token), None if `answer` checks the token; `body`: the model of the
    request's body."""

    method: str
    path: str
    answer: Callable[[Call], Awaitable[Any]]
    scopes: Sequence[TokenScope] | None = None
    body: type[BaseModel] | None = None
    documented: Documented | None = None


def text_answer(
    description: str = "Successful Response", media_type: str = "text/plain", **schema: str
) -> Json:
    """A response of OpenAPI whose body is not JSON."""
    return {
        "description": description,
        "content": {media_type: {"schema": {"type": "string", **schema}}},
    }
