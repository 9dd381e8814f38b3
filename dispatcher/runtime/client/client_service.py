"""A client with everything it runs with: source, rules, runner, tasks, and its part of the store.

The daemon has one `ClientService` for each connection key; each `BinlogClient` of the library has one. Consumers come
and go while it runs, without an effect on the client's other consumers. What a consumer has acknowledged stays stored
when it is removed, so a changed consumer is removed and added again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dispatcher.binlog.stream.segments import Allocate
from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.messages.events import Added, Removed
from dispatcher.dispatch.values.specs import ClientLimits, ConsumerSpec, Progress
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import Position
from dispatcher.runtime.client.client_runner import ClientRunner, Logger
from dispatcher.runtime.client.consumer_session import ConsumerSession
from dispatcher.runtime.loop.tasks import Tasks
from dispatcher.runtime.store.store_thread import StoreThread
from dispatcher.source.protocols import Source


@dataclass(frozen=True, slots=True)
class ConsumerDecl:
    """A declared consumer. `marker_s`: how often polls tell its readers about progress without data."""

    spec: ConsumerSpec
    marker_s: float = 60.0


@dataclass(frozen=True, slots=True)
class ClientDecl:
    """A declared client: consumers that share a connection.

    `key`: the key under which the client's table versions and prepared transactions are stored; `buffer_bytes`: the
    size of each dispatcher's buffer; `settings`: the settings of the connection; a reload compares them to find out
    whether they changed.
    """

    key: str
    source: Source
    consumers: tuple[ConsumerDecl, ...]
    limits: ClientLimits = field(default_factory=ClientLimits)
    buffer_bytes: int = 1 << 20
    settings: object = None


class ClientService:
    """See the module. Every method may raise BinlogError (STATE_STORE)."""

    def __init__(
        self,
        decl: ClientDecl,
        store: StoreThread,
        allocate: Allocate | None,
        log: Logger,
        on_error: Callable[[str, BaseException], None],
    ) -> None:
        """`allocate`: see `Client`; `on_error` is called with each task that a defect ended."""
        self.decl = decl
        self.sessions: dict[str, ConsumerSession] = {}
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
        """Load what is stored. No task runs yet, but readers may call."""
        decl = self.decl
        stored = await self._store.load_all([consumer.spec.name for consumer in decl.consumers])
        progress = {
            name: found.progress for name, found in stored.items() if found.progress is not None
        }
        client = Client(
            decl.source.label,
            [consumer.spec for consumer in decl.consumers],
            progress,
            await self._store.load_versions(decl.key),
            decl.limits,
            self._allocate,
            await self._store.load_prepared(decl.key),
        )
        client.new_epoch = self._store.new_epoch
        self._runner = ClientRunner(
            client,
            decl.source,
            self._store,
            key=decl.key,
            tasks=self._tasks,
            log=self._log,
            buffer_bytes=decl.buffer_bytes,
        )
        for consumer in decl.consumers:
            name = consumer.spec.name
            client.consumers[name].delivery_paused = stored[name].paused
            self._new_session(consumer, stored[name].session)

    def start(self) -> None:
        self.runner.start()

    async def stop(self) -> None:
        """End the client's connections, and store what is queued."""
        if self._runner is not None:
            await self._runner.stop()

    # -- consumers that come and go: the caller holds `acknowledging` of their sessions -----------------------

    async def add(self, consumer: ConsumerDecl, after: Position | None = None) -> ConsumerSession:
        """Add a consumer, which continues behind what is stored under its name, or behind its reader's position
        (`after`).

        The reader's position is not stored here.
        """
        name = consumer.spec.name
        number = await self._store.session(name)
        progress = await self._store.load(name)
        if after is not None:
            stored = None if isinstance(progress, BinlogError) else progress
            progress = Progress(after, after, _created(stored, after))
        self.runner.step(Added(consumer.spec, progress, await self._store.paused(name)))
        return self._new_session(consumer, number)

    async def remove(self, name: str) -> None:
        """Remove a consumer. Its stored progress stays stored. Once this method has returned, nothing more is stored
        for the consumer."""
        await self.runner.store_queue.stored(name)
        self.runner.step(Removed(name))
        del self.sessions[name]

    async def change(self, consumer: ConsumerDecl) -> ConsumerSession:
        """Apply a changed declaration: the consumer continues behind what it has acknowledged, and keeps its
        sessions."""
        name = consumer.spec.name
        number = self.sessions[name].number
        paused = await self._store.paused(name)
        progress = await self.runner.store_queue.stored(name)
        self.runner.step(Removed(name, changed=True))
        self.runner.step(Added(consumer.spec, progress, paused))
        return self._new_session(consumer, number)

    def _new_session(self, consumer: ConsumerDecl, number: int) -> ConsumerSession:
        name = consumer.spec.name
        session = ConsumerSession(
            self.runner, self.client.consumers[name], number, consumer.marker_s
        )
        self.sessions[name] = session
        return session


def _created(stored: Progress | None, position: Position) -> int:
    """Return when a position's file was created, 0 if unknown. The time distinguishes files with the same name."""
    if stored is None:
        return 0
    covered = stored.covered
    same = (covered.server, covered.file) == (position.server, position.file)
    return stored.created if same else 0
