"""The daemon's connection, splitter and consumer log on a real server, without the rest of the daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from dispatcher.binlog.event.header import MAGIC
from dispatcher.dispatch.values.executed_position import ExecutedPosition, Mode
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import packed_seq
from dispatcher.mysql.login import Endpoint
from dispatcher.mysql.replication_commands import Identity
from dispatcher.source.mysql.dump_stream import LoggedInConnection, ServerStream
from dispatcher.source.mysql.log_probe import mode_of
from dispatcher.stream.batch import Batch
from dispatcher.stream.consumer_log import ConsumerLog
from dispatcher.stream.routes import Filter, Routes
from dispatcher.stream.splitter import Splitter
from tests.servers import Server

PASSWORD = "dump's secret"
_INSTALLATION = UUID(int=77)


class Share:
    """One consumer's log, to which a test adds batches."""

    def __init__(self, *databases: str) -> None:
        self.filter = Filter(databases)
        self.log = ConsumerLog()
        self.head = b""
        self.seq = 0
        self.faults: list[str] = []

    def take(self, batch: Batch, routes: Routes) -> None:
        if batch.fault:
            self.faults.append(batch.fault.error.what)
        if not self.head:
            self.head = MAGIC + batch.format.raw
        wants = self.filter.route_mask(routes)
        _, self.seq = self.log.append(batch, wants, None, epoch=1, seq=self.seq, packed=False)

    @property
    def data(self) -> bytes:
        return self.head + b"".join(self.log.read(0, self.log.committed))


def shared(log: bytes, *databases: str, chunk: int = 1 << 20) -> Share:
    """Returns the log of a consumer of these databases, made from a log file."""
    split = Splitter(Routes(), packets=False, checksum=True, buffer_bytes=1 << 14)
    share = Share(*databases)
    for at in range(len(MAGIC), len(log), chunk):
        for batch in split.feed(log[at : at + chunk]):
            assert isinstance(batch, Batch)
            share.take(batch, split.routes)
    return share


class Dump:
    """A stream from a server; `until` reads it until a condition is true."""

    def __init__(self, stream: ServerStream, share: Share, loop: asyncio.AbstractEventLoop) -> None:
        self.stream = stream
        self.share = share
        self._loop = loop

    def until(self, done: Callable[[Share], bool]) -> None:
        async def read() -> None:
            async with asyncio.timeout(30):
                while not done(self.share):
                    for batch in await self.stream.batches():
                        assert isinstance(batch, Batch), self.stream.ended(batch)
                        self.share.take(batch, self.stream.splitter.routes)

        self._loop.run_until_complete(read())


def account(server: Server, name: str) -> Endpoint:
    """Create an account that may replicate."""
    server.add_user(name, PASSWORD)
    return Endpoint(server.host, server.port, name, PASSWORD)


@contextmanager
def dump(
    endpoint: Endpoint, *databases: str, file: str, offset: int = 4, held: GtidSet | None = None, number: int = 1
) -> Iterator[Dump]:  # fmt: skip
    """A dump from a file and offset on, or of all but the executed GTIDs. `number`: two dumps at a time need two
    numbers."""
    loop = asyncio.new_event_loop()
    connection = LoggedInConnection(
        endpoint, Identity.of(_INSTALLATION, endpoint.label, number), heartbeat_s=5
    )
    mode = mode_of(connection.facts) if held is not None else Mode.FILE
    if connection.facts.flavour == "mariadb":
        mode = Mode.MARIADB
    place = ExecutedPosition(held or GtidSet(), file, offset, packed_seq(file, offset))
    stream = connection.dump(mode, place, Routes(), 1 << 16)
    try:
        yield Dump(stream, Share(*databases), loop)
    finally:
        stream.close()
        loop.close()


def printed(server: Server, data: bytes, folder: Path) -> str:
    """Returns what the server's own tool prints for a delivered log. The tool verifies each checksum."""
    path = folder / "delivered"
    path.write_bytes(data)
    verify = "--verify-binlog-checksum"
    return server.mysqlbinlog(verify, "-v", "--base64-output=decode-rows", path).stdout
