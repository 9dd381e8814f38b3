"""Bearer tokens. Each token has scopes, and is valid for some consumers or for all.

Without tokens every request is allowed. Therefore, without tokens, the settings let the daemon listen only on loopback
addresses, and `dispatcher.api.middleware.origin` refuses requests of other web pages.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from dispatcher.model.errors import ErrorKind, UserError

Client = tuple[str, int] | None
"""The client of an ASGI scope: (address, port), None if it is not known."""


class Scope(StrEnum):
    """What a token allows. No scope includes another."""

    READ = "read"  # read-only sessions, polls, ranges, tables
    ACKNOWLEDGE = "acknowledge"  # sessions that fence others, acknowledgements
    ADMINISTER = "administer"  # forget, seek, pause and resume
    METRICS = "metrics"  # GET /metrics, which shows all consumers and connections
    DECLARE = (
        "declare"  # the token may declare consumers, and remove the consumers that it has declared
    )


Owners = Callable[[], Mapping[str, str] | None]
"""Returns the name of the token that has declared each declared consumer; None on a standby, which does not know the
declared consumers."""


def no_owners() -> Mapping[str, str]:
    """Returns no owners, for a daemon in which no consumer is declared."""
    return {}


@dataclass(frozen=True, slots=True)
class Token:
    """`consumers`: the consumers of the settings for which the token is valid; None = all. `name`: the holder's name,
    "" if there is none. The token is also valid for the consumers that were declared under this name. `sources`: the
    sources in which the token may declare consumers; None = all."""

    secret: str = field(repr=False)
    consumers: frozenset[str] | None
    scopes: frozenset[Scope]
    name: str = ""
    sources: frozenset[str] | None = frozenset()
    owners: Owners = field(default=no_owners, repr=False, compare=False)

    def may_see(self, consumer: str) -> bool:
        return self._is_named(consumer) or self._owns(consumer)

    def _owns(self, consumer: str) -> bool:
        if not self.name:
            return False
        owners = self.owners()
        # A standby does not know the declared consumers. This does no harm, because a standby refuses all calls of
        # readers.
        return owners is None or owners.get(consumer) == self.name

    def may_see_past(self, consumer: str) -> bool:
        """True if the token may see what happened to the consumer. Unlike `may_see`, this is False on a standby for a
        consumer that may have been declared by another token."""
        return self.may_see(consumer) if self.owners() is not None else self._is_named(consumer)

    def _is_named(self, consumer: str) -> bool:
        return self.consumers is None or consumer in self.consumers

    def require(self, *scopes: Scope) -> None:
        """Raises UserError (FORBIDDEN) unless the token has at least one of the scopes."""
        if not self.scopes.intersection(scopes):
            names = " or ".join(scopes)
            raise UserError(ErrorKind.FORBIDDEN, f"the token does not have the scope {names}")

    def require_consumer(self, consumer: str) -> None:
        """Raises UserError (UNKNOWN_CONSUMER) unless the token is valid for the consumer.

        The error is the same as for an unknown consumer, so that a token does not reveal the names of other consumers.
        """
        if not self.may_see(consumer):
            raise UserError(ErrorKind.UNKNOWN_CONSUMER, repr(consumer))


EVERYTHING = Token("", None, frozenset(Scope), sources=None)
"""The token of every request if the settings have no tokens."""


class Tokens:
    """The accepted tokens. A token is looked up by a keyed digest, so the time of a look-up reveals nothing about the
    token and does not depend on the number of tokens."""

    def __init__(
        self,
        tokens: Sequence[Token],
        wrong: Callable[[Client], None] = lambda _client: None,
        owners: Owners = no_owners,
    ) -> None:
        """`wrong` is called with each client that sends a wrong token."""
        self.wrong = wrong
        self._owners = owners
        self._key = secrets.token_bytes(hashlib.blake2b.MAX_KEY_SIZE)
        self.replace(tokens)

    def __bool__(self) -> bool:
        return bool(self._by_digest)

    def replace(self, tokens: Sequence[Token]) -> None:
        """Accept only these tokens from now on."""
        self._by_digest = {
            self._digest(token.secret.encode()): replace(token, owners=self._owners)
            for token in tokens
        }

    def identify(self, header: str | None, client: Client = None) -> Token:
        """Returns the token of the Authorization header that `client` has sent.

        Raises UserError (UNAUTHORIZED) if the settings have no such token.
        """
        if not self._by_digest:
            return EVERYTHING
        scheme, _, secret = (header or "").partition(" ")
        token = self.find(secret.strip())
        if scheme.lower() != "bearer" or token is None:
            if secret:
                self.wrong(client)
            what = "the bearer token is not valid" if header else "a bearer token is required"
            raise UserError(ErrorKind.UNAUTHORIZED, what)
        return token

    def of(self, consumer: str) -> list[Token]:
        """The tokens that are valid for a consumer."""
        return [token for token in self._by_digest.values() if token.may_see(consumer)]

    def find(self, secret: str) -> Token | None:
        """The token with this secret, if the settings have one."""
        return self._by_digest.get(self._digest(secret.encode("utf-8", "surrogateescape")))

    def _digest(self, secret: bytes) -> bytes:
        return hashlib.blake2b(secret, key=self._key).digest()
