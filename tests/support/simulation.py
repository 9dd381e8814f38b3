"""One client of the dispatcher in a world made of values: a scripted server, a store, readers, and a seed.

The world plays `net.runner`: it executes effects in their order, reads the server's packets in random pieces into a
real splitter, loses connections, restarts the daemon from what was stored, and lets readers poll, acknowledge and seek
at random. Every range that a reader gets is compared with the dumb reference of `random_log`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from dispatcher.binlog.batch import Batch, Closed
from dispatcher.binlog.events import EventType
from dispatcher.binlog.scan import Splitter
from dispatcher.dispatch.client import Client, Consumer
from dispatcher.dispatch.history import Mode, Place, dump_offset, make_place
from dispatcher.dispatch.inputs import (
    Acknowledged,
    Arrived,
    Close,
    Connect,
    ConsumerSpec,
    Dump,
    Effect,
    Input,
    LoggedIn,
    Lost,
    Pause,
    Progress,
    Resume,
    ServerView,
    Sought,
    Store,
    Tick,
)
from dispatcher.dispatch.queue import Queue
from dispatcher.model.errors import BinlogError, Kind
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import Position, file_number
from tests.support.event_encoder import LogWriter, Transaction
from tests.support.random_log import Wanted, delivered

SERVER_NAME = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
BUFFER = 1 << 14


def pairs(gtids: GtidSet) -> list[tuple[str, int]]:
    return [
        (source, n)
        for source, intervals in gtids.sources().items()
        for start, end in intervals
        for n in range(start, end)
    ]


def gtid_set(transactions: list[Transaction]) -> GtidSet:
    out = GtidSet()
    for transaction in transactions:
        out = out.add(transaction.source, transaction.gno)
    return out


class Server:
    """What a server with this log says, and sends."""

    def __init__(self, log: LogWriter, mode: Mode, name: str = SERVER_NAME) -> None:
        self.log = log
        self.mode = mode
        self.name = name
        self.purged = ""

    def view(self) -> ServerView:
        log = self.log
        executed = ""
        if self.mode is Mode.GTID:
            executed = str(gtid_set(log.transactions))
        elif self.mode is Mode.MARIADB and log.transactions:
            executed = f"0-1-{log.transactions[-1].gno}"
        return ServerView(
            server=self.name,
            mode=self.mode,
            executed=executed,
            purged=self.purged,
            files=tuple((file.name, file.size) for file in log.files),
            file=log.file.name,
            offset=log.file.size,
            created={file.name: file.created for file in log.files},
        )

    def dump(self, place: Place) -> bytes:
        if self.mode is Mode.GTID:
            assert isinstance(place.gtids, GtidSet)
            return self.log.stream(held=pairs(place.gtids))
        starts = {(t.file, t.start) for t in self.log.transactions}
        ends = {(t.file, t.end) for t in self.log.transactions}
        outside = {(f.name, f.size) for f in self.log.files} | {(f.name, 4) for f in self.log.files}
        loose = self._outside_transactions()
        offset = dump_offset(place)
        assert (place.file, offset) in starts | ends | outside | loose, "a dump from the middle"
        return self.log.stream(file=place.file, offset=offset)

    def _outside_transactions(self) -> set[tuple[str, int]]:
        out = set()
        for file in self.log.files:
            at = 4
            for raw, transaction in file.events:
                if transaction is None:
                    out |= {(file.name, at), (file.name, at + len(raw))}
                at += len(raw)
        return out

    def checksum_of(self, place: Place) -> bool:
        files = {file.name: file.checksum for file in self.log.files}
        return files.get(
            place.file if self.mode is not Mode.GTID else "", self.log.files[0].checksum
        )

    # -- what a consumer should get ---------------------------------------------------------------------------

    def between(self, start: Position, end: Position) -> list[Transaction]:
        """The transactions of the log in (start, end], in the log's order."""
        if self.mode is Mode.GTID:
            a, b = GtidSet.parse(start.gtid), GtidSet.parse(end.gtid)
            return [
                t
                for t in self.log.transactions
                if b.has(t.source, t.gno) and not a.has(t.source, t.gno)
            ]
        lo, hi = ((file_number(p.file), p.offset) for p in (start, end))
        return [t for t in self.log.transactions if lo < (file_number(t.file), t.end) <= hi]

    def expected(self, wanted: Wanted, start: Position, end: Position) -> bytes:
        out = b""
        for n, transaction in enumerate(self.between(start, end), start=1):
            seq = start.seq + n
            if self.mode is not Mode.GTID:
                seq = file_number(transaction.file) << 40 | transaction.end
            out += delivered(transaction, wanted, epoch=start.epoch, seq=seq)
        return out


def without_formats(data: bytes) -> bytes:
    """A delivered binlog without magic and FORMAT_DESCRIPTIONs."""
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
    """`positions`: all that this reader has been given, in order; the last one is where it is."""

    wanted: Wanted
    positions: list[Position] = field(default_factory=list)
    transactions: int = 0

    @property
    def position(self) -> Position:
        return self.positions[-1]


