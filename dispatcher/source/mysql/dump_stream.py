"""One replication connection: PyMySQL logs in and sets the session up, then asyncio reads its socket.

The login is a conversation of a dozen small packets, run in a thread, where a well-kept library beats our own code.
The stream is the opposite: after COM_BINLOG_DUMP only the server speaks, so the socket (plain or TLS) is made
non-blocking and read with `recv_into` straight into the splitter's buffer whenever the loop says that it is readable.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from dispatcher.binlog.stream.batch import Batch, Closed
from dispatcher.binlog.stream.routes import Routes
from dispatcher.binlog.stream.splitter import Splitter
from dispatcher.dispatch.executed_position import ExecutedPosition, Mode, dump_offset
from dispatcher.dispatch.server_view import ServerView
from dispatcher.dispatch.specs import Start
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet
from dispatcher.source.mysql.log_probe import ServerLog, mode_of
from dispatcher.source.mysql.replication_commands import (
    Identity,
    ask_by_file,
    ask_by_gtids,
    at_end,
    drop,
    duplicates,
    ended,
    introduce,
    lost,
    register,
    socket_of,
)
from dispatcher.source.mysql.server_facts import (
    Connection,
    Endpoint,
    connect,
    facts,
    findings,
    grants,
    several_hosts_finding,
)

__all__ = ["Identity", "LoggedInConnection", "Stream", "mode_of"]

HEARTBEATS_TO_DEATH = 3
# How long a socket that never runs empty is read in one turn of the loop.
_TURN_S = 0.01


def blocking(found: Sequence[BinlogError]) -> list[BinlogError]:
    """Findings without whose remedy a dump is refused, or holds statements instead of rows."""
    return [
        f
        for f in found
        if f.kind is ErrorKind.GRANT_MISSING or "log_bin" in f.what or "binlog_format" in f.what
    ]


class LoggedInConnection:
    """A connection that is logged in and has not asked for the log yet. Its methods block: run them in a thread."""

    def __init__(
        self,
        endpoint: Endpoint,
        identity: Identity,
        *,
        heartbeat_s: float,
        flush_s: float = 1.0,
        timeout_s: float = 10,
        leave: Callable[[], None] | None = None,
        several: bool = False,
    ) -> None:
        """Logs in, asks for the server's facts. Raises BinlogError. `flush_s`: see `Stream`.

        `leave` is called when this server is of no use: it cannot be reached, or refuses what is needed of it.
        `several`: other hosts are to stand in for it. Where none can, the login is refused and `leave` is not called,
        because the next host would be refused as well, by a history that is not this one's.
        """
        self.endpoint = endpoint
        self._identity = identity
        self._heartbeat_s = heartbeat_s
        self._flush_s = flush_s
        self._leave = leave
        with self._leaving():
            self._connection = connect(endpoint, timeout_s=timeout_s)
            try:
                self.facts = facts(self._connection)
                self.found = findings(self.facts, grants(self._connection))
                if stops := blocking(self.found):
                    raise stops[0].at(endpoint.label)
            except BaseException:
                self.close()
                raise
        if several and (error := several_hosts_finding(self.facts)):
            self.close()
            raise error.at(endpoint.label)

    @contextlib.contextmanager
    def _leaving(self) -> Iterator[None]:
        try:
            yield
        except BinlogError:
            if self._leave:
                self._leave()
            raise

    def view(
        self,
        files: Sequence[str],
        starts: Sequence[Start] = (),
        places: Sequence[tuple[str, int]] = (),
    ) -> ServerView:
        with self._leaving():
            return ServerLog(self.endpoint, self.facts).view(files, starts, places)

    def dump(
        self, mode: Mode, place: ExecutedPosition, routes: Routes, buffer_bytes: int
    ) -> Stream:
        """Ask for the log from `place` on; the socket is the stream's from then on."""
        known, identity = self.facts, self._identity
        connection, mariadb = self._connection, known.flavour == "mariadb"
        checksum = known.checksum != "NONE"
        with self._leaving():
            introduce(
                connection,
                identity,
                mariadb=mariadb,
                checksum=checksum,
                heartbeat_s=self._heartbeat_s,
            )
            others = duplicates(connection, identity, known)
            register(connection, identity)
            if mode is Mode.GTID:
                assert isinstance(place.gtids, GtidSet)
                ask_by_gtids(connection, identity, place.gtids.encode())
            else:
                ask_by_file(connection, identity, place.file, dump_offset(place), mariadb=mariadb)
        splitter = Splitter(routes, packets=True, checksum=checksum, buffer_bytes=buffer_bytes)
        return Stream(
            connection,
            splitter,
            self.endpoint.label,
            idle_s=HEARTBEATS_TO_DEATH * self._heartbeat_s,
            flush_s=self._flush_s,
            meaning=partial(self._ended, others),
        )

    def _ended(self, others: Sequence[str], packet: bytes) -> BinlogError:
        """What the packet means that ended the dump. `others`: hosts that had our identity when it began.

        MySQL 5.6 says nothing to the one of two duplicates that it ends.
        """
        error = ended(packet, self.endpoint.label)
        if error.kind is ErrorKind.DUPLICATE_SERVER_UUID or (others and at_end(packet)):
            own = self._identity
            what = f"a replica with our server uuid {own.server_uuid} (server id {own.server_id}) has connected"
            seen = f"; when we did, {', '.join(others)} had them" if others else ""
            return BinlogError(ErrorKind.DUPLICATE_SERVER_UUID, f"{what}{seen}", where=error.where)
        # The server would answer the same again; another one may not.
        if self._leave and error.kind is not ErrorKind.CONNECTION_LOST:
            self._leave()
        return error

    def close(self) -> None:
        drop(self._connection)


