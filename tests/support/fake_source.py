"""A source in memory for tests of the runtime: an implementation of `Source` that reads a fake server. A test can block
the threads that open the source.

The source records open logins and dumps. A second login or dump with the same dispatcher number is an error, because a
real server would end the first one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from dispatcher.dispatch.values.executed_position import ExecutedPosition, Mode
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.source.protocols import SchemaServer, ViewRequest
from dispatcher.stream.batch import Batch, Closed
from dispatcher.stream.routes import Routes
from dispatcher.stream.splitter import Splitter
from tests.support.event_encoder import LogWriter, Statement
from tests.support.fake_server import Feed, Server

DEADLINE_S = 20


def write(log: LogWriter, database: str, count: int = 1, size: int = 100) -> None:
    """Write transactions of one row of `size` bytes."""
    for _ in range(count):
        log.begin()
        log.statement(Statement(((database, "t"),), ((0, size),)))
        log.commit()


class FakeSource:
    """`held`: threads that open the source wait while this is set; `error`: an error that a login raises."""

    label = "repl@fake:3306"

    def __init__(self, server: Server) -> None:
        self.fake = server
        self.error: Exception | None = None
        self.opened: list[int] = []  # dispatcher numbers, in the order of the logins
        self.closed = 0  # the number of connections that were closed before a dump began
        self.streams: list[FakeStream] = []  # all dumps so far
        self.surveys = 0
        self.moves = 0
        self.busy: dict[int, int] = {}
        self.overlaps = 0
        self._go_on = threading.Event()
        self._go_on.set()
        self._lock = threading.Lock()

    # -- for the test ----------------------------------------------------------------------------------------

    def hold(self) -> None:
        self._go_on.clear()

    def release(self) -> None:
        self._go_on.set()

    def live(self) -> list[FakeStream]:
        return [stream for stream in self.streams if not stream.closed]

    # -- for the runner --------------------------------------------------------------------------------------

    def open(self, dispatcher: int) -> FakeOpened:
        with self._lock:
            self.opened.append(dispatcher)
            self.enter(dispatcher)
        assert self._go_on.wait(DEADLINE_S)
        if self.error is not None:
            self.leave(dispatcher)
            raise self.error
        return FakeOpened(self, dispatcher)

    def survey(self, request: ViewRequest) -> tuple[ServerView, int | None]:
        with self._lock:
            self.surveys += 1
        assert self._go_on.wait(DEADLINE_S)
        names = [*request.files, *(name for name, _ in request.places)]
        return self.fake.view(names, request.starts, request.places), 3600

    @property
    def lower_case_table_names(self) -> int | None:
        return 0

    def next_host(self, dispatcher: int) -> None:  # noqa: ARG002 - all are alike
        self.moves += 1

    def server(self) -> SchemaServer:
        raise BinlogError(ErrorKind.METADATA_MISSING, "a fake server knows no tables")

    # -- the account -----------------------------------------------------------------------------------------

    def enter(self, number: int) -> None:
        self.busy[number] = self.busy.get(number, 0) + 1
        self.overlaps += self.busy[number] > 1

    def leave(self, number: int) -> None:
        self.busy[number] -= 1


class FakeOpened:
    findings: Sequence[BinlogError] = ()

    def __init__(self, source: FakeSource, number: int) -> None:
        self._source = source
        self._number = number
        self._over = False

    def view(self, request: ViewRequest) -> ServerView:
        assert not request.starts
        return self._source.fake.view(request.files, places=request.places)

    def dump(
        self, mode: Mode, position: ExecutedPosition, routes: Routes, buffer_bytes: int
    ) -> FakeStream:
        assert mode is self._source.fake.mode
        self._over = True
        stream = FakeStream(self._source, self._number, position, routes, buffer_bytes)
        self._source.streams.append(stream)
        return stream

    def close(self) -> None:
        if not self._over:
            self._over = True
            self._source.closed += 1
            self._source.leave(self._number)


class FakeStream:
    """A dump. `lost`: an error that the next read raises."""

    over = False
    received_at = 0.0

    def __init__(
        self,
        source: FakeSource,
        number: int,
        place: ExecutedPosition,
        routes: Routes,
        buffer_bytes: int,
    ) -> None:
        self.number = number
        self.place = place
        self.closed = False
        self.lost: BinlogError | None = None
        self.feed = Feed(source.fake, place)
        self.splitter = Splitter(
            routes, packets=True, checksum=self.feed.checksum, buffer_bytes=buffer_bytes
        )
        self._source = source
        self._interrupted = False

    async def batches(self) -> list[Batch | Closed]:
        splitter = self.splitter
        splitter.compact()
        while not splitter.full:
            if self.lost is not None:
                raise self.lost
            room = splitter.room()
            if data := self.feed.take(len(room)):
                room[: len(data)] = memoryview(data)
                splitter.wrote(len(data))
                break
            await asyncio.sleep(0.001)
            if self._interrupted:
                return []
        return splitter.split()

    def ended(self, closed: Closed) -> BinlogError:
        raise AssertionError(f"a fake server ends no dump: {closed}")

    def interrupt(self) -> None:
        self._interrupted = True

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._source.leave(self.number)
