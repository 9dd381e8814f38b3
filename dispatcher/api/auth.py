"""Bearer tokens: each has scopes and is for some consumers or for all.

Without any token everything is allowed, which is why the settings refuse to listen beyond loopback then, and why
`dispatcher.api.origin` keeps web pages out.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from dispatcher.model.errors import ErrorKind, UserError


class Scope(StrEnum):
    """What a token allows. None of them includes another."""

    READ = "read"  # read-only sessions, polls, ranges, tables
    ACKNOWLEDGE = "acknowledge"  # open sessions that fence others, move the acknowledged position
    ADMINISTER = "administer"  # change what is stored of a consumer
    METRICS = "metrics"  # GET /metrics, which names all consumers and connections


@dataclass(frozen=True, slots=True)
class Token:
    """`consumers`: the consumers it is for; None = all of them."""

    secret: str = field(repr=False)
    consumers: frozenset[str] | None
    scopes: frozenset[Scope]

    def may_see(self, consumer: str) -> bool:
        return self.consumers is None or consumer in self.consumers

    def require(self, *scopes: Scope) -> None:
        """Raises UserError (FORBIDDEN) unless the token has one of the scopes."""
        if not self.scopes.intersection(scopes):
            names = " or ".join(scopes)
            raise UserError(ErrorKind.FORBIDDEN, f"the token lacks the scope {names}")

    def require_consumer(self, consumer: str) -> None:
        """Raises UserError (UNKNOWN_CONSUMER) if the token is not for the consumer.

        It is the answer for a consumer that does not exist, so a token does not list others' consumers.
        """
        if not self.may_see(consumer):
            raise UserError(ErrorKind.UNKNOWN_CONSUMER, repr(consumer))


EVERYTHING = Token("", None, frozenset(Scope))
"""What each request may do where no tokens are set."""


class Tokens:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tuple(tokens)

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def replace(self, tokens: Sequence[Token]) -> None:
        """Accept these tokens from now on, and no others."""
        self._tokens = tuple(tokens)

    def identify(self, header: str | None) -> Token:
        """The token of an Authorization header. Raises UserError (UNAUTHORIZED) if the settings have no such token."""
        if not self._tokens:
            return EVERYTHING
        scheme, _, secret = (header or "").partition(" ")
        given = secret.strip().encode("utf-8", "surrogateescape")
        found = None
        for token in self._tokens:  # compare all of them, so that the time taken tells nothing
            if hmac.compare_digest(token.secret.encode(), given):
                found = token
        if scheme.lower() != "bearer" or found is None:
            raise UserError(
                ErrorKind.UNAUTHORIZED,
                "no valid bearer token" if header else "a bearer token is needed",
            )
        return found
