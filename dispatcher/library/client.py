"""The way in: one server, one client, and the binlogs that a program reads of it.

Opening it takes the state store (its lock keeps a daemon and other programs away), loads the kernels, and begins the
client without consumers; so the server is reached when the first binlog is created. What blocks runs in threads. There
are no signal handlers, no settings of the loop or of logging: those are the program's.

Notes of what happens (connections that come and go, mergers, faults) go to the logger `dispatcher` of the standard
library, `event key=value ...`, never with a row value or a secret.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack
from uuid import UUID, uuid4

from dispatcher.binlog.stream.segments import Allocate
from dispatcher.binlog.stream.warmup import load_kernels
from dispatcher.library import options
from dispatcher.library.binlogs import Binlog, until_placed
from dispatcher.library.options import BinlogOptions, ConnectionOptions, StartAt
from dispatcher.library.stateless import Stateless
from dispatcher.library.warm import load_decoder
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.position import Position
from dispatcher.runtime.client_service import ClientService, ConsumerDecl
from dispatcher.runtime.consumer_session import ConsumerSession
from dispatcher.runtime.from_settings import client_decl, consumer_spec
from dispatcher.runtime.rates import Rates
from dispatcher.runtime.status_rows import status_rows
from dispatcher.runtime.store_thread import StoreThread
from dispatcher.runtime.threads import in_thread
from dispatcher.settings.load import parse_section
from dispatcher.settings.model import (
    CONSUMER_NAME,
    ConnectionSettings,
    StateSettings,
    SubscriptionSettings,
)
from dispatcher.state.spill import Spill
from dispatcher.state.store import StateStore

_Store = StateStore | Stateless
START_S = 60.0


class BinlogClient:
    """Everything that is read as one user from one server (or one folder of binlog files), over as few connections as
    the places of its binlogs in the log allow.

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
        """`mysql`: "user@host:port", or "user@host1:port,host2:port" where one stands in for another. `state`: the file
        that says how far each binlog was acknowledged, one for each client, or a mapping with `path` and its limits;
        None: nothing is stored, and positions are the program's. The rest is as in a daemon's settings.

        Reaches nothing yet. Raises UserError (SETTINGS) with everything that is wrong.
        """
        said = {"mysql": mysql, **connection} if mysql is not None else {**connection}
        self._connection = parse_section(ConnectionSettings, said, "BinlogClient")
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
        """`user@host:port`, as logs and `status` call it."""
        return self._connection.label

    @property
    def stores(self) -> bool:
        """Has it a state store?"""
        return self._state is not None

    # -- from the start to the end ---------------------------------------------------------------------------

    async def open(self) -> None:
        """As `async with` does. On a machine where nobody has, the kernels are compiled, which takes half a minute;
        else it is a fraction of a second. Raises BinlogError (STATE_STORE, SPILL, FILES)."""
        if self._entered:
            raise UserError(ErrorKind.SETTINGS, f"{self!r} is open already", remedy="open it once")
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
            return StateStore(self._state.path)
        # A server takes two of one installation for one replica. But of files without GTIDs the positions are of the
        # installation that read them, and must be good for the next one.
        return Stateless(uuid4() if self._connection.files is None else UUID(int=0))

    def _open_spill(self) -> Allocate | None:
        if self._state is None:
            return None
        folder = Path(f"{self._state.path}.spill")
        return Spill(folder, self._state.max_bytes_in_spill).allocate

    async def close(self) -> None:
        """As the end of `async with` does: ends all iterations and connections, stores what is to be stored. May be
        called again. Raises BinlogError (STATE_STORE)."""
        for binlog in self._binlogs.values():
            binlog.let_go()
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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
        """A binlog of some databases. `name` is what is stored of it stored under.

        It goes on from what was acknowledged under this name; where nothing is stored it begins at `start`. A Position
        wins over what is stored, and is stored itself, so that what lies behind it comes, again if need be. Returns
        when the place is known and stored: with "latest", everything that is committed from then on comes.

        Raises UserError (SETTINGS, UNKNOWN_CONSUMER: the name is in use), or BinlogError: why it cannot begin there
        (POSITION_PURGED, HISTORY_DIFFERS, ...), what a person has to see to (ACCESS_DENIED, GRANT_MISSING, ...), or why
        the server was not reached within `wait_s` seconds (None: it is tried until it is). Then there is no binlog.
        """
        running = self._opened
        after = start if isinstance(start, Position) else None
        said = {"databases": list(databases), **limits}
        if not isinstance(start, Position):
            said["start"] = options.written(start)
        wanted = parse_section(SubscriptionSettings, said, f"binlog {name!r}")
        if not CONSUMER_NAME.match(name):
            what = f"{name[:70]!r} is no name of a binlog"
            raise UserError(
                ErrorKind.SETTINGS, what, remedy="of letters, digits and _.-, at most 64"
            )
        if name in running.sessions or name in self._creating:
            what = f"there is a binlog {name!r} already"
            raise UserError(
                ErrorKind.UNKNOWN_CONSUMER, what, remedy="close it, or take another name"
            )
        self._creating.add(name)
        try:
            reader = await running.add(ConsumerDecl(consumer_spec(name, wanted)), after)
            try:
                await until_placed(reader, wait_s, self.raise_broken)
                if after is not None:
                    await reader.runner.store(name)
                binlog = self._binlogs[name] = Binlog(self, reader)
            except BaseException:
                await self.remove(name)
                raise
        finally:
            self._creating.discard(name)
        return binlog

    def status(self) -> list[dict[str, Any]]:
        """One row for each binlog, as they were created: what `GET /v1/binlogs` of a daemon tells."""
        return [row for row, _ in status_rows(self._opened.sessions.values(), self._rates)]

    async def forget(self, name: str) -> None:
        """Remove what is stored of a binlog: the next one of this name begins at its `start`. Raises UserError while
        there is one, BinlogError (STATE_STORE)."""
        if name in self._opened.sessions or name in self._creating:
            raise UserError(
                ErrorKind.UNKNOWN_CONSUMER, f"binlog {name!r} is in use", remedy="close it"
            )
        assert self._storing is not None, "it is open"
        await self._storing.forget(name)

    # -- what binlogs need -----------------------------------------------------------------------------------

    def row(self, reader: ConsumerSession) -> dict[str, Any]:
        (found,) = (row for row in self.status() if row["name"] == reader.consumer.name)
        return found

    async def remove(self, name: str) -> None:
        self._binlogs.pop(name, None)
        running = self._running
        if running is None or name not in running.sessions:
            return
        async with running.sessions[name].acknowledging:
            await running.remove(name)

    def note(self, level: int, event: str, **fields: Any) -> None:
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
        """A task ended that never should: nobody waits for what will not come."""
        self._broken = name, error
        for binlog in self._binlogs.values():
            binlog.wake()


def _load_kernels() -> None:
    load_kernels()
    load_decoder()


def _close(store: _Store) -> None:
    store.close()


class _Log:
    """As much of a bound logger as a runner needs."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("dispatcher")

    def log(self, level: int, event: str, **fields: Any) -> None:
        if self._logger.isEnabledFor(level):
            error = fields.pop("exc_info", None)
            told = " ".join(f"{key}={value}" for key, value in fields.items())
            self._logger.log(level, "%s %s", event, told, exc_info=error)
