"""One replication connection: PyMySQL logs in and sets the session up, then asyncio reads its socket.

The login is a conversation of a dozen small packets, run in a thread, where a well-kept library beats our own code.
The stream is the opposite: after COM_BINLOG_DUMP only the server speaks, so the socket (plain or TLS) is made
non-blocking and read with `recv_into` straight into the splitter's buffer whenever the loop says that it is readable.

Sources: MySQL manual, "COM_BINLOG_DUMP", "COM_BINLOG_DUMP_GTID", "COM_REGISTER_SLAVE"; sql/rpl_source.cc;
MariaDB knowledge base, "Replication protocol".
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid5

import pymysql
from pymysql.constants.COMMAND import COM_BINLOG_DUMP, COM_BINLOG_DUMP_GTID, COM_REGISTER_SLAVE

from dispatcher.binlog.batch import Batch, Closed
from dispatcher.binlog.events import EventType
from dispatcher.binlog.routes import Routes
from dispatcher.binlog.scan import Splitter
from dispatcher.dispatch.history import Mode, Place, dump_offset
from dispatcher.dispatch.inputs import ServerView
from dispatcher.model.errors import BinlogError, Kind
from dispatcher.model.gtid import GtidSet
from dispatcher.net.server import (
    Connection,
    Endpoint,
    ServerFacts,
    client_error,
    connect,
    facts,
    findings,
    grants,
    server_error,
)

HEARTBEATS_TO_DEATH = 3
_NON_BLOCKING = 0x01  # BINLOG_DUMP_NON_BLOCK: the server ends the dump at the end of its log
_ANNOTATE_ROWS = 0x02  # BINLOG_SEND_ANNOTATE_ROWS_EVENT: else MariaDB sends no statement's text
_THROUGH_GTID = 0x04  # BINLOG_THROUGH_GTID
_CAPABILITY_GTID = 4  # MARIA_SLAVE_CAPABILITY_GTID: understands MariaDB's GTID events
_NET_WRITE_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Identity:
    """What the server sees of a dispatcher. The same over reconnects, so that a dead predecessor is replaced."""

    server_uuid: UUID
    server_id: int

    @classmethod
    def of(cls, installation: UUID, label: str, number: int) -> Identity:
        server_uuid = uuid5(installation, f"{label}#{number}")
        # Small ids are what people give to servers; 2^31 and above are left for us.
        return cls(server_uuid, 0x8000_0000 | server_uuid.int & 0x7FFF_FFFF)


def blocking(found: Sequence[BinlogError]) -> list[BinlogError]:
    """Findings without whose remedy a dump is refused, or holds statements instead of rows."""
    return [
        f
        for f in found
        if f.kind is Kind.GRANT_MISSING or "log_bin" in f.what or "binlog_format" in f.what
    ]


def mode_of(known: ServerFacts) -> Mode:
    if known.flavour == "mariadb":
        return Mode.MARIADB
    return Mode.GTID if known.gtid_mode == "ON" else Mode.FILE


class LoggedInConnection:
    """A connection that is logged in and has not asked for the log yet. Its methods block: run them in a thread."""

    def __init__(
        self, endpoint: Endpoint, identity: Identity, *, heartbeat_s: float, timeout_s: float = 10
    ) -> None:
        """Logs in, asks for the server's facts. Raises BinlogError."""
        self.endpoint = endpoint
        self._identity = identity
        self._heartbeat_s = heartbeat_s
        self._connection = connect(endpoint, timeout_s=timeout_s)
        try:
            self.facts = facts(self._connection)
            self.found = findings(self.facts, grants(self._connection))
            if stops := blocking(self.found):
                raise stops[0].at(endpoint.label)
        except pymysql.Error as error:
            self.close()
            raise client_error(error, where=endpoint.label) from error
        except BaseException:
            self.close()
            raise

    def view(
        self,
        files: Sequence[str],
        moments: Sequence[int] = (),  # noqa: ARG002
        offsets: Sequence[tuple[str, int]] = (),  # noqa: ARG002
    ) -> ServerView:
        """What the dispatcher's history check needs; `files`: those whose creation time it asks for."""
        known = self.facts
        names = {file.name for file in known.files}
        created = {}
        for name in {*files, known.file}:
            if name in names:
                created[name] = self._created(name)
        return ServerView(
            server=known.server_uuid,
            mode=mode_of(known),
            executed=known.gtid_executed,
            purged=known.gtid_purged,
            files=tuple((file.name, file.size) for file in known.files),
            file=known.file,
            offset=known.offset,
            created=created,
        )

    def _created(self, file: str) -> int:
        """When the server made a file: the timestamp of its FORMAT_DESCRIPTION, read by a dump of its own.

        SHOW BINLOG EVENTS does not tell it. The short connection has an identity of its own, lest the server takes
        it for a newer one of ours and cuts the other.
        """
        probe = Identity(
            uuid5(self._identity.server_uuid, "probe"), self._identity.server_id ^ 0x4000_0000
        )
        connection = connect(self.endpoint, timeout_s=10)
        try:
            _set_session(connection, self.facts, probe, heartbeat_s=0)
            request = struct.pack("<IHI", 4, _NON_BLOCKING, probe.server_id) + file.encode()
            _command(connection, COM_BINLOG_DUMP, request)
            while True:
                packet: bytes = connection._read_packet()._data  # type: ignore[no-untyped-call]
                if packet[0] != 0:
                    return 0
                if packet[5] == EventType.FORMAT_DESCRIPTION:
                    return int.from_bytes(packet[1:5], "little")
        except pymysql.Error as error:
            raise client_error(error, where=f"{self.endpoint.label}, {file}") from error
        finally:
            _close(connection)

    def dump(self, mode: Mode, place: Place, routes: Routes, buffer_bytes: int) -> Stream:
        """Ask for the log from `place` on; the socket is the stream's from then on."""
        known, identity = self.facts, self._identity
        connection = self._connection
        try:
            _set_session(connection, known, identity, heartbeat_s=self._heartbeat_s)
            _command(connection, COM_REGISTER_SLAVE, _registration(identity), answer=True)
            if mode is Mode.GTID:
                assert isinstance(place.gtids, GtidSet)
                encoded = place.gtids.encode()
                request = struct.pack("<HII", _THROUGH_GTID, identity.server_id, 0)
                request += struct.pack("<QI", 4, len(encoded)) + encoded
                _command(connection, COM_BINLOG_DUMP_GTID, request)
            else:
                flags = _ANNOTATE_ROWS if mode is Mode.MARIADB else 0
                request = struct.pack("<IHI", dump_offset(place), flags, identity.server_id)
                request += place.file.encode()
                _command(connection, COM_BINLOG_DUMP, request)
        except pymysql.Error as error:
            raise client_error(error, where=self.endpoint.label) from error
        splitter = Splitter(
            routes, packets=True, checksum=known.checksum != "NONE", buffer_bytes=buffer_bytes
        )
        return Stream(
            connection,
            splitter,
            self.endpoint.label,
            idle_s=HEARTBEATS_TO_DEATH * self._heartbeat_s,
        )

    def close(self) -> None:
        _close(self._connection)


