"""Calls that wait until a consumer has something new for its reader.

A waiting call costs one timer. The effect `Wake` of the rules wakes the calls of a consumer (`wake`). If a call also
waits for a change for which the rules return no `Wake`, such as progress without data, it passes a condition. `changed`
schedules a check of the conditions of all calls, which wakes the calls whose condition is true.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from dispatcher.model.errors import BinlogError

CHECK_AFTER_S = 0.02  # the conditions are checked once for all changes within this time

Condition = Callable[[], bool]
"""A condition that raises a BinlogError counts as true: it wakes the call, which then raises the error itself."""


@dataclass(slots=True, eq=False)
class _Waiter:
    future: asyncio.Future[bool]  # True: woken, False: the time is over
    until: Condition | None

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(True)

    def expire(self) -> None:
        if not self.future.done():
            self.future.set_result(False)


class Waiters:
    """The waiting calls for all consumers of a client."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[_Waiter]] = {}
        self._watching: set[_Waiter] = set()
        self._timer: asyncio.TimerHandle | None = None

    def wake(self, consumer: str) -> None:
        for waiter in self._waiters.get(consumer, ()):
            waiter.wake()

    def changed(self) -> None:
        """Schedule a check of the conditions of all waiting calls."""
        if self._watching and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHECK_AFTER_S, self._check)

    def _check(self) -> None:
        self._timer = None
        for waiter in self._watching:
            if waiter.until is not None and _is_true(waiter.until):
                waiter.wake()

    async def wait(self, consumer: str, timeout_s: float, until: Condition | None = None) -> bool:
        """Wait until `wake` is called for the consumer or `until` is True. Returns False if the time is over."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop.create_future(), until)
        timer = loop.call_later(timeout_s, waiter.expire)
        self._waiters.setdefault(consumer, set()).add(waiter)
        if until is not None:
            self._watching.add(waiter)
        try:
            return await waiter.future
        finally:
            timer.cancel()
            self._watching.discard(waiter)
            others = self._waiters[consumer]
            others.discard(waiter)
            if not others:
                del self._waiters[consumer]


def _is_true(condition: Condition) -> bool:
    try:
        return condition()
    except BinlogError:
        return True
