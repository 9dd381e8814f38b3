"""Looks at a request's token, and at how large its body is, before the framework reads a byte of the body."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from dispatcher.api.auth import Scope, Token, Tokens
from dispatcher.api.limits import Limits

SCOPES = "x-scopes"
"""Key of a route's `openapi_extra`: the scopes of which a token must have one; [] = any token will do."""


class _BoundedRequest(Request):
    """Ends in 413 when more than `bytes_max` of the body have come."""

    bytes_max = 0

    async def stream(self) -> AsyncGenerator[bytes]:
        announced = self.headers.get("content-length", "")
        received = int(announced) if announced.isdigit() else 0
        if received <= self.bytes_max:
            received = 0
            async for chunk in super().stream():
                received += len(chunk)
                if received > self.bytes_max:
                    break
                yield chunk
            else:
                return
        raise HTTPException(413, f"the body has more than {self.bytes_max} bytes")


class Guard:
    """`tokens`: of the settings; `open_`: names of what needs no token (`metrics`, `docs`, `readyz`)."""

    def __init__(self, tokens: Tokens, limits: Limits, open_: frozenset[str]) -> None:
        self.tokens = tokens
        self.limits = limits
        self.open = open_

    def is_open(self, name: str) -> bool:
        return name in self.open or not self.tokens

    def identify(self, request: Request) -> Token:
        """Raises UserError (UNAUTHORIZED)."""
        return self.tokens.identify(request.headers.get("authorization"))

    async def admit(self, request: Request, scopes: tuple[Scope, ...]) -> Request:
        """The request with its body read. Raises UserError or HTTPException; the body is not read then."""
        token = self.identify(request)
        if (consumer := request.path_params.get("consumer")) is not None:
            token.require_consumer(consumer)
        if scopes:
            token.require(*scopes)
        bounded = _BoundedRequest(request.scope, request.receive)
        bounded.bytes_max = self.limits.request_bytes_max
        bounded.state.token = token
        await bounded.body()  # `dispatcher.api.protocol` limits how long it may take
        return bounded

    def route_class(self) -> type[APIRoute]:
        """Routes that are guarded: those whose `openapi_extra` names `SCOPES`."""
        guard = self

        class GuardedRoute(APIRoute):
            def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
                handle = super().get_route_handler()
                extra = self.openapi_extra or {}
                if SCOPES not in extra:
                    return handle
                scopes = tuple(Scope(name) for name in extra[SCOPES])

                async def guarded(request: Request) -> Response:
                    return await handle(await guard.admit(request, scopes))

                return guarded

        return GuardedRoute


def token_of(request: Request) -> Token:
    """The token of a request that a guarded route admitted."""
    token: Token = request.state.token
    return token
