"""Where a log comes from: what a runner needs of a server, or of a folder of binlog files.

A source is opened, says what it holds (`view`), and is asked for its log from a place on (`dump`). The rules above see
no difference: the same view goes through the same history check, the same splitter makes the same batches. What only a
server can tell, such as the columns of a table, is asked of `server()`, which refuses where there is none.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol
from uuid import UUID

from dispatcher.binlog.batch import Batch, Closed
from dispatcher.binlog.routes import Routes
from dispatcher.binlog.scan import Splitter
from dispatcher.dispatch.history import Mode, Place
from dispatcher.dispatch.inputs import ServerView, Start
from dispatcher.model.errors import BinlogError
from dispatcher.net.connection import LoggedInConnection
from dispatcher.net.login import label_of
from dispatcher.net.replica import Identity
from dispatcher.net.server import Connection, Endpoint, ServerFacts, connect, facts
from dispatcher.net.serverlog import ServerLog
from dispatcher.net.starts import find

SURVEY_TIMEOUT_S = 5


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
        starts: Sequence[Start] = (),
        places: Sequence[tuple[str, int]] = (),
    ) -> ServerView:
        """`files`: those whose creation time the history check asks for; `starts`: whose places are to be found;
        `places`: files and offsets of which it asks what stands there. Raises BinlogError."""

    def dump(self, mode: Mode, place: Place, routes: Routes, buffer_bytes: int) -> Dump:
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


class ServerSource:
    """A MySQL or MariaDB server, or several that stand in for each other.

    One of them is the *current* one, for all that is asked. An attempt to open it that fails, or a dump that it
    refuses, makes the next one current; one that succeeds stays. Several can stand in for each other only with MySQL's
    GTIDs; else `open` is refused, with the words of `check`.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        installation: UUID,
        name: str,
        *,
        heartbeat_s: float,
        flush_s: float = 1.0,
    ) -> None:
        """`installation` and `name` make the identities of the dispatchers; `heartbeat_s`: how often the server is to
        say that it is there; `flush_s`: how long events wait in a dispatcher's buffer at most."""
        self.endpoints = tuple(endpoints)
        self._installation = installation
        self._name = name
        self._heartbeat_s = heartbeat_s
        self._flush_s = flush_s
        self._lock = threading.Lock()
        self._current = 0
        self._opened: dict[int, Endpoint] = {}  # by dispatcher
        # Creation times by name, with the server and the size of the file when it was asked for.
        self._created: dict[str, tuple[str, int, int]] = {}

    @property
    def label(self) -> str:
        return label_of(self.endpoints)

    @property
    def endpoint(self) -> Endpoint:
        """The current one."""
        with self._lock:
            return self.endpoints[self._current]

    def open(self, dispatcher: int) -> LoggedInConnection:
        endpoint = self._opened[dispatcher] = self.endpoint
        identity = Identity.of(self._installation, self._name, dispatcher)
        leave = partial(self._leave, endpoint)
        return LoggedInConnection(
            endpoint,
            identity,
            heartbeat_s=self._heartbeat_s,
            flush_s=self._flush_s,
            leave=leave,
            several=len(self.endpoints) > 1,
        )

    def open_once(self) -> LoggedInConnection:
        """For a short dump beside the dispatchers'. Raises BinlogError."""
        return LoggedInConnection(self.endpoint, Identity.for_once(), heartbeat_s=self._heartbeat_s)

    def connect(self, *, timeout_s: float = 10) -> Connection:
        """A connection for questions; see `login.connect`. Raises BinlogError."""
        return connect(self.endpoint, timeout_s=timeout_s)

    def survey(
        self,
        files: Sequence[str] = (),
        starts: Sequence[Start] = (),
        places: Sequence[tuple[str, int]] = (),
    ) -> tuple[ServerView, int | None]:
        endpoint = self.endpoint
        connection = connect(endpoint, timeout_s=SURVEY_TIMEOUT_S)
        try:
            known = facts(connection)
        finally:
            connection.close()
        log = ServerLog(endpoint, known)
        created, boundaries = log.probed(places)
        view = log.bare(self._created_of(log, known, files) | created)
        view = replace(view, starts=find(log, starts), boundaries=boundaries)
        return view, known.expire_seconds

    def move_on(self, dispatcher: int) -> None:
        self._leave(self._opened.get(dispatcher))

    def server(self) -> ServerSource:
        return self

    def _leave(self, endpoint: Endpoint | None) -> None:
        """Only the first who leaves a host moves on from it."""
        with self._lock:
            if self.endpoints[self._current] is endpoint:
                self._current = (self._current + 1) % len(self.endpoints)

    def _created_of(
        self, log: ServerLog, known: ServerFacts, files: Sequence[str]
    ) -> dict[str, int]:
        """A file that is another one now, after a reset, is smaller than it was, or on another server."""
        sizes = dict(log.files)
        with self._lock:
            remembered = {
                name: entry
                for name, entry in self._created.items()
                if entry[0] == known.server_uuid and entry[1] <= sizes.get(name, -1)
            }
        for name in files:
            if name in sizes and name not in remembered:
                remembered[name] = known.server_uuid, sizes[name], log.created(name)
        with self._lock:
            self._created = remembered
        return {name: remembered[name][2] for name in files if name in remembered}
