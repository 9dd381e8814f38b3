"""How long the others on a dispatcher are kept waiting for one consumer whose queue is full.

A budget, because a limit on each single wait would let a consumer that makes a little room every few seconds hold all
others at its pace: waiting spends it, and it is refilled at a twentieth of the time that passes. So over any long time
a slow consumer costs the others at most 5 % and one budget. Who was detached thrice in ten minutes is not waited for at
all, and merges later each time, lest connections are opened and closed for it all day.
"""

from __future__ import annotations

REFILL = 0.05
DETACHES_MAX = 3
WINDOW_S = 600.0
# After the first detach it merges as soon as it may ride, after the others in the window only when this has passed.
MERGE_AFTER_S = (0.0, 5.0, 20.0, 60.0)


class Patience:
    """One consumer's budget, s; full at first. Times are those of `Client.step`."""

    def __init__(self, max_s: float) -> None:
        self._max_s = max_s
        self._left_s = max_s
        self._at = 0.0  # when `_left_s` was right
        self._since: float | None = None  # somebody waits since then
        self._detached: list[float] = []  # when, within the window
        self.merge_after = 0.0  # it does not merge before
        self.waited_s = 0.0  # in all

    def begin(self, now: float) -> None:
        """Somebody waits for it from now on, if nobody did."""
        if self._since is None:
            self._left_s = min(self._max_s, self._left_s + REFILL * (now - self._at))
            self._since = self._at = now

    def end(self, now: float) -> None:
        """Nobody waits for it any more."""
        if self._since is not None:
            self.waited_s += now - self._since
            self._left_s = max(0.0, self._left_s - (now - self._since))
            self._since, self._at = None, now

    @property
    def deadline(self) -> float | None:
        """Until when it is waited for; None while nobody waits."""
        if self._since is None:
            return None
        if sum(self._since - at < WINDOW_S for at in self._detached) >= DETACHES_MAX:
            return self._since
        return self._since + self._left_s

    def exhausted(self, now: float) -> bool:
        return (until := self.deadline) is not None and now >= until

    def detached(self, now: float) -> None:
        """It was not waited for any longer."""
        self.end(now)
        self._detached = [at for at in (*self._detached, now) if now - at < WINDOW_S]
        self.merge_after = now + MERGE_AFTER_S[min(len(self._detached), len(MERGE_AFTER_S)) - 1]
