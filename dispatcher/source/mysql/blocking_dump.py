"""A dump read by a blocking caller: for people who look at a log, and for short looks beside the dispatchers.

The log is asked for by file, not by GTID, so that it comes whole and in order, offsets included.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from dispatcher.binlog.event.cursor import malformed
from dispatcher.binlog.event.header import EVENT_BYTES_MAX, HEADER_SIZE
from dispatcher.binlog.event.types import type_name
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.source.mysql.replication_commands import (
    Identity,
    ask_by_file,
    at_end,
    drop,
    ended,
    introduce,
    lost,
    socket_of,
)
from dispatcher.source.mysql.server_facts import (
    BinlogFile,
    Connection,
    Endpoint,
    ServerFacts,
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
                ErrorKind.SERVER_SETTING,
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
            yield from events_of(connection, self.endpoint.label, _AGAIN)


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
    finally:
        drop(connection)


def events_of(
    connection: Connection, label: str, remedy: str | None = None
) -> Generator[list[bytes], None, None]:
    """The events of a dump that was asked for on the connection, as they come, several at a time. Ends where the dump
    does; raises `BinlogError` where it breaks off.

    The socket is read past the driver, which would make an object of each packet, and read an event of any size before
    anybody could refuse it.
    """
    sock = socket_of(connection)
    pending = b""
    parts: list[bytes] = []
    while True:
        try:
            data = sock.recv(_RECEIVE_BYTES)
        except OSError as error:
            raise lost(error.strerror or str(error), label, remedy) from error
        if not data:
            raise lost("the server closed the connection", label, remedy)
        payloads, pending = _payloads(pending + data, parts, label)
        events = [payload[1:] for payload in payloads if payload[:1] == b"\0"]
        if events:
            yield events
        if len(events) < len(payloads):
            if at_end(payloads[-1]):
                return
            raise ended(payloads[-1], label)


def _payloads(data: bytes, parts: list[bytes], label: str) -> tuple[list[bytes], bytes]:
    """The whole payloads of some packets, up to the first that is no event, and the bytes of one that is not whole.

    `parts`: packets of 16 MiB that were received, of a payload that is not whole yet.
    """
    found: list[bytes] = []
    at = 0
    while len(data) - at >= 4:
        size = int.from_bytes(data[at : at + 3], "little")
        if size == _PACKET_MAX:
            _check_large(parts, data[at + 4 : at + 24], label)
        if len(data) - at - 4 < size:
            break
        parts.append(data[at + 4 : at + 4 + size])
        at += 4 + size
        if size == _PACKET_MAX:  # an event of 16 MiB and more comes in several
            continue
        found.append(b"".join(parts))
        parts.clear()
        if found[-1][:1] != b"\0":
            break
        if len(found[-1]) <= HEADER_SIZE:
            raise malformed("a packet", f"of {len(found[-1])} bytes holds no event").at(label)
    return found, data[at:]


def _check_large(parts: Sequence[bytes], beginning: bytes, label: str) -> None:
    """Refuse, before it is received, a packet of 16 MiB that is no part of an event, or of one that cannot be.

    `parts`: the packets before it that belong to the same event; `beginning`: its own first bytes, as far as they came.
    """
    first = parts[0] if parts else beginning
    if len(first) < 1 + HEADER_SIZE:
        return
    size = int.from_bytes(first[10:14], "little")
    have = sum(len(part) for part in parts) + _PACKET_MAX
    if first[0] or size > EVENT_BYTES_MAX or have > size + 1:
        name = type_name(first[5]) if not first[0] else "a packet"
        raise malformed(name, f"claims {size} bytes in packets of {have} bytes and more").at(label)
