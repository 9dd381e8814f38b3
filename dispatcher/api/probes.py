"""Answers `/livez` and `/readyz` without the framework: a supervisor asks for them from the start on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

Ready = Callable[[], Sequence[str]]
"""Returns why the daemon is not ready."""

LIVEZ, READYZ = "/livez", "/readyz"
ALIVE = "ok"
_METHODS = frozenset(("GET", "HEAD"))  # the server sends no body for HEAD


class _Route(NamedTuple):
    """`path`: by which requests are counted."""

    path: str


class Probes:
    """ASGI middleware before `app`, which answers all else, such as `/readyz?verbose`."""

    def __init__(self, app: ASGIApp, ready: Ready) -> None:
        self._app = app
        self._ready = ready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in _METHODS or scope["query_string"]:
            await self._app(scope, receive, send)
            return
        if scope["path"] == LIVEZ:
            text, status = ALIVE, 200
        elif scope["path"] == READYZ:
            text, status = readiness(self._ready())
        else:
            await self._app(scope, receive, send)
            return
        scope["route"] = _Route(scope["path"])
        await PlainTextResponse(f"{text}\n", status)(scope, receive, send)


def readiness(reasons: Sequence[str]) -> tuple[str, int]:
    """Returns (a line of text, status)."""
    return ("not ready: " + "; ".join(reasons), 503) if reasons else ("ok", 200)
