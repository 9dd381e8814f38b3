"""What readers may ask: sessions, polls, ranges, acknowledgements. Between the HTTP API and the runners.

A session is the right to one consumer: a number, stored, one higher with each opening, so that an older reader is
refused from then on, over restarts of the daemon too. Session 0 is read-only: it fences nobody and acknowledges
nothing. An acknowledgement is stored before anything is forgotten and before it is answered.

What a reader sees does not depend on who reads the log for it: a consumer that is detached answers with what its queue
has and then with nothing new; a position that memory no longer holds, after a restart or because the queue was
forgotten, is waited for until it was read again. A consumer that went on behind a gap (`on_purged: latest`) is in a
new epoch: readers that come with a position of an older one are told where it goes on, and that there is a gap.

Consumers come and go while readers wait, when the settings are read again. So a consumer is looked up by its name after
each wait, and one that was changed goes on under the sessions that it had.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dispatcher.dispatch import seeking, status
from dispatcher.dispatch.consumer import Consumer
from dispatcher.dispatch.events import SeekRequested
from dispatcher.dispatch.queue import Answer, Queue
from dispatcher.dispatch.specs import OnPurged
from dispatcher.model.errors import Action, BinlogError, ErrorKind, UserError
from dispatcher.model.position import Position
from dispatcher.runtime.client_runner import ClientRunner
from dispatcher.runtime.rates import Rates
from dispatcher.runtime.store_thread import StoreThread
from dispatcher.runtime.time_slices import in_slices
from dispatcher.source.mysql.server_facts import table_columns

READ_ONLY = 0
RANGE_WAIT_S = 30.0


@dataclass(slots=True)
class ConsumerSession:
    """One consumer as its readers see it. `marker_s`: how often a reader is told of progress without data."""

    runner: ClientRunner
    consumer: Consumer
    session: int  # the newest one, 0 = there was none
    marker_s: float
    told_at: float = field(default_factory=time.monotonic)
    acknowledging: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def queue(self) -> Queue:
        return self.consumer.queue

    @property
    def where(self) -> str:
        return f"consumer {self.consumer.name}"

    def raise_failed(self) -> None:
        if self.consumer.failed:
            raise self.consumer.failed

    def check_session(self, session: int) -> None:
        if session not in (READ_ONLY, self.session):
            told = f"session {session}, the newest one is {self.session}"
            raise UserError(ErrorKind.SESSION_FENCED, told, where=self.where)

    def behind_gap(self, position: Position) -> bool:
        """Is it of before a gap that the consumer has gone on behind?"""
        latest = self.consumer.spec.on_purged is OnPurged.LATEST
        return latest and self.consumer.started and position.epoch < self.queue.epoch

    def now(self, position: Position) -> Position:
        """The position itself, or where the consumer goes on if it is of before a gap."""
        return self.acknowledged if self.behind_gap(position) else position

    @property
    def acknowledged(self) -> Position:
        return self.queue.position(self.queue.acknowledged)

    @property
    def head(self) -> Position:
        """The source's end of log, as last heard, or further if more was read."""
        tip, queued = self.runner.tip, self.queue.queued
        return self.queue.position(tip if tip is not None and tip.seq > queued.seq else queued)

    def next(self, after: Position, bytes_max: int) -> Answer | None:
        """None where memory does not hold it (yet)."""
        try:
            return self.queue.next(after, bytes_max)
        except BinlogError as error:
            if error.kind is ErrorKind.RANGE_UNAVAILABLE:
                return None
            raise

    async def acknowledge(self, position: Position) -> None:
        """Store, then forget. The caller holds `acknowledging`.

        A position ahead of what is queued, as after a restart, is skipped to if the server has it; else it is refused.
        """
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
        """Move the consumer, and store where it is. The caller holds `acknowledging`."""
        if seeking.holds(self.consumer, order.after):  # it was read while the server was asked
            await self.runner.acknowledge(order.consumer, order.after)
            return
        self.runner.step(order)
        await self.runner.flush()

    def has_moved(self, after: Position) -> bool:
        """True if there may be something to tell of behind `after`, if only progress without data."""
        return self.queue.position(self.queue.queued).order > after.order

    def worth_telling(self, after: Position, answer: Answer, markers: bool) -> bool:
        if answer.transactions:
            return True
        if answer.end.order <= after.order:
            return False
        return markers or time.monotonic() - self.told_at >= self.marker_s


