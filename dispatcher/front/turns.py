"""Lets the front work on one question at a time, and the consumers take turns.

The event loop reads and writes once between two questions. So a client that asks without pause delays a client of
another consumer by one question of each consumer, and the rest of the daemon by one question.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """The questions that wait for their turn, by consumer."""

    def __init__(self) -> None:
        self._busy = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # the next consumer first

    @asynccontextmanager
    async def turn(self, consumer: str) -> AsyncIterator[None]:
        """Wait for a turn. The body must not wait for anything."""
        if self._busy:
            await self._wait(consumer)
        self._busy = True
        try:
            yield
        finally:
            self._end()

    async def _wait(self, consumer: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(consumer, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end()
            raise

    def _end(self) -> None:
        # In the next pass of the event loop, so that it reads and writes first.
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Give the turn to the next consumer's oldest question."""
        while self._waiting:
            consumer = next(iter(self._waiting))
            turns = self._waiting.pop(consumer)
            turn = turns.popleft()
            if turns:
                self._waiting[consumer] = turns  # behind the other consumers
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False
