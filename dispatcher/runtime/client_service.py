"""One client with all that it takes to run: its source, its rules, their runner, its tasks, its part of the store.

The daemon has one of these for each connection key, a program that uses the library its own. Consumers come and go
while it runs; nobody else of the client notices. What a consumer has acknowledged stays stored when it goes, so one
that is changed is taken away and comes back as it is now.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dispatcher.binlog.stream.segments import Allocate
from dispatcher.dispatch.client import Client
from dispatcher.dispatch.events import Added, Removed
from dispatcher.dispatch.specs import ClientLimits, ConsumerSpec, Progress
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import Position
from dispatcher.runtime.client_runner import ClientRunner, Logger
from dispatcher.runtime.consumer_session import ConsumerSession
from dispatcher.runtime.store_thread import StoreThread
from dispatcher.runtime.tasks import Tasks
from dispatcher.source.protocols import Source


@dataclass(frozen=True, slots=True)
class ConsumerDecl:
    """A consumer as it is declared. `marker_s`: how often its readers are told of progress without data."""

    spec: ConsumerSpec
    marker_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Group:
    """Consumers that share a connection, or will. `key`: under which what is known of the source's tables and prepared
    transactions is stored; `buffer_bytes`: of each dispatcher; `settings`: groups that are equal in it reach their
    source alike."""

    key: str
    source: Source
    consumers: tuple[ConsumerDecl, ...]
    limits: ClientLimits = field(default_factory=ClientLimits)
    buffer_bytes: int = 1 << 20
    settings: object = None


class RunningClient:
    """See the module. Every method may raise BinlogError (STATE_STORE)."""

    def __init__(
        self,
        group: Group,
        store: StoreThread,
        allocate: Allocate | None,
        log: Logger,
        on_error: Callable[[str, BaseException], None],
    ) -> None:
        """`allocate`: see `Client`; `on_error` is told of a task that ended by a defect."""
        self.group = group
        self.readers: dict[str, ConsumerSession] = {}
        self._store = store
        self._allocate = allocate
        self._log = log
        self._tasks = Tasks(on_error)
        self._runner: ClientRunner | None = None

    @property
    def runner(self) -> ClientRunner:
        assert self._runner is not None, "it was not opened"
        return self._runner

    @property
    def client(self) -> Client:
        return self.runner.client

    async def open(self) -> None:
        """Load what is stored; nothing runs yet, but readers may come."""
        group = self.group
        progress: dict[str, Progress | BinlogError] = {}
        sessions = {}
        for declared in group.consumers:
            name = declared.spec.name
            sessions[name] = await self._store.session(name)
            if (stored := await self._store.load(name)) is not None:
                progress[name] = stored
        client = Client(
            group.source.label,
            [declared.spec for declared in group.consumers],
            progress,
            await self._store.load_versions(group.key),
            group.limits,
            self._allocate,
            await self._store.load_prepared(group.key),
        )
        client.new_epoch = self._store.new_epoch
        self._runner = ClientRunner(
            client,
            group.source,
            self._store,
            key=group.key,
            tasks=self._tasks,
            log=self._log,
            buffer_bytes=group.buffer_bytes,
        )
        for declared in group.consumers:
            self._reader(declared, sessions[declared.spec.name])

    def start(self) -> None:
        self.runner.start()

    async def stop(self) -> None:
        """End its connections, and store what waits for it."""
        if self._runner is not None:
            await self._runner.stop()

    # -- consumers that come and go: the caller holds `acknowledging` of their readers -------------------------

    async def add(self, declared: ConsumerDecl, after: Position | None = None) -> ConsumerSession:
        """A new consumer goes on from what is stored under its name, or (`after`) from a position that its reader
        brings, which is not stored before somebody says so."""
        name = declared.spec.name
        session = await self._store.session(name)
        progress = await self._store.load(name)
        if after is not None:
            stored = None if isinstance(progress, BinlogError) else progress
            progress = Progress(after, after, _created(stored, after))
        self.runner.step(Added(declared.spec, progress))
        return self._reader(declared, session)

    async def remove(self, name: str) -> None:
        """What is stored of it stays; nothing of it is stored any more when this returns."""
        await self.runner.stored(name)
        self.runner.step(Removed(name))
        del self.readers[name]

    async def change(self, declared: ConsumerDecl) -> ConsumerSession:
        """The consumer goes on as it is declared now, from what it has acknowledged, under the sessions it has."""
        name = declared.spec.name
        reader = self.readers[name]
        progress = await self.runner.stored(name)
        self.runner.step(Removed(name))
        self.runner.step(Added(declared.spec, progress))
        return self._reader(declared, reader.session)

    def _reader(self, declared: ConsumerDecl, session: int) -> ConsumerSession:
        name = declared.spec.name
        reader = ConsumerSession(
            self.runner, self.client.consumers[name], session, declared.marker_s
        )
        self.readers[name] = reader
        return reader


def _created(stored: Progress | None, position: Position) -> int:
    """When a position's file was created, if that is known: only then can another one of its name be told from it."""
    if stored is None:
        return 0
    covered = stored.covered
    same = (covered.server, covered.file) == (position.server, position.file)
    return stored.created if same else 0
