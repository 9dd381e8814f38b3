"""Where a log comes from: what a runner needs of a server, or of a folder of binlog files.

A source is opened, says what it holds (`view`), and is asked for its log from a place on (`dump`). The rules above see
no difference: the same view goes through the same history check, the same splitter makes the same batches. What only a
server can tell, such as the columns of a table, is asked of `server()`, which refuses where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dispatcher.binlog.batch import Batch, Closed
from dispatcher.binlog.routes import Routes
from dispatcher.binlog.scan import Splitter
from dispatcher.dispatch.history import Mode, Place
from dispatcher.dispatch.inputs import ServerView
from dispatcher.model.errors import BinlogError
from dispatcher.net.connection import Identity, LoggedInConnection, mode_of
from dispatcher.net.server import Endpoint, connect, facts

TIP_TIMEOUT_S = 5


class Dump(Protocol):
    """A log as it comes. Everything in it is of the loop."""

    splitter: Splitter

    @property
    def over(self) -> bool:
        """Has the log come to an end that is one? Then `batches()` is not called again."""

    async def batches(self) -> list[Batch | Closed]:
        """Wait for more; the caller is done with it before the next call. Raises BinlogError."""

    def ended(self, closed: Closed) -> BinlogError:
        """What a `Closed` among the batches means."""

    def interrupt(self) -> None:
        """Let `batches()` return at once, with nothing, now or when it is called next."""

    def close(self) -> None: ...


class Opened(Protocol):
    """A source that was reached and not asked for its log yet. Its methods block: run them in a thread."""

    @property
    def found(self) -> Sequence[BinlogError]:
        """What is wrong with it, though not so much that nothing can be read."""

    def view(
        self,
        files: Sequence[str],
        moments: Sequence[int] = (),
        offsets: Sequence[tuple[str, int]] = (),
    ) -> ServerView:
        """`files`: those whose creation time the history check asks for; `moments` (microseconds since 1970) and
        `offsets` (file, offset): what is asked for as places. Raises BinlogError."""

    def dump(self, mode: Mode, place: Place, routes: Routes, buffer_bytes: int) -> Dump:
        """The log from `place` on. Raises BinlogError."""

    def close(self) -> None: ...


class Source(Protocol):
    """Its methods block: run them in a thread."""

    @property
    def label(self) -> str:
        """What people, logs and metrics see."""

    def open(self, dispatcher: int) -> Opened:
        """For the dispatcher of this number. Raises BinlogError."""

    def survey(self, files: Sequence[str] = ()) -> tuple[ServerView, int | None]:
        """What it holds just now, and after how many seconds it purges a closed file (None: never by age). Raises
        BinlogError."""

    def move_on(self) -> None:
        """Try another host next, where there are several."""

    def server(self) -> ServerSource:
        """The server behind it. Raises BinlogError (METADATA_MISSING) where there is none."""


@dataclass(frozen=True, slots=True)
class ServerSource:
    """A MySQL or MariaDB server. `identity`: of the dispatcher of a number; `heartbeat_s`: how often it is to say
    that it is there."""

    endpoint: Endpoint
    identity: Callable[[int], Identity]
    heartbeat_s: float

    @property
    def label(self) -> str:
        return self.endpoint.label

    def open(self, dispatcher: int) -> LoggedInConnection:
        identity = self.identity(dispatcher)
        return LoggedInConnection(self.endpoint, identity, heartbeat_s=self.heartbeat_s)

    def survey(self, files: Sequence[str] = ()) -> tuple[ServerView, int | None]:
        connection = connect(self.endpoint, timeout_s=TIP_TIMEOUT_S)
        try:
            known = facts(connection)
        finally:
            connection.close()
        view = ServerView(
            server=known.server_uuid,
            mode=mode_of(known),
            executed=known.gtid_executed,
            purged=known.gtid_purged,
            files=tuple((file.name, file.size) for file in known.files),
            file=known.file,
            offset=known.offset,
            created={},
        )
        return view, known.expire_seconds

    def move_on(self) -> None:
        """There is one host."""

    def server(self) -> ServerSource:
        return self