class Stream:
    """The server's answer to a dump: batches, as they come. `idle_s`: this long without a byte means dead; time in
    which nobody reads does not count. `flush_s`: how long events wait in the buffer at most while the server goes on
    sending. `meaning`: that of a packet that ended the dump."""

    over = False  # a server's log has no end

    def __init__(
        self,
        connection: Connection,
        splitter: Splitter,
        label: str,
        *,
        idle_s: float,
        flush_s: float = 1.0,
        meaning: Callable[[bytes], BinlogError] | None = None,
    ) -> None:
        self._connection = connection
        self._sock = socket_of(connection)
        self._sock.setblocking(False)
        self.splitter = splitter
        self._label = label
        self._idle_s = idle_s
        self._flush_s = flush_s
        self._meaning = meaning or partial(ended, label=label)
        self.received_bytes = 0
        self._more = False
        self._waiting: asyncio.Future[None] | None = None
        self._interrupted = False

    async def batches(self) -> list[Batch | Closed]:
        """Wait for bytes, then read until the socket is empty, the buffer is full or `flush_s` has passed; split them.

        The caller must be done with the batches before the next call. Raises BinlogError (CONNECTION_LOST) when the
        server is silent or gone.
        """
        splitter = self.splitter
        splitter.compact()
        if not splitter.full:
            while not self._read():
                silent = not await self._readable()
                if self._interrupted:
                    return []
                # A loop that was busy for so long may not have looked at the socket yet.
                if silent:
                    if self._read():
                        break
                    raise self._lost(f"not a byte for {self._idle_s:g} s, not even a heartbeat")
            if self._more and not await self._read_on():
                return []
        return splitter.split()

    async def _read_on(self) -> bool:
        """Read more of a socket that does not run empty, with a turn of the loop for others now and then; False when
        interrupted."""
        flush_at = time.monotonic() + self._flush_s - _TURN_S
        while self._more and time.monotonic() < flush_at:
            await asyncio.sleep(0)
            if self._interrupted:
                return False
            self._read()
        return True

    def _read(self) -> int:
        """Read until the buffer is full, the socket is empty or the turn is over; how many bytes that were. `_more`:
        is there room, and perhaps more to read?"""
        total, self._more = 0, False
        over_at = time.monotonic() + min(_TURN_S, self._flush_s)
        room = self.splitter.room()
        while len(room):
            try:
                size = self._sock.recv_into(room)
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
                break
            except OSError as error:
                if total:
                    break
                raise self._lost(error.strerror or str(error) or type(error).__name__) from error
            if size == 0:
                if total:
                    break
                raise self._lost("the server closed the connection")
            total += size
            self.splitter.wrote(size)
            room = room[size:]
            if time.monotonic() > over_at:
                self._more = len(room) > 0
                break
        self.received_bytes += total
        return total

    async def _readable(self) -> bool:
        """Wait until there is something to read; False when it took too long."""
        loop = asyncio.get_running_loop()
        ready = self._waiting = loop.create_future()
        descriptor = self._sock.fileno()
        if descriptor < 0:
            raise self._lost("the connection was closed")
        loop.add_reader(descriptor, _set, ready)
        try:
            async with asyncio.timeout(self._idle_s):
                await ready
        except TimeoutError:
            return False
        finally:
            self._waiting = None
            loop.remove_reader(descriptor)
        return True

    def interrupt(self) -> None:
        """Let `batches()` return at once, with nothing, now or when it is called next."""
        self._interrupted = True
        if self._waiting:
            _set(self._waiting)

    def ended(self, closed: Closed) -> BinlogError:
        """What the server's last packet means."""
        return self._meaning(closed.packet)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        drop(self._connection)

    def _lost(self, why: str) -> BinlogError:
        return lost(why, self._label)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
