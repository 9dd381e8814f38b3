"""Times requests by the template of their route and the class of their status.

A request that the protocol refuses (headers too large or too slow, too many connections) does not reach this module.
"""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dispatcher.model.timings import RequestTimings

UNMATCHED = "unmatched"
"""The label of requests that no route matches. Their paths can be any text, so paths are not used as labels."""
ABORTED = "aborted"
"""Status of requests whose client disconnected before the answer began."""


class RequestTimer:
    """The outermost ASGI middleware: it times each request, with the time of all other middleware."""

    def __init__(self, app: ASGIApp, timings: RequestTimings) -> None:
        self._app = app
        self._timings = timings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), ABORTED

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = f"{message['status'] // 100}xx"
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            route = getattr(scope.get("route"), "path", UNMATCHED)
            self._timings.add(route, status, time.monotonic() - began)
