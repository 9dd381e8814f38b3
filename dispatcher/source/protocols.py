"""Where a log comes from: what a runner needs of a server, or of a folder of binlog files.

A source is opened, says what it holds (`view`), and is asked for its log from a place on (`dump`). The rules above see
no difference: the same view goes through the same history check, the same splitter makes the same batches. What only a
server can tell, such as the columns of a table, is asked of `server()`, which refuses where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dispatcher.binlog.stream.batch import Batch, Closed
from dispatcher.binlog.stream.routes import Routes
from dispatcher.binlog.stream.splitter import Splitter
from dispatcher.dispatch.executed_position import ExecutedPosition, Mode
from dispatcher.dispatch.server_view import ServerView
from dispatcher.dispatch.specs import Start
from dispatcher.model.errors import BinlogError
from dispatcher.source.mysql.source import ServerSource

SURVEY_TIMEOUT_S = 5


class DumpStream(Protocol):
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
        starts: Sequence[Start] = (),
        places: Sequence[tuple[str, int]] = (),
    ) -> ServerView:
        """`files`: those whose creation time the history check asks for; `starts`: whose places are to be found;
        `places`: files and offsets of which it asks what stands there. Raises BinlogError."""

    def dump(
        self, mode: Mode, place: ExecutedPosition, routes: Routes, buffer_bytes: int
    ) -> DumpStream:
        """The log from `place` on. Raises BinlogError."""

    def close(self) -> None: ...


class Source(Protocol):
    """Its methods block: run them in threads, of which several may call at a time."""

    @property
    def label(self) -> str:
        """What people, logs and metrics see."""

    def open(self, dispatcher: int) -> Opened:
        """For the dispatcher of this number: the server sees each under an identity of its own. Raises BinlogError."""

    def survey(
        self,
        files: Sequence[str] = (),
        starts: Sequence[Start] = (),
        places: Sequence[tuple[str, int]] = (),
    ) -> tuple[ServerView, int | None]:
        """What the source says of itself now, with the creation times of these files, which may be remembered, and the
        places of `starts`, for which the log is searched; what stands at `places` (file, offset) and when their files
        were made, asked anew; and after how many seconds it purges a file that is closed (None: never by age). Raises
        BinlogError."""

    def move_on(self, dispatcher: int) -> None:
        """Open another host next, where there are several: what the one holds that this dispatcher has is of no use."""

    def server(self) -> ServerSource:
        """The server behind it. Raises BinlogError (METADATA_MISSING) where there is none."""