class Connection:
    def __init__(self, server: Server, client: Client, dump: Dump, rng: random.Random) -> None:
        self._rng = rng
        self._data = server.dump(dump.place)
        self.splitter = Splitter(
            client.routes,
            packets=True,
            checksum=server.checksum_of(dump.place),
            buffer_bytes=BUFFER,
        )
        self.splitter.file = dump.place.file
        self.batches: Iterator[Batch | Closed] = iter(())

    def next(self) -> Batch | None:
        """The next batch; None where nothing has come."""
        batch = next(self.batches, None)
        if batch is None:
            splitter = self.splitter
            splitter.compact()
            if not splitter.full:
                size = min(
                    len(room := splitter.room()),
                    self._rng.choice((1, 50, 3000, BUFFER)),
                    len(self._data),
                )
                room[:size] = self._data[:size]
                splitter.wrote(size)
                self._data = self._data[size:]
            self.batches = iter(splitter.split())
            batch = next(self.batches, None)
        assert not isinstance(batch, Closed)
        return batch

    @property
    def drained(self) -> bool:
        return not self._data and not self.splitter.full


class World:
    """See the module."""

    def __init__(
        self,
        rng: random.Random,
        server: Server,
        specs: list[ConsumerSpec],
        stored: dict[str, Progress] | None = None,
        *,
        largest_transaction: int = 0,
    ) -> None:
        self.rng = rng
        self.server = server
        self.specs = specs
        self.store = dict(stored or {})
        self.readers = {spec.name: Reader(Wanted(spec.databases, spec.tables)) for spec in specs}
        self.now = 100.0
        self.log: list[str] = []
        self.queue_bytes_most = {spec.name: 0 for spec in specs}
        self._largest = largest_transaction
        self.boot()

    def boot(self) -> None:
        """Start the daemon, from what is stored and nothing else."""
        self.client = Client("user@host:3306", self.specs, dict(self.store))
        self.connection: Connection | None = None
        self.dump: Dump | None = None
        self.paused = False
        self.connect_at: float | None = None
        self.to_store: dict[str, Progress] = {}
        self.opened: set[str] = set()  # readers that have a session with this daemon
        self.execute(self.client.start())

    # -- effects ---------------------------------------------------------------------------------------------

    def step(self, what: Input) -> None:
        self.log.append(type(what).__name__)
        self.execute(self.client.step(what, self.now))
        for name, consumer in self.client.consumers.items():
            held = consumer.queue.held_bytes
            self.queue_bytes_most[name] = max(self.queue_bytes_most[name], held)
            limit = consumer.queue.bytes_max
            slack = 2 * max(min(limit, 1 << 20), 1 << 14)
            assert held <= limit + 2 * BUFFER + 2 * self._largest + slack, (
                "the queue is not bounded"
            )

    def execute(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Connect():
                    assert self.connection is None, "a second connection"
                    self.connect_at = self.now + effect.after_s
                case Dump():
                    assert self.connection is None
                    self.dump = effect
                case Close():
                    self.connection = self.dump = None
                    self.paused = False
                case Pause():
                    self.paused = True
                case Resume():
                    self.paused = False
                case Store():
                    self.to_store[effect.consumer] = effect.progress
                case _:
                    pass

    def flush(self) -> None:
        self.store.update(self.to_store)
        self.to_store = {}

    # -- what may happen -------------------------------------------------------------------------------------

    def connect(self) -> None:
        if self.connect_at is None:
            return
        self.now = max(self.now, self.connect_at)
        self.connect_at = None
        self.client.files_to_probe()
        self.step(LoggedIn(self.server.view()))
        self.flush()
        if self.dump:
            self.connection = Connection(self.server, self.client, self.dump, self.rng)
            self.dump = None

    def read(self) -> None:
        connection = self.connection
        if connection is None or self.paused:
            return
        try:
            batch = connection.next()
        except BinlogError as error:
            self.connection = None
            self.paused = False
            self.step(Lost(error))
            return
        if batch is not None:
            self.step(Arrived(batch, connection.splitter.created.get(batch.file, 0)))

    def read_all(self) -> None:
        """All that the server has, of a client that nothing holds up."""
        seen = -1
        while self.connection is not None and not (
            self.connection.drained and seen == len(self.log)
        ):
            seen = len(self.log)
            self.read()

    def lose(self) -> None:
        if self.connection is None:
            return
        self.connection = None
        self.paused = False
        self.step(Lost(BinlogError(Kind.CONNECTION_LOST, "cut")))

    def tick(self) -> None:
        self.now += self.rng.choice((0.1, 1.0, 6.0))
        self.step(Tick())
        if self.rng.random() < 0.7:
            self.flush()

    def failover(self) -> None:
        """A replica takes the server's place: the same transactions under another name."""
        if self.server.mode is Mode.GTID:
            self.server.name = self.rng.choice(
                (SERVER_NAME, "0a9d88f8-c14e-11ec-bb36-244bfedf7766")
            )
            self.lose()

    def restart(self) -> None:
        self.log.append("restart")
        self.boot()

    # -- readers ---------------------------------------------------------------------------------------------

    def _ready(self, name: str) -> tuple[Consumer, Queue, Reader] | None:
        """As a session does: where the reader goes on, and that the daemon agrees."""
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

    def resume(self, name: str, after: Position) -> None:
        queue = self.client.consumers[name].queue
        if queue.acknowledged.seq <= after.seq <= queue.queued.seq:
            self.acknowledge(name, after)
            return
        self.step(Sought(name, after))
        self.flush()

    def acknowledge(self, name: str, position: Position) -> None:
        try:
            progress = self.client.progress_after(name, position)
        except BinlogError as error:
            if error.kind is not Kind.RANGE_UNAVAILABLE:
                raise
            return
        if progress is not None:
            self.store[name] = progress
            self.to_store.pop(name, None)
            self.step(Acknowledged(name, position, progress.covered))

    def poll(self, name: str, bytes_max: int | None = None, ack: bool | None = None) -> None:
        ready = self._ready(name)
        if ready is None:
            return
        _, queue, reader = ready
        after = reader.position
        if ack if ack is not None else self.rng.random() < 0.3:
            self.acknowledge(name, after)  # as a poll does
        if bytes_max is None:
            bytes_max = self.rng.choice((1, 500, 5000, 1 << 20))
        try:
            answer = queue.next(after, bytes_max)
        except BinlogError as error:
            if error.kind is Kind.RANGE_UNAVAILABLE:
                return
            raise
        end = answer.end
        if end.order <= after.order:
            assert answer.transactions == 0
            return
        want = self.server.expected(reader.wanted, after, end)
        data = b"".join(queue.read(after, end)) if answer.transactions else b"\xfebin"
        got = without_formats(data)
        assert got == want, f"{name}: {len(got)} bytes, expected {len(want)}"
        assert answer.bytes == len(got)
        self._check_position(after, end)
        if answer.transactions:
            self._reread(queue, reader.wanted, after, end)
        reader.positions.append(end)
        reader.transactions += answer.transactions
        queue.deliver(end)

    def _check_position(self, after: Position, end: Position) -> None:
        between = self.server.between(after, end)
        assert Position.from_json(end.to_json()) == end
        if self.server.mode is not Mode.GTID:
            return
        assert end.seq == after.seq + len(between)
        want = GtidSet.parse(after.gtid).union(gtid_set(between))
        assert end.gtid == str(want)
        # All of them, in the log's order: nothing before the last one is left out.
        if between:
            last = self.server.log.transactions.index(between[-1])
            assert all(want.has(t.source, t.gno) for t in self.server.log.transactions[:last])

    def _reread(self, queue: Queue, wanted: Wanted, after: Position, end: Position) -> None:
        cuts = queue.cut(after, end, self.rng.randrange(1, 6))
        places = [after, *cuts, end]
        assert [p.seq for p in places] == sorted({p.seq for p in places})
        a, b = sorted(self.rng.sample(range(len(places)), 2))
        data = b"".join(queue.read(places[a], places[b]))
        assert without_formats(data) == self.server.expected(wanted, places[a], places[b])

    def seek(self, name: str) -> None:
        """A reader goes back to, or on from, some position it was once given."""
        ready = self._ready(name)
        if ready is None or self.client.consumers[name].failed:
            return
        _, _, reader = ready
        index = self.rng.randrange(len(reader.positions))
        del reader.positions[index + 1 :]
        self.resume(name, reader.position)

    # -- the play --------------------------------------------------------------------------------------------

    def play(self, moves: int) -> None:
        names = list(self.readers)
        for _ in range(moves):
            move = self.rng.random()
            name = self.rng.choice(names)
            if move < 0.08:
                self.connect()
            elif move < 0.60:
                self.read()
            elif move < 0.63:
                self.lose()
            elif move < 0.70:
                self.tick()
            elif move < 0.96:
                self.poll(name)
            elif move < 0.98:
                self.seek(name)
            elif move < 0.985:
                self.failover()
            else:
                self.restart()

    def finish(self, moves: int = 4000) -> None:
        """Nothing bad happens any more: everything must arrive."""
        for _ in range(moves):
            self.connect()
            self.read()
            for name in self.readers:
                self.poll(name, bytes_max=1 << 20, ack=True)
            self.tick_quietly()
            if self.connection and self.connection.drained and self.all_read():
                return
        raise AssertionError(f"not all was delivered: {self.client.phase}, {self.log[-20:]}")

    def tick_quietly(self) -> None:
        self.now += 0.2
        self.step(Tick())
        self.flush()

    def all_read(self) -> bool:
        last = self.server.view()
        tip = make_place(self.server.mode, last.executed, last.file, last.offset)
        for name, reader in self.readers.items():
            if not reader.positions or name not in self.opened:
                return False
            if self.server.mode is Mode.GTID:
                if reader.position.seq != tip.seq:
                    return False
            elif reader.position.order < (0, tip.seq):
                return False
        return True