class Stream:
    """The server's answer to a dump: batches, as they come. `idle_s`: this long without a byte means dead."""

    over = False  # a server's log has no end

    def __init__(
        self, connection: Connection, splitter: Splitter, label: str, *, idle_s: float
    ) -> None:
        self._connection = connection  # closes its socket when it is collected
        self._sock: socket.socket = connection._sock  # type: ignore[attr-defined]
        self._sock.setblocking(False)
        self.splitter = splitter
        self._label = label
        self._idle_s = idle_s
        self.received_bytes = 0
        self._waiting: asyncio.Future[None] | None = None
        self._interrupted = False

    async def batches(self) -> list[Batch | Closed]:
        """Wait for bytes, read all that are there (as far as the buffer goes), split them.

        The caller must be done with the batches before the next call. Raises BinlogError (CONNECTION_LOST) when the
        server is silent or gone.
        """
        splitter = self.splitter
        splitter.compact()
        if not splitter.full:
            while not self._read():
                await self._readable()
                if self._interrupted:
                    return []
        return splitter.split()

    def _read(self) -> int:
        """Read until the buffer is full or the socket empty; how many bytes that were."""
        total = 0
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
        self.received_bytes += total
        return total

    async def _readable(self) -> None:
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
            raise self._lost(f"not a byte for {self._idle_s:g} s, not even a heartbeat") from None
        finally:
            self._waiting = None
            loop.remove_reader(descriptor)

    def interrupt(self) -> None:
        """Let `batches()` return at once, with nothing, now or when it is called next."""
        self._interrupted = True
        if self._waiting:
            _set(self._waiting)

    def ended(self, closed: Closed) -> BinlogError:
        """What the server's last packet means."""
        packet = closed.packet
        if packet[:1] == b"\xff" and len(packet) >= 3:
            number, text = int.from_bytes(packet[1:3], "little"), packet[3:]
            if text[:1] == b"#":
                text = text[6:]
            return server_error(number, text.decode("utf-8", "replace"), where=self._label)
        if packet[:1] == b"\xfe":
            return self._lost("the server ended the dump")
        return self._lost(f"an unknown packet {packet[:16]!r}")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _lost(self, why: str) -> BinlogError:
        return BinlogError(Kind.CONNECTION_LOST, why, where=self._label)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _set_session(
    connection: Connection, known: ServerFacts, identity: Identity, *, heartbeat_s: float
) -> None:
    """The session variables by which a replica says what it understands. Unknown ones are harmless everywhere."""
    period = int(heartbeat_s * 1e9)
    settings: dict[str, str | int] = {
        # Without it the server takes us for a replica that knows no checksums, and refuses or strips them.
        "@master_binlog_checksum": "CRC32" if known.checksum == "CRC32" else "NONE",
        "@source_binlog_checksum": "CRC32" if known.checksum == "CRC32" else "NONE",
        "@slave_uuid": str(identity.server_uuid),
        "@replica_uuid": str(identity.server_uuid),
        "net_write_timeout": _NET_WRITE_TIMEOUT_S,
    }
    if period:
        settings |= {"@master_heartbeat_period": period, "@source_heartbeat_period": period}
    if known.flavour == "mariadb":
        settings["@mariadb_slave_capability"] = _CAPABILITY_GTID
    with connection.cursor() as cursor:
        cursor.execute(
            "SET " + ", ".join(f"{name} = %s" for name in settings), tuple(settings.values())
        )


def _registration(identity: Identity) -> bytes:
    """COM_REGISTER_SLAVE: how SHOW REPLICAS lists us. Host, user and password are for people; left empty."""
    host = socket.gethostname().encode()[:60]
    return (
        struct.pack("<I", identity.server_id)
        + bytes([len(host)])
        + host
        + bytes(2)
        + struct.pack("<HII", 0, 0, 0)
    )


def _command(connection: Connection, code: int, argument: bytes, *, answer: bool = False) -> None:
    connection._execute_command(code, argument)  # type: ignore[attr-defined]
    if answer:
        connection._read_ok_packet()  # type: ignore[attr-defined]


def _close(connection: Connection) -> None:
    """Without COM_QUIT: a connection in a dump would not read it."""
    connection._force_close()  # type: ignore[attr-defined]
