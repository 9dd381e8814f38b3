"""The entry point of the library: one client of one server, and the binlogs that a program reads from it.

`BinlogClient.open` opens the state store, whose lock keeps daemons and other programs from using the same store. It
also loads the kernels, and starts the client without consumers. The client connects to the server when the program
creates the first binlog. Blocking calls run in threads. The client sets no signal handlers, and does not configure the
asyncio loop or logging, because these belong to the program.

The client logs events (connections, merges, faults) to the logger `dispatcher` of the standard library in the form
`event key=value ...`. The lines contain no row values and no secrets.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, Unpack
from uuid import UUID, uuid4

from dispatcher.dispatch.messages.effects import StoreVersions
from dispatcher.dispatch.tables.versions import StoredVersions
from dispatcher.library import options
from dispatcher.library.binlogs import Binlog, wait_until_started
from dispatcher.library.options import BinlogOptions, ConnectionOptions, StartAt
from dispatcher.library.warm import load_decoder
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.position import Position
from dispatcher.model.printable import printable
from dispatcher.runtime.client.client_service import ClientService, ConsumerDecl
from dispatcher.runtime.client.consumer_session import ConsumerSession
from dispatcher.runtime.client.from_settings import client_decl, consumer_spec
from dispatcher.runtime.loop.threads import in_thread
from dispatcher.runtime.status.rates import Rates
from dispatcher.runtime.status.status_rows import status_rows
from dispatcher.runtime.store.store_thread import StoreThread
from dispatcher.settings.model import (
    CONSUMER_NAME,
    ConnectionSettings,
    StateSettings,
    SubscriptionSettings,
)
from dispatcher.state.newest import log_losses
from dispatcher.state.spill import Spill
from dispatcher.state.store import StateStore
from dispatcher.stream.segments import Allocate
from dispatcher.stream.warmup import load_kernels
from dispatcher.stream.xa_store import XaChanges, XaEntry
from dispatcher.yaml_settings.validation import parse_section

START_S = 60.0


class _NoStore:
    """A state store that stores nothing, for a program that stores its positions itself.

    With this store, the client keeps the rows of prepared XA transactions only in memory, and fetches table definitions
    from the server again after each start.
    """

    epoch = 0

    def __init__(self, installation_id: UUID) -> None:
        self.installation_id = installation_id

    def load(self, consumer: str) -> None: ...

    def save(
        self,
        progress: Sequence[tuple[str, Position, Position, int]],
        client: str,
        prepared: XaChanges | None,
    ) -> None: ...

    def load_prepared(self, _client: str) -> list[XaEntry]:
        return []

    def load_versions(self, _client: str) -> StoredVersions | None:
        return None

    def save_versions(self, client: str, what: StoreVersions) -> None: ...

    def session(self, _consumer: str) -> int:
        return 0

    def next_session(self, _consumer: str) -> int:
        return 1

    def paused(self, _consumer: str) -> bool:
        return False

    def set_paused(self, consumer: str, paused: bool) -> None: ...

    def forget(self, _consumer: str) -> None: ...

    def check(self) -> None: ...

    def checkpoint(self) -> None: ...

    def close(self) -> None: ...


_Store = StateStore | _NoStore


class BinlogClient:
    """A client of one server, or of one folder of binlog files, with the binlogs that a program reads from it.

    The binlogs share replication connections if their positions are close enough.

        async with BinlogClient("repl@db1:3306", password="...", state="state.db") as client:
            shop = await client.create_binlog("shop", ["shop"], start="earliest")
            async for transaction in shop:
                for change in transaction.changes():
                    print(change.op, change.table, change.before, change.after)
                await shop.acknowledge(transaction)
    """

    def __init__(
        self,
        mysql: str | None = None,
        *,
        state: options.State | None = None,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        """`mysql`: "user@host:port", or "user@host1:port,host2:port" for hosts that replace each other. `state`: the
        file that stores the acknowledged position of each binlog, or a mapping with `path` and limits. Each client
        needs its own file. None: the client stores nothing, and the program stores positions itself. The other options
        are settings of the daemon.

        The constructor does not connect. Raises UserError (SETTINGS) with all errors in the options.
        """
        given = {"mysql": mysql, **connection} if mysql is not None else {**connection}
        self._connection = parse_section(ConnectionSettings, given, "BinlogClient")
        self._state: StateSettings | None = None
        if state is not None:
            mapping = dict(state) if isinstance(state, dict) else {"path": state}
            self._state = parse_section(StateSettings, mapping, "BinlogClient: state")
        self._binlogs: dict[str, Binlog] = {}
        self._creating: set[str] = set()
        self._rates = Rates()
        self._log = _Log()
        self._broken: tuple[str, BaseException] | None = None
        self._entered = False
        self._store: _Store | None = None
        self._storing: StoreThread | None = None
        self._running: ClientService | None = None

    def __repr__(self) -> str:
        return f"<BinlogClient {self.label}>"

    @property
    def label(self) -> str:
        """`user@host:port`, the client's name in logs and in `status`."""
        return self._connection.label

    @property
    def stores(self) -> bool:
        """True if the client has a state store."""
        return self._state is not None

    # -- from the start to the end ---------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the client, as `async with` does. Raises BinlogError (STATE_STORE, SPILL, FILES).

        Takes a fraction of a second, or half a minute if the kernels must first be compiled.
        """
        if self._entered:
            raise UserError(
                ErrorKind.SETTINGS, f"{self!r} is open already", remedy="open another client"
            )
        self._entered, self._broken = True, None
        try:
            await in_thread("kernels", _load_kernels)
            self._store = store = await in_thread("state store", self._open_store, _close)
            limits = self._state or StateSettings()
            self._storing = StoreThread(store, limits.max_bytes_in_prepared)
            allocate = await in_thread("spill", self._open_spill)
            make = partial(client_decl, self._connection, (), store.installation_id)
            group = await in_thread("source", make)
            self._running = ClientService(group, self._storing, allocate, self._log, self._on_error)
            await self._running.open()
            self._running.start()
        except BaseException:
            await self.close()
            raise

    def _open_store(self) -> _Store:
        if self._state is not None:
            store = StateStore(self._state.path)
            log_losses(store.losses, store.unreadable, self.log)
            return store
        # A server regards two clients with the same installation id as one replica, so each client gets a new id. A
        # client of a folder gets a fixed id: positions in files without GTIDs contain the id, and the next run of the
        # program must accept these positions.
        return _NoStore(uuid4() if self._connection.files is None else UUID(int=0))

    def _open_spill(self) -> Allocate | None:
        if self._state is None:
            return None
        folder = Path(f"{self._state.path}.spill")
        return Spill(folder, self._state.max_bytes_in_spill).allocate

    async def close(self) -> None:
        """End all iterations and connections, and store pending changes, as the end of `async with` does.

        A second call does nothing. Raises BinlogError (STATE_STORE).
        """
        for binlog in self._binlogs.values():
            binlog.end()
        self._binlogs = {}
        running, self._running = self._running, None
        storing, self._storing = self._storing, None
        store, self._store = self._store, None
        try:
            if running is not None:
                await running.stop()
        finally:
            if storing is not None:
                await storing.close()
            if store is not None:
                await in_thread("state store", store.close)
            self._entered = False

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- binlogs ---------------------------------------------------------------------------------------------

    async def create_binlog(
        self,
        name: str,
        databases: Sequence[str],
        *,
        start: StartAt = "latest",
        wait_s: float | None = START_S,
        **limits: Unpack[BinlogOptions],
    ) -> Binlog:
        """Returns a binlog of some databases. The client stores the binlog's positions under `name`.

        The binlog continues at the acknowledged position that is stored under this name. If none is stored, it begins
        at `start`. A Position as `start` replaces the stored position, so transactions may be delivered again. This
        method returns when the start position is known and stored. With "latest", the binlog then returns every
        transaction that is committed after this method has returned.

        Raises UserError if an argument is invalid (SETTINGS), or if the client already has a binlog with this name
        (UNKNOWN_CONSUMER). Raises BinlogError if the server cannot send its log from the start position
        (POSITION_PURGED, HISTORY_DIFFERS, ...), if an operator has to act (ACCESS_DENIED, GRANT_MISSING, ...), or if
        the server was not reached within `wait_s` seconds (None: no limit). In each case no binlog is created.
        """
        running = self._opened
        after = start if isinstance(start, Position) else None
        given = {"databases": list(databases), **limits}
        if not isinstance(start, Position):
            given["start"] = options.start_setting(start)
        settings = parse_section(SubscriptionSettings, given, f"binlog {name!r}")
        if not CONSUMER_NAME.match(name):
            what = f"{name[:70]!r} is not a valid name of a binlog"
            raise UserError(
                ErrorKind.SETTINGS, what, remedy="use at most 64 letters, digits and _.-"
            )
        if name in running.sessions or name in self._creating:
            what = f"there is a binlog {name!r} already"
            raise UserError(
                ErrorKind.UNKNOWN_CONSUMER, what, remedy="close it, or use another name"
            )
        self._creating.add(name)
        try:
            session = await running.add(ConsumerDecl(consumer_spec(name, settings)), after)
            try:
                await wait_until_started(session, wait_s, self.raise_broken)
                if after is not None:
                    await session.runner.store(name)
                binlog = self._binlogs[name] = Binlog(self, session)
            except BaseException:
                await self.remove(name)
                raise
        finally:
            self._creating.discard(name)
        return binlog

    def status(self) -> list[dict[str, Any]]:
        """Returns one row per binlog, in the order of their creation, as `GET /v1/binlogs` of a daemon does."""
        return [row for row, _ in status_rows(self._opened.sessions.values(), self._rates)]

    async def forget(self, name: str) -> None:
        """Delete everything that is stored under a name. The next binlog with this name begins at its `start`.

        Raises UserError while the client has a binlog with this name. Raises BinlogError (STATE_STORE).
        """
        if name in self._opened.sessions or name in self._creating:
            raise UserError(
                ErrorKind.UNKNOWN_CONSUMER, f"binlog {name!r} is in use", remedy="close it"
            )
        assert self._storing is not None, "it is open"
        await self._storing.forget(name)

    # -- for the binlogs -------------------------------------------------------------------------------------

    def row(self, session: ConsumerSession) -> dict[str, Any]:
        (row,) = (row for row in self.status() if row["name"] == session.consumer.name)
        return row

    async def remove(self, name: str) -> None:
        self._binlogs.pop(name, None)
        running = self._running
        if running is None or name not in running.sessions:
            return
        async with running.sessions[name].acknowledging:
            await running.remove(name)

    def log(self, level: int, event: str, **fields: Any) -> None:
        self._log.log(level, event, client=self.label, **fields)

    def raise_broken(self) -> None:
        if self._broken is not None:
            name, error = self._broken
            raise BinlogError(ErrorKind.INTERNAL, f"{name}: {error!r}", where=self.label) from error

    @property
    def _opened(self) -> ClientService:
        if self._running is None:
            remedy = "use it within `async with`"
            raise UserError(ErrorKind.SETTINGS, f"{self!r} is not open", remedy=remedy)
        return self._running

    def _on_error(self, name: str, error: BaseException) -> None:
        """Record that a task of the client has failed. From then on, every read and iteration raises the task's
        error."""
        self._broken = name, error
        for binlog in self._binlogs.values():
            binlog.wake()


def _load_kernels() -> None:
    load_kernels()
    load_decoder()


def _close(store: _Store) -> None:
    store.close()


class _Log:
    """Implements the Logger of the runtime with the standard library's logging."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("dispatcher")

    def log(self, level: int, event: str, **fields: Any) -> None:
        if self._logger.isEnabledFor(level):
            error = fields.pop("exc_info", None)
            text = printable(" ".join(f"{key}={value}" for key, value in fields.items()))
            self._logger.log(level, "%s %s", event, text, exc_info=error)
