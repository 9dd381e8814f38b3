"""Calls that wait until a consumer has something new to tell.

A waiting call costs one timer. It is woken by the rules' effects (`wake`). What the rules do not tell of, such as
progress without data, is watched: a call may name a condition, and the runner looks at the conditions of all calls
after something has changed, so that a call is woken only when its own has become true.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from dispatcher.model.errors import BinlogError

LOOK_AFTER_S = 0.02  # changes that come within it are looked at together

Condition = Callable[[], bool]
"""A BinlogError that it raises counts as True: the call that waits will meet it."""


@dataclass(slots=True, eq=False)
class _Waiter:
    future: asyncio.Future[None]
    until: Condition | None

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class Waiters:
    """Those of all consumers of a client."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[_Waiter]] = {}
        self._watching: set[_Waiter] = set()
        self._timer: asyncio.TimerHandle | None = None

    def wake(self, consumer: str) -> None:
        for waiter in self._waiters.get(consumer, ()):
            waiter.wake()

    def changed(self) -> None:
        """Look soon at what is watched."""
        if self._watching and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_AFTER_S, self._look)

    def _look(self) -> None:
        self._timer = None
        for waiter in self._watching:
            if waiter.until is not None and _is_true(waiter.until):
                waiter.wake()

    async def wait(self, consumer: str, timeout_s: float, until: Condition | None = None) -> bool:
        """Until `wake` is called for the consumer or `until` is True; False when the time is over."""
        waiter = _Waiter(asyncio.get_running_loop().create_future(), until)
        self._waiters.setdefault(consumer, set()).add(waiter)
        if until is not None:
            self._watching.add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter.future
        except TimeoutError:
            return False
        finally:
            self._watching.discard(waiter)
            others = self._waiters[consumer]
            others.discard(waiter)
            if not others:
                del self._waiters[consumer]
        return True


def _is_true(condition: Condition) -> bool:
    try:
        return condition()
    except BinlogError:
        return True
