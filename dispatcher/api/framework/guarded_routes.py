"""FastAPI's routes that check the token before the body of a request is read."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from dispatcher.access.tokens import Scope
from dispatcher.api.access.guard import Guard

SCOPES = "x-scopes"
"""Key in a route's `openapi_extra`: the token must have one of these scopes; [] = any token."""


def route_class(guard: Guard) -> type[APIRoute]:
    """A route class that guards the routes whose `openapi_extra` contains `SCOPES`."""

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
