"""A running client with its source, rules, runner and tasks, and its data in the store.

The daemon has one `ClientService` for each connection key. In the library, each `BinlogClient` has one. Consumers can
be added and removed while the client runs, without an effect on its other consumers. The acknowledged position of a
removed consumer stays stored. So `change` removes a consumer, and adds it again at this position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.messages.events import Added, Removed
from dispatcher.dispatch.values.specs import ClientLimits, ConsumerSpec, Progress
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import Position
from dispatcher.runtime.client.client_runner import ClientRunner, Logger
from dispatcher.runtime.client.consumer_session import ConsumerSession
from dispatcher.runtime.client.dispatcher_task import KernelsLoaded
from dispatcher.runtime.loop.tasks import Tasks
from dispatcher.runtime.store.store_thread import StoreThread
from dispatcher.source.protocols import Source
from dispatcher.stream.segments import Allocate


@dataclass(frozen=True, slots=True)
class ConsumerDecl:
    """A declared consumer. `marker_s`: the shortest time between two answers that report progress without data, in
    seconds."""

    spec: ConsumerSpec
    marker_s: float = 60.0


@dataclass(frozen=True, slots=True)
class ClientDecl:
    """A declared client: consumers that share a connection.

    `key`: the key under which the client's table versions and prepared transactions are stored; `buffer_bytes`: the
    size of each dispatcher's buffer; `settings`: the settings of the connection, which a reload compares with the new
    settings.
    """

    key: str
    source: Source
    consumers: tuple[ConsumerDecl, ...]
    limits: ClientLimits = field(default_factory=ClientLimits)
    buffer_bytes: int = 1 << 20
    settings: object = None


async def loaded_already() -> None:
    """Return at once. For programs that load the kernels before they start a client."""


class ClientService:
    """Runs one client. Every method may raise BinlogError (STATE_STORE)."""

    def __init__(
        self,
        decl: ClientDecl,
        store: StoreThread,
        allocate: Allocate | None,
        log: Logger,
        on_error: Callable[[str, BaseException], None],
        kernels_loaded: KernelsLoaded = loaded_already,
    ) -> None:
        """`allocate`: see `Client`; `on_error` is called with the name and error of each task that ends because of a
        defect; `kernels_loaded` waits until the kernels are loaded; no dump is requested before."""
        self._kernels_loaded = kernels_loaded
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
        """Load the stored data and create the client. After `open`, readers may call; the client's tasks run after
        `start`."""
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
            kernels_loaded=self._kernels_loaded,
        )
        for consumer in decl.consumers:
            name = consumer.spec.name
            client.consumers[name].delivery_paused = stored[name].paused
            self._new_session(consumer, stored[name].session)

    def start(self) -> None:
        self.runner.start()

    async def stop(self) -> None:
        """End the client's connections, and store the queued writes."""
        if self._runner is not None:
            await self._runner.stop()

    # -- adding and removing consumers: the caller has locked `acknowledging` of their sessions -----------------------

    async def add(self, consumer: ConsumerDecl, after: Position | None = None) -> ConsumerSession:
        """Add a consumer. It continues at its reader's position `after` or, if `after` is None, at the position that is
        stored under its name.

        This method does not store `after`.
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
        """Remove a consumer. Its progress stays in the store. After this method has returned, nothing more is stored
        for the consumer."""
        await self.runner.store_queue.stored(name)
        self.runner.step(Removed(name))
        del self.sessions[name]

    async def change(self, consumer: ConsumerDecl) -> ConsumerSession:
        """Apply a changed declaration. The consumer continues at its acknowledged position, and its session stays
        valid."""
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
    """Return when the file of `position` was created: the stored time, if the stored covered position is in the same
    file; otherwise 0 (unknown)."""
    if stored is None:
        return 0
    covered = stored.covered
    same = (covered.server, covered.file) == (position.server, position.file)
    return stored.created if same else 0
