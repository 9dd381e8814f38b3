"""One dump: a session of a consumer whose reader is a replication client.

The client's request decides where the session begins (`start`). The session turns ranges of the consumer's queue into
packets (`dump`), and waits whenever the client receives more slowly than the session sends. A client of MySQL's
protocol does not report what it has stored. So the session acknowledges a sent range after a fixed time, or at once if
the queue has no room. If the client connects again and asks for an older place, the consumer reads the log again from
this place.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dispatcher.binlog.event.header import MAGIC
from dispatcher.dispatch.queue.reader import Caller, PollBounds
from dispatcher.front.dump import made_events
from dispatcher.front.dump.options import AfterGtids, AfterPlace
from dispatcher.front.dump.relay import Relay
from dispatcher.front.interfaces import Consumers, GetConsumers
from dispatcher.front.start import Beginning, InQueue, Wanted, beginning
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.model.position import Position

# The greatest size of a range. A larger transaction is a range of its own.
RANGE_BYTES = 4 << 20
WAIT_MAX_S = 30.0
ACKNOWLEDGE_EVERY_S = 1.0
# How often the session checks whether the source has sent its FORMAT_DESCRIPTION.
FORMAT_AGAIN_S = 0.1
_TURN_S = 0.004  # how long the session may send before it lets other tasks run
HEARTBEAT_MIN_S = 0.1  # a client may ask for a period of nanoseconds, which would keep a core busy


class DumpOutput(Protocol):
    """The client's connection."""

    def write(self, packets: bytes | memoryview) -> None: ...

    async def drain(self) -> None:
        """Wait until the client has received most of the written bytes. Raises an error if the client receives nothing
        for too long."""


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """`wanted`: where the client asks the dump to begin; `executed`: the source's executed GTIDs, None in a dump by
    file; `heartbeat_s`: the period of heartbeats, 0 = no heartbeats; `acknowledge_after_s`: after how many seconds a
    sent range is acknowledged; `to_end`: True if the dump ends at the end of the log (BINLOG_DUMP_NON_BLOCK)."""

    wanted: Wanted
    executed: GtidSet | MariadbGtids | None
    heartbeat_s: float
    acknowledge_after_s: float
    to_end: bool = False


class _Sent(NamedTuple):
    """The end of a range that was sent, at time `at`."""

    at: float
    position: Position


