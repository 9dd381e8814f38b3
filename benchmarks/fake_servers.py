"""Many fake MySQL servers in one process. Each server writes a small transaction each second. The program prints their
port.

The servers share one port: each account is another server, with its own server uuid. The logs of all servers are equal,
so the program encodes each transaction only once, with the project's own encoders.
`python -m benchmarks.fake_servers BYTES_PER_SECOND`; it runs until its standard input ends.
"""

from __future__ import annotations

import asyncio
import sys
from uuid import NAMESPACE_DNS, UUID, uuid5

from tests.support.event_encoder import LogWriter, Statement, event_packet
from tests.support.hostile_server import EOF, OK, SALT, Answers, Session

_DUMP = 0x12
_STATEMENT_OVERHEAD = 400  # bytes of a transaction besides its rows
_TABLE = ("shop", "orders")


class _Conversation(Session):
    """A connection whose answers are written to a stream instead of a socket."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.sequence = 0
        self.user = ""

    def raw(self, data: bytes) -> None:
        self._writer.write(data)

    def packet(self, payload: bytes) -> None:
        self._writer.write(len(payload).to_bytes(3, "little") + bytes((self.sequence,)) + payload)
        self.sequence = (self.sequence + 1) & 0xFF

    def events(self, raws: list[bytes]) -> None:
        """Send events of a dump. Each must be short enough for one packet."""
        out = []
        for raw in raws:
            out.append(event_packet(raw, self.sequence))
            self.sequence = (self.sequence + 1) & 0xFF
        self._writer.write(b"".join(out))


class Servers:
    """The servers. `log`: the log of each server; `dumps`: the connections that follow the log."""

    def __init__(self, bytes_per_second: int) -> None:
        self.log = LogWriter()
        self._statement = Statement(
            (_TABLE,), ((0, max(1, bytes_per_second - _STATEMENT_OVERHEAD)),)
        )
        self._write()
        self.dumps: set[_Conversation] = set()

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = _Conversation(writer)
        try:
            await self._answer(session, reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the daemon has closed the connection
        finally:
            self.dumps.discard(session)
            writer.close()

    async def _answer(self, session: _Conversation, reader: asyncio.StreamReader) -> None:
        session.packet(_greeting())
        reply = await _payload(session, reader)
        session.user = reply[32:].partition(b"\0")[0].decode()
        session.packet(OK)
        name = str(uuid5(NAMESPACE_DNS, session.user))
        answers = Answers(variables={"server_uuid": name}, log=self.log)
        while True:
            request = await _payload(session, reader)
            match request[0]:
                case 0x01:
                    return
                case 0x03:
                    answers.answer(session, request[1:].decode())
                case 0x12 | 0x1E:
                    self._follow(session, request)
                case _:
                    session.packet(OK)

    def _follow(self, session: _Conversation, request: bytes) -> None:
        if request[0] == _DUMP:
            offset = int.from_bytes(request[1:5], "little")
            session.events(list(self.log.dump(file=self.log.file.name, offset=offset)))
            session.packet(EOF)  # the daemon uses this kind of dump to read single events
            return
        session.events(list(self.log.dump(held=_held(request))))
        self.dumps.add(session)

    def _write(self) -> list[bytes]:
        """Add one transaction to the log of all servers. Returns its events."""
        before = len(self.log.file.events)
        self.log.begin()
        self.log.statement(self._statement)
        self.log.commit()
        return [raw for raw, _ in self.log.file.events[before:]]

    async def write_on(self) -> None:
        """Write a transaction each second, and send it at once to each connection that follows the log."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due += 1.0
            await asyncio.sleep(due - loop.time())
            events = self._write()
            for session in list(self.dumps):
                session.events(events)


async def _payload(session: _Conversation, reader: asyncio.StreamReader) -> bytes:
    header = await reader.readexactly(4)
    session.sequence = (header[3] + 1) & 0xFF
    return await reader.readexactly(int.from_bytes(header[:3], "little"))


def _greeting() -> bytes:
    """HandshakeV10 with mysql_native_password, without TLS."""
    capabilities = 0x000FF7FF & ~0x0800
    body = b"\x0a8.4.3\0" + (7).to_bytes(4, "little") + SALT[:8] + b"\0"
    body += (capabilities & 0xFFFF).to_bytes(2, "little") + b"\xff\2\0"
    body += (capabilities >> 16).to_bytes(2, "little") + b"\x15" + bytes(10)
    return body + SALT[8:] + b"\0mysql_native_password\0"


def _held(request: bytes) -> list[tuple[str, int]]:
    """Returns the transactions that a COM_BINLOG_DUMP_GTID names as executed, as (source, number)."""
    name_size = int.from_bytes(request[7:11], "little")
    at = 11 + name_size + 8 + 4
    sources = int.from_bytes(request[at : at + 8], "little")
    at += 8
    held = []
    for _ in range(sources):
        source, count = UUID(bytes=request[at : at + 16]), request[at + 16 : at + 24]
        at += 24
        for _ in range(int.from_bytes(count, "little")):
            first = int.from_bytes(request[at : at + 8], "little")
            end = int.from_bytes(request[at + 8 : at + 16], "little")
            held += [(str(source), number) for number in range(first, end)]
            at += 16
    return held


async def serve(bytes_per_second: int) -> None:
    servers = Servers(bytes_per_second)
    listener = await asyncio.start_server(servers.converse, "127.0.0.1", 0, backlog=4096)
    print(listener.sockets[0].getsockname()[1], flush=True)
    writing = asyncio.ensure_future(servers.write_on())  # noqa: TID251 - kept until the end
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    writing.cancel()
    listener.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
