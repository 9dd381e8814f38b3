"""Stores the consumers that tokens declare over the API, and runs them beside the consumers of the settings.

`dispatcher.settings.declared` contains the rules. A declaration is stored before its consumer runs, and deleted after
its consumer has stopped. So the store always contains the declaration of a consumer that runs, and the next start of
the daemon runs this consumer again. A reload applies the new settings together with all declarations.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from dispatcher.dispatch.values.declaration import Declaration
from dispatcher.model.errors import BinlogError, ErrorKind, NotLeaderError, UserError
from dispatcher.model.subscription import SYSTEM_DATABASES, Subscription
from dispatcher.runtime.client.client_runner import Logger
from dispatcher.runtime.client.lookup_queue import LookUps
from dispatcher.runtime.client_registry import ClientDecls, ClientRegistry, RegistryChanges
from dispatcher.runtime.store.store_thread import StoreThread
from dispatcher.settings.declared import admit, expired, source_of, with_declared
from dispatcher.settings.model import Settings, SourceSettings

SWEEP_EVERY_S = 3600.0


class DeclarationStore(Protocol):
    """The part of a state store that keeps declarations. Every method waits for the disk and raises BinlogError."""

    def declarations(self) -> list[Declaration]:
        """Returns all declarations, in the order of the names of their consumers."""

    def declare(self, declaration: Declaration) -> None:
        """Store the declaration of a consumer that does not run yet. The consumer will begin at `declaration.start`."""

    def undeclare(self, consumer: str) -> None:
        """Delete a declared consumer that does not run, with everything that is stored about it."""

    def note_reads(self, consumers: Sequence[str], read_s: int) -> None:
        """Store that readers of these consumers have called at `read_s`, seconds since 1970."""


class DeclarableServer(Protocol):
    def table_columns(self, database: str, table: str) -> dict[str, Any]: ...


class Declarations:
    """See the module. Every coroutine raises BinlogError. `owners`: the name of the token that has declared each
    consumer."""

    def __init__(
        self,
        clients: ClientRegistry,
        store: StoreThread,
        state: DeclarationStore,
        log: Logger,
        make_decls: Callable[[Settings], ClientDecls],
        make_server: Callable[[SourceSettings], DeclarableServer],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`store`: the thread that makes all calls of `state`; `make_decls` builds the clients of settings;
        `make_server` returns an object that asks the server of a source; `clock`: seconds since 1970."""
        self.owners: Mapping[str, str] = {}
        self._clients = clients
        self._store = store
        self._state = state
        self._log = log
        self._make_decls = make_decls
        self._make_server = make_server
        self._clock = clock
        self._declared: dict[str, Declaration] | None = (
            None  # None until `apply` has loaded the declarations
        )
        self._settings: Settings | None = None
        self._look_ups: dict[str, LookUps] = {}
        self._lock = asyncio.Lock()  # one change at a time, of settings or of declarations
        self._ended = False

    # -- settings --------------------------------------------------------------------------------------------

    async def check(self, settings: Settings) -> None:
        """Raises BinlogError if the state store cannot be read or written, so that `apply` would fail."""
        async with self._lock:
            running = with_declared(settings, (self._declared or {}).values())
            await self._clients.check(self._make_decls(running.settings))

    async def apply(self, settings: Settings) -> RegistryChanges:
        """Run the consumers of the settings and the declared consumers that these settings permit, and no others."""
        async with self._lock:
            if self._declared is None:
                self._set(
                    {each.name: each for each in await self._store.call(self._state.declarations)}
                )
            assert self._declared is not None
            for name in with_declared(settings, self._declared.values()).replaced:
                await self._drop(name, "the settings have a consumer of this name")
            self._settings = settings
            self._look_ups.clear()
            return await self._run()

    async def end(self) -> None:
        """Refuse changes from now on, and wait until a change that has begun is done."""
        self.refuse()
        async with self._lock:
            pass

    def refuse(self) -> None:
        self._ended = True

    # -- calls of the API ------------------------------------------------------------------------------------

    async def declare(
        self, wanted: Declaration, permitted: Collection[str] | None
    ) -> tuple[Declaration, bool]:
        """Declare a consumer, unless it is declared already with equal content. Returns the declaration, and True if it
        is new.

        `wanted.source`: "" if the request names none; `permitted`: the sources of the token, None for all.
        """
        async with self._lock:
            settings = self._current()
            source = source_of(settings, permitted, wanted.source or None)
            now_s = int(self._clock())
            wanted = replace(wanted, source=source, declared_s=now_s, read_s=now_s)
            existing = admit(wanted, self._all, settings)
            if existing is not None:
                if existing.name not in self._clients.sessions.names():
                    await (
                        self._run()
                    )  # an earlier call has stored the consumer, but could not run it
                return existing, False
            declared = {**self._all, wanted.name: wanted}
            decls = self._make_decls(with_declared(settings, declared.values()).settings)
            await self._store.write("declare", partial(self._state.declare, wanted))
            self._set(declared)
            await self._clients.apply(decls)
            self._log.log(
                logging.INFO,
                "consumer declared",
                consumer=wanted.name,
                declared_by=wanted.owner,
                source=source,
            )
            return wanted, True

    async def remove(self, name: str, owner: str | None) -> None:
        """Remove a declared consumer with its stored position. `owner`: the name of the token that asks for this, None
        for an administrator, who may remove every declared consumer."""
        async with self._lock:
            settings = self._current()
            declaration = self._all.get(name)
            if declaration is None and name in settings.consumers:
                what = f"the settings declare the consumer {name}"
                remedy = "remove it from the settings, and reload them"
                raise UserError(ErrorKind.FORBIDDEN, what, remedy=remedy)
            if declaration is None:
                raise UserError(ErrorKind.UNKNOWN_CONSUMER, repr(name))
            if owner is not None and declaration.owner != owner:
                what = f"another token has declared the consumer {name}"
                remedy = "use that token, or one with the scope administer"
                raise UserError(ErrorKind.FORBIDDEN, what, remedy=remedy)
            await self._drop(name, "a request of its owner or of an administrator")

    async def table(
        self, source_name: str | None, permitted: Collection[str] | None, database: str, table: str
    ) -> dict[str, Any]:
        """Return the columns and the key of a table that a consumer of the source may read, from the server's
        information schema."""
        settings = self._current()
        source_name = source_of(settings, permitted, source_name)
        source = settings.sources[source_name]
        permits = Subscription(source.databases, source.table_patterns)
        hidden = [*source.excluded_patterns]
        if settings.state.mysql is not None:
            hidden.append((settings.state.mysql.database, "*"))
        # The server may find a hidden table by a name in another case, so case does not count here.
        shows = Subscription(["*", *SYSTEM_DATABASES], None, hidden, lower_case_table_names=1)
        if not (permits.has_table(database, table) and shows.has_table(database, table)):
            what = f"sources.{source_name} does not permit {database}.{table}"
            remedy = "name a table that the source permits, or change the settings"
            raise UserError(ErrorKind.UNKNOWN_TABLE, what, remedy=remedy)

        def look_up() -> dict[str, Any]:
            return self._make_server(source).table_columns(database, table)

        look_ups = self._look_ups.setdefault(source_name, LookUps())
        return await look_ups.ask(("table", database, table), (0, 0), look_up)

    # -- consumers that nothing reads ------------------------------------------------------------------------

    async def sweep_regularly(self) -> None:
        """Sweep every `SWEEP_EVERY_S`. The first sweep also waits this long, so that readers can call again after a
        start. Never returns."""
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            try:
                await self.sweep()
            except BinlogError as error:
                what = "declared consumers not swept"
                self._log.log(logging.ERROR, what, error=str(error))

    async def sweep(self) -> None:
        """Store which declared consumers readers have called since the last sweep, and remove those that no reader has
        called for the `max_days_unread` of their source."""
        async with self._lock:
            settings, now_s = self._current(), int(self._clock())
            sessions = self._clients.sessions
            called = sessions.take_called()
            read = sorted(called & self._all.keys())
            try:
                if read:
                    await self._store.write(
                        "note_reads", partial(self._state.note_reads, read, now_s)
                    )
            except BinlogError:
                sessions.put_called(called)
                raise
            self._set(
                {
                    name: replace(each, read_s=now_s) if name in called else each
                    for name, each in self._all.items()
                }
            )
            for name in expired(self._all.values(), settings, now_s):
                await self._drop(name, "no reader has called it for max_days_unread")

    # -- the consumers that run ------------------------------------------------------------------------------

    @property
    def _all(self) -> Mapping[str, Declaration]:
        assert self._declared is not None, "`apply` loads the declarations first"
        return self._declared

    def _current(self) -> Settings:
        if self._ended or self._settings is None:
            raise NotLeaderError.of("")
        return self._settings

    def _set(self, declared: dict[str, Declaration]) -> None:
        self._declared = declared
        self.owners = {name: each.owner for name, each in declared.items()}

    async def _run(self) -> RegistryChanges:
        assert self._settings is not None
        running = with_declared(self._settings, self._all.values())
        for name, error in running.refused.items():
            self._log.log(
                logging.WARNING, "declared consumer does not run", consumer=name, error=str(error)
            )
        return await self._clients.apply(self._make_decls(running.settings))

    async def _drop(self, name: str, reason: str) -> None:
        """Stop a declared consumer, then delete everything that is stored about it."""
        dropped = self._all[name]
        left = {other: each for other, each in self._all.items() if other != name}
        if self._settings is not None:
            running = with_declared(self._settings, left.values())
            await self._clients.apply(self._make_decls(running.settings))
        try:
            await self._store.write("undeclare", partial(self._state.undeclare, name))
        except BinlogError:
            if self._settings is not None and not self._ended:
                await self._run()
            raise
        self._set(left)
        self._log.log(
            logging.WARNING,
            "declared consumer removed",
            consumer=name,
            declared_by=dropped.owner,
            reason=reason,
        )
