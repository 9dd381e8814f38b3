"""Requests are counted by the template of their route and the class of their status."""

from __future__ import annotations

import pytest
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message

from dispatcher.access.tokens import Tokens
from dispatcher.api.access.guard import Guard
from dispatcher.api.calls.route import Call, Route
from dispatcher.api.calls.router import Router
from dispatcher.api.middleware.requests import ABORTED, UNMATCHED, RequestTimer
from dispatcher.model.timings import RequestTimings
from dispatcher.settings.api import ApiLimitSettings


@pytest.fixture
def timings() -> RequestTimings:
    return RequestTimings()


def routes() -> Router:
    async def consumer(call: Call) -> Response:
        name = call.names["name"]
        if name == "gone":
            raise ConnectionError(name)
        return PlainTextResponse(name, 200 if name == "shop" else 410)

    guard = Guard(Tokens(()), ApiLimitSettings(), frozenset())
    return Router([Route("GET", "/v1/consumers/{name}", consumer)], guard)


async def ask(app: ASGIApp, path: str) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: Message) -> None: ...

    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
    await app(scope, receive, send)


async def test_paths_are_no_labels(timings: RequestTimings) -> None:
    app = RequestTimer(routes(), timings)
    for path in ("shop", "billing", "audit", "no/such/path"):
        await ask(app, f"/v1/consumers/{path}")
    counts = {key: durations.cumulative()[-1] for key, durations in timings.series.items()}
    template = "/v1/consumers/{name}"
    assert counts == {(template, "2xx"): 1, (template, "4xx"): 2, (UNMATCHED, "4xx"): 1}


async def test_a_request_without_an_answer(timings: RequestTimings) -> None:
    async def gone(*_: object) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await ask(RequestTimer(gone, timings), "/")
    assert list(timings.series) == [(UNMATCHED, ABORTED)]
