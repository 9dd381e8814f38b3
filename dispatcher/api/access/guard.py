"""The headers and the token of a request, and the parts of the API that need no token."""

from __future__ import annotations

from typing import NamedTuple

from starlette.requests import Request
from starlette.types import Scope

from dispatcher.access.tokens import Token, Tokens
from dispatcher.api.access.logins import Logins, cookie_name
from dispatcher.settings.api import ApiLimitSettings

_WANTED = frozenset((b"authorization", b"content-type", b"content-length", b"user-agent"))


class Headers(NamedTuple):
    """The headers that every call uses. If a header occurs several times, its first value is used. `content_length`: 0
    if the request does not have it."""

    authorization: str | None
    content_type: str
    content_length: int
    user_agent: str


def request_headers(scope: Scope) -> Headers:
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _WANTED:
            found.setdefault(name, value)
    authorization = found.get(b"authorization")
    length = found.get(b"content-length", b"")
    return Headers(
        None if authorization is None else authorization.decode("latin-1"),
        found.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1"),
        int(length) if length.isdigit() else 0,
        found.get(b"user-agent", b"").decode("latin-1"),
    )


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
