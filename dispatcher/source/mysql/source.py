"""A MySQL or MariaDB server, or several that stand in for each other, as a source."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from dispatcher.dispatch.server_view import ServerView
from dispatcher.dispatch.specs import Start
from dispatcher.source.mysql.dump_stream import LoggedInConnection
from dispatcher.source.mysql.log_probe import ServerLog
from dispatcher.source.mysql.login import label_of
from dispatcher.source.mysql.replication_commands import Identity
from dispatcher.source.mysql.server_facts import Connection, Endpoint, ServerFacts, connect, facts
from dispatcher.source.start_search import find_starts

SURVEY_TIMEOUT_S = 5


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
        view = replace(view, starts=find_starts(log, starts), boundaries=boundaries)
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
