"""The clock of a history, and the actions that are still to happen."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

Action = Callable[[], None]


class Agenda:
    """`now`: seconds of the true time, which no process in the history sees."""

    def __init__(self) -> None:
        self.now = 0.0
        self._numbers = itertools.count()
        self._actions: list[tuple[float, int, Action]] = []

    def after(self, seconds: float, action: Action) -> None:
        self.at(self.now + seconds, action)

    def at(self, time: float, action: Action) -> None:
        heapq.heappush(self._actions, (max(time, self.now), next(self._numbers), action))

    def run_until(self, time: float, after_each: Action) -> None:
        """Execute all actions that are due until this time."""
        while self._actions and self._actions[0][0] <= time:
            self.now, _, action = heapq.heappop(self._actions)
            action()
            after_each()
        self.now = time