class ConsumerSessions:
    """All consumers of the daemon. Every method raises BinlogError for what is refused or not there."""

    def __init__(self, store: StoreThread) -> None:
        self._readers: dict[str, ConsumerSession] = {}
        self._store = store
        self._rates = Rates()
        self._closing = False

    def add(self, reader: ConsumerSession) -> None:
        """A consumer is there, or another one in its place, under the sessions that were opened meanwhile."""
        name = reader.consumer.name
        if (before := self._readers.get(name)) is not None:
            reader.session = max(reader.session, before.session)
            before.runner.wake(name)
        self._readers[name] = reader

    def remove(self, name: str) -> None:
        self._readers.pop(name).runner.wake(name)

    def close(self) -> None:
        """Let those who wait go with what there is, because the daemon is ending."""
        self._closing = True
        for name, reader in self._readers.items():
            reader.runner.wake(name)

    # -- what readers do -------------------------------------------------------------------------------------

    async def open_session(
        self, name: str, after: Position | None, read_only: bool
    ) -> dict[str, Any]:
        reader = await self._placed(name) if after and not read_only else await self._started(name)
        if read_only:
            gap = after is not None and reader.behind_gap(after)
            if after is not None and not gap:
                reader.queue.executed_of(after)
            await reader.runner.survey()
            return _session_answer(reader, READ_ONLY, None if gap else after, gap=gap)
        while True:
            reader = self.reader(name)
            # The acknowledgement of an older session that is on its way comes first.
            async with reader.acknowledging:
                if self._readers.get(name) is reader:
                    return await self._open(reader, after)

    async def _open(self, reader: ConsumerSession, after: Position | None) -> dict[str, Any]:
        """A reader brings a position of its own, which wins over the stored one if the server has it; else it goes on
        from the stored one. A position that is refused changes nothing, and fences nobody."""
        name = reader.consumer.name
        fresh = not reader.session  # of a new store, whose epoch no reader has seen yet
        gap = after is not None and reader.behind_gap(after) and not fresh
        if gap:
            after = None
        order: SeekRequested | None = None
        if after is None or seeking.holds(reader.consumer, after):
            if after is not None:
                reader.queue.locate(after)
            await reader.runner.survey()
        else:
            if reader.consumer.started and not fresh:
                reader.queue.executed_of(after)
            order = await reader.runner.find(name, after, fresh=fresh)
        session = await self._store.next_session(name)
        reader.session = max(reader.session, session)
        reader.runner.wake(name)  # older sessions that wait are told
        if order is not None:
            await reader.seek(order)
        elif after is not None:
            await reader.acknowledge(after)
        return _session_answer(reader, session, after, gap=gap)

    async def poll(
        self,
        name: str,
        session: int,
        after: Position,
        bytes_max: int | None,
        wait_s: float,
        markers: bool,
    ) -> dict[str, Any]:
        deadline = time.monotonic() + wait_s
        reader = await self._started(name)
        if session != READ_ONLY and not reader.behind_gap(after):
            await self.acknowledge(name, session, after)
        while True:
            reader = await self._started(name)  # it may have been changed meanwhile
            reader.check_session(session)
            if reader.behind_gap(after):
                return self._poll_answer(reader, reader.acknowledged, None, gap=True)
            limit = reader.queue.bytes_max if bytes_max is None else bytes_max
            answer = reader.next(after, limit)
            if answer is not None and reader.worth_telling(after, answer, markers):
                reader.told_at = time.monotonic()
                reader.queue.deliver(answer.end)
                return self._poll_answer(reader, answer.end, answer)
            reader.raise_failed()
            now = time.monotonic()
            if self._closing or now >= deadline:
                return self._poll_answer(reader, after, None)
            marker_at = now if markers else reader.told_at + reader.marker_s
            if now < marker_at < deadline:
                await reader.runner.wait(name, marker_at - now)
            else:
                watch = partial(reader.has_moved, after) if marker_at <= now else None
                await reader.runner.wait(name, deadline - now, watch)

    @staticmethod
    def _poll_answer(
        reader: ConsumerSession, end: Position, answer: Answer | None, *, gap: bool = False
    ) -> dict[str, Any]:
        return {
            "end": end.as_dict(),
            "head": reader.head.as_dict(),
            "bytes": answer.bytes if answer else 0,
            "transactions": answer.transactions if answer else 0,
            "gap": gap,
        }

    async def binlog(
        self, name: str, session: int, start: Position, end: Position
    ) -> list[bytes | memoryview]:
        """The bytes of (start, end]; waits while the range is read from the server again.

        Nothing is left of what lies before a gap: of a range that was planned then the part behind it is answered.
        """
        reader = await self._until_read(name, session, end)
        unsent = reader.queue.lent_bytes
        if unsent >= reader.queue.bytes_max:
            raise UserError(
                ErrorKind.TOO_MANY_REQUESTS,
                f"{unsent} acknowledged bytes were answered and are not taken yet",
                where=reader.where,
                remedy="read the open answers to their end, or close their connections",
            )
        return reader.queue.read(reader.now(start), reader.now(end))

    async def slices(
        self, name: str, session: int, start: Position, end: Position, n: int
    ) -> list[dict[str, Any]]:
        reader = await self._until_read(name, session, end)
        return [cut.as_dict() for cut in reader.queue.cut(reader.now(start), reader.now(end), n)]

    async def acknowledge(self, name: str, session: int, position: Position) -> dict[str, Any]:
        """Store, then forget. What was handed out before a restart may be acknowledged before it was read again."""
        self.reader(name).check_session(session)
        if session == READ_ONLY:
            raise UserError(ErrorKind.SESSION_FENCED, "a read-only session acknowledges nothing")
        while True:
            reader = await self._started(name)
            async with reader.acknowledging:
                if self._readers.get(name) is not reader or not reader.consumer.started:
                    continue  # another one took its place
                reader.check_session(session)
                # What lay before a gap is gone, acknowledged or not.
                if not reader.behind_gap(position):
                    await reader.acknowledge(position)
                return reader.acknowledged.as_dict()

    async def table(self, name: str, database: str, table: str) -> dict[str, Any]:
        """Columns and key of a table, from the server's information schema."""
        reader = self.reader(name)
        wanted = reader.consumer.spec
        listed = wanted.tables is None or (database, table) in wanted.tables
        if database not in wanted.databases or not listed:
            raise UserError(
                ErrorKind.UNKNOWN_TABLE,
                f"{reader.where} does not read {database}.{table}",
                remedy="add it to the consumer's databases and tables",
            )
        version = reader.queue.epoch, reader.queue.queued.seq
        look_up = partial(_table, reader, database, table)
        return await reader.runner.tables.ask((name, database, table), version, look_up)

    # -- what people ask -------------------------------------------------------------------------------------

    def rows(self) -> AsyncIterator[dict[str, Any]]:
        """A row of `GET /v1/binlogs` for each consumer, made in slices: each row is of one moment."""
        return in_slices(row for row, _ in self.rows_with_consumers())

    def rows_with_consumers(self) -> Iterator[tuple[dict[str, Any], Consumer]]:
        return rows_with_consumers(list(self._readers.values()), self._rates)

    def names(self) -> list[str]:
        return list(self._readers)

    # -- parts -----------------------------------------------------------------------------------------------

    def reader(self, name: str) -> ConsumerSession:
        reader = self._readers.get(name)
        if reader is None:
            raise UserError(ErrorKind.UNKNOWN_CONSUMER, repr(name))
        return reader

    async def _started(self, name: str) -> ConsumerSession:
        """Its reader when it has a place, which it has once its server was reached for the first time."""
        return await self._until(
            name, lambda reader: reader.consumer.started, _unreached, _hopeless
        )

    async def _placed(self, name: str) -> ConsumerSession:
        """The same, or when it has failed: a reader that brings a position of its own may give it another place."""

        def placed(reader: ConsumerSession) -> bool:
            return reader.consumer.started or reader.consumer.failed is not None

        return await self._until(name, placed, _unreached, _hopeless)

    async def _until_read(self, name: str, session: int, end: Position) -> ConsumerSession:
        """Its reader when the queue has come to a position that it was at before, as before a restart."""

        def read(reader: ConsumerSession) -> bool:
            reader.check_session(session)
            if reader.consumer.started:  # else its history is not known yet
                reader.queue.executed_of(reader.now(end))
            seq = reader.now(end).seq
            reader.queue.needed_seq = max(reader.queue.needed_seq, seq)
            return seq <= reader.queue.queued.seq

        def why(reader: ConsumerSession) -> str:
            return f"seq {end.seq} is not read yet (at {reader.queue.queued.seq})"

        return await self._until(name, read, why)

    async def _until(
        self,
        name: str,
        condition: Callable[[ConsumerSession], bool],
        why: Callable[[ConsumerSession], str],
        hopeless: Callable[[ConsumerSession], bool] = lambda _: False,
    ) -> ConsumerSession:
        """Raises BinlogError (RANGE_UNAVAILABLE: to be asked again) with `why` after `RANGE_WAIT_S`."""
        deadline = time.monotonic() + RANGE_WAIT_S
        while not condition(reader := self.reader(name)):
            reader.raise_failed()
            if hopeless(reader) or self._closing or time.monotonic() >= deadline:
                raise BinlogError(ErrorKind.RANGE_UNAVAILABLE, why(reader), where=reader.where)

            def met(reader: ConsumerSession = reader) -> bool:
                return condition(reader) or hopeless(reader) or reader.consumer.failed is not None

            await reader.runner.wait(name, deadline - time.monotonic(), met)
        return reader


