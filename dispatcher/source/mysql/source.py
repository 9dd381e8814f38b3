"""A MySQL or MariaDB server, or several hosts that replace each other, as a source."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from uuid import UUID

from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.model.asked_dump import AskedDump, DumpRefusal
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.server_picture import Picture, ServerAnswer
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.login import Endpoint, connect, label_of, tls_of
from dispatcher.mysql.replication_commands import Identity, drop
from dispatcher.mysql.server_facts import (
    ServerFacts,
    is_mariadb,
    lower_case_table_names,
    read_facts,
    server_version,
    visible_databases,
)
from dispatcher.mysql.table_schema import (
    Definition,
    SchemaAt,
    TableName,
    definitions,
    table_columns,
)
from dispatcher.settings.model import ConnectionSettings
from dispatcher.source.mysql.blocking_dump import blocking_dump
from dispatcher.source.mysql.dump_refusal import refusal_of
from dispatcher.source.mysql.dump_stream import LoggedInConnection
from dispatcher.source.mysql.front_answers import read_look_up, read_picture
from dispatcher.source.mysql.identity_locks import IdentityLocks
from dispatcher.source.mysql.log_probe import ServerLog
from dispatcher.source.protocols import (
    SURVEY,
    ViewRequest,
)
from dispatcher.stream.batch import Batch
from dispatcher.stream.routes import Routes

SURVEY_TIMEOUT_S = 5


def endpoints_of(connection: ConnectionSettings) -> tuple[Endpoint, ...]:
    """Return the endpoints of a connection, one for each host. Consumers that share a connection have equal
    endpoints."""
    mysql = connection.mysql
    assert mysql is not None, "a folder of files has no server"
    tls = tls_of(connection.tls)
    return tuple(
        Endpoint(address.host, address.port, mysql.user, connection.secret, tls)
        for address in mysql.addresses
    )


class ServerSource:
    """A MySQL or MariaDB server, or several hosts that replace each other.

    One host is *current*: the daemon sends every request to it. A host stays current while it works. If a login to the
    current host fails, or this host refuses a dump, the next host becomes current. Hosts can replace each other only
    with GTIDs; otherwise `open` raises the finding that `check` reports.
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
        """`installation`, `name`: determine the identities of the dispatchers. `heartbeat_s`: the heartbeat period that
        the daemon requests from the server. `flush_s`: the longest time that events wait in a dispatcher's buffer."""
        self.endpoints = tuple(endpoints)
        self._installation = installation
        self._name = name
        self._heartbeat_s = heartbeat_s
        self._flush_s = flush_s
        self._identity_locks = IdentityLocks(installation, name)
        self._lock = threading.Lock()
        self._current = 0
        self._lower_case: int | None = None  # of the servers that were opened so far
        self._opened: dict[int, Endpoint] = {}  # the host of each dispatcher, and of SURVEY
        # By file name: server, size of the file when its creation time was read, creation time.
        self._created: dict[str, tuple[str, int, int]] = {}

    @property
    def label(self) -> str:
        return label_of(self.endpoints)

    @property
    def lower_case_table_names(self) -> int | None:
        with self._lock:
            return self._lower_case

    @property
    def endpoint(self) -> Endpoint:
        """The current host."""
        with self._lock:
            return self.endpoints[self._current]

    def open(self, dispatcher: int) -> LoggedInConnection:
        endpoint = self._opened[dispatcher] = self.endpoint
        opened = LoggedInConnection(
            endpoint,
            Identity.of(self._installation, self._name, dispatcher),
            heartbeat_s=self._heartbeat_s,
            flush_s=self._flush_s,
            next_host=partial(self._next_host, endpoint),
            several_hosts=len(self.endpoints) > 1,
        )
        opened.identity_locks = self._identity_locks
        self._require_same_names(opened)
        return opened

    def _require_same_names(self, opened: LoggedInConnection) -> None:
        """Refuse a server whose lower_case_table_names differs from that of the first server that this process has
        read: the names of its log would have another meaning."""
        value = opened.facts.lower_case_table_names
        with self._lock:
            if self._lower_case is None:
                self._lower_case = value
            first = self._lower_case
        if value != first:
            opened.close()
            self._next_host(opened.endpoint)
            raise BinlogError(
                ErrorKind.SERVER_SETTING,
                f"lower_case_table_names={value}, but the log was read with {first} so far",
                where=opened.endpoint.label,
                remedy=f"start this server with lower_case_table_names={first}, or restart the daemon, which then"
                " compares all names by the new value",
            )

    def survey(self, request: ViewRequest) -> tuple[ServerView, int | None]:
        endpoint = self._opened[SURVEY] = self.endpoint
        with _connection(endpoint, SURVEY_TIMEOUT_S) as connection:
            server = read_facts(connection)
            databases = visible_databases(connection)
            others = self._identity_locks.held_by_others(connection, server.server_uuid)
        log = ServerLog(endpoint, server, several_hosts=len(self.endpoints) > 1)
        created, boundaries = log.probe(request.places)
        view = log.known_view(self._created_of(log, server, request.files) | created)
        starts = log.find(request.starts)
        answer = replace(
            view, starts=starts, boundaries=boundaries, databases=databases, duplicates=others
        )
        return answer, server.expire_seconds

    def next_host(self, dispatcher: int) -> None:
        self._next_host(self._opened.get(dispatcher))

    def _next_host(self, endpoint: Endpoint | None) -> None:
        """Make the host after `endpoint` current, unless another host is current already."""
        with self._lock:
            if self.endpoints[self._current] is endpoint:
                self._current = (self._current + 1) % len(self.endpoints)

    def _created_of(
        self, log: ServerLog, server: ServerFacts, files: Sequence[str]
    ) -> dict[str, int]:
        """Return the creation times of files, from the cache where it is valid.

        A cache entry is valid if it is from the same server and the file has not become smaller. After a reset, a new
        file of the same name is smaller.
        """
        sizes = dict(log.files)
        with self._lock:
            cached = {
                name: entry
                for name, entry in self._created.items()
                if entry[0] == server.server_uuid and entry[1] <= sizes.get(name, -1)
            }
        for name in files:
            if name in sizes and name not in cached:
                cached[name] = server.server_uuid, sizes[name], log.created(name)
        with self._lock:
            self._created = cached
        return {name: cached[name][2] for name in files if name in cached}

    # -- a `SchemaServer` ------------------------------------------------------------------------------------

    def server(self) -> ServerSource:
        return self

    def table_columns(self, database: str, table: str) -> Definition:
        with _connection(self.endpoint) as connection:
            return table_columns(connection, database, table)

    def picture(self, earlier: Picture | None) -> Picture:
        with _connection(self.endpoint) as connection:
            return read_picture(connection, earlier)

    def look_up(self, statement: str) -> ServerAnswer:
        with _connection(self.endpoint) as connection:
            return read_look_up(connection, statement)

    def dump_refusal(self, asked: AskedDump) -> DumpRefusal | None:
        endpoint = self.endpoint
        connection = connect(endpoint)
        try:
            return refusal_of(connection, asked, endpoint.label)
        finally:
            drop(connection)

    def definitions(self, tables: Sequence[TableName]) -> list[SchemaAt]:
        with _connection(self.endpoint) as connection:
            return definitions(connection, tables)

    def read_log(
        self, file: str, offset: int, routes: Routes
    ) -> Generator[tuple[Batch, int], None, None]:
        endpoint = self.endpoint
        with _connection(endpoint) as connection:
            mariadb = is_mariadb(server_version(connection))
            routes.lower_case_table_names = lower_case_table_names(connection)
        # COM_BINLOG_DUMP has 32 bits for the offset.
        begin = offset if offset < 1 << 32 else 4
        with blocking_dump(endpoint, file, begin, mariadb=mariadb) as dump:
            yield from dump.batches(file, routes)


@contextmanager
def _connection(endpoint: Endpoint, timeout_s: float = 10) -> Iterator[Connection]:
    connection = connect(endpoint, timeout_s=timeout_s)
    try:
        yield connection
    finally:
        connection.close()
