"""What readers may ask: sessions, polls, ranges, acknowledgements. Between the HTTP API and the runners.

A session is the right to one consumer: a number, stored, one higher with each opening, so that an older reader is
refused from then on, over restarts of the daemon too. Session 0 is read-only: it fences nobody and acknowledges
nothing. An acknowledgement is stored before anything is forgotten and before it is answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from dispatcher.dispatch import status
from dispatcher.dispatch.client import Consumer
from dispatcher.dispatch.inputs import Sought
from dispatcher.dispatch.queue import Answer
from dispatcher.model.errors import Action, BinlogError, Kind, UserError
from dispatcher.model.position import Position
from dispatcher.net.runner import ClientRunner
from dispatcher.net.server import table_columns

READ_ONLY = 0
RANGE_WAIT_S = 30.0
RATE_WINDOW_S = 5.0


@dataclass(slots=True)
class Reader:
    """One consumer as its readers see it. `marker_s`: how often a reader is told of progress without data."""

    runner: ClientRunner
    consumer: Consumer
    session: int  # the newest one, 0 = there was none
    marker_s: float
    told_at: float = field(default_factory=time.monotonic)
    acknowledging: asyncio.Lock = field(default_factory=asyncio.Lock)


class Readers:
    """All consumers of the daemon. Every method raises BinlogError for what is refused or not there."""

    def __init__(
        self, readers: Iterable[Reader], next_session: Callable[[str], int], store_thread: Executor
    ) -> None:
        """`next_session` stores a consumer's next number and blocks; it is called in `store_thread` only."""
        self._readers = {reader.consumer.name: reader for reader in readers}
        self._next_session = next_session
        self._store_thread = store_thread
        self._rates: dict[str, _Rate] = {}
        self._closing = False

    def close(self) -> None:
        """Let those who wait for data go with what there is, because the daemon is ending."""
        self._closing = True
        for name, reader in self._readers.items():
            reader.runner.wake(name)

    # -- what readers do -------------------------------------------------------------------------------------

    async def open_session(
        self, name: str, after: Position | None, read_only: bool
    ) -> dict[str, Any]:
        reader = self._reader(name)
        await self._until_started(reader)
        queue = reader.consumer.queue
        if after is not None:
            queue.place_of(after)  # before anybody is fenced for a position that is none
        tip = await reader.runner.ask_tip()
        session = READ_ONLY
        if not read_only:
            loop = asyncio.get_running_loop()
            session = await loop.run_in_executor(self._store_thread, self._next_session, name)
            reader.session = max(reader.session, session)
            reader.runner.wake(name)  # older sessions that wait are told
            if after is not None:
                await self._resume(reader, after)
        position = after if after is not None else queue.position(queue.acknowledged)
        head = tip if tip is not None and tip.seq > queue.queued.seq else queue.queued
        return {
            "session": session,
            "position": position.as_dict(),
            "head": queue.position(head).as_dict(),
            "max_bytes_in_binlog_queue": queue.bytes_max,
        }

    async def poll(
        self,
        name: str,
        session: int,
        after: Position,
        bytes_max: int | None,
        wait_s: float,
        markers: bool,
    ) -> dict[str, Any]:
        reader = self._reader(name)
        queue = reader.consumer.queue
        deadline = time.monotonic() + wait_s
        await self._until_started(reader)
        if session != READ_ONLY:
            await self.acknowledge(name, session, after)
        while True:
            self._check_session(reader, session)
            answer = self._next(reader, after, queue.bytes_max if bytes_max is None else bytes_max)
            told = answer is not None and self._worth_telling(reader, after, answer, markers)
            if told or self._closing or time.monotonic() >= deadline:
                break
            self._raise_failed(reader)
            await reader.runner.wait(name, min(max(deadline - time.monotonic(), 0.0), 1.0))
        end = after
        if told and answer is not None:
            end = answer.end
            reader.told_at = time.monotonic()
            queue.deliver(end)
        else:
            self._raise_failed(reader)
        tip = reader.runner.tip
        head = tip if tip is not None and tip.seq > queue.queued.seq else queue.queued
        return {
            "end": end.as_dict(),
            "head": queue.position(head).as_dict(),
            "bytes": answer.bytes if told and answer else 0,
            "transactions": answer.transactions if told and answer else 0,
        }

    async def binlog(
        self, name: str, session: int, start: Position, end: Position
    ) -> list[bytes | memoryview]:
        """The bytes of (start, end]; waits while the range is read from the server again."""
        reader = self._reader(name)
        self._check_session(reader, session)
        await self._until_read(reader, end)
        self._check_session(reader, session)
        return reader.consumer.queue.read(start, end)

    async def slices(
        self, name: str, session: int, start: Position, end: Position, n: int
    ) -> list[dict[str, Any]]:
        reader = self._reader(name)
        self._check_session(reader, session)
        await self._until_read(reader, end)
        return [cut.as_dict() for cut in reader.consumer.queue.cut(start, end, n)]

    async def acknowledge(self, name: str, session: int, position: Position) -> dict[str, Any]:
        """Store, then forget. Waits while the position is still being read from the server again."""
        reader = self._reader(name)
        self._check_session(reader, session)
        if session == READ_ONLY:
            raise UserError(Kind.SESSION_FENCED, "a read-only session acknowledges nothing")
        await self._until_started(reader)
        await self._until_read(reader, position)
        async with reader.acknowledging:
            self._check_session(reader, session)
            await reader.runner.acknowledge(name, position)
        queue = reader.consumer.queue
        return queue.position(queue.acknowledged).as_dict()

    async def table(self, name: str, database: str, table: str) -> dict[str, Any]:
        """Columns and key of a table, from the server's information schema."""
        reader = self._reader(name)
        return await asyncio.to_thread(self._table, reader, database, table)

    # -- what people ask -------------------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        now_s = time.time()
        return [
            status.row(reader.runner.client, reader.consumer, self._rate(reader.runner), now_s)
            for reader in self._readers.values()
        ]

    def names(self) -> list[str]:
        return list(self._readers)

    # -- parts -----------------------------------------------------------------------------------------------

    def _reader(self, name: str) -> Reader:
        reader = self._readers.get(name)
        if reader is None:
            raise UserError(Kind.UNKNOWN_CONSUMER, repr(name))
        return reader

    @staticmethod
    def _check_session(reader: Reader, session: int) -> None:
        if session != READ_ONLY and session != reader.session:
            raise UserError(
                Kind.SESSION_FENCED,
                f"session {session}, the newest one is {reader.session}",
                where=f"consumer {reader.consumer.name}",
            )

    @staticmethod
    def _raise_failed(reader: Reader) -> None:
        if reader.consumer.failed:
            raise reader.consumer.failed

    async def _resume(self, reader: Reader, after: Position) -> None:
        """A reader brings a position of its own: it wins over the stored one."""
        queue = reader.consumer.queue
        name = reader.consumer.name
        async with reader.acknowledging:
            if after.seq >= queue.acknowledged.seq and after.seq <= queue.queued.seq:
                await reader.runner.acknowledge(name, after)
                return
            reader.runner.step(Sought(name, after))
            await reader.runner.flush()

    def _next(self, reader: Reader, after: Position, bytes_max: int) -> Answer | None:
        try:
            return reader.consumer.queue.next(after, bytes_max)
        except BinlogError as error:
            if error.kind is Kind.RANGE_UNAVAILABLE:
                return None
            raise

    @staticmethod
    def _worth_telling(reader: Reader, after: Position, answer: Answer, markers: bool) -> bool:
        if answer.transactions:
            return True
        if answer.end.order <= after.order:
            return False
        return markers or time.monotonic() - reader.told_at >= reader.marker_s

    async def _until_started(self, reader: Reader) -> None:
        """Until the consumer has a place, which it has once its server was reached for the first time."""
        deadline = time.monotonic() + RANGE_WAIT_S
        while not reader.consumer.started:
            self._raise_failed(reader)
            error = reader.consumer.error
            if (
                error is not None and error.action is Action.OPERATOR
            ) or time.monotonic() >= deadline:
                raise BinlogError(
                    Kind.RANGE_UNAVAILABLE,
                    str(error) if error else "the server was not reached yet",
                    where=f"consumer {reader.consumer.name}",
                )
            await reader.runner.wait(reader.consumer.name, 1.0)

    async def _until_read(self, reader: Reader, end: Position) -> None:
        """Until the queue has reached a position that it was at before the daemon restarted."""
        queue = reader.consumer.queue
        deadline = time.monotonic() + RANGE_WAIT_S
        while end.seq > queue.queued.seq:
            self._raise_failed(reader)
            if time.monotonic() >= deadline:
                raise UserError(
                    Kind.RANGE_UNAVAILABLE,
                    f"seq {end.seq} is not read yet (at {queue.queued.seq})",
                    where=f"consumer {reader.consumer.name}",
                )
            await reader.runner.wait(reader.consumer.name, 0.2)

    @staticmethod
    def _table(reader: Reader, database: str, table: str) -> dict[str, Any]:
        if database not in reader.consumer.spec.databases:
            raise UserError(
                Kind.UNKNOWN_CONSUMER,
                f"consumer {reader.consumer.name} does not read database {database!r}",
                remedy="add the database to the consumer's databases",
            )
        connection = reader.runner.source.server().connect()
        try:
            return table_columns(connection, database, table)
        finally:
            connection.close()

    def _rate(self, runner: ClientRunner) -> tuple[float, float]:
        rate = self._rates.setdefault(runner.client.label, _Rate())
        return rate.update(time.monotonic(), runner.client.events, runner.client.bytes)


@dataclass(slots=True)
class _Rate:
    """Events and bytes per second, measured between two looks at least a second apart."""

    at: float = 0.0
    events: int = 0
    bytes: int = 0
    value: tuple[float, float] = (0.0, 0.0)

    def update(self, now: float, events: int, bytes_: int) -> tuple[float, float]:
        passed = now - self.at
        if passed >= 1.0:
            if passed <= 2 * RATE_WINDOW_S:
                self.value = (events - self.events) / passed, (bytes_ - self.bytes) / passed
            self.at, self.events, self.bytes = now, events, bytes_
        return self.value
