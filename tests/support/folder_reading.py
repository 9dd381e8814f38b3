"""Reads folders of binlog files as the daemon does, without a daemon.

`LogWriter` writes the folders and keeps the transactions. A `Dispatched` connects the source and the rules, as a runner
does; tests compare a consumer's queue with what was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.connection.dispatcher import Phase
from dispatcher.dispatch.messages.effects import Connect, Effect, StartDump, Store
from dispatcher.dispatch.messages.events import (
    BatchReceived,
    Ended,
    LoggedIn,
    Lost,
)
from dispatcher.dispatch.values.executed_position import ExecutedPosition, Mode, make_executed
from dispatcher.dispatch.values.specs import (
    ConsumerSpec,
    Earliest,
    Progress,
    Start,
)
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.source.files.dump_stream import FilesStream
from dispatcher.source.files.source import FilesSource
from dispatcher.source.protocols import ViewRequest
from dispatcher.stream.batch import Batch
from tests.support.event_encoder import (
    SERVER,
    LogWriter,
    Statement,
)

OTHER = UUID("00000000-0000-0000-0000-00000000000b")
IDENTITY = "the-folder"
WAIT_S = 10.0
GTIDS = ["mysql", "5.6", "anonymous", "none", "mariadb"]


def insert(log: LogWriter, *, size: int = 30, source: UUID = SERVER) -> None:
    log.begin(source)
    log.statement(Statement((("shop", "orders"),), ((0, size),)))
    log.commit()


def fill(log: LogWriter, files: int = 3, each: int = 4) -> LogWriter:
    for n in range(files):
        if n:
            log.rotate()
        for _ in range(each):
            insert(log)
    return log


def put(folder: Path, log: LogWriter) -> None:
    folder.mkdir(exist_ok=True)
    for file in log.files:
        (folder / file.name).write_bytes(file.raw)


def source_of(folder: Path, *, follow: bool = False, prefix: str | None = None) -> FilesSource:
    return FilesSource(folder, prefix, follow=follow, server=IDENTITY)


def end_of(source: FilesSource) -> ExecutedPosition:
    view, expire_s = source.survey(ViewRequest())
    assert expire_s is None
    return make_executed(view.mode, view.executed, view.file, view.offset)


class Dispatched:
    """A client with one consumer, without a daemon."""

    def __init__(
        self,
        folder: Path,
        *,
        start: Start | None = None,
        progress: Progress | None = None,
        follow: bool = False,
        buffer_bytes: int = 1 << 14,
    ) -> None:
        self.source = source_of(folder, follow=follow)
        spec = ConsumerSpec("all", ("shop",), None, 1 << 30, start or Earliest())
        self.client = Client(self.source.label, [spec], {"all": progress} if progress else {})
        self.queue = self.client.consumers["all"].queue
        self.stored: Progress | None = progress
        self.batches = 0
        self._buffer_bytes = buffer_bytes
        self.number = 0  # the dispatcher's number
        self.stream: FilesStream | None = None

    def login(self) -> FilesStream | None:
        opened = self.source.open(1)
        if not self.number:
            self._execute(self.client.start())
        files, starts = (
            self.client.files_to_probe(self.number),
            self.client.starts_to_search(self.number),
        )
        view = opened.view(ViewRequest(files, starts))
        effects = self._execute(self.client.step(LoggedIn(self.number, view), 0))
        dumps = [effect for effect in effects if isinstance(effect, StartDump)]
        if dumps:
            self.stream = opened.dump(
                dumps[0].mode, dumps[0].executed, self.client.routes, self._buffer_bytes
            )
        return self.stream

    async def read(self, until: Callable[[], bool] = lambda: False) -> Dispatched:
        """Read to the end of the folder, or until the condition is true. Reports an error to the rules, and raises
        it."""
        stream = self.stream or self.login()
        assert stream is not None, str(self.client.consumers["all"].failed)
        try:
            async with asyncio.timeout(WAIT_S):
                while self.phase and not until() and not stream.over:
                    for batch in await stream.batches():
                        assert isinstance(batch, Batch)
                        if not self.phase:
                            break
                        self.batches += 1
                        created = stream.splitter.created.get(batch.file, 0)
                        self._execute(
                            self.client.step(BatchReceived(self.number, batch, created), 0)
                        )
        except BinlogError as error:
            self._execute(self.client.step(Lost(self.number, error), 0))
            raise
        finally:
            if stream.over:
                stream.close()
        if stream.over and self.phase:
            self.client.step(Ended(self.number), 0)
            assert self.phase is Phase.ENDED
        return self

    def close(self) -> None:
        if self.stream:
            self.stream.close()
            self.stream = None

    def everything(self, chunks: list[bytes]) -> Progress | None:
        """Add the queued bytes to `chunks`. Returns the progress that is stored when these bytes are acknowledged."""
        self.close()
        if not self.client.consumers["all"].started:
            return self.stored
        start = self.queue.position(self.queue.acknowledged)
        if self.position.seq > start.seq:
            data = b"".join(self.queue.read(start, self.position))
            chunks.append(data)
        return Progress(
            self.position, self.position, self.queue.files.created_of(self.position.file)
        )

    def _execute(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, Store):
                self.stored = effect.progress
            if isinstance(effect, Connect):
                self.number = effect.dispatcher
        return effects

    @property
    def phase(self) -> Phase | None:
        """The dispatcher's phase; None if no consumer needs a dispatcher."""
        dispatcher = self.client.dispatchers.get(self.number)
        return dispatcher.phase if dispatcher else None

    @property
    def position(self) -> Position:
        return self.queue.position(self.queue.queued)

    @property
    def transactions(self) -> list[tuple[str, int]]:
        """File and end offset of each transaction in the queue."""
        runs = self.queue._index
        places = [runs.executed_after(n) for n in range(runs.dropped, runs.count)]
        return [(place.file, place.offset) for place in places]


def written(log: LogWriter, first: int = 0) -> list[tuple[str, int]]:
    return [(t.file, t.end) for t in log.transactions[first:] if not t.aborted]


async def fails(reading: Dispatched, kind: ErrorKind = ErrorKind.FILES) -> str:
    with pytest.raises(BinlogError) as caught:
        await reading.read()
    reading.close()
    assert caught.value.kind is kind, caught.value
    assert "files:" in str(caught.value)
    return caught.value.what


def refused(folder: Path, prefix: str | None = None) -> str:
    with pytest.raises(BinlogError) as caught:
        source_of(folder, prefix=prefix).open(1)
    assert caught.value.kind is ErrorKind.FILES and "files:" in caught.value.where
    return caught.value.what


def same(tip: ExecutedPosition, reading: Dispatched) -> bool:
    """True if `tip` is the end of the queue. In a log without GTIDs, only file, offset and seq are compared."""
    queued = reading.queue.queued
    if reading.queue.mode is Mode.FILE:
        return (tip.file, tip.offset, tip.seq) == (queued.file, queued.offset, queued.seq)
    return tip == queued


def in_use(raw: bytes) -> bytes:
    return raw[:21] + b"\1\0" + raw[23:]


def gtid_list(sequence: int) -> bytes:
    domain, server = (0).to_bytes(4, "little"), (1).to_bytes(4, "little")
    return (1).to_bytes(4, "little") + domain + server + sequence.to_bytes(8, "little")
