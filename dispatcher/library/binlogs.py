"""A binlog: the transactions of some databases, over which a program iterates.

A binlog is a consumer with one reader, the program. The binlog takes whole transactions from the queue, up to 1 MiB at
a time, so a program waits only once for many transactions. Before the binlog takes transactions from the queue, it lets
the asyncio loop run other tasks, even if the program reads without a pause.

With a state store, transactions stay in the queue until the program acknowledges them, and after a crash the client
delivers unacknowledged transactions again. Without a state store, no transaction is delivered again, so the binlog
itself acknowledges the returned transactions when it takes the next transactions from the queue.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, Self

from dispatcher.dispatch import status
from dispatcher.dispatch.connection.dispatcher import Phase
from dispatcher.dispatch.queue.reader import PollBounds
from dispatcher.library.transactions import DecodeGroup, Transaction
from dispatcher.model.errors import Action, BinlogError, ErrorKind, UserError
from dispatcher.model.position import Position
from dispatcher.runtime.client.consumer_session import ConsumerSession

READ_BYTES = 1 << 20
RECHECK_S = 1.0


class StreamOwner(Protocol):
    """The part of `BinlogClient` that a `Binlog` uses."""

    @property
    def stores(self) -> bool:
        """True if the client has a state store."""

    def raise_broken(self) -> None: ...

    def log(self, level: int, event: str, **fields: Any) -> None: ...

    def row(self, session: ConsumerSession) -> dict[str, Any]: ...

    async def remove(self, name: str) -> None: ...


class Binlog:
    """An asynchronous iterator of transactions, and a context manager that closes it. `BinlogClient.create_binlog`
    creates it. A binlog returns each transaction once, so two tasks that read the same binlog share its transactions.

    If the binlog fails permanently, iterating and reading first return the transactions that are already queued, and
    then raise BinlogError. After a temporary failure (a server that is down, a changed password) the client tries
    again; `status()` shows the failure.
    """

    def __init__(self, owner: StreamOwner, session: ConsumerSession) -> None:
        self._owner = owner
        self._session = session
        self._name = session.consumer.name
        # The end of the transactions that were taken from the queue.
        self._after = session.acknowledged
        self._ready: deque[Transaction] = deque()  # taken from the queue, not returned yet
        # The newest returned transaction, or its position.
        self._returned: Transaction | Position = self._after
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
        """The position up to which all transactions of the binlog were returned.

        The position also advances while the server commits only transactions of other databases. So a program that
        stores positions itself should store the position regularly, even while the binlog returns no transactions.
        """
        if not self._ready:
            return self._after
        return self._returned if isinstance(self._returned, Position) else self._returned.position

    @property
    def acknowledged(self) -> Position:
        """The acknowledged position. After a crash, the binlog continues at this position."""
        return self._session.acknowledged

    def status(self) -> dict[str, Any]:
        """Returns the binlog's row of `BinlogClient.status`. Raises UserError if the binlog is closed."""
        self._raise_closed()
        return self._owner.row(self._session)

    @property
    def lag_bytes(self) -> int | None:
        """How many bytes of the server's log follow the last returned transaction; None if this is not known yet."""
        lag = self._session.lag(self.position, self._session.head)["lag_bytes"]
        return None if lag is None else int(lag)

    @property
    def head(self) -> Position:
        """The end of the server's log, as far as the client knows it."""
        return self._session.head

    @property
    def ended(self) -> bool:
        """True at the end of files that are not followed: no transaction will come."""
        return self._at_end and not self._ready

    # -- reading ---------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Transaction:
        """Returns the next transaction. Waits for a transaction without a time limit.

        The iteration ends when the binlog or its client is closed, and at the end of files that are not followed.
        """
        if not await self._fill(READ_BYTES, None):
            raise StopAsyncIteration
        return self._pop()

    async def read(
        self, *, max_bytes: int = READ_BYTES, wait_s: float | None = None
    ) -> list[Transaction]:
        """Returns the next transactions, as many as fit into `max_bytes` and at least one.

        Waits up to `wait_s` seconds for the first transaction (None: without a limit). Returns an empty list if no
        transaction arrives in this time, or at the end of files that are not followed. Raises BinlogError if the binlog
        has failed, and UserError if the binlog is closed.
        """
        self._raise_closed()
        transactions: list[Transaction] = []
        size = 0
        await self._fill(max_bytes, wait_s)
        while self._ready and (not transactions or size + self._ready[0].size <= max_bytes):
            size += self._ready[0].size
            transactions.append(self._pop())
        return transactions

    def _pop(self) -> Transaction:
        self._returned = transaction = self._ready.popleft()
        return transaction

    async def _fill(self, max_bytes: int, wait_s: float | None) -> bool:
        """Wait for transactions. Returns False if none arrives within `wait_s`, or if no transaction will follow."""
        if self._ready:
            return True
        deadline = None if wait_s is None else time.monotonic() + wait_s
        await asyncio.sleep(0)
        if not (self._owner.stores or self._closed):
            await self.acknowledge()
        while not (self._closed or self._ready or self._take(max_bytes)):
            self._owner.raise_broken()
            self._raise_failed()
            left_s = RECHECK_S if deadline is None else deadline - time.monotonic()
            if left_s <= 0 or self._at_end:
                break
            self._warn_of_a_full_queue()
            await self._session.wait(min(left_s, RECHECK_S))
        return bool(self._ready)

    def _take(self, max_bytes: int) -> bool:
        """Take the next transactions from the queue. Returns False if the queue has none."""
        session, queue = self._session, self._session.queue
        self._after = session.now(self._after)
        session.reader.called(time.monotonic(), full=session.lacks_room)
        answer = session.next(self._after, PollBounds(max_bytes))
        if answer is None:
            # The queue was evicted from memory. The client now reads the queue's transactions from the log again, at
            # least up to `_after`, even if the queue exceeds its limit.
            queue.needed_seq = max(queue.needed_seq, self._after.seq)
            return False
        self._returned = self._after
        group = DecodeGroup(queue.transactions_in(self._after, answer.end))
        self._ready.extend(Transaction(group, n) for n in range(len(group.singles)))
        self._after = answer.end
        queue.deliver(answer.end)
        session.reader.delivered(answer.transactions, answer.bytes)
        self._warned = self._warned and not self._ready
        return bool(self._ready)

    def _raise_failed(self) -> None:
        if (failed := self._session.consumer.failed) is not None:
            # The same error object is raised each time. Without `with_traceback(None)`, each raise would add frames to
            # its traceback.
            raise failed.with_traceback(None)

    @property
    def _at_end(self) -> bool:
        """True at the end of files that are not followed."""
        dispatcher = status.dispatcher_of(self._session.runner.client, self._session.consumer)
        return dispatcher is not None and dispatcher.phase is Phase.ENDED

    def _warn_of_a_full_queue(self) -> None:
        if self._session.queue.full and not self._warned:
            self._warned = True
            self._owner.log(
                logging.WARNING,
                "the queue is full of transactions not acknowledged yet: acknowledge some",
                binlog=self._name,
                bytes=self._session.queue.held_bytes,
            )

    # -- acknowledging ---------------------------------------------------------------------------------------

    async def acknowledge(self, upto: Transaction | Position | None = None) -> None:
        """Acknowledge all transactions up to `upto`, which is a returned transaction or its position (None: all
        returned transactions).

        Acknowledged transactions are not delivered again. If the client has a state store, the acknowledgement is
        durable when this method returns. Each acknowledgement costs a write to the disk, which concurrent calls share.
        So acknowledge many transactions together.

        Raises UserError (POSITION_UNKNOWN) for a position that was not returned yet. Raises BinlogError (STATE_STORE)
        if the acknowledgement cannot be stored. The transactions then stay in the queue, and the call may be repeated.
        """
        position = self.position if upto is None else upto
        if isinstance(position, Transaction):
            position = position.position
        session = self._session
        async with session.acknowledging:
            self._raise_closed()
            if session.before_gap(position):
                return  # the server has purged the log before the gap
            session.queue.executed_of(position)
            if position.order > self.position.order:
                raise UserError(
                    ErrorKind.POSITION_UNKNOWN,
                    f"seq {position.seq} was not returned yet; the newest one returned is {self.position.seq}",
                    where=session.where,
                )
            if position.order > session.acknowledged.order:
                await session.acknowledge(position)

    async def close(self) -> None:
        """Stop reading. The acknowledged position stays stored, and a new binlog with this name continues at it.

        Tasks that wait for a transaction return. Raises BinlogError (STATE_STORE).
        """
        if self._closed:
            return
        self.end()
        await self._owner.remove(self._name)

    def end(self) -> None:
        """Return no more transactions. Called when the binlog or its client closes."""
        self._closed = True
        self._ready.clear()
        self.wake()

    def wake(self) -> None:
        """Wake the tasks that wait for a transaction, so that they check the binlog's state."""
        self._session.wake()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _raise_closed(self) -> None:
        if self._closed:
            raise UserError(
                ErrorKind.UNKNOWN_CONSUMER,
                f"the binlog {self._name!r} is closed",
                remedy="create it again, to continue after what was acknowledged",
            )


async def wait_until_started(
    session: ConsumerSession, wait_s: float | None, raise_broken: Callable[[], None]
) -> None:
    """Wait until the client has reached the server and the start position is known.

    Raises the BinlogError that prevents the start: immediately if an operator must act, otherwise after `wait_s`
    seconds.
    """
    deadline = None if wait_s is None else time.monotonic() + wait_s
    consumer = session.consumer
    while not consumer.started:
        raise_broken()
        session.raise_failed()
        late = deadline is not None and time.monotonic() >= deadline
        error = consumer.error
        if error is not None and (late or error.action is Action.OPERATOR):
            raise error
        if late:
            raise BinlogError(
                ErrorKind.CONNECT_FAILED, f"no answer within {wait_s:g} s", where=session.where
            )
        left_s = RECHECK_S if deadline is None else deadline - time.monotonic()
        await session.wait(min(max(left_s, 0.0), 0.05))