def _unreached(reader: ConsumerSession) -> str:
    return str(reader.consumer.error or "the server was not reached yet")


def _hopeless(reader: ConsumerSession) -> bool:
    error = reader.consumer.error
    return error is not None and error.action is Action.OPERATOR


def _session_answer(
    reader: ConsumerSession, session: int, after: Position | None, *, gap: bool
) -> dict[str, Any]:
    return {
        "session": session,
        "position": (reader.acknowledged if after is None else after).as_dict(),
        "head": reader.head.as_dict(),
        "max_bytes_in_binlog_queue": reader.queue.bytes_max,
        "gap": gap,
    }


def rows(readers: Iterable[ConsumerSession], rates: Rates) -> list[dict[str, Any]]:
    """A row of `GET /v1/binlogs` for each."""
    return [row for row, _ in rows_with_consumers(list(readers), rates)]


def rows_with_consumers(
    readers: Sequence[ConsumerSession], rates: Rates
) -> Iterator[tuple[dict[str, Any], Consumer]]:
    """The same with the consumers. Consumers may come and go between two rows."""
    rate = rates.look(dict.fromkeys(reader.runner.client for reader in readers), time.monotonic())
    for reader in readers:
        client, consumer = reader.runner.client, reader.consumer
        # One that is just being replaced is not its client's any more.
        if client.consumers.get(consumer.name) is consumer:
            yield status.row(client, consumer, rate, time.time()), consumer


def _table(reader: ConsumerSession, database: str, table: str) -> dict[str, Any]:
    connection = reader.runner.source.server().connect()
    try:
        return table_columns(connection, database, table)
    finally:
        connection.close()
