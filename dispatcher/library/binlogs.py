"""A binlog: the transactions of some databases, as a program iterates them.

It is a consumer with one reader, the program. The reader's place is kept here; it is behind what was handed out, and
what it takes from the queue are whole transactions, some MiB at a time, so that a loop over them waits only once for
many. The loop of asyncio turns between two takes, however fast the program asks.

What was handed out stays in the queue until it is acknowledged, because it is handed out again after a crash. Without a
state store nobody will ask for it again: it is let go when the program asks for what follows.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

from dispatcher.dispatch import status
from dispatcher.dispatch.dispatcher import Phase
from dispatcher.library.transactions import Neighbours, Transaction
from dispatcher.model.errors import Action, BinlogError, ErrorKind, UserError
from dispatcher.model.position import Position
from dispatcher.runtime.consumer_session import ConsumerSession

TAKE_BYTES = 1 << 20
LOOK_AGAIN_S = 1.0


class StreamOwner(Protocol):
    """What a binlog needs of its client."""

    @property
    def stores(self) -> bool:
        """Has it a state store?"""

    def raise_broken(self) -> None: ...

    def note(self, level: int, event: str, **fields: Any) -> None: ...

    def row(self, reader: ConsumerSession) -> dict[str, Any]: ...

    async def remove(self, name: str) -> None: ...


class Binlog:
    """Made by `BinlogClient.create_binlog`. An asynchronous iterator of transactions, and a context manager that closes
    it. One program reads it: what one task got, no other gets.

    Raises BinlogError, from iterating and reading, when it has failed for good and everything that was queued before
    was handed out; what may pass (a server that is down, a password that was changed) is waited for, and `status()`
    says so.
    """

    def __init__(self, owner: StreamOwner, reader: ConsumerSession) -> None:
        self._owner = owner
        self._reader = reader
        self._name = reader.consumer.name
        self._after = reader.acknowledged  # what the queue is asked for next lies behind it
        self._ready: deque[Transaction] = deque()  # taken, not handed out
        self._given: Transaction | Position = self._after  # the last one that was
        self._closed = False
        self._warned = False

    def __repr__(self) -> str:
        return f"<Binlog {self._name!r}{', closed' if self._closed else ''}>"

    @property
    def name(self) -> str:
        return self._name

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def position(self) -> Position:
        """Up to where everything was handed out, also where the last transactions held nothing of the binlog's: what a
        program stores that keeps positions itself, now and then when it is quiet, too."""
        if not self._ready:
            return self._after
        return self._given if isinstance(self._given, Position) else self._given.position

    @property
    def acknowledged(self) -> Position:
        """Where it would begin after a crash."""
        return self._reader.acknowledged

    def status(self) -> dict[str, Any]:
        """Its row of `BinlogClient.status`. Raises UserError when it is closed."""
        self._raise_closed()
        return self._owner.row(self._reader)

    # -- reading ---------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Transaction:
        """The next one, however long it takes. Ends when the binlog or its client is closed, and at the end of files
        that are not followed."""
        if not await self._fill(TAKE_BYTES, None):
            raise StopAsyncIteration
        return self._give()

    async def read(
        self, *, max_bytes: int = TAKE_BYTES, wait_s: float | None = None
    ) -> list[Transaction]:
        """Those that are there, some `max_bytes` of them and one at least; waits for the first one for `wait_s` seconds
        (None: however long it takes). None at all when that is over, and where iterating would end.

        Raises BinlogError as iterating does, UserError when the binlog is closed.
        """
        self._raise_closed()
        taken: list[Transaction] = []
        size = 0
        await self._fill(max_bytes, wait_s)
        while self._ready and (not taken or size + self._ready[0].size <= max_bytes):
            size += self._ready[0].size
            taken.append(self._give())
        return taken

    def _give(self) -> Transaction:
        self._given = transaction = self._ready.popleft()
        return transaction

    async def _fill(self, max_bytes: int, wait_s: float | None) -> bool:
        """Is there something to hand out? Not when the time is over, or nothing will follow."""
        if self._ready:
            return True
        deadline = None if wait_s is None else time.monotonic() + wait_s
        await asyncio.sleep(0)
        if not (self._owner.stores or self._closed):
            await self.acknowledge()
        while not (self._closed or self._ready or self._take(max_bytes)):
            self._owner.raise_broken()
            self._raise_failed()
            left_s = LOOK_AGAIN_S if deadline is None else deadline - time.monotonic()
            if left_s <= 0 or self._at_end:
                break
            self._warn_of_a_full_queue()
            await self._reader.wait(min(left_s, LOOK_AGAIN_S))
        return bool(self._ready)

    def _take(self, max_bytes: int) -> bool:
        """Take what the queue has behind what was taken before; False where that is nothing."""
        reader, queue = self._reader, self._reader.queue
        self._after = reader.now(self._after)
        answer = reader.next(self._after, max_bytes)
        if answer is None:
            # It was forgotten for want of memory, and is read again: up to here, even if that is more than fits.
            queue.needed_seq = max(queue.needed_seq, self._after.seq)
            return False
        self._given = self._after
        taken = Neighbours(queue.singles(self._after, answer.end))
        self._ready.extend(Transaction(taken, n) for n in range(len(taken.singles)))
        self._after = answer.end
        queue.deliver(answer.end)
        self._warned = self._warned and not self._ready
        return bool(self._ready)

    def _raise_failed(self) -> None:
        if (failed := self._reader.consumer.failed) is not None:
            # Each raise would add its frames to what is raised again and again.
            raise failed.with_traceback(None)

    @property
    def _at_end(self) -> bool:
        """Of files that are not followed."""
        dispatcher = status.dispatcher_of(self._reader.runner.client, self._reader.consumer)
        return dispatcher is not None and dispatcher.phase is Phase.ENDED

    def _warn_of_a_full_queue(self) -> None:
        if self._reader.queue.full and not self._warned:
            self._warned = True
            self._owner.note(
                logging.WARNING,
                "the queue is full of what was handed out: acknowledge some",
                binlog=self._name,
                bytes=self._reader.queue.held_bytes,
            )

    # -- acknowledging ---------------------------------------------------------------------------------------

    async def acknowledge(self, upto: Transaction | Position | None = None) -> None:
        """All up to a transaction or position that was handed out (None: all that was) is safe elsewhere, and is never
        handed out again. Durable when this returns, if the client has a state store. Costs a write to the disk: for
        many transactions together rather than for each; calls that come together share one.

        Raises UserError (POSITION_UNKNOWN) for a position that was not handed out, BinlogError (STATE_STORE) when it
        cannot be stored; then nothing is forgotten, and it may be tried again.
        """
        position = self.position if upto is None else upto
        if isinstance(position, Transaction):
            position = position.position
        reader = self._reader
        async with reader.acknowledging:
            self._raise_closed()
            if reader.before_gap(position):
                return  # what lay before it is gone
            reader.queue.executed_of(position)
            if position.order > self.position.order:
                raise UserError(
                    ErrorKind.POSITION_UNKNOWN,
                    f"seq {position.seq} was not handed out yet (at {self.position.seq})",
                    where=reader.where,
                )
            if position.order > reader.acknowledged.order:
                await reader.acknowledge(position)

    # -- the end ---------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Read no more of it; what was acknowledged stays stored, and a binlog of this name goes on from there.

        Those who wait for it are let go. Raises BinlogError (STATE_STORE)."""
        if self._closed:
            return
        self.let_go()
        await self._owner.remove(self._name)

    def let_go(self) -> None:
        """Nothing more is handed out, because the client ends or the binlog does."""
        self._closed = True
        self._ready.clear()
        self.wake()

    def wake(self) -> None:
        """Let those who wait for it look again."""
        self._reader.wake()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _raise_closed(self) -> None:
        if self._closed:
            raise UserError(
                ErrorKind.UNKNOWN_CONSUMER,
                f"the binlog {self._name!r} is closed",
                remedy="create it anew, to go on from what was acknowledged",
            )


async def until_placed(
    reader: ConsumerSession, wait_s: float | None, raise_broken: Callable[[], None]
) -> None:
    """Until its server was reached and its place in the log is known. Raises BinlogError: why that cannot be, or not
    without a person's help, or was not within `wait_s` seconds."""
    deadline = None if wait_s is None else time.monotonic() + wait_s
    consumer = reader.consumer
    while not consumer.started:
        raise_broken()
        reader.raise_failed()
        late = deadline is not None and time.monotonic() >= deadline
        error = consumer.error
        if error is not None and (late or error.action is Action.OPERATOR):
            raise error
        if late:
            raise BinlogError(
                ErrorKind.CONNECT_FAILED, f"no answer within {wait_s:g} s", where=reader.where
            )
        left_s = LOOK_AGAIN_S if deadline is None else deadline - time.monotonic()
        await reader.wait(min(max(left_s, 0.0), 0.05))
