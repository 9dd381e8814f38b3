"""One replication connection: PyMySQL logs in and sets up the session, then asyncio reads the socket.

PyMySQL exchanges the packets of the login in a thread. After COM_BINLOG_DUMP only the server sends. So this module
makes the socket (plain or TLS) non-blocking, and reads with `recv_into` into the splitter's buffer whenever the event
loop reports that the socket is readable.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from dispatcher.dispatch.values.executed_position import ExecutedPosition, Mode, dump_offset
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.login import Endpoint, connect
from dispatcher.mysql.replication_commands import (
    Identity,
    ask_by_domains,
    ask_by_file,
    ask_by_gtids,
    at_end,
    connection_lost,
    drop,
    dump_ended,
    duplicate_replicas,
    introduce,
    register_replica,
    socket_of,
)
from dispatcher.mysql.server_facts import read_facts, read_grants, visible_databases
from dispatcher.mysql.server_settings import findings, several_hosts_finding
from dispatcher.source.mysql.identity_locks import IdentityLocks
from dispatcher.source.mysql.log_probe import ServerLog
from dispatcher.source.protocols import ViewRequest
from dispatcher.stream.batch import Batch, Closed
from dispatcher.stream.routes import Routes
from dispatcher.stream.splitter import Splitter

HEARTBEATS_TO_DEATH = 3  # the settings' reference and docs/operating.md have this number, too
# How long one turn of the event loop reads a socket that always has more bytes.
_TURN_S = 0.01


def blocking_findings(errors: Sequence[BinlogError]) -> list[BinlogError]:
    """Return the findings that make the server refuse a dump, or send statements instead of rows."""
    return [
        error
        for error in errors
        if error.kind is ErrorKind.GRANT_MISSING
        or "log_bin" in error.what
        or "binlog_storage_engine" in error.what
        or "binlog_format" in error.what
    ]


class LoggedInConnection:
    """A logged-in connection that has not requested a dump yet. Its methods block, so call them in a thread."""

    def __init__(
        self,
        endpoint: Endpoint,
        identity: Identity,
        *,
        heartbeat_s: float,
        flush_s: float = 1.0,
        timeout_s: float = 10,
        next_host: Callable[[], None] | None = None,
        several_hosts: bool = False,
    ) -> None:
        """Log in and read the server's facts. Raises BinlogError. `flush_s`: see `ServerStream`.

        `next_host`: called when this server cannot be reached or refuses a request that the dispatcher needs.
        `several_hosts`: True if the source has standby hosts. The constructor raises BinlogError if the source has
        standby hosts that cannot replace this host, because each host has another history. In that case it calls
        `next_host` only for MariaDB: on the hosts of MySQL, a login to the next host would fail in the same way.
        """
        self.endpoint = endpoint
        self._identity = identity
        self._heartbeat_s = heartbeat_s
        self._flush_s = flush_s
        self._next_host = next_host
        self._several_hosts = several_hosts
        self.identity_locks: IdentityLocks | None = None  # None: `dump` takes no lock
        with self._failing_over():
            self._connection = connect(endpoint, timeout_s=timeout_s)
            try:
                self.facts = read_facts(self._connection)
                self.findings = findings(self.facts, read_grants(self._connection))
                if errors := blocking_findings(self.findings):
                    raise errors[0].at(endpoint.label)
                self._databases = visible_databases(self._connection)
            except BaseException:
                self.close()
                raise
        if several_hosts and (error := several_hosts_finding(self.facts)):
            self.close()
            if self.facts.flavour == "mariadb" and next_host:
                next_host()
            raise error.at(endpoint.label)

    @contextlib.contextmanager
    def _failing_over(self) -> Iterator[None]:
        """Call `next_host` if the block raises BinlogError."""
        try:
            yield
        except BinlogError:
            if self._next_host:
                self._next_host()
            raise

    def view(self, request: ViewRequest) -> ServerView:
        with self._failing_over():
            view = ServerLog(self.endpoint, self.facts, several_hosts=self._several_hosts).view(
                request
            )
            return replace(view, databases=self._databases)

    def dump(
        self, mode: Mode, position: ExecutedPosition, routes: Routes, buffer_bytes: int
    ) -> ServerStream:
        """Request the log that follows `position`. The stream then owns the socket. Raises BinlogError."""
        connection, identity = self._connection, self._identity
        mariadb = self.facts.flavour == "mariadb"
        checksum = self.facts.checksum != "NONE"
        with self._failing_over():
            introduce(
                connection,
                identity,
                mariadb=mariadb,
                checksum=checksum,
                heartbeat_s=self._heartbeat_s,
            )
            hosts = duplicate_replicas(connection, identity, self.facts.version)
            register_replica(connection, identity)
            if self.identity_locks is not None:
                self.identity_locks.take(connection, self.facts.server_uuid, identity)
            if isinstance(position.gtids, GtidSet) and mode is Mode.GTID:
                ask_by_gtids(connection, identity, position.gtids.encode())
            elif mode is Mode.DOMAINS:
                ask_by_domains(connection, identity, str(position.gtids))
            else:
                offset = dump_offset(position)
                ask_by_file(connection, identity, position.file, offset, mariadb=mariadb)
        routes.lower_case_table_names = self.facts.lower_case_table_names
        splitter = Splitter(routes, packets=True, checksum=checksum, buffer_bytes=buffer_bytes)
        return ServerStream(
            connection,
            splitter,
            self.endpoint.label,
            idle_s=HEARTBEATS_TO_DEATH * self._heartbeat_s,
            flush_s=self._flush_s,
            meaning=partial(self._ended, hosts),
        )

    def _ended(self, duplicate_hosts: Sequence[str], packet: bytes) -> BinlogError:
        """Return the error for the packet that ended the dump.

        `duplicate_hosts`: the hosts of replicas that had the identity of this dispatcher when the dump began. When
        another replica with the same identity connects, MySQL 5.6 ends the earlier dump with an EOF packet, which names
        no cause.
        """
        error = dump_ended(packet, self.endpoint.label)
        if error.kind is ErrorKind.DUPLICATE_SERVER_UUID or (duplicate_hosts and at_end(packet)):
            own = self._identity
            what = f"a replica with our server uuid {own.server_uuid} (server id {own.server_id}) has connected"
            hosts = ", ".join(duplicate_hosts)
            before = f"; when this daemon connected, {hosts} had this uuid and id" if hosts else ""
            return BinlogError(
                ErrorKind.DUPLICATE_SERVER_UUID, f"{what}{before}", where=error.where
            )
        # This server would give the same answer again; another host may give another answer.
        if self._next_host and error.kind is not ErrorKind.CONNECTION_LOST:
            self._next_host()
        return error

    def close(self) -> None:
        drop(self._connection)


class ServerStream:
    """A dump as a `DumpStream`.

    `idle_s`: if no byte comes for this long, the server counts as dead. Time in which the caller does not read is not
    counted. `flush_s`: the longest time that events wait in the buffer while the server continues to send. `meaning`:
    returns the error for the packet that ended the dump.
    """

    over = False  # a server's log does not end

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
        self._meaning = meaning or partial(dump_ended, label=label)
        self.received_at = time.monotonic()
        self._more = False
        self._waiting: asyncio.Future[None] | None = None
        self._interrupted = False

    async def batches(self) -> list[Batch | Closed]:
        """Wait for bytes, read until the socket is empty, the buffer is full or `flush_s` has passed, and return the
        batches in these bytes.

        The caller must be done with the batches before the next call. Raises BinlogError (CONNECTION_LOST) if the
        server is silent or gone.
        """
        splitter = self.splitter
        splitter.compact()
        if not splitter.full:
            while not self._read():
                silent = not await self._readable()
                if self._interrupted:
                    return []
                # If the event loop was busy for the whole timeout, it may not have polled the socket: read once more.
                if silent:
                    if self._read():
                        break
                    raise self._lost(f"not a byte for {self._idle_s:g} s, not even a heartbeat")
            self.received_at = time.monotonic()
            if self._more and not await self._read_on():
                return []
        return splitter.split()

    async def _read_on(self) -> bool:
        """Continue to read from a socket that has more bytes, for up to `flush_s`, and let other tasks run in between.
        Returns False if interrupted."""
        flush_at = time.monotonic() + self._flush_s - _TURN_S
        while self._more and time.monotonic() < flush_at:
            await asyncio.sleep(0)
            if self._interrupted:
                return False
            self._read()
        return True

    def _read(self) -> int:
        """Read until the buffer is full, the socket is empty or the turn is over. Returns the number of bytes read.

        Sets `_more`: True if the turn ended with room in the buffer and perhaps more to read.
        """
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
                if total:  # the next call reports the end
                    break
                raise self._lost("the server closed the connection")
            total += size
            self.splitter.wrote(size)
            room = room[size:]
            if time.monotonic() > over_at:
                self._more = len(room) > 0
                break
        return total

    async def _readable(self) -> bool:
        """Wait until the socket is readable. Returns False after `idle_s`."""
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
        self._interrupted = True
        if self._waiting:
            _set(self._waiting)

    def ended(self, closed: Closed) -> BinlogError:
        return self._meaning(closed.packet)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        drop(self._connection)

    def _lost(self, why: str) -> BinlogError:
        return connection_lost(why, self._label)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
