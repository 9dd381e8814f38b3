"""How long a dispatcher waits for one consumer whose queue is full.

Each consumer has a budget of waiting time. A wait uses the budget up. Between waits the budget grows by a twentieth of
the time that passes. With only a limit for each single wait, a consumer that frees a little of its queue every few
seconds would slow down all other consumers to its own speed. With a budget, the other consumers wait for a slow
consumer at most for one full budget plus 5 % of the elapsed time.

A dispatcher does not wait at all for a consumer that was detached three times in ten minutes. After its first detach, a
consumer may merge (share a dispatcher again) at once. After the second detach within ten minutes, and after each
further one, the consumer must wait longer before it may merge, so that the daemon does not open and close connections
all the time.
"""

from __future__ import annotations

REFILL = 0.05
DETACHES_MAX = 3
WINDOW_S = 600.0
# How many seconds after its last detach a consumer may merge, for 1, 2, 3 and more detaches in the window.
MERGE_AFTER_S = (0.0, 5.0, 20.0, 60.0)


class WaitBudget:
    """The wait budget of one consumer, in seconds. A new budget is full. All times are those that `Client.step`
    gets."""

    def __init__(self, max_s: float) -> None:
        self._max_s = max_s
        self._left_s = max_s
        self._at = 0.0  # when `_left_s` was computed
        self._since: float | None = None  # when the present wait began
        self.is_waited_for = False
        self._detached: list[float] = []  # times of the detaches in the window
        self.merge_after = 0.0  # the earliest time at which the consumer may merge
        self.waited_s = 0.0  # the sum of all waits

    def begin(self, now: float) -> None:
        """Begin a wait, unless a wait has begun and not ended."""
        if self._since is None:
            self._left_s = min(self._max_s, self._left_s + REFILL * (now - self._at))
            self._since = self._at = now
            self.is_waited_for = True

    def end(self, now: float) -> None:
        """End the wait, if a wait has begun."""
        if self._since is not None:
            self.waited_s += now - self._since
            self._left_s = max(0.0, self._left_s - (now - self._since))
            self._since, self._at = None, now
            self.is_waited_for = False

    @property
    def deadline(self) -> float | None:
        """The time at which the current wait will have used up the budget, None without a wait."""
        if self._since is None:
            return None
        if sum(self._since - at < WINDOW_S for at in self._detached) >= DETACHES_MAX:
            return self._since
        return self._since + self._left_s

    def exhausted(self, now: float) -> bool:
        return (until := self.deadline) is not None and now >= until

    def record_detach(self, now: float) -> None:
        """Record that the consumer was detached, and end the wait."""
        self.end(now)
        self._detached = [at for at in (*self._detached, now) if now - at < WINDOW_S]
        self.merge_after = now + MERGE_AFTER_S[min(len(self._detached), len(MERGE_AFTER_S)) - 1]
