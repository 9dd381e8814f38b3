"""What the daemon needs of a source: a MySQL or MariaDB server, or a folder of binlog files.

A source is opened, describes itself (`view`), and sends its log from a position on (`dump`). The rules see no
difference between the two kinds: the same view goes through the same history check, and the same splitter makes the
same batches. Only a server can answer questions about tables; `Source.server()` returns what answers them.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, Protocol

from dispatcher.binlog.stream.batch import Batch, Closed
from dispatcher.binlog.stream.routes import Routes
from dispatcher.binlog.stream.splitter import Splitter
from dispatcher.dispatch.values.executed_position import ExecutedPosition, Mode
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import Start
from dispatcher.model.errors import BinlogError

TableName = tuple[str, str]
"""Database and table."""

Definition = dict[str, Any]
"""See `table_schema.table_columns` and `table_schema.table_definition`."""


class ViewRequest(NamedTuple):
    """What a view should tell beyond what it always does.

    `files`: names of files whose creation times are needed; `starts`: starts for whose positions the log is searched;
    `places`: files and offsets, for what is there and for the creation times of these files.
    """

    files: Sequence[str] = ()
    starts: Sequence[Start] = ()
    places: Sequence[tuple[str, int]] = ()


class SchemaAt(NamedTuple):
    """A table's definition, or why the server does not tell it, as of a position in the server's log."""

    table: TableName
    definition: Definition | BinlogError
    file: str
    offset: int


class DumpStream(Protocol):
    """The log as it comes. Use it on the event loop only."""

    splitter: Splitter

    @property
    def over(self) -> bool:
        """True if the log has ended for good; do not call `batches()` again then."""

    async def batches(self) -> list[Batch | Closed]:
        """Wait for more of the log. The caller is done with the batches before the next call. Raises BinlogError."""

    @property
    def received_at(self) -> float:
        """When the first byte of the newest batches arrived, s of the monotonic clock."""

    def ended(self, closed: Closed) -> BinlogError:
        """Return the error that a `Closed` among the batches means."""

    def interrupt(self) -> None:
        """Make the current or the next call of `batches()` return at once, with nothing."""

    def close(self) -> None: ...


class OpenedSource(Protocol):
    """A source that was reached and has not sent its log yet. Its methods block: call them in a thread."""

    @property
    def findings(self) -> Sequence[BinlogError]:
        """What is wrong with the source, though the log can be read."""

    def view(self, request: ViewRequest) -> ServerView:
        """Describe the source. Raises BinlogError."""

    def dump(
        self, mode: Mode, position: ExecutedPosition, routes: Routes, buffer_bytes: int
    ) -> DumpStream:
        """Begin to send the log from `position` on. Raises BinlogError."""

    def close(self) -> None: ...


class SchemaServer(Protocol):
    """A server that answers questions about its tables. Its methods block and raise BinlogError."""

    def table_columns(self, database: str, table: str) -> Definition:
        """Return the columns and the key of a table; see `table_schema.table_columns`."""

    def definitions(self, tables: Sequence[TableName]) -> list[SchemaAt]:
        """Return the definitions of tables, each with the log position at which it was read."""

    def read_log(
        self, file: str, offset: int, routes: Routes
    ) -> Generator[tuple[Batch, int], None, None]:
        """Read the log from a file and offset to its end, over a connection beside those of the dispatchers.

        Beyond 4 GiB it begins with the file. Yields batches with the creation times of their files (s since 1970);
        each batch is valid until the next one is asked for.
        """


SURVEY = 0  # stands for the surveys where others stand for a dispatcher


class Source(Protocol):
    """Its methods block: call them in threads. Several threads may call at a time."""

    @property
    def label(self) -> str:
        """The name of the source in messages, logs and metrics."""

    def open(self, dispatcher: int) -> OpenedSource:
        """Connect for the dispatcher of this number; a server sees each number as a replica of its own. Raises
        BinlogError."""

    def survey(self, request: ViewRequest) -> tuple[ServerView, int | None]:
        """Describe the source as it is now. Creation times of `request.files` may come from a cache.

        Also returns after how many seconds the source purges a closed file (None: never by age). Raises BinlogError.
        """

    def next_host(self, dispatcher: int) -> None:
        """Open another host next, if there are several, because this dispatcher cannot use the one it has. `SURVEY`:
        because the surveys shall look at another one."""

    def server(self) -> SchemaServer:
        """Return the server behind the source. Raises BinlogError (METADATA_MISSING) if it is not a server."""
