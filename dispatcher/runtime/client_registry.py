"""All clients of a daemon, and how they change with the settings.

`apply` compares the declarations with the running clients, not with the previous declarations. So if a reload fails
after it has changed some clients, the next reload makes the remaining changes. `apply` replaces a client whose
connection settings changed. In all other clients `apply` adds, removes or changes only the consumers whose declarations
differ.

The successor of a changed consumer begins at the stored progress. No acknowledgement may change this progress after the
successor has loaded it, so `apply` holds the `acknowledging` locks of all changed and removed consumers. A waiting call
of a reader continues with the successor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from dispatcher.dispatch.client.client import Client
from dispatcher.model.errors import BinlogError
from dispatcher.model.timings import ConnectionTimings
from dispatcher.runtime.client.client_runner import Logger
from dispatcher.runtime.client.client_service import ClientDecl, ClientService, loaded_already
from dispatcher.runtime.client.dispatcher_task import KernelsLoaded
from dispatcher.runtime.client.from_settings import ClientKey
from dispatcher.runtime.consumer_sessions import ConsumerSessions
from dispatcher.runtime.store.store_thread import StoreThread
from dispatcher.stream.segments import Allocate

ClientDecls = Mapping[ClientKey, ClientDecl]


@dataclass(frozen=True, slots=True)
class RegistryChanges:
    """The consumers that a call of `apply` has changed, by name. `changed` includes consumers of which only the
    settings of the connection have changed."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


class ClientRegistry:
    """See the module. Every method may raise BinlogError (STATE_STORE)."""

    def __init__(
        self,
        store: StoreThread,
        allocate: Allocate | None,
        log: Logger,
        on_error: Callable[[str, BaseException], None],
        kernels_loaded: KernelsLoaded = loaded_already,
    ) -> None:
        """`allocate`: see `Client`; `on_error` is called with the name and the exception of each task that ends because
        of a defect; `kernels_loaded`: see `ClientService`."""
        self.sessions = ConsumerSessions(store)
        self._store = store
        self._make_service = partial(
            ClientService,
            store=store,
            allocate=allocate,
            log=log,
            on_error=on_error,
            kernels_loaded=kernels_loaded,
        )
        self._running: dict[ClientKey, ClientService] = {}
        self._started = False

    def clients(self) -> list[Client]:
        return [service.client for service in self._running.values()]

    def timings(self) -> list[tuple[str, ConnectionTimings]]:
        """The label and the timings of each client."""
        runners = [service.runner for service in self._running.values()]
        return [(runner.client.label, runner.timings) for runner in runners]

    def start(self) -> None:
        self._started = True
        for service in self._running.values():
            service.start()

    async def stop(self) -> None:
        """End all clients, then raise the first error."""
        errors = []
        for service in self._running.values():
            try:
                await service.stop()
            except BinlogError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    async def check(self, decls: ClientDecls) -> None:
        """Raises BinlogError if the state store cannot be read or written, so that `apply` would fail."""
        changes = self._compare(decls)
        for name in (*changes.added, *changes.changed):
            await self._store.load(name)
        for service in self._running.values():
            await service.runner.flush()

    async def apply(self, decls: ClientDecls) -> RegistryChanges:
        """Run the declared clients and consumers, and stop all others. The caller makes one call at a time."""
        before = self._keys_by_consumer()
        changes = self._compare(decls)
        async with AsyncExitStack() as locks:
            for name in (*changes.removed, *changes.changed):
                session = self._running[before[name]].sessions[name]
                await locks.enter_async_context(session.acknowledging)
            await self._remove(decls)
            await self._add_and_change(decls, changes)
            await self._open_new(decls)
            for name in changes.removed:
                self.sessions.remove(name)
        return changes

    def _keys_by_consumer(self) -> dict[str, ClientKey]:
        return {name: key for key, service in self._running.items() for name in service.sessions}

    def _compare(self, decls: ClientDecls) -> RegistryChanges:
        before = self._keys_by_consumer()
        declared = {
            consumer.spec.name: (key, consumer)
            for key, decl in decls.items()
            for consumer in decl.consumers
        }
        changed = []
        for name, (key, consumer) in declared.items():
            if name not in before:
                continue
            service = self._running[before[name]]
            stays = before[name] == key and _same_connection(service, decls[key])
            if not stays or service.sessions[name].consumer.spec != consumer.spec:
                changed.append(name)
        return RegistryChanges(
            tuple(name for name in declared if name not in before),
            tuple(name for name in before if name not in declared),
            tuple(changed),
        )

    async def _remove(self, decls: ClientDecls) -> None:
        """Stop the clients that are no longer declared, and those whose connection changed. From the other clients,
        remove the consumers that are no longer declared."""
        for key, service in list(self._running.items()):
            decl = decls.get(key)
            if decl is None or not _same_connection(service, decl):
                del self._running[key]
                await service.stop()
                continue
            names = {consumer.spec.name for consumer in decl.consumers}
            for name in [name for name in service.sessions if name not in names]:
                await service.remove(name)

    async def _add_and_change(self, decls: ClientDecls, changes: RegistryChanges) -> None:
        """Add and change the consumers of the clients that keep running."""
        for key, service in self._running.items():
            for consumer in decls[key].consumers:
                name = consumer.spec.name
                if name not in service.sessions:
                    self.sessions.add(await service.add(consumer))
                elif name in changes.changed:
                    self.sessions.add(await service.change(consumer))
                service.sessions[name].marker_s = consumer.marker_s

    async def _open_new(self, decls: ClientDecls) -> None:
        for key, decl in decls.items():
            if key in self._running:
                continue
            service = self._make_service(decl)
            await service.open()
            self._running[key] = service
            for session in service.sessions.values():
                self.sessions.add(session)
            if self._started:
                service.start()


def _same_connection(service: ClientService, decl: ClientDecl) -> bool:
    running = service.decl
    return (running.settings, running.limits, running.buffer_bytes) == (
        decl.settings,
        decl.limits,
        decl.buffer_bytes,
    )
