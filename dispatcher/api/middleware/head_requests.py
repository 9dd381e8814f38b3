"""Answers HEAD as GET, without the body: load balancers and monitoring systems send HEAD."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadRequests:
    """ASGI middleware for an `app` whose routes do not answer HEAD."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        complete = False

        async def send_head(message: Message) -> None:
            nonlocal complete
            if message["type"] == "http.response.start":
                await send(message)
            elif not complete:  # a body, or a stream, is discarded
                complete = True
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        as_get = {**scope, "method": "GET"}
        try:
            await self._app(as_get, receive, send_head)
        finally:
            if "route" in as_get:
                scope["route"] = as_get["route"]
