"""The limits of the API that no setting changes, and a counter of open requests. The section `api` of the settings has
the API's other limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from dispatcher.access.tokens import Token
from dispatcher.model.errors import ErrorKind, UserError

Key = TypeVar("Key")

HEADER_BYTES_MAX = 1 << 15  # request line and headers of a request
HEADERS_MAX = 100  # per request
PIPELINED_MAX = 16  # requests of a connection that wait while an earlier request is processed
LINGER_BYTES_MAX = 1 << 22  # limit of a body that still arrives after its request was answered
TLS_CLOSE_S = 1.0  # how long a closed TLS connection waits until its client closes it, too


class Holder(NamedTuple):
    """`Slots` counts open requests with equal holders together. One holder stands for the requests of one token with a
    session; another holder stands for the requests of this token without a session (read-only)."""

    token: str  # the secret of the token
    reads_only: bool = True

    @classmethod
    def of(cls, token: Token, session: int = 0) -> Holder:
        return cls(token.secret, not session)


class _Reserved(NamedTuple):
    """The holder of the slot that is reserved for the newest session of a consumer."""

    session: int


Slot = tuple[str, Holder | _Reserved]


class Slots:
    """Counts the open requests of one kind, for each consumer and holder, and refuses a request above the limit.

    A consumer has twice `maximum` slots. A holder may take a slot if it has fewer than `maximum` slots, and fewer slots
    than are free for the consumer. So one holder cannot take all slots, and each further holder can take half of the
    slots that the earlier holders have left. One further slot of each consumer is reserved for the consumer's newest
    session.
    """

    def __init__(
        self,
        kind: str,
        maximum: int,
        setting: str,
        is_newest: Callable[[str, int], bool] = lambda _consumer, _session: False,
    ) -> None:
        """`kind`: the plural noun in messages; `setting`: the key that sets the limit; `is_newest`: True for the newest
        session of a consumer."""
        self._kind = kind
        self._setting = setting
        self._is_newest = is_newest
        self.maximum = maximum
        self._held: dict[Slot, int] = {}
        self._all: dict[str, int] = {}  # open requests by consumer

    def open(self, consumer: str) -> int:
        return self._all.get(consumer, 0)

    def has_room(self, consumer: str, holder: Holder) -> bool:
        held = self._held.get((consumer, holder), 0)
        return held < self.maximum and held + self.open(consumer) < 2 * self.maximum

    def acquire(self, consumer: str, holder: Holder, session: int = 0) -> Slot:
        """Count one more request. The caller must pass the result to `release`. Raises UserError
        (TOO_MANY_REQUESTS)."""
        slot: Slot = consumer, holder
        if not self.has_room(consumer, holder):
            slot = consumer, _Reserved(session)
            if slot in self._held or not self._is_newest(consumer, session):
                raise self._refusal(consumer, holder)
        self._held[slot] = self._held.get(slot, 0) + 1
        self._all[consumer] = self._all.get(consumer, 0) + 1
        return slot

    def _refusal(self, consumer: str, holder: Holder) -> UserError:
        held = self._held.get((consumer, holder), 0)
        which = " without a session" if holder.reads_only else " with a session"
        return UserError(
            ErrorKind.TOO_MANY_REQUESTS,
            f"consumer {consumer} has {self.open(consumer)} open {self._kind}, {held} of them"
            f" with this token{which}; {self._setting} is {self.maximum}",
        )

    def release(self, slot: Slot) -> None:
        _decrement(self._held, slot)
        _decrement(self._all, slot[0])

    @contextmanager
    def hold(self, consumer: str, holder: Holder, session: int = 0) -> Iterator[None]:
        slot = self.acquire(consumer, holder, session)
        try:
            yield
        finally:
            self.release(slot)


def _decrement(counts: dict[Key, int], key: Key) -> None:
    if counts[key] > 1:
        counts[key] -= 1
    else:
        del counts[key]
