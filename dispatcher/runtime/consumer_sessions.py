"""The calls of readers: sessions, polls, ranges, acknowledgements, tables.

A session is the right to read one consumer. Its number is stored, and is higher than the numbers of all earlier
sessions. A new session fences the older ones, also across restarts of the daemon. Session 0 is read-only: it fences no
other session and may not acknowledge. The daemon stores an acknowledgement first; after that it forgets the
acknowledged data and answers the call.

What a reader sees does not depend on which dispatcher serves its consumer. The reader of a detached consumer gets what
the queue holds, and then nothing new until the consumer is attached again. After a restart, or after the queue was
evicted, a call may ask for a position that is not in memory: the call waits until the daemon has read the log up to
that position again. A consumer that has skipped a purge gap (`on_purged: latest`) is in a new epoch. If a reader then
passes a position of an older epoch, the answer says that there is a gap, and where the consumer continues.

A reload of the settings may add, remove and replace consumers while calls wait. So each call looks up its consumer by
name again after each wait. A changed consumer keeps its newest session.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

from dispatcher.binlog.event.header import FormatDescription
from dispatcher.dispatch.client import seeking
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.messages.events import SeekRequested
from dispatcher.dispatch.queue.queue import HeldRange, ReadableRange
from dispatcher.dispatch.queue.reader import Caller, PollBounds
from dispatcher.dispatch.values.specs import Start
from dispatcher.model.asked_dump import AskedDump, DumpRefusal
from dispatcher.model.errors import Action, BinlogError, ErrorKind, UserError
from dispatcher.model.position import EventPoint, Position
from dispatcher.model.server_picture import Picture, ServerAnswer
from dispatcher.model.subscription import Subscription
from dispatcher.runtime.client.consumer_session import READ_ONLY, ConsumerSession
from dispatcher.runtime.client.from_settings import start_spec
from dispatcher.runtime.client.places import log_was_replaced, position_of, relocation_to
from dispatcher.runtime.loop.time_slices import in_slices
from dispatcher.runtime.status.history import Sample
from dispatcher.runtime.status.rates import Rates
from dispatcher.runtime.status.status_rows import row_of, shown_state, status_rows, status_samples
from dispatcher.runtime.store.store_thread import StoreThread
from dispatcher.settings.model import StartSettings

RANGE_WAIT_S = 30.0
# The error of a consumer before the first connection.
NOT_REACHED = (
    "the daemon does not read the server yet; GET /readyz shows whether it compiles kernels first"
)

Refusal = Callable[[], BinlogError]
"""A function that makes the error with which a call is refused."""


class ConsumerSessions:
    """The sessions of all consumers of the daemon. Every method raises BinlogError for a request that it refuses."""

    def __init__(self, store: StoreThread) -> None:
        self._sessions: dict[str, ConsumerSession] = {}
        self._store = store
        self.rates = Rates()
        self._closing = False
        self._refusal: Refusal | None = None
        self._called: set[str] = set()

    def add(self, session: ConsumerSession) -> None:
        """Add a consumer. If `session` replaces a consumer of the same name, `session` takes over the newest session of
        that consumer."""
        name = session.consumer.name
        if (before := self._sessions.get(name)) is not None:
            session.moved = before.moved
            session.number, session.reader = max(session.number, before.number), before.reader
            before.wake()
        self._sessions[name] = session

    def remove(self, name: str) -> None:
        self._sessions.pop(name).wake()

    @property
    def closing(self) -> bool:
        """True once the daemon is ending or no longer leads. Then polls do not wait."""
        return self._closing

    def close(self) -> None:
        """Answer all waiting calls with what the queues hold now, because the daemon is ending."""
        self._closing = True
        for session in self._sessions.values():
            session.wake()

    def refuse(self, refusal: Refusal) -> None:
        """Refuse all waiting and all later calls, because this daemon no longer leads."""
        self._refusal = refusal
        self.close()

    # -- calls of readers ------------------------------------------------------------------------------------

    async def open_session(
        self,
        name: str,
        after: Position | None,
        read_only: bool,
        *,
        unknown_definitions: bool = False,
    ) -> dict[str, Any]:
        """`unknown_definitions`: True if the reader understands TABLE_MAPs that are marked as unknown."""
        if self.get(name).consumer.failed is not None:
            await self.get(name).runner.survey()  # the consumer's server may have come back
        session = (
            await self._started_or_failed(name)
            if after and not read_only
            else await self._started(name)
        )
        if read_only:
            gap = after is not None and session.before_gap(after)
            if after is not None and not gap:
                session.queue.executed_of(after)
            await session.runner.survey()
            return _session_answer(session, READ_ONLY, None if gap else after, gap=gap)
        while True:
            session = self.get(name)
            # If an acknowledgement of an older session is being stored, wait until it is stored.
            async with session.acknowledging:
                if self._sessions.get(name) is session:
                    return await self._open(session, after, takes_unknown=unknown_definitions)

    async def _open(
        self, session: ConsumerSession, after: Position | None, *, takes_unknown: bool
    ) -> dict[str, Any]:
        """Open a session at the reader's position `after`, or at the stored position if `after` is None. The server's
        log must contain `after`.

        If `after` is refused, nothing changes and no session is fenced.
        """
        name = session.consumer.name
        fresh = not session.number  # a new store, whose epoch no reader has seen yet
        gap = after is not None and session.before_gap(after) and not fresh
        if gap:
            after = None
        order: SeekRequested | None = None
        if after is None or seeking.holds(session.consumer, after):
            if after is not None:
                session.queue.locate(after)
            await session.runner.survey()
        else:
            if session.consumer.started and not fresh:
                session.queue.executed_of(after)
            order = await session.runner.find(name, after, fresh=fresh)
        number = await self._store.next_session(name)
        session.begin(number)
        session.declare(takes_unknown=takes_unknown)
        session.called(session.number)
        session.wake()  # waiting calls of older sessions find that they are fenced
        if order is not None:
            await session.seek(order)
        elif after is not None:
            await session.acknowledge(after)
        return _session_answer(session, number, after, gap=gap)

    async def poll(
        self,
        name: str,
        number: int,
        after: Position,
        bounds: PollBounds,
        wait_s: float,
        markers: bool,
        *,
        acknowledges: bool = True,
    ) -> dict[str, Any]:
        """`acknowledges`: False if the poll must not acknowledge `after`, because the reader calls `acknowledge`
        itself."""
        deadline = time.monotonic() + wait_s
        session = await self._started(name)
        self._called.add(name)  # a client of the front polls for days within one call
        if acknowledges and number != READ_ONLY and not session.before_gap(after):
            await self._acknowledge(name, number, after)
        reader = self.get(name).poll_began(number)
        if reader is None:
            return await self._poll(name, number, after, bounds, deadline, markers)
        disconnected = False
        try:
            return await self._poll(name, number, after, bounds, deadline, markers)
        except asyncio.CancelledError:
            disconnected = True
            raise
        finally:
            reader.poll_ended(number, time.monotonic(), disconnected=disconnected)

    async def _poll(
        self,
        name: str,
        number: int,
        after: Position,
        bounds: PollBounds,
        deadline: float,
        markers: bool,
    ) -> dict[str, Any]:
        while True:
            session = await self._started(name)  # a reload may have replaced the session object
            session.check_number(number)
            if session.before_gap(after):
                return self._poll_answer(session, session.acknowledged, None, gap=True)
            paused = session.consumer.delivery_paused
            answer = None if paused else session.next(after, bounds)
            few = answer is not None and session.has_few(answer, bounds)
            if answer is not None and not few and session.worth_telling(after, answer, markers):
                session.delivered(after, answer)
                return self._poll_answer(session, answer.end, answer)
            session.raise_failed()
            now = time.monotonic()
            if self._closing or now >= deadline:
                return self._poll_answer(session, after, None)
            marker_at = now if markers else session.told_at + session.marker_s
            if paused:
                await session.wait(deadline - now)
            elif few:
                await session.wait(deadline - now, partial(getattr, session, "lacks_room"))
            elif now < marker_at < deadline:
                await session.wait(marker_at - now)
            else:
                watch = partial(session.has_moved, after) if marker_at <= now else None
                await session.wait(deadline - now, watch)

    @staticmethod
    def _poll_answer(
        session: ConsumerSession, end: Position, answer: ReadableRange | None, *, gap: bool = False
    ) -> dict[str, Any]:
        head = session.head
        return {
            "end": end.as_dict(),
            "head": head.as_dict(),
            "bytes": answer.bytes if answer else 0,
            "transactions": answer.transactions if answer else 0,
            "gap": gap,
            "paused": session.consumer.delivery_paused,
            **session.lag(end, head),
        }

    async def resolve(self, name: str, to: StartSettings) -> dict[str, Any]:
        """Return the position of a place in the server's log, in the consumer's epoch. Changes nothing."""
        return (await self.position_of(name, start_spec(to))).as_dict()

    async def position_of(self, name: str, start: Start) -> Position:
        """Does what `resolve` does, for a start in the form that the rules use."""
        return await position_of(await self._started_or_failed(name), start)

    async def held(self, name: str) -> HeldRange | None:
        """Return what the consumer's queue holds; None if the consumer has failed, or if the server's log is no longer
        the one that the consumer has read. Waits until the consumer has a position."""
        session = await self._started_or_failed(name)
        if session.consumer.failed is not None or await log_was_replaced(session):
            return None
        return session.queue.held

    async def open_at(self, name: str, start: Start) -> dict[str, Any]:
        """Open a session at a place of the server's present log, wherever the consumer is. Raises BinlogError as
        `position_of` does.

        The place gets a new epoch in two cases. First, the server's log is no longer the log that the consumer has
        read. Second, the `seq` of the place lies within the consumer's queue, but the queue never had the place's GTID
        set, as for a set with gaps.
        """
        session = await self._started_or_failed(name)
        if not await log_was_replaced(session):
            after = await self.position_of(name, start)
            if not seeking.is_beside_queue(self.get(name).consumer, after):
                return await self.open_session(name, after, read_only=False)
        await self.relocate(name, start)
        return await self.open_session(name, None, read_only=False)

    async def relocate(self, name: str, start: Start) -> Position:
        """Move a consumer to a place of the server's log, into an epoch that was never used before, and fence all
        sessions. Returns its new position. Raises BinlogError as `position_of` does, and then changes nothing."""
        session = self.get(name)
        order = await relocation_to(session, start)
        async with session.acknowledging:
            self.require_current(session)
            session.begin(await self._store.next_session(name), moved=True)
            session.runner.step(order)
            await session.runner.flush()
        session.wake()  # waiting calls then notice that their session is fenced
        return session.acknowledged

    def require_current(self, session: ConsumerSession) -> None:
        """Raise BinlogError if new settings have replaced this consumer since the call of the reader began."""
        if self._sessions.get(session.consumer.name) is not session:
            what = "the consumer's settings were changed meanwhile"
            raise BinlogError(ErrorKind.RANGE_UNAVAILABLE, what, where=session.where)

    async def binlog(
        self,
        name: str,
        number: int,
        start: Position,
        end: Position,
        start_event: EventPoint | None = None,
        end_event: EventPoint | None = None,
    ) -> tuple[list[bytes | memoryview], bool]:
        """Return the bytes of (start, end], and True if the range begins before a purge gap. If the daemon has to read
        the range from the server again, the call waits.

        The server has purged the data before the gap. So if the range begins before a gap, the call returns only the
        part after the gap.
        """
        session = await self._until_read(name, number, end)
        unsent = session.queue.lent_bytes
        served = self.is_newest_session(name, number) and not session.reader.has_open_answers
        # Answers that clients of other sessions have not received yet do not keep the newest session from its next
        # range.
        if unsent >= session.queue.bytes_max and not served:
            raise UserError(
                ErrorKind.TOO_MANY_REQUESTS,
                f"{unsent} acknowledged bytes were answered and are not received yet",
                where=session.where,
                remedy="read the open answers to their end, or close their connections",
            )
        first, last = session.now(start), session.now(end)
        start_event = None if session.before_gap(start) else start_event
        end_event = None if session.before_gap(end) else end_event
        parts = session.queue.read(first, last, start_event, end_event)
        if number == session.number != READ_ONLY:
            # If slices divide a transaction, only the slice with the end of the transaction counts the transaction.
            whole = session.transactions_of(first, last)
            ends = whole + (start_event is not None) - (end_event is not None)
            session.reader.answer_began(ends, sum(map(len, parts)))
        return parts, session.before_gap(start)

    def is_newest_session(self, name: str, number: int) -> bool:
        session = self._sessions.get(name)
        return session is not None and number == session.number != READ_ONLY

    def answer_ended(self, name: str, number: int) -> None:
        """Record that the answer to a `binlog` call was sent, or that its client has disconnected."""
        session = self._sessions.get(name)
        if session is not None and number != READ_ONLY:
            session.reader.answer_ended(number, time.monotonic())

    def called(
        self, name: str, number: int, caller: Caller, *, unknown_definitions: bool = False
    ) -> None:
        """Record that a reader has called the consumer. If `number` is the newest session, also record the caller. With
        `unknown_definitions`, record that the reader understands TABLE_MAPs that are marked as unknown: after a
        restart, the daemon does not know what the reader declared when it opened the session. If the consumer is
        unknown, do nothing, because the call itself is refused."""
        session = self._sessions.get(name)
        if session is not None:
            self._called.add(name)
            session.called(number, caller)
            if unknown_definitions and self.is_newest_session(name, number):
                session.declare(takes_unknown=True)

    def take_called(self) -> set[str]:
        """Return the consumers that a reader has called, in any session, since the last call of this method."""
        called, self._called = self._called, set()
        return called

    def put_called(self, names: set[str]) -> None:
        """Let the next `take_called` return these consumers again."""
        self._called |= names

    async def slices(
        self,
        name: str,
        number: int,
        start: Position,
        end: Position,
        n: int,
        inside: bool = False,
    ) -> dict[str, Any]:
        session = await self._until_read(name, number, end)
        start, end = session.now(start), session.now(end)
        cuts = session.queue.cut_points(start, end, n, inside=inside)
        return {
            "cuts": [cut.position.as_dict() for cut in cuts],
            "events": [cut.inside.as_dict() if cut.inside else None for cut in cuts],
            "bytes": session.queue.range_bytes(start, end),
        }

    async def acknowledge(self, name: str, number: int, position: Position) -> dict[str, Any]:
        """Store the acknowledgement, then forget the data. After a restart, a reader may acknowledge delivered data
        before the daemon has read this data again."""
        return (await self._acknowledge(name, number, position)).acknowledged.as_dict()

    async def _acknowledge(self, name: str, number: int, position: Position) -> ConsumerSession:
        self.get(name).check_number(number)
        if number == READ_ONLY:
            raise UserError(ErrorKind.SESSION_FENCED, "a read-only session cannot acknowledge")
        while True:
            session = await self._started(name)
            async with session.acknowledging:
                if self._sessions.get(name) is not session or not session.consumer.started:
                    continue  # another object has replaced this session
                session.check_number(number)
                # The server has purged the data before a gap, so an acknowledgement of this data changes nothing.
                if not session.before_gap(position):
                    await session.acknowledge(position)
                return session

    async def table(self, name: str, database: str, table: str) -> dict[str, Any]:
        """Return the columns and the key of a table, from the server's information schema."""
        session = self.get(name)
        if not self.subscription(name).has_table(database, table):
            raise UserError(
                ErrorKind.UNKNOWN_TABLE,
                f"{session.where} does not read {database}.{table}",
                remedy="change the consumer's databases, tables and exclude_tables",
            )
        version = session.queue.epoch, session.queue.queued.seq

        def look_up() -> dict[str, Any]:
            return session.runner.source.server().table_columns(database, table)

        return await session.runner.look_ups.ask(("table", name, database, table), version, look_up)

    def subscription(self, name: str) -> Subscription:
        session = self.get(name)
        spec, routes = session.consumer.spec, session.runner.client.routes
        return Subscription(
            spec.databases, spec.tables, spec.exclude_tables, routes.lower_case_table_names
        )

    async def picture(self, name: str) -> Picture:
        """Return what the front shows of the consumer's server. The answer may be 2 s old."""
        runner = self.get(name).runner
        earlier = runner.picture

        def read() -> Picture:
            return runner.source.server().picture(earlier)

        runner.picture = await runner.look_ups.ask(("picture",), (0, 0), read)
        return runner.picture

    async def look_up(self, name: str, statement: str) -> ServerAnswer:
        """Return the answer of the consumer's server to a statement that only reads. The answer may be 2 s old."""
        session = self.get(name)

        def look_up() -> ServerAnswer:
            return session.runner.source.server().look_up(statement)

        version = session.queue.epoch, session.queue.queued.seq
        return await session.runner.look_ups.ask(("statement", statement), version, look_up)

    async def dump_refusal(self, name: str, asked: AskedDump) -> DumpRefusal | None:
        """Ask the consumer's server whether it would send this dump to a client. Return the server's refusal; None if
        the server accepts the dump. The answer never comes from a cache."""
        runner = self.get(name).runner
        return await runner.look_ups.ask_now(lambda: runner.source.server().dump_refusal(asked))

    def format(self, name: str) -> FormatDescription | None:
        """A FORMAT_DESCRIPTION that the consumer's source has sent; see `ClientRunner.format`."""
        return self.get(name).runner.format()

    def lacks_room(self, name: str) -> bool:
        """True if the consumer's queue has no room until its reader acknowledges; see `ConsumerSession.lacks_room`."""
        return self.get(name).lacks_room

    # -- status and metrics ----------------------------------------------------------------------------------

    def rows(self) -> AsyncIterator[dict[str, Any]]:
        """Yield a row of `GET /v1/binlogs` for each consumer, in time slices. The values of one row are from the same
        moment."""
        return in_slices(row for row, _ in self.rows_with_consumers())

    def rows_with_consumers(self) -> Iterator[tuple[dict[str, Any], Consumer]]:
        for row, consumer in status_rows(self._sessions.values(), self.rates):
            yield row | self._store_columns(), consumer

    def _store_columns(self) -> dict[str, Any]:
        faults = self._store.faults
        return {
            "state_store_error": "; ".join(str(fault) for fault in faults) or None,
            "state_store_remedy": faults[0].remedy if faults else None,
        }

    def row(self, name: str) -> dict[str, Any]:
        """The row of one consumer. Raises UserError (UNKNOWN_CONSUMER)."""
        row = row_of(self.get(name), self.rates.latest, time.monotonic())
        if row is None:
            raise UserError(ErrorKind.UNKNOWN_CONSUMER, repr(name))
        return row | self._store_columns()

    def samples(self) -> Iterator[tuple[str, Sample]]:
        """Yield a sample for the history of each consumer."""
        return status_samples(self._sessions.values(), self.rates)

    def states(self) -> list[tuple[str, str]]:
        """Pairs of consumer and state, as in the rows."""
        return [
            (session.consumer.name, shown_state(session))
            for session in self._sessions.values()
            # False while the consumer is being replaced.
            if session.runner.client.consumers.get(session.consumer.name) is session.consumer
        ]

    def names(self) -> list[str]:
        return list(self._sessions)

    def get(self, name: str) -> ConsumerSession:
        if self._refusal is not None:
            raise self._refusal()
        session = self._sessions.get(name)
        if session is None:
            raise UserError(ErrorKind.UNKNOWN_CONSUMER, repr(name))
        return session

    async def _started(self, name: str) -> ConsumerSession:
        """Wait until the consumer has a position. The consumer gets its position when the daemon reaches the server for
        the first time."""
        return await self._until(name, _is_started)

    async def _started_or_failed(self, name: str) -> ConsumerSession:
        """Does what `_started` does, but does not wait if the consumer has failed, because the reader may pass a
        position at which the consumer can start."""

        def started_or_failed(session: ConsumerSession) -> bool:
            return session.consumer.started or session.consumer.failed is not None

        return await self._until(name, started_or_failed)

    async def _until_read(self, name: str, number: int, end: Position) -> ConsumerSession:
        """Wait until the queue has reached `end`. After a restart, for example, the daemon has to read the log up to
        `end` again."""

        def read(session: ConsumerSession) -> bool:
            session.check_number(number)
            there = session.now(end)
            if session.consumer.started and not session.is_offered_end(there):
                # Before the consumer starts, the history of its server is not known.
                session.queue.executed_of(there)
            seq = there.seq
            # No reader can have received a transaction after the end of the log, so do not wait for more than the log
            # contains.
            needed = min(seq, session.head.seq)
            session.queue.needed_seq = max(session.queue.needed_seq, needed)
            return seq <= session.queue.queued.seq

        def not_read(session: ConsumerSession) -> str:
            return f"the daemon has not read seq {end.seq} yet, only up to seq {session.queue.queued.seq}"

        return await self._until(name, read, not_read)

    async def _until(
        self,
        name: str,
        condition: Callable[[ConsumerSession], bool],
        reason: Callable[[ConsumerSession], str] | None = None,
    ) -> ConsumerSession:
        """Wait until `condition` is True; returns the consumer's session. Raises BinlogError, see `_wait_until`."""
        session = self.get(name)
        if condition(session):  # nearly always true
            return session
        return await self._wait_until(name, condition, reason)

    async def _wait_until(
        self,
        name: str,
        condition: Callable[[ConsumerSession], bool],
        reason: Callable[[ConsumerSession], str] | None,
    ) -> ConsumerSession:
        """Does what `_until` does, without the first check of the condition.

        Raises BinlogError (RANGE_UNAVAILABLE: ask again) if the condition is not met within `RANGE_WAIT_S`. The error
        contains `reason`. Callers that wait for the server pass no `reason`: the error then contains the consumer's
        error, and is raised at once if an operator has to resolve the consumer's error.
        """
        deadline = time.monotonic() + RANGE_WAIT_S

        def unreachable(session: ConsumerSession) -> bool:
            error = session.consumer.error
            return reason is None and error is not None and error.action is Action.OPERATOR

        while not condition(session := self.get(name)):
            session.raise_failed()
            if unreachable(session) or self._closing or time.monotonic() >= deadline:
                error = session.consumer.error or NOT_REACHED
                what = str(error) if reason is None else reason(session)
                raise BinlogError(ErrorKind.RANGE_UNAVAILABLE, what, where=session.where)

            def met(session: ConsumerSession = session) -> bool:
                failed = session.consumer.failed is not None
                return condition(session) or unreachable(session) or failed

            await session.wait(deadline - time.monotonic(), met)
        return session


def _is_started(session: ConsumerSession) -> bool:
    return session.consumer.started


def _session_answer(
    session: ConsumerSession, number: int, after: Position | None, *, gap: bool
) -> dict[str, Any]:
    return {
        "session": number,
        "position": (session.acknowledged if after is None else after).as_dict(),
        "head": session.head.as_dict(),
        "max_bytes_in_binlog_queue": session.queue.bytes_max,
        "gap": gap,
        "lower_case_table_names": session.runner.source.lower_case_table_names,
    }
