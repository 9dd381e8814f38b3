"""Lets the tokens, and the consumers of each token, take turns with their questions.

The front works on one question at a time, and the event loop reads and writes once between two turns. The work in a
turn is bounded: a question that needs more than STEP_UNITS passes its turn on, and continues when its next turn comes.
So if a client asks without pause, a client of another token waits for one turn of each token, and the rest of the
daemon for one turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

# How much work a turn may do. Each byte of a question's text that is parsed counts as one unit, each row of an answer
# as UNITS_PER_ROW units. This many units take 1 to 2 ms. A part of the work that cannot be divided has up to twice as
# many units.
STEP_UNITS = 16 << 10
UNITS_PER_ROW = 32


class Asker(NamedTuple):
    """The token and the consumer of a client that asks. `token`: None if the settings have no tokens."""

    token: str | None
    consumer: str

    @property
    def holder(self) -> str:
        """The token, or the consumer if the settings have no tokens."""
        return self.consumer if self.token is None else self.token


class Turns:
    """The questions that wait for their turn, by token and consumer."""

    def __init__(self) -> None:
        self._busy = False
        # The next token first, and for each token the next consumer first.
        self._waiting: dict[str | None, dict[str, deque[asyncio.Future[None]]]] = {}

    @asynccontextmanager
    async def turn(self, asker: Asker) -> AsyncIterator[Turn]:
        """Wait for a turn. The body must wait for nothing but `Turn.spend`."""
        turn = Turn(self, asker)
        await turn.take()
        try:
            yield turn
        finally:
            turn.pass_on()

    async def _take(self, asker: Asker) -> None:
        if self._busy:
            await self._wait(asker)
        self._busy = True

    async def _wait(self, asker: Asker) -> None:
        turn = asyncio.get_running_loop().create_future()
        consumers = self._waiting.setdefault(asker.token, {})
        consumers.setdefault(asker.consumer, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end()
            raise

    def _end(self) -> None:
        # Give the next turn in the next pass of the event loop, so that the loop reads and writes first.
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Give the turn to the oldest question of the next token's next consumer."""
        while self._waiting:
            token = next(iter(self._waiting))
            consumers = self._waiting.pop(token)
            consumer = next(iter(consumers))
            turns = consumers.pop(consumer)
            turn = turns.popleft()
            if turns:
                consumers[consumer] = turns  # after the other consumers of the token
            if consumers:
                self._waiting[token] = consumers  # after the other tokens
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False


class Turn:
    """The turns of one question."""

    def __init__(self, turns: Turns, asker: Asker) -> None:
        self._turns, self._asker = turns, asker
        self._held = False
        self._spent = 0

    async def spend(self, units: int) -> None:
        """Count work of the question. If its work in this turn has reached STEP_UNITS, end the turn, and wait for the
        question's next turn."""
        self._spent += units
        if self._spent >= STEP_UNITS:
            self.pass_on()
            await self.take()

    async def take(self) -> None:
        await self._turns._take(self._asker)  # noqa: SLF001
        self._held, self._spent = True, 0

    def pass_on(self) -> None:
        """End the turn, so that the next question gets its turn. Does nothing if the question has no turn, because its
        client disconnected while the question waited for one."""
        if self._held:
            self._held = False
            self._turns._end()  # noqa: SLF001


class ServerTurns:
    """Lets each token ask the servers one question at a time. So a token uses at most one of the daemon's connections
    for questions, and the token's further questions wait here."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}  # with the number of their users

    @asynccontextmanager
    async def turn(self, asker: Asker) -> AsyncIterator[None]:
        """Wait until the token asks no server. The body may wait for a server."""
        holder = asker.holder
        lock, users = self._locks.get(holder, (asyncio.Lock(), 0))
        self._locks[holder] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(holder)
            if users > 1:
                self._locks[holder] = lock, users - 1
