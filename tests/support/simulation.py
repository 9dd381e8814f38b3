"""The rules of one `Client` in a simulated world: a server, a connection per dispatcher, a store, readers.

A `World` replaces the runtime: it executes effects in order, passes the server's packets in random pieces to a real
splitter, loses connections, restarts the daemon with its stored state, and lets readers poll and acknowledge. It raises
AssertionError if effects break their contract: for example two connections of one dispatcher, a dump without a login,
or data that a reader gets before its position is stored. The world compares each range that a reader gets with the
reference implementation in `random_log`. Nothing happens without a call: a test, or a play of `tests.simulation`, calls
the methods.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.kernel.bytes import U8
from dispatcher.dispatch.client import seeking
from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.messages.effects import (
    Close,
    Connect,
    Effect,
    FetchSchema,
    Pause,
    PollServer,
    Resume,
    Retire,
    StartDump,
    Store,
    StoreVersions,
)
from dispatcher.dispatch.messages.events import (
    Acknowledged,
    BatchReceived,
    Input,
    LoggedIn,
    Lost,
    SeekRequested,
    ServerPolled,
    Tick,
)
from dispatcher.dispatch.queue.queue import Queue
from dispatcher.dispatch.tables.versions import StoredVersions
from dispatcher.dispatch.values.executed_position import ExecutedPosition, make_executed, parse_set
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import ClientLimits, ConsumerSpec, Progress
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.stream.batch import Batch, Closed
from dispatcher.stream.splitter import Splitter
from tests.support.fake_server import Feed, Server, executed_by
from tests.support.random_log import Wanted, spelled

BUFFER = 1 << 14
SIZES = (1, 50, 3000, BUFFER)


def wanted_by(spec: ConsumerSpec, lower_case_table_names: int = 0) -> Wanted:
    """Returns the subscription by the names of the server. The letters of `random_log` have one lower case each."""
    wanted = Wanted(spec.databases, spec.tables, spec.exclude_tables)
    return spelled(wanted, str.lower) if lower_case_table_names else wanted


def without_formats(data: bytes) -> bytes:
    """Returns a delivered binlog without its magic number and FORMAT_DESCRIPTIONs."""
    assert data[:4] == b"\xfebin"
    out, at = [], 4
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        if data[at + 4] != EventType.FORMAT_DESCRIPTION:
            out.append(data[at : at + size])
        at += size
    assert at == len(data)
    return b"".join(out)


@dataclass
class Reader:
    """A reader of one consumer. `positions`: all positions that the reader has received, in order; the last position is
    its present position."""

    wanted: Wanted
    positions: list[Position] = field(default_factory=list)
    transactions: int = 0

    @property
    def position(self) -> Position:
        return self.positions[-1]


class Connection:
    """Passes the bytes of one dump to a splitter. `sizes`: the numbers of bytes that one call may receive; each call
    chooses one of these."""

    def __init__(
        self,
        server: Server,
        client: Client,
        place: ExecutedPosition,
        rng: random.Random,
        sizes: tuple[int, ...] = SIZES,
    ) -> None:
        self._rng = rng
        self.sizes = sizes
        self.feed = Feed(server, place)
        client.routes.lower_case_table_names = server.log.lower_case
        self.splitter = Splitter(
            client.routes, packets=True, checksum=self.feed.checksum, buffer_bytes=BUFFER
        )
        self.splitter.file = place.file
        self.batches: Iterator[Batch | Closed] = iter(())
        self._nothing = False

    def next(self) -> Batch | None:
        """Returns the next batch, or None if nothing has arrived. Raises BinlogError for damaged bytes."""
        batch = next(self.batches, None)
        if batch is None:
            splitter = self.splitter
            splitter.compact()
            if not splitter.full:
                room = splitter.room()
                data = self.feed.take(min(len(room), self._rng.choice(self.sizes)))
                self._nothing = not data
                if not data:
                    return None
                room[: len(data)] = memoryview(data)
                splitter.wrote(len(data))
            self.batches = iter(splitter.split())
            batch = next(self.batches, None)
        assert not isinstance(batch, Closed)
        return batch

    @property
    def drained(self) -> bool:
        """True if everything has arrived that the server had at the last call of `next`."""
        return self._nothing and not self.splitter.full


@dataclass
class Link:
    """One dispatcher's connection. It exists from the dispatcher's Connect effect on.

    `server`: the server to which the connection leads. `view`: the server's answers at the login, until they are passed
    to `step`. `logged_in`: True after they were passed to `step`; then `dump` may be started.
    """

    number: int
    connect_at: float
    server: Server | None = None
    view: ServerView | None = None
    logged_in: bool = False
    dump: StartDump | None = None
    connection: Connection | None = None
    paused: bool = False


class World:
    """A simulated daemon, server and readers; see the module. `links`: the connections by dispatcher; `store`: the
    stored progress of each consumer; `now`: the time that `step` gets, in s."""

    begins_at = 100.0  # s
    allocate: Callable[[int], U8] | None = None  # for transactions that do not fit in their queue

    def __init__(
        self,
        rng: random.Random,
        server: Server,
        specs: list[ConsumerSpec],
        stored: dict[str, Progress] | None = None,
        limits: ClientLimits | None = None,
        *,
        largest_transaction: int = 0,
    ) -> None:
        self.rng = rng
        self.server = server
        self.specs = specs
        self.limits = limits or ClientLimits()
        self.store = dict(stored or {})
        self.kept: StoredVersions | None = None  # stored table definitions
        self.readers = {spec.name: Reader(wanted_by(spec, server.log.lower_case)) for spec in specs}
        self.now = self.begins_at
        self.log: list[str] = []
        self.queue_bytes_most = {spec.name: 0 for spec in specs}
        self.asked = 0  # the number of schema fetches
        self._largest = largest_transaction
        self.boot()

    def boot(self) -> None:
        """Start the daemon with its stored state."""
        self.client = Client(
            "user@host:3306", self.specs, dict(self.store), self.kept, self.limits, self.allocate
        )
        self.links: dict[int, Link] = {}
        self.orders: list[FetchSchema] = []
        self.survey_ordered = False
        self.surveyed: ServerView | None = None  # the server's answer, until it is passed to `step`
        self.to_store: dict[str, Progress] = {}
        self.versions_to_store: list[StoreVersions] = []
        self.opened: set[str] = set()  # readers that have a session in this run of the daemon
        self.execute(self.client.start())

    # -- the first connection, for tests with only one --------------------------------------------------------

    @property
    def link(self) -> Link | None:
        return next(iter(self.links.values()), None)

    @property
    def connection(self) -> Connection | None:
        return self.link.connection if self.link else None

    @property
    def paused(self) -> bool:
        return self.link is not None and self.link.paused

    @property
    def connect_at(self) -> float | None:
        """Returns the earliest time at which a connection is due; None if no dispatcher has to connect."""
        return min((link.connect_at for link in self._waiting()), default=None)

    def _waiting(self) -> list[Link]:
        return [x for x in self.links.values() if not x.logged_in and x.view is None]

    # -- effects ---------------------------------------------------------------------------------------------

    def step(self, event: Input) -> None:
        self.log.append(type(event).__name__)
        effects = self.client.step(event, self.now)
        self.stepped(event, effects)
        self.execute(effects)
        self.check_bounds()
        if self.survey_ordered:
            self.survey()
            self.tell_survey()

    def stepped(self, event: Input, effects: list[Effect]) -> None:
        """A hook for subclasses. `World` calls it with the effects of each step before it executes them."""

    def check_bounds(self) -> None:
        for name, consumer in self.client.consumers.items():
            held = consumer.queue.held_bytes
            self.queue_bytes_most[name] = max(self.queue_bytes_most.get(name, 0), held)
            limit = consumer.queue.bytes_max
            slack = 2 * max(min(limit, 1 << 20), 1 << 14)
            assert held <= limit + 2 * BUFFER + 2 * self._largest + slack, (
                "the queue is not bounded"
            )

    def execute(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Connect():
                    number = effect.dispatcher
                    assert number not in self.links, f"a second connection of dispatcher {number}"
                    self.links[number] = Link(number, self.now + effect.after_s)
                case StartDump():
                    link = self.links[effect.dispatcher]
                    assert link.logged_in and link.dump is None, "a dump without a login"
                    link.dump = effect
                case Close():
                    del self.links[effect.dispatcher]
                case Retire():
                    self.links.pop(effect.dispatcher, None)
                    assert effect.dispatcher not in self.client.dispatchers
                case Pause() | Resume():
                    link, pause = self.links[effect.dispatcher], isinstance(effect, Pause)
                    assert link.dump is not None and link.paused != pause, f"{effect} in vain"
                    link.paused = pause
                case Store():
                    self.to_store[effect.consumer] = effect.progress
                case PollServer():
                    self.survey_ordered = True
                case FetchSchema():
                    self.orders.append(effect)
                    self.asked += 1
                case StoreVersions():
                    self.versions_to_store.append(effect)
                case _:
                    pass

    def flush(self) -> None:
        self._store_versions()
        self.store.update(self.to_store)
        self.to_store = {}

    def _store_versions(self) -> None:
        """Store the table versions, as `StoreQueue` does before it stores progress."""
        for effect in [*self.versions_to_store, *self.client.unstored_versions()]:
            kept = effect.versions or self.kept
            assert kept is not None
            self.kept = replace(kept, position=effect.position)
        self.versions_to_store = []

    # -- events ----------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Make each connection that is due now or later, without waiting for its time."""
        for link in self._waiting():
            if self.links.get(link.number) is link:
                self.now = max(self.now, link.connect_at)
                self.log_in(link)
                self.logged_in(link)
                self.open(link)

    def log_in(self, link: Link) -> None:
        link.server = self.server
        link.view = link.server.view(
            self.client.files_to_probe(link.number),
            self.client.starts_to_search(link.number),
            self.client.offsets_to_probe(link.number),
        )

    def logged_in(self, link: Link) -> None:
        """Pass the server's answers to `step`, and store the effects before anything is read."""
        view, link.view = link.view, None
        assert view is not None
        link.logged_in = True
        self.step(LoggedIn(link.number, view))
        self.flush()

    def survey(self) -> None:
        """Make a survey of the server."""
        self.survey_ordered = False
        files, places = self.client.files_to_poll(), self.client.offsets_to_poll()
        self.surveyed = self.server.view([*files, *(name for name, _ in places)], places=places)

    def tell_survey(self) -> None:
        view, self.surveyed = self.surveyed, None
        if view is not None:
            self.step(ServerPolled(view, 3600))

    def open(self, link: Link) -> None:
        if self.links.get(link.number) is not link:
            return
        assert link.dump is not None, "logged in for nothing"
        try:
            link.connection = self.connection_of(link)
        except BinlogError as error:
            self.lost(link, error)

    def connection_of(self, link: Link) -> Connection:
        assert link.server is not None and link.dump is not None
        return Connection(link.server, self.client, link.dump.executed, self.rng)

    def lost(self, link: Link, error: BinlogError) -> None:
        if self.links.get(link.number) is link:
            del self.links[link.number]
            self.step(Lost(link.number, error))

    def read(self) -> None:
        """Receive one batch from each connection that may be read."""
        for link in list(self.links.values()):
            self.read_link(link)

    def read_link(self, link: Link) -> bool:
        """Receive one batch. Returns True if a batch or an error arrived."""
        connection = link.connection
        if connection is None or link.paused or self.links.get(link.number) is not link:
            return False
        try:
            batch = connection.next()
        except BinlogError as error:
            self.lost(link, error)
            return True
        if batch is not None:
            created = connection.splitter.created.get(batch.file, 0)
            self.step(BatchReceived(link.number, batch, created))
        return batch is not None

    def read_all(self) -> None:
        """Receive everything that the server has. The client may pause a connection, but must not let it stay
        paused."""
        while True:
            links = [link for link in self.links.values() if link.connection]
            came = [self.read_link(link) for link in links]
            drained = all(x.paused or not x.connection or x.connection.drained for x in links)
            if drained and not any(came):
                return

    def lose(self) -> None:
        for link in list(self.links.values()):
            if link.connection:
                self.lost(link, BinlogError(ErrorKind.CONNECTION_LOST, "cut"))

    def tick_quietly(self) -> None:
        self.now += 0.2
        self.step(Tick())
        self.flush()

    def restart(self) -> None:
        self.log.append("restart")
        self.boot()

    # -- readers ---------------------------------------------------------------------------------------------

    def ready(self, name: str) -> tuple[Consumer, Queue, Reader] | None:
        """Prepare to read, as a session does: find the reader's position, and open a session there. Returns None if the
        consumer has not started."""
        consumer, reader = self.client.consumers[name], self.readers[name]
        queue = consumer.queue
        if not consumer.started:
            return None
        assert name in self.store, "handed out before it was stored"
        if not reader.positions:
            reader.positions.append(queue.position(queue.acknowledged))
        if name not in self.opened:
            self.opened.add(name)
            self.resume(name, reader.position)
        return consumer, queue, reader

    def resume(self, name: str, after: Position) -> bool:
        """Open a session at a position. Returns False if the client refuses the session."""
        if seeking.holds(self.client.consumers[name], after):
            self.acknowledge(name, after)
            return True
        self.step(self.seek_order(name, after))
        self.flush()
        return True

    def seek_order(self, name: str, after: Position) -> SeekRequested:
        """Returns the input that seeks to a reader's position, with the present answers of the server."""
        view = self.server.view([after.file])
        starts = seeking.seek_starts(self.client.consumers[name], after, view)
        return SeekRequested(
            name, after, self.server.view([after.file], starts) if starts else view
        )

    def acknowledge(self, name: str, position: Position) -> None:
        try:
            progress = self.client.progress_after(name, position)
        except BinlogError as error:
            if error.kind is not ErrorKind.RANGE_UNAVAILABLE:
                raise
            return
        if progress is not None:
            self._store_versions()
            self.store[name] = progress
            self.to_store.pop(name, None)
            self.step(Acknowledged(name, progress.acknowledged, progress.covered))

    def poll(self, name: str, bytes_max: int | None = None, ack: bool | None = None) -> None:
        ready = self.ready(name)
        if ready is None:
            return
        _, queue, reader = ready
        after = reader.position
        if ack if ack is not None else self.rng.random() < 0.3:
            self.acknowledge(name, after)  # a poll also acknowledges `after`
        if bytes_max is None:
            bytes_max = self.rng.choice((1, 500, 5000, 1 << 20))
        self.deliver(queue, reader, bytes_max)

    def deliver(self, queue: Queue, reader: Reader, bytes_max: int) -> None:
        """Deliver the next range to a reader, and compare the range with the log."""
        after = reader.position
        try:
            answer = queue.readable(after, bytes_max)
        except BinlogError as error:
            if error.kind is ErrorKind.RANGE_UNAVAILABLE:
                return
            raise
        end = answer.end
        if end.order <= after.order:
            assert answer.transactions == 0
            return
        if not answer.transactions and not self.tells_markers():
            return
        data = b"".join(queue.read(after, end)) if answer.transactions else b"\xfebin"
        got = without_formats(data)
        assert answer.bytes == len(got)
        self.judge(reader, after, end, got)
        if answer.transactions:
            self.reread(queue, reader, after, end)
        reader.positions.append(end)
        reader.transactions += answer.transactions
        queue.deliver(end)

    def tells_markers(self) -> bool:
        """True if the client sends progress without data to readers."""
        return True

    def judge(self, reader: Reader, after: Position, end: Position, got: bytes) -> None:
        want = self.server.expected(reader.wanted, after, end)
        assert got == want, f"{len(got)} bytes, expected {len(want)}"
        between = self.server.between(after, end)
        assert Position.from_json(end.to_json()) == end
        if not self.server.mode.by_gtid:
            return
        held = parse_set(self.server.mode, after.gtid)
        assert after.seq == len(held)
        held = held.union(executed_by(self.server.mode, between))
        assert end.seq == len(held)
        assert end.gtid == str(held)
        # The reader has all transactions before the last one.
        if between:
            last = self.server.log.transactions.index(between[-1])
            assert all(held.has(t.source, t.gno) for t in self.server.log.transactions[:last])

    def reread(self, queue: Queue, reader: Reader, after: Position, end: Position) -> None:
        cuts = queue.cut_points(after, end, self.rng.randrange(1, 6))
        places = [after, *(cut.position for cut in cuts), end]
        assert [p.seq for p in places] == sorted({p.seq for p in places})
        a, b = sorted(self.rng.sample(range(len(places)), 2))
        data = b"".join(queue.read(places[a], places[b]))
        self.judge(reader, places[a], places[b], without_formats(data))

    # -- the end ---------------------------------------------------------------------------------------------

    def finish(self, moves: int = 4000) -> None:
        """Continue without further faults until all readers have everything."""
        for _ in range(moves):
            self.connect()
            self.read()
            for name in self.readers:
                self.poll(name, bytes_max=1 << 20, ack=True)
            self.tick_quietly()
            drained = all(x.connection and x.connection.drained for x in self.links.values())
            if drained and self.all_read():
                return
        raise AssertionError(f"not all was delivered: {self.links}, {self.log[-20:]}")

    def all_read(self) -> bool:
        last = self.server.stop
        tip = make_executed(self.server.mode, last.executed, *self.server.files[-1])
        for name, reader in self.readers.items():
            if not reader.positions or name not in self.opened:
                return False
            if self.server.mode.by_gtid:
                if reader.position.seq != tip.seq:
                    return False
            elif reader.position.order < (0, tip.seq):
                return False
        return True