class DumpSession:
    """Serves one dump until its client leaves, its session is fenced, or an error ends it."""

    def __init__(
        self,
        consumers: GetConsumers,
        name: str,
        caller: Caller,
        options: DumpOptions,
        relay: Relay,
        output: DumpOutput,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumers = consumers
        self._name = name
        self._caller = caller
        self._options = options
        self._relay = relay
        self._output = output
        self._clock = clock
        self._number = 0
        self._server = ""  # the server from whose log the dump began
        self._heartbeat_s = options.heartbeat_s and max(options.heartbeat_s, HEARTBEAT_MIN_S)
        self._head: tuple[int, int] = (0, 0)  # the end of the log when the dump began
        self._has_format = False  # True once the client has got a FORMAT_DESCRIPTION
        # The sent ranges that are not acknowledged, oldest first.
        self._sent: deque[_Sent] = deque()
        self._acknowledged_at = self._wrote_at = self._yielded_at = clock()

    async def run(self) -> None:
        """Serve the dump. Returns at the end of the log if `to_end` is set. Raises BinlogError for an error that ends
        the dump."""
        after = await self._open()
        while not self._options.to_end or after.order < self._head:
            after = await self._send_next(after)
            await self._acknowledge_due()

    # -- the session -----------------------------------------------------------------------------------------

    async def _open(self) -> Position:
        """Open the session, and return the position at which it begins."""
        consumers = self._consumers()
        place = await self._beginning(consumers)
        position = await self._begin(consumers, place)
        # Until `open_session` returned, the previous session could acknowledge transactions that this client lacks, so
        # the queue may no longer contain them.
        if isinstance(place, InQueue):
            place = await self._beginning(consumers)
            if not isinstance(place, InQueue):
                position = await self._begin(consumers, place)
        self._server = position.server
        consumers.called(self._name, self._number, self._caller)
        await self._send_format(position)
        return position

    async def _send_format(self, after: Position) -> None:
        """Send the ROTATE and the FORMAT_DESCRIPTION with which a server begins each dump. Does nothing if the source
        has not yet sent its FORMAT_DESCRIPTION over the present connection."""
        format_ = self._consumers().format(self._name)
        if format_ is None:
            return
        self._has_format = True
        # The FORMAT_DESCRIPTION is sent without its timestamp, because it may be from a file other than the one in
        # which the dump begins. With the timestamp, mysqlbinlog would end if the event is newer than its
        # `--stop-datetime`.
        for packets in self._relay.packets([MAGIC, made_events.without_time(format_)]):
            await self._send(packets)
        await self._send(self._relay.arrive(after.file, after.offset))

    async def _beginning(self, consumers: Consumers) -> Beginning:
        held = await consumers.held(self._name)
        return beginning(self._options.wanted, held, self._options.executed)

    async def _begin(self, consumers: Consumers, place: Beginning) -> Position:
        if isinstance(place, InQueue):
            opened = await consumers.open_session(self._name, None, read_only=False)
        else:
            opened = await consumers.open_at(self._name, place)
        self._number = opened["session"]
        self._head = Position.from_dict(opened["head"]).order
        if opened["gap"]:
            raise self._purged()
        return Position.from_dict(opened["position"])

    def _purged(self) -> BinlogError:
        return BinlogError(
            ErrorKind.POSITION_PURGED,
            "the source has purged the binary logs that the client needs",
            where=f"consumer {self._name}",
            remedy="copy the tables afresh, and begin at the copy's position",
        )

    def _other_server(self, server: str) -> BinlogError:
        return BinlogError(
            ErrorKind.HISTORY_DIFFERS,
            f"the consumer now reads the server {server}; the client's files and offsets are those of {self._server}",
            where=f"consumer {self._name}",
            remedy="let the client read by GTID, or find its place in the log of the new server",
        )

    # -- what is sent ----------------------------------------------------------------------------------------

    async def _send_next(self, after: Position) -> Position:
        """Wait for transactions after `after` and send them. Return the position up to which the client now has
        everything."""
        if not self._has_format:
            await self._send_format(after)
        answer = await self._consumers().poll(
            self._name,
            self._number,
            after,
            PollBounds(RANGE_BYTES),
            self._wait_s(),
            markers=self._options.to_end,
            acknowledges=False,
        )
        if self._consumers().closing:
            what = "the daemon is ending; connect again"
            raise BinlogError(ErrorKind.RANGE_UNAVAILABLE, what, where=f"consumer {self._name}")
        if answer["gap"]:
            raise self._purged()
        end = Position.from_dict(answer["end"])
        if isinstance(self._options.wanted, AfterPlace) and end.server != self._server:
            raise self._other_server(end.server)
        has_moved = end.order > after.order
        if answer["transactions"]:
            await self._send_range(after, end)
        if has_moved:
            await self._fill(end)
            self._sent.append(_Sent(self._clock(), end))
        if self._heartbeat_is_due(moved=has_moved and not answer["transactions"]):
            await self._send(self._relay.heartbeat(end.file, end.offset))
        return end

    async def _send_range(self, after: Position, end: Position) -> None:
        consumers = self._consumers()
        parts, gap = await consumers.binlog(self._name, self._number, after, end)
        try:
            if gap:
                raise self._purged()
            self._has_format = True  # the range has a FORMAT_DESCRIPTION
            for packets in self._relay.packets(parts):
                await self._send(packets)
        finally:
            consumers.answer_ended(self._name, self._number)

    async def _fill(self, end: Position) -> None:
        """Send empty transactions for the GTIDs up to `end` that the client lacks."""
        wanted = self._options.wanted
        if isinstance(wanted, AfterGtids):
            gtids = type(wanted.gtids).parse(end.gtid)
            for packets in self._relay.fill(gtids, end.file, end.offset, int(time.time())):
                await self._send(packets)

    async def _send(self, packets: bytes | memoryview) -> None:
        self._output.write(packets)
        self._wrote_at = self._clock()
        await self._output.drain()
        # `drain` does not wait if the client is fast, so several small chunks are sent in one turn of the event loop.
        # If the session let other tasks run after each chunk, the daemon would read a batch of the source before the
        # next chunk, and the client would get its chunks slowly while the daemon reads the log.
        if self._clock() >= self._yielded_at + _TURN_S:
            await asyncio.sleep(0)
            self._yielded_at = self._clock()

    # -- times -----------------------------------------------------------------------------------------------

    def _heartbeat_is_due(self, *, moved: bool) -> bool:
        """True if the client has asked for heartbeats, and either the period has passed or a heartbeat would report a
        new place (`moved`)."""
        period_s = self._heartbeat_s
        return bool(period_s) and (moved or self._clock() >= self._wrote_at + period_s)

    def _wait_s(self) -> float:
        """How long a poll may wait for new transactions until a heartbeat, an acknowledgement, or another look for the
        source's FORMAT_DESCRIPTION is due."""
        now = self._clock()
        due = [now + (WAIT_MAX_S if self._has_format else FORMAT_AGAIN_S)]
        if self._heartbeat_s:
            due.append(self._wrote_at + self._heartbeat_s)
        if self._sent:
            acknowledge_at = self._sent[0].at + self._options.acknowledge_after_s
            due.append(max(acknowledge_at, self._acknowledged_at + ACKNOWLEDGE_EVERY_S))
        return max(0.0, min(due) - now)

    # -- acknowledgements ------------------------------------------------------------------------------------

    async def _acknowledge_due(self) -> None:
        """Acknowledge the ranges that were sent at least `acknowledge_after_s` ago, at most once a second. If the queue
        has no room, acknowledge all sent ranges at once."""
        if not self._sent:
            return
        now = self._clock()
        if self._consumers().lacks_room(self._name):
            await self._acknowledge(len(self._sent))
        elif now >= self._acknowledged_at + ACKNOWLEDGE_EVERY_S:
            sent_before = now - self._options.acknowledge_after_s
            await self._acknowledge(sum(sent.at <= sent_before for sent in self._sent))

    async def _acknowledge(self, count: int) -> None:
        """Acknowledge the oldest `count` of the sent ranges."""
        if count:
            position = self._sent[count - 1].position
            for _ in range(count):
                self._sent.popleft()
            self._acknowledged_at = self._clock()
            await self._consumers().acknowledge(self._name, self._number, position)
