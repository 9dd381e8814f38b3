"""A dump read by a blocking caller: for people who look at a log, and for short looks beside the dispatchers.

The log is asked for by file, not by GTID, so that it comes whole and in order, offsets included.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pymysql

from dispatcher.model.errors import BinlogError, Kind
from dispatcher.net.replica import (
    Identity,
    ask_by_file,
    at_end,
    drop,
    ended,
    introduce,
    lost,
    socket_of,
)
from dispatcher.net.server import (
    BinlogFile,
    Connection,
    Endpoint,
    ServerFacts,
    client_error,
    connect,
    facts,
)

_HEARTBEAT_S = 2
_SILENCE_S = 60
_RECEIVE_BYTES = 1 << 20
_PACKET_MAX = 0xFFFFFF
_AGAIN = "try again, with --start at what was printed last"


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
        """Events from the beginning of a file on, as they come, several at a time; not `follow`: to the log's end.

        Whatever the server's setting is, they are as in the file, checksums included.
        """
        mariadb = self.facts.flavour == "mariadb"
        with asked(
            self.endpoint, file, 4, mariadb=mariadb, checksum=True, follow=follow
        ) as connection:
            yield from _events(connection, self.endpoint.label)


@contextmanager
def asked(
    endpoint: Endpoint,
    file: str,
    offset: int,
    *,
    mariadb: bool,
    checksum: bool,
    follow: bool = False,
    timeout_s: float = _SILENCE_S,
) -> Iterator[Connection]:
    """A connection of its own on which a dump was asked for, under an identity for once. Raises `BinlogError`.

    `timeout_s` bounds each wait for an answer, also those of the dump. `checksum`: see `introduce`.
    """
    connection = connect(endpoint, timeout_s=timeout_s)
    identity = Identity.for_once()
    try:
        heartbeat_s = _HEARTBEAT_S if follow else 0
        introduce(connection, identity, mariadb=mariadb, checksum=checksum, heartbeat_s=heartbeat_s)
        ask_by_file(connection, identity, file, offset, mariadb=mariadb, follow=follow)
        yield connection
    except pymysql.Error as error:
        raise client_error(error, where=endpoint.label) from error
    finally:
        drop(connection)


def _events(connection: Connection, label: str) -> Iterator[list[bytes]]:
    """The socket is read past the driver: it would make an object of each packet."""
    sock = socket_of(connection)
    pending = b""
    parts: list[bytes] = []
    while True:
        try:
            data = sock.recv(_RECEIVE_BYTES)
        except OSError as error:
            raise lost(error.strerror or str(error), label, _AGAIN) from error
        if not data:
            raise lost("the server closed the connection", label, _AGAIN)
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
            if at_end(packet):
                return
            raise ended(packet, label)
        pending = pending[at:]
        if found:
            yield found
