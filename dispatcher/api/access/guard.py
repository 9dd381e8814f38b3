"""Checks the token and the size of a request before the framework reads its body."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.exceptions import HTTPException
from starlette.requests import Request

from dispatcher.access.tokens import Scope, Token, Tokens
from dispatcher.api.access.logins import Logins, cookie_name
from dispatcher.settings.api import ApiLimitSettings


class _BoundedRequest(Request):
    """A request that raises HTTPException (413) as soon as the received part of its body exceeds `bytes_max`."""

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
        raise HTTPException(413, f"the body is larger than {self.bytes_max} bytes")


class Guard:
    """Checks the tokens of requests. `open_`: the parts of the API that need no token (`metrics`, `docs`, `readyz`)."""

    def __init__(self, tokens: Tokens, limits: ApiLimitSettings, open_: frozenset[str]) -> None:
        self.tokens = tokens
        self.logins = Logins(tokens)
        self.limits = limits
        self.open = open_

    def is_open(self, name: str) -> bool:
        return name in self.open or not self.tokens

    def identify(self, request: Request) -> Token:
        """Returns the request's token. Raises UserError (UNAUTHORIZED)."""
        header = request.headers.get("authorization")
        return self.tokens.identify(header, request.scope.get("client"))

    def identify_viewer(self, request: Request) -> Token:
        """Returns the token of a request that only reads: from its Authorization header, else from its login.

        Raises UserError (UNAUTHORIZED). Calls that change anything use `identify` instead, because a browser adds the
        cookie of a login to requests that another site causes.
        """
        login = request.cookies.get(cookie_name(request))
        if login is None or "authorization" in request.headers:
            return self.identify(request)
        return self.logins.identify(login)

    async def admit(self, request: Request, scopes: tuple[Scope, ...]) -> Request:
        """Check the token and read the body. Raises UserError, or HTTPException for a body that is too large."""
        token = self.identify(request)
        if (consumer := request.path_params.get("consumer")) is not None:
            token.require_consumer(consumer)
        if scopes:
            token.require(*scopes)
        bounded = _BoundedRequest(request.scope, request.receive)
        bounded.bytes_max = self.limits.max_bytes_in_request
        bounded.state.token = token
        await bounded.body()  # `dispatcher.api.connections.protocol` limits the time
        return bounded


def token_of(request: Request) -> Token:
    """The token of a request to a guarded route."""
    token: Token = request.state.token
    return token
