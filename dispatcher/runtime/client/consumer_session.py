"""One consumer with its newest session, and the operations that the calls of readers use."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dispatcher.dispatch.client import seeking
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.connection.dispatcher import Phase
from dispatcher.dispatch.messages.events import ReaderDeclared, SeekRequested
from dispatcher.dispatch.queue.queue import Queue, ReadableRange
from dispatcher.dispatch.queue.reader import Caller, PollBounds, ReaderActivity
from dispatcher.dispatch.status import dispatcher_of, lag_behind
from dispatcher.dispatch.values.specs import OnPurged
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.position import Position
from dispatcher.runtime.client.client_runner import ClientRunner
from dispatcher.runtime.client.waiters import Condition

READ_ONLY = 0


class OfferedRange(NamedTuple):
    """A range that the answer to a poll names. The reader then requests the bytes of the range, stores them, and
    acknowledges the range."""

    start: Position
    end: Position
    transactions: int


@dataclass(slots=True)
class ConsumerSession:
    """A consumer and its newest session. `marker_s`: the shortest time between two answers that report progress without
    data."""

    runner: ClientRunner
    consumer: Consumer
    number: int  # the number of the newest session, 0 if the consumer has had no session
    marker_s: float
    moved: int = 0  # the session number of the newest move by an administrator
    offered: OfferedRange | None = None  # the range in the newest answer to a poll
    told_at: float = field(default_factory=time.monotonic)
    acknowledging: asyncio.Lock = field(default_factory=asyncio.Lock)
    reader: ReaderActivity = field(init=False)

    def __post_init__(self) -> None:
        self.reader = ReaderActivity(self.number, time.monotonic())

    def begin(self, number: int, *, moved: bool = False) -> None:
        """Make session `number` the newest, unless a session with a higher number has begun. The newest session fences
        all older sessions. `moved`: True if an administrator has moved the consumer."""
        self.number = max(self.number, number)
        if moved:
            self.moved = self.number
        self.reader.begin(self.number, time.monotonic())

    def called(self, number: int, caller: Caller | None = None) -> None:
        """Record a call of the newest session. Ignore calls of other sessions, because other sessions cannot
        acknowledge."""
        if number == self.number != READ_ONLY:
            self.reader.caller = caller or self.reader.caller
            self.reader.called(time.monotonic(), full=self.lacks_room)

    def declare(self, *, takes_unknown: bool) -> None:
        """Record whether the reader of the newest session understands TABLE_MAPs that are marked as unknown."""
        if self.consumer.takes_unknown != takes_unknown:
            self.runner.step(ReaderDeclared(self.consumer.name, takes_unknown))

    def poll_began(self, number: int) -> ReaderActivity | None:
        """Record that a poll of the newest session has begun. Returns the object to which the caller must report the
        end of the poll; None for a poll of another session."""
        if number != self.number or number == READ_ONLY:
            return None
        self.reader.poll_began(time.monotonic())
        return self.reader

    @property
    def lacks_room(self) -> bool:
        """True if the queue is full. While the consumer is detached or its connection is closed, True if the queue is
        more than half full."""
        dispatcher = dispatcher_of(self.runner.client, self.consumer)
        if dispatcher is None:
            stopped = self.consumer.waiting and self.consumer.started
        else:
            stopped = dispatcher.phase is Phase.BACKPRESSURE_CLOSED
        return self.queue.full or (stopped and not self.queue.has_room)

    @property
    def queue(self) -> Queue:
        return self.consumer.queue

    @property
    def where(self) -> str:
        return f"consumer {self.consumer.name}"

    def raise_failed(self) -> None:
        if self.consumer.failed:
            raise self.consumer.failed

    def check_number(self, number: int) -> None:
        """Raises UserError (SESSION_FENCED) for a session that a newer session has replaced."""
        if number in (READ_ONLY, self.number):
            return
        if number < self.moved:
            what = f"session {number} has ended, because an administrator has moved the consumer (seek or forget)"
            remedy = (
                'open a session with "after": null, which begins at the consumer\'s new position (Spark: a new'
                " checkpoint)"
            )
            raise UserError(ErrorKind.SESSION_FENCED, what, where=self.where, remedy=remedy)
        what = f"session {number} is not the newest session of the consumer, which is {self.number}"
        raise UserError(ErrorKind.SESSION_FENCED, what, where=self.where)

    def before_gap(self, position: Position) -> bool:
        """True if `position` predates a purge gap that the consumer skipped."""
        latest = self.consumer.spec.on_purged is OnPurged.LATEST
        return latest and self.consumer.started and position.epoch < self.queue.epoch

    def now(self, position: Position) -> Position:
        """Return the acknowledged position if `position` predates a purge gap; otherwise return `position`."""
        return self.acknowledged if self.before_gap(position) else position

    @property
    def acknowledged(self) -> Position:
        return self.queue.position(self.queue.acknowledged)

    @property
    def head(self) -> Position:
        """The end of the source's log at the last survey, or the end of the consumer's queue if the queue ends
        later."""
        tip, queued = self.runner.tip, self.queue.queued
        return self.queue.position(tip if tip is not None and tip.seq > queued.seq else queued)

    def lag(self, end: Position, head: Position) -> dict[str, Any]:
        """Returns how far the reader's position `end` is behind `head`; see `lag_behind`."""
        now_s, now = time.time(), time.monotonic()
        return lag_behind(self.runner.client, self.consumer, end, head, now_s, now)

    def next(self, after: Position, bounds: PollBounds) -> ReadableRange | None:
        """Return the range of the queue that begins at `after`; None if the queue does not contain `after` now."""
        limit = self.queue.bytes_max if bounds.bytes_max is None else bounds.bytes_max
        try:
            return self.queue.readable(after, limit, bounds.transactions_max)
        except BinlogError as error:
            if error.kind is ErrorKind.RANGE_UNAVAILABLE:
                return None
            raise

    async def acknowledge(self, position: Position) -> None:
        """Store an acknowledgement, then forget the acknowledged data. The caller holds the lock `acknowledging`.

        If the position is ahead of the queue, as after a restart, the consumer skips to the position. Raises
        BinlogError if the server does not have the position.
        """
        before = self.queue.epoch, self.queue.acknowledged.seq
        await self._acknowledge(position)
        if (self.queue.epoch, self.queue.acknowledged.seq) > before:
            self.reader.acknowledged_at = time.monotonic()

    async def _acknowledge(self, position: Position) -> None:
        if position.seq <= self.queue.queued.seq:
            await self.runner.acknowledge(self.consumer.name, position)
            return
        self.queue.check_history(position)
        try:
            order = await self.runner.find(self.consumer.name, position)
        except BinlogError as error:
            self.raise_failed()
            if error.kind is ErrorKind.HISTORY_DIFFERS:
                raise UserError(ErrorKind.POSITION_UNKNOWN, error.what, where=self.where) from error
            raise
        await self.seek(order)

    async def seek(self, order: SeekRequested) -> None:
        """Move the consumer to `order.after`, and store this position. The caller holds the lock `acknowledging`."""
        # The queue may have reached the position since the order was made.
        if seeking.holds(self.consumer, order.after):
            await self.runner.acknowledge(order.consumer, order.after)
            return
        self.runner.step(order)
        await self.runner.flush()

    def delivered(self, after: Position, answer: ReadableRange) -> None:
        """Record the answer to a poll that began at `after`. Also record how long ago the oldest unacknowledged
        transaction was committed: the answer begins with this transaction, unless the session is read-only."""
        self.told_at = time.monotonic()
        self.offered = OfferedRange(after, answer.end, answer.transactions)
        self.queue.deliver(answer.end)
        oldest_us = self.queue.oldest_commit_us
        if answer.transactions and oldest_us is not None:
            self.runner.timings.delivery.add(time.time() - oldest_us / 1e6)

    def is_offered_end(self, position: Position) -> bool:
        """True if the newest answer to a poll ends at `position`. In that case the fields of `position` need no further
        check."""
        return self.offered is not None and position == self.offered.end

    def transactions_of(self, start: Position, end: Position) -> int:
        """The number of transactions in (start, end]."""
        offered = self.offered
        if offered is not None and (start, end) == (offered.start, offered.end):
            return offered.transactions
        return self.queue.range_transactions(start, end)

    def has_moved(self, after: Position) -> bool:
        """True if the queue ends beyond `after`, even if only progress without data lies between the two."""
        return (self.queue.epoch, self.queue.queued.seq) > after.order

    def worth_telling(self, after: Position, answer: ReadableRange, markers: bool) -> bool:
        """True if a poll should return `answer` now rather than wait."""
        if answer.transactions:
            return True
        if answer.end.order <= after.order:
            return False
        return markers or time.monotonic() - self.told_at >= self.marker_s

    def has_few(self, answer: ReadableRange, bounds: PollBounds) -> bool:
        """True if `answer` has fewer bytes than the poll wants, and if the range can grow: it ends at the end of the
        queue, and the queue has room."""
        if not answer.transactions or answer.bytes >= bounds.bytes_min or self.lacks_room:
            return False
        return answer.end.order == (self.queue.epoch, self.queue.queued.seq)

    def wake(self) -> None:
        """Wake the calls that wait for this consumer."""
        self.runner.waiters.wake(self.consumer.name)

    async def wait(self, timeout_s: float, until: Condition | None = None) -> None:
        """Wait until the queue has something new for a reader, `until` returns True, or `timeout_s` is over."""
        await self.runner.waiters.wait(self.consumer.name, timeout_s, until)
