"""What is known about a consumer's reader: the calls of its newest session, and the state that follows from them.

The reader's state is separate from the consumer's `state`, which describes how the consumer gets its data: a consumer
may get all its data while its reader has stopped, and a reader may call while its consumer gets no data. The module
counts only calls that may acknowledge: a read-only session makes no room in the queue, so its calls do not show that
the reader is still there.

Times are seconds of a monotonic clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

SILENT_MAX_S = 60.0
"""A reader that has no open call and has not called for this long is gone. The longest poll takes the same time."""
FULL_MIN_S = 10.0
"""A reader is slow if its calls have found a full queue for this long, or for most of the time."""
_FULL_SHARE = 1 - math.exp(-1)  # `_full_share` after the queue was full for `FULL_MIN_S`
_USER_AGENT_MAX = 200


class ReaderState(StrEnum):
    NONE = "none"
    WAITING = "waiting"
    READING = "reading"
    SLOW = "slow"
    GONE = "gone"
    PAUSED = "paused"  # an administrator has paused the delivery, whatever calls the reader sends


class PollBounds(NamedTuple):
    """Bounds of the range that a poll returns. `bytes_max`: None means the queue's limit; `bytes_min`: the poll waits
    until the range has at least this many bytes."""

    bytes_max: int | None = None
    bytes_min: int = 0
    transactions_max: int | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a call: IP address and User-Agent header; "" if unknown."""

    address: str = ""
    user_agent: str = ""

    @classmethod
    def of(cls, address: str, user_agent: str) -> Caller:
        return cls(address, user_agent[:_USER_AGENT_MAX])


class ReaderActivity:
    """The calls of the newest session of one consumer since the daemon started.

    `events` and `bytes`: how many transactions and bytes readers of all sessions got in answers, repeats included.
    """

    def __init__(self, session: int, now: float) -> None:
        """`session`: the number of the newest session, 0 = there was none."""
        self.events = self.bytes = 0
        self.begin(session, now)

    def begin(self, session: int, now: float) -> None:
        """Reset the record, because a session was opened, or all sessions were fenced. From now on, calls of earlier
        sessions are not counted."""
        self.session, self.caller = session, Caller()
        self.polled_at: float | None = None
        self.acknowledged_at: float | None = None
        self._called_at: float | None = None
        self._since = now
        # The share of the recent time in which the queue was full, as of `_asked_at`.
        self._full_share = 0.0
        self._asked_at = now
        self._disconnected = False
        self._polls = self._answers = 0  # open calls

    def called(self, now: float, *, full: bool) -> None:
        """Record a call of the newest session. `full`: True if the queue is full now."""
        self._called_at, self._disconnected = now, False
        self._full_share, self._asked_at = self._share(now, full=full), now

    def _share(self, now: float, *, full: bool) -> float:
        """Returns the share of the recent time in which the queue was full. `full`: True if it was full since the last
        call.

        Short times with room change the share little. A reader that is too slow makes room now and then, but its queue
        is full again at once.
        """
        kept = math.exp((self._asked_at - now) / FULL_MIN_S)
        return self._full_share * kept + full * (1 - kept)

    def poll_began(self, now: float) -> None:
        self.polled_at = now
        self._polls += 1

    def poll_ended(self, session: int, now: float, *, disconnected: bool) -> None:
        """`disconnected`: True if the client disconnected while it waited for the answer."""
        if session == self.session:
            self._polls -= 1
            self._called_at, self._disconnected = now, disconnected

    def delivered(self, transactions: int, size: int) -> None:
        self.events += transactions
        self.bytes += size

    def answer_began(self, transactions: int, size: int) -> None:
        self.delivered(transactions, size)
        self._answers += 1

    def answer_ended(self, session: int, now: float) -> None:
        """Record that the answer was sent, or that its client went away."""
        if session == self.session:
            self._answers -= 1
            self._called_at = now

    @property
    def has_open_answers(self) -> bool:
        """True if the newest session has not received all of its answers."""
        return self._answers > 0

    def state(self, now: float, *, unacknowledged: bool, full: bool) -> ReaderState:
        """`unacknowledged`: True if transactions wait for the reader; `full`: True if the queue has no room."""
        if not (self._polls or self._answers):
            if self._disconnected:
                return ReaderState.GONE
            silent_s = now - (self._since if self._called_at is None else self._called_at)
            if silent_s > SILENT_MAX_S:
                gone = unacknowledged and self.session
                return ReaderState.GONE if gone else ReaderState.NONE
            if self._called_at is None:
                return ReaderState.NONE
        if not unacknowledged:
            return ReaderState.WAITING
        # The tolerance is for rounding errors: ten calls, a second apart, count as ten seconds.
        stays_full = self._share(now, full=full) >= _FULL_SHARE - 1e-9
        return ReaderState.SLOW if stays_full else ReaderState.READING
