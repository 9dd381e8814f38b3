"""A dump for a caller that blocks: for `inspect`, and for the short dumps of probes and look-ups.

The dump is requested by file, not by GTIDs, so that the server sends the whole log in order. The server sends the
events as they are in the file, with their checksums, whatever the value of its binlog_checksum is.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from dispatcher.binlog.event.cursor import malformed
from dispatcher.binlog.event.header import (
    CHECKSUM_SIZE,
    EVENT_BYTES_MAX,
    HEADER_SIZE,
    EventHeader,
    has_valid_checksum,
    parse_rotate,
)
from dispatcher.binlog.event.types import type_name
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.login import Endpoint, connect
from dispatcher.mysql.replication_commands import (
    Identity,
    ask_by_file,
    at_end,
    connection_lost,
    drop,
    dump_ended,
    introduce,
    socket_of,
)
from dispatcher.mysql.server_facts import read_facts
from dispatcher.stream.batch import Batch
from dispatcher.stream.routes import Routes
from dispatcher.stream.splitter import Splitter

_HEARTBEAT_S = 2
_SILENCE_S = 60
_BUFFER_BYTES = 1 << 20
_PACKET_MAX = 0xFFFFFF
_REMEDY = "try again, with --start at what was printed last"


class LogServer:
    """A server whose log `inspect` reads. Every method raises `BinlogError`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        connection = connect(endpoint)
        try:
            facts = read_facts(connection)
        finally:
            connection.close()
        if not facts.log_bin:
            raise BinlogError(
                ErrorKind.SERVER_SETTING,
                "log_bin=OFF: the server writes no binlog",
                where=endpoint.label,
                remedy="start the server with --log-bin",
            )
        self.files = facts.files  # at the login, oldest first
        self._mariadb = facts.flavour == "mariadb"

    def dump(self, file: str, *, follow: bool = False) -> Iterator[list[bytes]]:
        """Yield events from the beginning of a file to the end of the log, several at a time. With `follow`, wait for
        more events at the end of the log."""
        with blocking_dump(self.endpoint, file, mariadb=self._mariadb, follow=follow) as dump:
            yield from dump.events(_REMEDY)


@contextmanager
def blocking_dump(
    endpoint: Endpoint,
    file: str,
    offset: int = 4,
    *,
    mariadb: bool,
    follow: bool = False,
    timeout_s: float = _SILENCE_S,
) -> Iterator[BlockingDump]:
    """Request a dump over a new connection, under a new identity. Raises `BinlogError`.

    `timeout_s`: the longest wait for an answer or for more of the dump. Without `follow`, the dump ends at the end of
    the log.
    """
    connection = connect(endpoint, timeout_s=timeout_s)
    identity = Identity.for_once()
    try:
        heartbeat_s = _HEARTBEAT_S if follow else 0
        introduce(connection, identity, mariadb=mariadb, checksum=True, heartbeat_s=heartbeat_s)
        ask_by_file(connection, identity, file, offset, mariadb=mariadb, follow=follow)
        yield BlockingDump(connection, endpoint.label)
    finally:
        drop(connection)


class BlockingDump:
    """The answer to a dump request, to be read as events or as batches. Raises `BinlogError` if the dump breaks off.

    This class reads the socket itself, because PyMySQL makes an object of each packet, and reads a whole event, however
    large it is, before the caller can refuse it.
    """

    def __init__(self, connection: Connection, label: str) -> None:
        self._socket = socket_of(connection)
        self._label = label

    def events(self, remedy: str | None = None) -> Generator[list[bytes], None, None]:
        """Yield events as they arrive, several at a time. `remedy`: the remedy in the error for a lost connection."""
        room = memoryview(bytearray(_BUFFER_BYTES))
        pending = b""
        parts: list[bytes] = []
        while True:
            pending += room[: self._receive(room, remedy)]
            payloads, pending = _payloads(pending, parts, self._label)
            events = [payload[1:] for payload in payloads if payload[:1] == b"\0"]
            if events:
                yield events
            if len(events) < len(payloads):
                if at_end(payloads[-1]):
                    return
                raise dump_ended(payloads[-1], self._label)

    def batches(self, file: str, routes: Routes) -> Generator[tuple[Batch, int], None, None]:
        """Yield batches with the creation times of their files (s since 1970, 0 = unknown).

        Each batch is valid until the caller asks for the next one. `file`: where the dump begins.
        """
        splitter = Splitter(routes, packets=True, checksum=True, buffer_bytes=_BUFFER_BYTES)
        splitter.file, splitter.prepared = file, None
        while True:
            splitter.compact()
            if not splitter.full:
                splitter.wrote(self._receive(splitter.room()))
            for batch in splitter.split():
                if isinstance(batch, Batch):
                    yield batch, splitter.created.get(batch.file, 0)
                elif at_end(batch.packet):
                    return
                else:
                    raise dump_ended(batch.packet, self._label)

    def _receive(self, room: memoryview, remedy: str | None = None) -> int:
        try:
            size = self._socket.recv_into(room)
        except OSError as error:
            raise connection_lost(error.strerror or str(error), self._label, remedy) from error
        if not size:
            raise connection_lost("the server closed the connection", self._label, remedy)
        return size


def rotate_target(event: bytes) -> tuple[str, int]:
    """Return the file and offset in the ROTATE_EVENT before a dumped file.

    This function determines whether the event ends in a checksum. That depends on the previous file or, for the first
    file of the dump, on the session.
    """
    checksum_size = CHECKSUM_SIZE * has_valid_checksum(event)
    return parse_rotate(event[HEADER_SIZE : len(event) - checksum_size])


def _payloads(data: bytes, parts: list[bytes], label: str) -> tuple[list[bytes], bytes]:
    """Return the payloads of the complete packets, up to the first packet that is not an event, and the remaining
    bytes.

    `parts`: collects the packets of 16 MiB that belong to an incomplete payload.
    """
    payloads: list[bytes] = []
    at = 0
    while len(data) - at >= 4:
        size = int.from_bytes(data[at : at + 3], "little")
        if size == _PACKET_MAX:
            _check_large(parts, data[at + 4 : at + 24], label)
        if len(data) - at - 4 < size:
            break
        parts.append(data[at + 4 : at + 4 + size])
        at += 4 + size
        if size == _PACKET_MAX:  # an event of 16 MiB and more comes in several packets
            continue
        payload = b"".join(parts)
        parts.clear()
        payloads.append(payload)
        if payload[:1] != b"\0":
            break
        if len(payload) <= HEADER_SIZE:
            raise malformed("a packet", f"of {len(payload)} bytes holds no event").at(label)
    return payloads, data[at:]


def _check_large(parts: Sequence[bytes], beginning: bytes, label: str) -> None:
    """Raise BinlogError if a packet of 16 MiB cannot be part of an event of a possible size. The check needs only the
    beginning of the packet.

    `parts`: the earlier packets of the same event. `beginning`: the bytes of this packet that were received so far.
    """
    first = parts[0] if parts else beginning
    if len(first) < 1 + HEADER_SIZE:
        return
    header = EventHeader.read(first, 1)  # after the status byte
    received = sum(len(part) for part in parts) + _PACKET_MAX
    if first[0] or header.size > EVENT_BYTES_MAX or received > header.size + 1:
        name = type_name(header.type) if not first[0] else "a packet"
        what = f"claims {header.size} bytes in packets of {received} bytes and more"
        raise malformed(name, what).at(label)
