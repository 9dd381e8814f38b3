"""Logins of browsers: the browser sends a token once in a form, and gets a random number in a cookie for it.

The token itself is in no cookie and in no URL. The cookie is HttpOnly, so scripts cannot read it, and SameSite=Strict,
so pages of other sites cannot send it. The cookie gives access only to calls that read. The daemon stores hashes of the
numbers, in memory only. So a restart of the daemon ends all logins. Removing a token from the settings ends the logins
of this token.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import dataclass, field

from starlette.requests import Request

from dispatcher.access.tokens import Client, Scope, Token, Tokens
from dispatcher.model.errors import ErrorKind, UserError

LOGIN_S = 12 * 3600
LOGINS_MAX = 1000
LOGIN_REMEDY = "enter a token of api.tokens in the daemon's settings"
VIEW_SCOPES = (Scope.READ, Scope.METRICS)
"""A viewer's token must have one of these scopes. GET /v1/binlogs requires the same scopes."""


def cookie_name(request: Request) -> str:
    """Returns the cookie's name. The name contains the port, because browsers share cookies between the ports of a host
    name, and two daemons may have the same host name."""
    url = request.url
    return f"binlog-dispatcher-{url.port or (443 if url.scheme == 'https' else 80)}"


@dataclass(frozen=True, slots=True)
class _Login:
    secret: str = field(repr=False)  # the secret of the token
    ends_at: float


class Logins:
    """All logins, at most `LOGINS_MAX`. A further login ends the oldest login."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._logins: dict[bytes, _Login] = {}  # by hash of the number, oldest first

    def open(self, secret: str, now: float | None = None, client: Client = None) -> str:
        """Exchange a token that `client` has sent for a new number. Raises UserError (UNAUTHORIZED, FORBIDDEN)."""
        token = self._tokens.find(secret)
        if token is None:
            self._tokens.wrong(client)
            raise UserError(ErrorKind.UNAUTHORIZED, "the token is not valid", remedy=LOGIN_REMEDY)
        token.require(*VIEW_SCOPES)
        now = time.monotonic() if now is None else now
        self._forget_ended(now)
        while len(self._logins) >= LOGINS_MAX:
            del self._logins[next(iter(self._logins))]
        number = secrets.token_urlsafe(32)
        self._logins[_hash(number)] = _Login(token.secret, now + LOGIN_S)
        return number

    def identify(self, number: str, now: float | None = None) -> Token:
        """Returns the token of a login. Raises UserError (UNAUTHORIZED)."""
        login = self._logins.get(_hash(number))
        now = time.monotonic() if now is None else now
        # The settings may have removed the token, or changed its consumers.
        token = None if login is None or now >= login.ends_at else self._tokens.find(login.secret)
        if token is None:
            raise UserError(ErrorKind.UNAUTHORIZED, "the login has ended", remedy="log in again")
        return token

    def close(self, number: str) -> None:
        self._logins.pop(_hash(number), None)

    def _forget_ended(self, now: float) -> None:
        for key in [key for key, login in self._logins.items() if now >= login.ends_at]:
            del self._logins[key]


def _hash(number: str) -> bytes:
    """Returns the key of a login. The time of a look-up by a hash reveals nothing about the number."""
    return hashlib.sha256(number.encode("utf-8", "surrogateescape")).digest()
