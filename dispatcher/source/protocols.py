"""The protocols of a source: a MySQL or MariaDB server, or a folder of binlog files.

The daemon opens a source, asks for its description (`view`), and reads its log from a position (`dump`). Both kinds of
source are treated in the same way: the rules apply one history check to the view, and one splitter makes the batches.
Only a server can answer questions about tables; `Source.server()` returns it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple, Protocol

from dispatcher.dispatch.values.executed_position import ExecutedPosition, Mode
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import Start
from dispatcher.model.asked_dump import AskedDump, DumpRefusal
from dispatcher.model.errors import BinlogError
from dispatcher.model.server_picture import Picture, ServerAnswer
from dispatcher.mysql.table_schema import Definition, SchemaAt, TableName
from dispatcher.stream.batch import Batch, Closed
from dispatcher.stream.routes import Routes
from dispatcher.stream.splitter import Splitter


class ViewRequest(NamedTuple):
    """What a view must contain in addition to its usual contents.

    `files`: names of files whose creation times are needed. `starts`: the starts whose positions are to be searched in
    the log. `places`: the files and offsets at which boundaries are needed, and the creation times of these files.
    """

    files: Sequence[str] = ()
    starts: Sequence[Start] = ()
    places: Sequence[tuple[str, int]] = ()


class DumpStream(Protocol):
    """The log, read batch by batch. Use it on the event loop only."""

    splitter: Splitter

    @property
    def over(self) -> bool:
        """True if the log has ended for good. Then do not call `batches()` again."""

    async def batches(self) -> list[Batch | Closed]:
        """Wait for more of the log. The returned batches are valid until the next call. Raises BinlogError."""

    @property
    def received_at(self) -> float:
        """When the first byte of the newest batches arrived, s of the monotonic clock."""

    def ended(self, closed: Closed) -> BinlogError:
        """Return the error to raise for a `Closed` that `batches` has returned."""

    def interrupt(self) -> None:
        """Make the current or the next call of `batches()` return an empty list at once."""

    def close(self) -> None: ...


class OpenedSource(Protocol):
    """A source that is open and has not sent its log yet. Its methods block: call them in a thread."""

    @property
    def findings(self) -> Sequence[BinlogError]:
        """The faults of the source that do not prevent reading its log."""

    def view(self, request: ViewRequest) -> ServerView:
        """Describe the source. Raises BinlogError."""

    def dump(
        self, mode: Mode, position: ExecutedPosition, routes: Routes, buffer_bytes: int
    ) -> DumpStream:
        """Return a stream of the log that begins at `position`. Raises BinlogError."""

    def close(self) -> None: ...


class SchemaServer(Protocol):
    """A server that answers questions about its tables. Its methods block and raise BinlogError."""

    def picture(self, earlier: Picture | None) -> Picture:
        """Return what the front shows of the server; see `front_answers.read_picture`."""

    def look_up(self, statement: str) -> ServerAnswer:
        """Return the answer to a statement that only reads."""

    def dump_refusal(self, asked: AskedDump) -> DumpRefusal | None:
        """Return the server's refusal of a dump; None if the server accepts it."""

    def table_columns(self, database: str, table: str) -> Definition:
        """Return the columns and the key of a table; see `table_schema.table_columns`."""

    def definitions(self, tables: Sequence[TableName]) -> list[SchemaAt]:
        """Return the definitions of tables, each with the log position at which it was read."""

    def read_log(
        self, file: str, offset: int, routes: Routes
    ) -> Generator[tuple[Batch, int], None, None]:
        """Read the log from a file and offset to its end, over a separate connection.

        If the offset is 4 GiB or more, read from the beginning of the file. Yields batches with the creation times of
        their files (s since 1970). Each batch is valid until the caller asks for the next one.
        """


SURVEY = 0  # this number stands for surveys; every other number is the number of a dispatcher


class Source(Protocol):
    """Its methods block: call them in threads. Several threads may call at a time."""

    @property
    def label(self) -> str:
        """The name of the source in messages, logs and metrics."""

    @property
    def lower_case_table_names(self) -> int | None:
        """The setting of the servers that were opened so far; None before the first one."""

    def open(self, dispatcher: int) -> OpenedSource:
        """Connect for the dispatcher with this number. To a server, each number is a separate replica. Raises
        BinlogError."""

    def survey(self, request: ViewRequest) -> tuple[ServerView, int | None]:
        """Describe the present state of the source. Creation times of `request.files` may come from a cache.

        The second value is the number of seconds after which the source purges a closed file (None: never by age).
        Raises BinlogError.
        """

    def next_host(self, dispatcher: int) -> None:
        """Let the next `open` use another host, if there are several, because this dispatcher cannot use its present
        host. If `dispatcher` is `SURVEY`, let the next survey ask another host."""

    def server(self) -> SchemaServer:
        """Return the server that answers questions about tables. Raises BinlogError (METADATA_MISSING) if the source is
        a folder."""
