"""The part of the daemon that runs only while the daemon leads: the thread of the state store, the clients with their
consumers and tasks, and the regular checks.

A daemon with its state in a file leads from its start to its end. A daemon with its state in a database leads for one
or more terms. Each term has its own `Leader`, which begins with the stored state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from dispatcher.dispatch.client.client import Client
from dispatcher.model.errors import BinlogError
from dispatcher.model.timings import ConnectionTimings, StoreTimings
from dispatcher.runtime.administration import Administration
from dispatcher.runtime.client.dispatcher_task import KernelsLoaded
from dispatcher.runtime.client.from_settings import client_decls, source_at
from dispatcher.runtime.client_registry import ClientRegistry, RegistryChanges
from dispatcher.runtime.consumer_sessions import ConsumerSessions, Refusal
from dispatcher.runtime.declarations import Declarations, DeclarationStore
from dispatcher.runtime.loop.tasks import Tasks
from dispatcher.runtime.status.timeline import Timeline
from dispatcher.runtime.store.store_thread import StoreProtocol, StoreThread
from dispatcher.settings.model import Settings, StateSettings
from dispatcher.state.newest import log_losses
from dispatcher.state.store import StateStore
from dispatcher.stream.segments import Allocate

STORE_CHECK_EVERY_S = 1.0


class OpenStore(StoreProtocol, DeclarationStore, Protocol):
    def close(self) -> None: ...


class Leader:
    """Runs the clients and the state store for one term. `store`: the thread that makes all calls of the state
    store."""

    def __init__(  # noqa: PLR0913 - one for each part of the daemon that it uses
        self,
        settings: StateSettings,
        state: OpenStore,
        allocate: Allocate,
        timeline: Timeline,
        on_error: Callable[[str, BaseException], None],
        *,
        timings: StoreTimings,
        kernels_loaded: KernelsLoaded,
        on_refused: Callable[[], None] = lambda: None,
    ) -> None:
        """`allocate`: see `Client`; `on_error` is called with the name and error of each task that ends because of a
        defect; `timings` measures the store's calls; `on_refused` is called if the store refuses a write because
        another daemon leads."""
        self.store = StoreThread(
            state,
            settings.max_bytes_in_prepared,
            timings=timings,
            on_refused=on_refused,
        )
        self._state = state
        self._file = state if isinstance(state, StateStore) else None
        self._label = settings.label
        self._timeline = timeline
        self._tasks = Tasks(on_error)
        self._clients = ClientRegistry(
            self.store, allocate, timeline, on_error, kernels_loaded=kernels_loaded
        )
        self.administration = Administration(self.sessions, self.store)
        installation = self.store.installation_id
        self.declarations = Declarations(
            self._clients,
            self.store,
            state,
            timeline,
            lambda settings: client_decls(settings, installation),
            lambda source: source_at(source, installation).server(),
        )

    @property
    def sessions(self) -> ConsumerSessions:
        return self._clients.sessions

    def clients(self) -> Sequence[Client]:
        return self._clients.clients()

    def timings(self) -> list[tuple[str, ConnectionTimings]]:
        return self._clients.timings()

    # -- settings --------------------------------------------------------------------------------------------

    async def check(self, settings: Settings) -> None:
        """Raises BinlogError if `apply` would refuse the settings."""
        await self.declarations.check(settings)

    async def apply(self, settings: Settings) -> RegistryChanges:
        """Run exactly the consumers of the settings and the declared consumers. Raises BinlogError."""
        return await self.declarations.apply(settings)

    # -- start and end ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the clients, which open their connections. Call `apply` first."""
        self._clients.start()
        if self._file is not None:
            log_losses(self._file.losses, self._file.unreadable, self._timeline.log)
        self._tasks.start("state store", self._check_store())
        self._tasks.start("declared consumers", self.declarations.sweep_regularly())

    async def stop(self) -> None:
        """End the connections, and store the queued writes. Raises BinlogError if the writes cannot be stored."""
        await self._tasks.cancel_all()
        await self.declarations.end()
        await self._clients.stop()

    async def close(self) -> None:
        """Close the store. Call `stop` first. Raises BinlogError if closing fails."""
        await self.store.close(self._state.close)

    async def resign(self, refusal: Refusal) -> None:
        """End everything without storing anything more, because another daemon may lead. Does not wait for an answer of
        the database.

        `refusal`: returns the errors with which waiting calls of readers are refused.
        """
        self.store.abandon(refusal, self._state.close)
        self.sessions.refuse(refusal)
        self.declarations.refuse()
        await self._tasks.cancel_all()
        with contextlib.suppress(BinlogError):  # the queued writes cannot be stored
            await self._clients.stop()

    # -- the store -------------------------------------------------------------------------------------------

    async def _check_store(self) -> None:
        """Check regularly whether the store's file was deleted or replaced, or whether another daemon leads. Without
        this check, the daemon would notice such a change only at the next acknowledgement."""
        logged = "", ""
        while True:
            await asyncio.sleep(STORE_CHECK_EVERY_S)
            await self.store.check()
            errors = str(self.store.misplaced or ""), str(self.store.not_checkpointed or "")
            misplaced, stuck = errors
            if misplaced and misplaced != logged[0]:
                self._tell_misplaced(misplaced)
            if stuck and stuck != logged[1]:
                self._timeline.log(logging.ERROR, "state store cannot be checkpointed", error=stuck)
            logged = errors

    def _tell_misplaced(self, error: str) -> None:
        if self._file is not None:
            self._timeline.log(logging.ERROR, "state store was deleted or replaced", error=error)
        else:
            self._timeline.log(logging.ERROR, "state store not reached", error=error)
