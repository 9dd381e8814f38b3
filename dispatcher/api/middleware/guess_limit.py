"""Delays requests of networks that guess tokens; `dispatcher.access.guesses` counts the guesses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from dispatcher.access.guesses import Guesses
from dispatcher.api.connections.disconnects import waiting


class GuessLimit:
    """ASGI middleware. Delays requests of a network that guesses tokens. `is_right`: True for a token of the
    settings."""

    def __init__(self, app: ASGIApp, guesses: Guesses, is_right: Callable[[str], bool]) -> None:
        self._app = app
        self._guesses = guesses
        self._is_right = is_right

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if time.monotonic() < self._guesses.slow_until and scope["type"] == "http":
            await self._wait(scope)
        await self._app(scope, receive, send)

    async def _wait(self, scope: Scope) -> None:
        secret = _secret_of(scope)
        if secret is None and (scope["method"], scope["path"]) != ("POST", "/login"):
            return
        client = scope.get("client")
        wait_s = self._guesses.wait_s(client, secret)
        if not wait_s:
            return
        if secret is not None and self._is_right(secret):
            await asyncio.sleep(wait_s)
            self._guesses.prove(client, secret)
        else:
            with waiting(scope):
                await asyncio.sleep(wait_s)


def _secret_of(scope: Scope) -> str | None:
    """Returns the text after the scheme in the Authorization header."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            return str(value.decode("latin-1").partition(" ")[2].strip())
    return None
