"""A client of the front that sends any bytes after its login, and reads the packets that come back."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

from dispatcher.binlog.event.types import EventType
from dispatcher.front.wire.passwords import native_proof
from dispatcher.model.gtid import GtidSet
from tests.front.dump.raw_dump import THROUGH_GTID, by_file, by_gtids
from tests.front.wire.raw_client import RawClient, response

_OK, _ERROR, _EOF = 0x00, 0xFF, 0xFE
_EOF_BYTES = 5
CHECKSUM = "SET @source_binlog_checksum = 'CRC32', @master_binlog_checksum = 'CRC32'"


class Refused(Exception):
    """The front has answered with an error. `number`: MySQL's."""

    def __init__(self, payload: bytes) -> None:
        self.number = int.from_bytes(payload[1:3], "little")
        self.text = payload[3:].decode("utf-8", "replace")
        super().__init__(f"{self.number}: {self.text}")


class Attacker(RawClient):
    """`received_bytes_max`: the size of the socket's buffer, 0 for the system's."""

    def __init__(self, port: int, *, received_bytes_max: int = 0, timeout_s: float = 60.0) -> None:
        connection = socket.socket()
        if received_bytes_max:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received_bytes_max)
        connection.settimeout(timeout_s)
        connection.connect(("127.0.0.1", port))
        self._greeted(connection)

    def _greeted(self, connection: socket.socket) -> None:
        self.socket = connection
        self.greeting = self.receive()[1]
        at = self.greeting.find(b"\0") + 5
        self.nonce = self.greeting[at : at + 8] + self.greeting[at + 27 : at + 39]

    def enter(self, user: str, secret: str) -> Attacker:
        """Log in. Raises Refused."""
        proof = native_proof(secret.encode(), self.nonce) if secret else b""
        self.send(response(user, proof, plugin=""), 1)
        self.one()
        return self

    def one(self) -> bytes:
        """The next payload. Raises Refused for an error."""
        _, payload = self.receive()
        if payload[0] == _ERROR:
            raise Refused(payload)
        return payload

    def ask(self, sql: str | bytes) -> list[bytes]:
        """Send a question. Returns the payloads of the answer. Raises Refused."""
        text = sql if isinstance(sql, bytes) else sql.encode("utf-8", "surrogatepass")
        self.send(b"\x03" + text, 0)
        return self.answer()

    def answer(self) -> list[bytes]:
        """The payloads of the answer to a command other than a dump. Raises Refused."""
        first = self.one()
        if first[0] == _OK or _is_eof(first):
            return [first]
        found = [first]
        for _ in range(2):  # the columns, and the rows
            while not _is_eof(payload := self.one()):
                found.append(payload)
        return found

    def ping(self) -> None:
        self.send(b"\x0e", 0)
        assert self.answer()[0][0] == _OK

    def dump(self, command: bytes) -> None:
        """Ask for a dump whose events have checksums."""
        self.ask(CHECKSUM)
        self.send(command, 0)

    def dump_file(self, file: str, offset: int = 4, flags: int = 0) -> None:
        self.dump(by_file(file, offset, flags))

    def dump_gtids(self, gtids: str, flags: int = THROUGH_GTID) -> None:
        self.dump(by_gtids(GtidSet.parse(gtids), flags))

    def events(self) -> Iterator[bytes]:
        """The events of a dump, up to its end. Raises Refused, ConnectionError."""
        whole = b""
        while True:
            _, payload = self.receive()
            if not whole and payload[0] == _ERROR:
                raise Refused(payload)
            if not whole and _is_eof(payload):
                return
            whole += payload
            if len(payload) < 0xFFFFFF:
                yield whole[1:]
                whole = b""

    def until_rows(self, count: int) -> int:
        """Read events until this number of events of inserted rows has come. Returns the newest offset."""
        offset = 0
        for event in self.events():
            offset = int.from_bytes(event[13:17], "little") or offset
            if event[4] == EventType.WRITE_ROWS:
                count -= 1
                if not count:
                    return offset
        raise AssertionError("the dump has ended")

    def drop(self) -> None:
        """Close with RST, whatever has happened to the connection."""
        with suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # A thread that reads would not notice that the socket is closed, and wait for its timeout. This ends its
            # wait, and sends nothing.
            self.socket.shutdown(socket.SHUT_RD)
        self.socket.close()


def _is_eof(payload: bytes) -> bool:
    return payload[0] == _EOF and len(payload) <= _EOF_BYTES
