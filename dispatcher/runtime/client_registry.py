"""All clients of a daemon, and how they become others when the settings do.

What is declared is compared with what runs, not with what was declared before, so that one that failed half way is
mended by the next. Nobody is touched who is declared as before: a client whose connection is reached in another way is
begun anew, of all others only the consumers that differ come and go.

No reader may acknowledge to a consumer between the moment when its progress is loaded and the one when its successor
has its place, so the locks of all consumers that are concerned are held meanwhile. A reader that waits goes on with the
successor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from dispatcher.binlog.stream.segments import Allocate
from dispatcher.dispatch.client import Client
from dispatcher.model.errors import BinlogError
from dispatcher.runtime.client_runner import Logger
from dispatcher.runtime.client_service import Group, RunningClient
from dispatcher.runtime.consumer_session import ConsumerSessions
from dispatcher.runtime.from_settings import GroupKey
from dispatcher.runtime.store_thread import StoreThread

Groups = Mapping[GroupKey, Group]


@dataclass(frozen=True, slots=True)
class RegistryChanges:
    """Names of consumers, in the order in which they are declared. One whose connection changed is changed."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


class Clients:
    """See the module. Every method may raise BinlogError (STATE_STORE)."""

    def __init__(
        self,
        store: StoreThread,
        allocate: Allocate | None,
        log: Logger,
        on_error: Callable[[str, BaseException], None],
    ) -> None:
        """`allocate`: see `Client`; `on_error` is told of a task that ended by a defect."""
        self.readers = ConsumerSessions(store)
        self._store = store
        self._allocate = allocate
        self._log = log
        self._on_error = on_error
        self._running: dict[GroupKey, RunningClient] = {}
        self._started = False

    def clients(self) -> list[Client]:
        return [running.client for running in self._running.values()]

    def start(self) -> None:
        self._started = True
        for running in self._running.values():
            running.start()

    async def stop(self) -> None:
        """End all of them; raises the first fault when all have ended."""
        faults = []
        for running in self._running.values():
            try:
                await running.stop()
            except BinlogError as error:
                faults.append(error)
        if faults:
            raise faults[0]

    async def check(self, groups: Groups) -> None:
        """Raises BinlogError where `apply` could not even begin."""
        changes = self._compare(groups)
        for name in (*changes.added, *changes.changed):
            await self._store.load(name)
        for running in self._running.values():
            await running.runner.flush()

    async def apply(self, groups: Groups) -> RegistryChanges:
        """Run what is declared, and nothing else. One call at a time."""
        before = self._declared()
        changes = self._compare(groups)
        async with AsyncExitStack() as locks:
            for name in (*changes.removed, *changes.changed):
                reader = self._running[before[name]].readers[name]
                await locks.enter_async_context(reader.acknowledging)
            await self._take_away(groups)
            await self._change(groups, changes)
            await self._begin(groups)
            for name in changes.removed:
                self.readers.remove(name)
        return changes

    def _declared(self) -> dict[str, GroupKey]:
        return {name: key for key, running in self._running.items() for name in running.readers}

    def _compare(self, groups: Groups) -> RegistryChanges:
        before = self._declared()
        wanted = {
            declared.spec.name: (key, declared)
            for key, group in groups.items()
            for declared in group.consumers
        }
        changed = []
        for name, (key, declared) in wanted.items():
            if name not in before:
                continue
            running = self._running[before[name]]
            stays = before[name] == key and self._reached_alike(running, groups[key])
            if not stays or running.readers[name].consumer.spec != declared.spec:
                changed.append(name)
        return RegistryChanges(
            tuple(name for name in wanted if name not in before),
            tuple(name for name in before if name not in wanted),
            tuple(changed),
        )

    @staticmethod
    def _reached_alike(running: RunningClient, group: Group | None) -> bool:
        if group is None:
            return False
        ours = running.group
        return (ours.settings, ours.limits, ours.buffer_bytes) == (
            group.settings,
            group.limits,
            group.buffer_bytes,
        )

    async def _take_away(self, groups: Groups) -> None:
        """Clients that are no longer declared, or not so, and the consumers that are not of their clients."""
        for key, running in list(self._running.items()):
            group = groups.get(key)
            if not self._reached_alike(running, group):
                del self._running[key]
                await running.stop()
                continue
            names = {declared.spec.name for declared in group.consumers} if group else set()
            for name in [name for name in running.readers if name not in names]:
                await running.remove(name)

    async def _change(self, groups: Groups, changes: RegistryChanges) -> None:
        """Consumers of clients that stay."""
        for key, running in self._running.items():
            for declared in groups[key].consumers:
                name = declared.spec.name
                if name not in running.readers:
                    self.readers.add(await running.add(declared))
                elif name in changes.changed:
                    self.readers.add(await running.change(declared))
                running.readers[name].marker_s = declared.marker_s

    async def _begin(self, groups: Groups) -> None:
        """Clients that are new."""
        for key, group in groups.items():
            if key in self._running:
                continue
            running = RunningClient(group, self._store, self._allocate, self._log, self._on_error)
            await running.open()
            self._running[key] = running
            for reader in running.readers.values():
                self.readers.add(reader)
            if self._started:
                running.start()
