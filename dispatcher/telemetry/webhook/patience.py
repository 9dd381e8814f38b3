"""Decides when the daemon gives an event up. Events are sent in order, so an event that the receiver refuses delays all
later events."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

REFUSALS_MAX = 10  # attempts for an event that the receiver refuses
TRIED_MAX_S = 3600.0  # since the first attempt that may have reached the receiver
# These answers say that the receiver is busy, not that it refuses the event.
_BUSY = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)


@dataclass(frozen=True, slots=True)
class AttemptFault:
    """Why an attempt failed, and what to do. `sent`: False if the receiver cannot have received the request; `status`:
    of the answer, 0 without an answer; `wait_s`: how long the receiver asks to wait (Retry-After)."""

    text: str
    sent: bool = True
    status: int = 0
    wait_s: float = 0.0

    @property
    def refuses(self) -> bool:
        """True if the receiver says that it will not accept the event."""
        return 400 <= self.status < 500 and self.status not in _BUSY


class Patience:
    """The failed attempts of one event."""

    def __init__(self) -> None:
        self._refusals = 0
        self._sent_at: float | None = None

    def ends(self, fault: AttemptFault, now: float) -> bool:
        """True if the event is given up after this fault. `now`: seconds of a monotonic clock.

        An attempt that has not reached the receiver never ends the patience: another event would not reach it either.
        """
        if not fault.sent:
            return False
        if self._sent_at is None:
            self._sent_at = now
        self._refusals += fault.refuses
        limit = 1 if fault.status == HTTPStatus.GONE else REFUSALS_MAX
        return self._refusals >= limit or now - self._sent_at >= TRIED_MAX_S
