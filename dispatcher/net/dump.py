"""A dump read to its end (or followed) by a blocking caller: for people who look at a log, not for the daemon.

The log is asked for by file, not by GTID, so that it comes whole and in order, offsets included. The session says that
it understands checksums whatever the server's own setting is: then each event comes as it is in its file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from uuid import uuid4

import pymysql
from pymysql.constants.COMMAND import COM_BINLOG_DUMP

from dispatcher.model.errors import BinlogError, Kind
from dispatcher.net.connection import Identity
from dispatcher.net.faults import client_error, server_error
from dispatcher.net.server import BinlogFile, Connection, Endpoint, ServerFacts, connect, facts

_NON_BLOCKING = 0x01
_ANNOTATIONS = 0x02  # MariaDB: BINLOG_SEND_ANNOTATE_ROWS_EVENT
_HEARTBEAT_S = 2
_SILENCE_S = 60
_RECEIVE_BYTES = 1 << 20
_PACKET_MAX = 0xFFFFFF


class LogServer:
    """A server whose log is read. Raises `BinlogError`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        connection = connect(endpoint)
        try:
            self.facts: ServerFacts = facts(connection)
        finally:
            connection.close()
        if not self.facts.log_bin:
            raise BinlogError(
                Kind.SERVER_SETTING,
                "log_bin=OFF: the server writes no binlog",
                where=endpoint.label,
                remedy="start the server with --log-bin",
            )

    @property
    def files(self) -> tuple[BinlogFile, ...]:
        """The server's binlog files as of the login, oldest first."""
        return self.facts.files

    def dump(self, file: str, *, follow: bool = False) -> Iterator[list[bytes]]:
        """Events from the beginning of a file on, as they come, several at a time; not `follow`: to the log's end."""
        identity = Identity(uuid4(), 0xC000_0000 | uuid4().int & 0x3FFF_FFFF)
        connection = connect(self.endpoint, timeout_s=_SILENCE_S)
        try:
            self._ask(connection, identity, file, follow=follow)
            yield from _events(connection, self.endpoint.label)
        except pymysql.Error as error:
            raise client_error(error, where=self.endpoint.label) from error
        finally:
            connection._force_close()  # type: ignore[attr-defined]  # noqa: SLF001 - a dump reads no COM_QUIT

    def _ask(self, connection: Connection, identity: Identity, file: str, *, follow: bool) -> None:
        settings: dict[str, str | int] = {
            "@master_binlog_checksum": "CRC32",
            "@source_binlog_checksum": "CRC32",
            "@slave_uuid": str(identity.server_uuid),
            "@replica_uuid": str(identity.server_uuid),
        }
        if follow:
            period = _HEARTBEAT_S * 1_000_000_000
            settings |= {"@master_heartbeat_period": period, "@source_heartbeat_period": period}
        if self.facts.flavour == "mariadb":
            settings["@mariadb_slave_capability"] = 4
        with connection.cursor() as cursor:
            names = ", ".join(f"{name} = %s" for name in settings)
            cursor.execute(f"SET {names}", tuple(settings.values()))
        flags = _ANNOTATIONS if self.facts.flavour == "mariadb" else 0
        flags |= 0 if follow else _NON_BLOCKING
        request = struct.pack("<IHI", 4, flags, identity.server_id) + file.encode()
        connection._execute_command(COM_BINLOG_DUMP, request)  # type: ignore[attr-defined]  # noqa: SLF001


def _events(connection: Connection, label: str) -> Iterator[list[bytes]]:
    """The socket is read past the driver: it would make an object of each packet."""
    sock = connection._sock  # type: ignore[attr-defined]  # noqa: SLF001
    pending = b""
    parts: list[bytes] = []
    while True:
        try:
            data = sock.recv(_RECEIVE_BYTES)
        except OSError as error:
            raise _lost(error.strerror or str(error), label) from error
        if not data:
            raise _lost("the server closed the connection", label)
        pending += data
        found, at = [], 0
        while len(pending) - at >= 4:
            size = int.from_bytes(pending[at : at + 3], "little")
            if len(pending) - at - 4 < size:
                break
            parts.append(pending[at + 4 : at + 4 + size])
            at += 4 + size
            if size == _PACKET_MAX:  # an event of 16 MiB and more comes in several
                continue
            packet = b"".join(parts)
            parts.clear()
            if packet[:1] == b"\0":
                found.append(packet[1:])
                continue
            if found:
                yield found
            if packet[:1] == b"\xfe" and len(packet) < 9:
                return
            raise _refused(packet, label)
        pending = pending[at:]
        if found:
            yield found


def _refused(packet: bytes, label: str) -> BinlogError:
    if packet[:1] != b"\xff" or len(packet) < 3:
        return _lost(f"an unknown packet {packet[:16]!r}", label)
    text = packet[3:]
    if text[:1] == b"#":
        text = text[6:]
    number = int.from_bytes(packet[1:3], "little")
    return server_error(number, text.decode("utf-8", "replace"), where=label)


def _lost(why: str, label: str) -> BinlogError:
    return BinlogError(
        Kind.CONNECTION_LOST,
        why,
        where=label,
        remedy="try again, with --start at what was printed last",
    )
