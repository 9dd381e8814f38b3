"""Bearer tokens, each for some consumers or for all.

Without any token everything is allowed, which is why the settings refuse to listen beyond loopback then.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from dispatcher.model.errors import Kind, UserError


@dataclass(frozen=True, slots=True)
class Token:
    """`consumers`: whom it may read; None = all of them."""

    secret: str = field(repr=False)
    consumers: frozenset[str] | None


class Tokens:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tuple(tokens)

    def replace(self, tokens: Sequence[Token]) -> None:
        """From now on these open, and no others."""
        self._tokens = tuple(tokens)

    def allowed(self, header: str | None) -> frozenset[str] | None:
        """The consumers that an Authorization header opens, None = all. Raises UserError (UNAUTHORIZED)."""
        if not self._tokens:
            return None
        scheme, _, secret = (header or "").partition(" ")
        given = secret.strip().encode()
        found = None
        for token in self._tokens:  # all of them, always: the time taken tells nothing
            if hmac.compare_digest(token.secret.encode(), given):
                found = token
        if scheme.lower() != "bearer" or found is None:
            raise UserError(
                Kind.UNAUTHORIZED, "no valid bearer token" if header else "a bearer token is needed"
            )
        return found.consumers

    def check(self, header: str | None, consumer: str) -> None:
        allowed = self.allowed(header)
        if allowed is not None and consumer not in allowed:
            # The same answer as for a consumer that does not exist: a token does not list others' consumers.
            raise UserError(Kind.UNKNOWN_CONSUMER, repr(consumer))
