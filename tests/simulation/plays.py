"""Plays in the form of text: the moves of one client and its server, and the transcript of the rules' effects.

A file of `plays/` begins with the rule that it shows; see `scripts` for its lines. If a move has changed which
dispatcher serves which consumers, the last line below the move, `==`, shows this.

The moves, where DB:N stands for N transactions of database DB, with one row each:

    server gtid|file|mariadb        the kind of positions; first. Options: merge=BYTES (merge_bytes_max),
                                    queues=BYTES (queues_bytes_max), failover=SECONDS (failover_wait_s),
                                    metadata=minimal (TABLE_MAPs do not name their columns)
    write DB:N ... [bytes=N]        the server commits transactions, of so many bytes per row
    alter DB                        ALTER TABLE: the column of its table gets another name
    prepare XID DB:N ...            XA PREPARE of a transaction; `finish XID`: its XA COMMIT
    rotate                          the server begins a new file
    purge FILE_NUMBER               PURGE BINARY LOGS TO that file
    reset DB:N ...                  RESET BINARY LOGS AND GTIDS, then the transactions; open connections stay
    failover N                      the address leads to a replica that has executed the first N transactions
    catch up                        that replica executes the missing transactions
    failback                        the address leads to the first server again
    consumer NAME DB ...            declare a consumer. Options: start=earliest|latest, queue=BYTES, wait=SECONDS,
                                    on_queue_full=wait, on_purged=latest, after=N (stored: N transactions)
    start                           the daemon starts; `restart`: it is killed, and starts with its stored state
    login                           each connection that the daemon waits for is made
    read [DISPATCHER] [bytes=N]     the dispatchers read everything that the server has, or N bytes
    poll NAME ...                   the reader fetches everything available; `ack NAME` acknowledges it
    reader NAME                     another reader opens a session at the acknowledged position
    seek NAME N                     the reader opens a session after the first N transactions
    lose DISPATCHER                 the connection is lost
    wait SECONDS                    time passes
    ask                             the daemon makes a survey, as it does every 30 seconds
    answer                          the server answers the newest request for the definitions of tables
    delay                           the server cannot be asked for them; the runtime will ask again
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.table_map.column_types import Type
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.dispatch.messages.effects import Effect
from dispatcher.dispatch.messages.events import (
    Added,
    Input,
    LookUpDelayed,
    SchemaFetched,
    Tick,
)
from dispatcher.dispatch.tables.versions import FetchedDefinition, LogPosition
from dispatcher.dispatch.values.executed_position import Mode
from dispatcher.dispatch.values.specs import (
    ClientLimits,
    ConsumerSpec,
    Earliest,
    Latest,
    OnPurged,
    OnQueueFull,
    Progress,
)
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import Position, packed_seq
from dispatcher.stream.xa_store import XaEntry, XaStore
from tests.simulation.scripts import parsed
from tests.simulation.transcript import Transcript, counted, of_position
from tests.support.event_encoder import TIME, Statement, Table
from tests.support.fake_server import SERVER_NAME, Server, stops_of
from tests.support.random_log import Wanted
from tests.support.rows_encoder import Spec, table_map
from tests.support.simulation import BUFFER, Connection, Link, Reader, World
from tests.support.table_definitions import definition, statements_from
from tests.support.xa_log import XaLog

PLAYS = Path(__file__).parent / "plays"
REPLICA_NAME = "9f3a4c1e-0c5d-11ec-8b1a-0242ac130003"
_MODES = {"gtid": Mode.GTID, "file": Mode.FILE, "mariadb": Mode.MARIADB, "domains": Mode.DOMAINS}
_WRITER = {
    Mode.GTID: "mysql",
    Mode.FILE: "anonymous",
    Mode.MARIADB: "mariadb",
    Mode.DOMAINS: "domains",
}
_RESET_LATER_S = 1_000_000  # the files of a log after a RESET have later creation times
_TICK_S = 0.5  # the longest time between two ticks


class _Log(XaLog):
    """`columns`: the name of the column of each database's table; None if the log contains column names."""

    columns: dict[str, str] | None = None

    def statement_events(
        self, statement: Statement
    ) -> Iterator[tuple[int, bytes, str, tuple[Table, ...], bool]]:
        for kind, body, role, tables, ends in super().statement_events(statement):
            short = kind == EventType.TABLE_MAP and self.columns is not None
            yield kind, self._short(tables[0]) if short else body, role, tables, ends

    def _short(self, table: Table) -> bytes:
        number = self._table_ids[table]
        spec = Spec("", Type.LONG)
        return table_map([spec], database=table[0], table=table[1], table_id=number, full=False)


class _PlayedWorld(World):
    """A world that writes each step to a transcript, and makes no random choices."""

    begins_at = 0.0

    def __init__(
        self,
        server: Server,
        specs: list[ConsumerSpec],
        stored: dict[str, Progress],
        limits: ClientLimits,
        transcript: Transcript,
    ) -> None:
        self.transcript = transcript
        self.prepared: dict[int, XaEntry] = {}  # the stored prepared transactions
        self.layouts: dict[str, None] = {}  # TABLE_MAPs to show in the transcript
        super().__init__(random.Random(0), server, specs, stored, limits)

    def boot(self) -> None:
        super().boot()
        self.client.prepared = XaStore(stored=self.prepared.values())

    def flush(self) -> None:
        if self.to_store:
            self._store_prepared()
        super().flush()

    def acknowledge(self, name: str, position: Position) -> None:
        self._store_prepared()
        super().acknowledge(name, position)

    def _store_prepared(self) -> None:
        """Store the changes of prepared transactions. The daemon stores them together with progress."""
        changes = self.client.prepared.changes()
        if changes is not None:
            self.prepared |= {entry.number: entry for entry in changes.put}
            for number, end in changes.ended:
                self.prepared[number].end = end
            for number in changes.gone:
                self.prepared.pop(number, None)
            self.client.prepared.stored(changes)

    def judge(self, reader: Reader, after: Position, end: Position, got: bytes) -> None:
        """If the log does not name columns, show the delivered TABLE_MAPs in the transcript instead of comparing
        them."""
        log = self.server.log
        assert isinstance(log, _Log)
        if log.columns is None:
            super().judge(reader, after, end, got)
            return
        want = self.server.expected(reader.wanted, after, end)
        assert _without_table_maps(got) == _without_table_maps(want)
        for event in events_of(got):
            if event[4] == EventType.TABLE_MAP:
                names = TableMap.parse(event[19:-4])
                columns = ", ".join(column.name for column in names.columns)
                self.layouts[f"{names.label} ({columns})"] = None

    def stepped(self, event: Input, effects: list[Effect]) -> None:
        self.transcript.stepped(self.now, event, effects)

    def connection_of(self, link: Link) -> Connection:
        connection = super().connection_of(link)
        connection.splitter.prepared = self.client.prepared
        connection.sizes = (BUFFER,)
        return connection


def events_of(delivered: bytes) -> Iterator[bytes]:
    """Yields the events of a delivered binlog without its magic number."""
    at = 0
    while at < len(delivered):
        size = int.from_bytes(delivered[at + 9 : at + 13], "little")
        yield delivered[at : at + size]
        at += size


def _without_table_maps(delivered: bytes) -> list[bytes]:
    return [event for event in events_of(delivered) if event[4] != EventType.TABLE_MAP]


@dataclass
class Stage:
    """Executes the moves of one play. Before `start` there is no world, only the values with which the world will
    begin."""

    mode: Mode = Mode.GTID
    limits: ClientLimits = field(default_factory=ClientLimits)
    specs: list[ConsumerSpec] = field(default_factory=list)
    stored: dict[str, Progress] = field(default_factory=dict)
    transcript: Transcript = field(default_factory=lambda: Transcript(kept=True))
    row_bytes: int = 100

    def __post_init__(self) -> None:
        self._minimal = False
        self.server = Server(self._log(TIME), self.mode)
        self._world: _PlayedWorld | None = None
        self._assigned = ""

    def move(self, text: str) -> list[str]:
        """Make a move. Returns its transcript."""
        self.transcript.lines = []
        verb, arguments, options = parsed(text)
        getattr(self, f"_{verb}")(*arguments, **options)
        assigned = self._assignment()
        changed = assigned != self._assigned
        self._assigned = assigned
        return [*self.transcript.lines, *([f"            == {assigned}"] if changed else [])]

    @property
    def world(self) -> _PlayedWorld:
        assert self._world is not None, "the daemon has not started"
        return self._world

    def _assignment(self) -> str:
        """Returns each dispatcher with its phase and consumers, and the consumers without a dispatcher."""
        if self._world is None:
            return ""
        client = self.world.client
        out = [
            f"{number} {dispatcher.phase.name.lower()}: {' '.join(dispatcher.consumers)}"
            for number, dispatcher in client.dispatchers.items()
        ]
        for name, consumer in client.consumers.items():
            if consumer.failed:
                out.append(f"failed: {name} ({consumer.failed.kind})")
            elif consumer.dispatcher is None:
                out.append(f"without a dispatcher: {name}")
        return "; ".join(out)

    # -- the server -------------------------------------------------------------------------------------------

    def _server(
        self,
        mode: str,
        merge: str = "",
        queues: str = "",
        failover: str = "",
        metadata: str = "full",
    ) -> None:
        self.mode, self._minimal = _MODES[mode], metadata == "minimal"
        limits = ClientLimits()
        self.limits = replace(
            limits,
            merge_bytes_max=int(merge or limits.merge_bytes_max),
            queues_bytes_max=int(queues or limits.queues_bytes_max),
            failover_wait_s=float(failover or limits.failover_wait_s),
        )
        self.server = Server(self._log(TIME), self.mode)

    def _log(self, now: int) -> _Log:
        log = _Log(gtid=_WRITER[self.mode], now=now)
        log.columns = {} if self._minimal else None
        return log

    @property
    def log(self) -> _Log:
        log = self.server.log
        assert isinstance(log, _Log)
        return log

    def _write(self, *transactions: str, bytes: str = "100") -> None:  # noqa: A002 - its name in a play
        for word in transactions:
            database, _, count = word.partition(":")
            for _ in range(int(count or 1)):
                self.log.begin()
                self._insert(database, int(bytes))
                self.log.commit()

    def _insert(self, database: str, bytes_: int = 100) -> None:
        self.log.statement(Statement(((database, "t"),), ((0, bytes_),)))

    def _prepare(self, xid: str, *statements: str) -> None:
        def fill() -> None:
            for word in statements:
                database, _, count = word.partition(":")
                for _ in range(int(count or 1)):
                    self._insert(database)

        self.log.prepare((1, xid.encode(), b""), fill)

    def _finish(self, xid: str) -> None:
        self.log.finish((1, xid.encode(), b""))

    def _alter(self, database: str) -> None:
        columns = self.log.columns
        assert columns is not None, "the log names columns by itself"
        number = int(columns.get(database, "c1")[1:]) + 1
        columns[database] = f"c{number}"
        statement = f"ALTER TABLE t CHANGE c{number - 1} c{number} int"
        self.log.ddl(statement, database, tables=((database, "t"),))

    def _rotate(self) -> None:
        self.server.log.rotate()

    def _purge(self, file: str) -> None:
        names = [name for name, _ in self.server.files]
        self.server.purge(self.server.oldest + names.index(f"binlog.{int(file):06}"))

    def _reset(self, *transactions: str) -> None:
        """Reset the log. The open dumps continue, and send the rest of the old log."""
        old = self.server
        self.server = Server(self._log(TIME + _RESET_LATER_S), self.mode)
        old.stops = [old.stop]
        old.successor = self.world.server = self.server
        self._write(*transactions)

    def _failover(self, count: str) -> None:
        """Let the address lead to another server, which lacks the last transactions of the first server."""
        stops = [
            stop for stop in stops_of(self.server.log, self.mode) if stop.transactions <= int(count)
        ]
        self.world.server = self._replica = Server(self.server.log, self.mode, REPLICA_NAME, stops)
        self._replica.at = len(stops) - 1

    def _failback(self) -> None:
        self.world.server = self.server

    def _catch(self, up: str) -> None:
        assert up == "up"
        self._replica.stops = None

    # -- the daemon -------------------------------------------------------------------------------------------

    def _consumer(
        self,
        name: str,
        *databases: str,
        start: str = "earliest",
        after: str = "",
        queue: str = "1000000",
        wait: str = "10",
        on_queue_full: str = "detach",
        on_purged: str = "fail",
    ) -> None:
        spec = ConsumerSpec(
            name,
            databases,
            None,
            int(queue),
            Earliest() if start == "earliest" else Latest(),
            wait_max_s=float(wait),
            on_queue_full=OnQueueFull(on_queue_full),
            on_purged=OnPurged(on_purged),
        )
        progress = None
        if after:
            position = self._position(int(after))
            created = {file.name: file.created for file in self.server.log.files}
            progress = Progress(position, position, created[position.file])
        if self._world is None:
            self.specs.append(spec)
            if progress is not None:
                self.stored[name] = progress
            return
        self.world.readers[name] = Reader(Wanted(spec.databases, None))
        self.world.specs.append(spec)
        if progress is not None:
            self.world.store[name] = progress
        self.world.step(Added(spec, progress))
        self.world.flush()

    def _position(self, count: int, epoch: int = 0) -> Position:
        """Returns the position after the first `count` transactions. With GTIDs, `count` may include transactions that
        the server has never executed."""
        log = self.server.log
        done = log.transactions[:count]
        file, offset = (done[-1].file, done[-1].end) if done else (log.files[0].name, 4)
        if self.mode is Mode.GTID:
            gtids = GtidSet.parse(f"{SERVER_NAME}:1-{count}") if count else GtidSet()
            return Position(SERVER_NAME, str(gtids), file, offset, len(gtids), epoch)
        gtid = f"0-1-{done[-1].gno}" if done and self.mode is Mode.MARIADB else ""
        return Position(SERVER_NAME, gtid, file, offset, packed_seq(file, offset), epoch)

    def _start(self) -> None:
        self._world = _PlayedWorld(
            self.server, self.specs, self.stored, self.limits, self.transcript
        )

    def _restart(self) -> None:
        self.transcript.said(
            self.world.now, "the daemon is killed, and starts from what it has stored"
        )
        self.world.boot()
        for entry in self.world.prepared.values():
            self._say(f"it has stored what XA PREPARE {entry.xid} changed, {entry.bytes} bytes")

    def _login(self) -> None:
        self.world.connect()

    def _read(self, dispatcher: str = "", bytes: str = "") -> None:  # noqa: A002 - its name in a play
        world = self.world
        links = [world.links[int(dispatcher)]] if dispatcher else list(world.links.values())
        for link in links:
            connection = link.connection
            if bytes:
                assert connection is not None
                connection.sizes = (int(bytes),)
                world.read_link(link)
                connection.sizes = (BUFFER,)
                continue
            while world.links.get(link.number) is link and not link.paused:
                came = world.read_link(link)
                if not came and (connection is None or connection.drained):
                    break
        world.flush()

    def _lose(self, dispatcher: str) -> None:
        error = BinlogError(ErrorKind.CONNECTION_LOST, "the connection was reset")
        self.world.lost(self.world.links[int(dispatcher)], error)

    def _ask(self) -> None:
        self.world.survey()
        self.world.tell_survey()

    def _delay(self) -> None:
        error = BinlogError(ErrorKind.CONNECT_FAILED, "the server refused the connection")
        request = self.world.orders[-1]
        self.world.step(LookUpDelayed(request, error))
        if not self.world.client.awaits_look_up(request):
            self.world.orders.remove(request)
        self.world.flush()

    def _answer(self) -> None:
        log, columns = self.log, self.log.columns or {}
        request = self.world.orders.pop()
        self.world.orders.clear()
        at = LogPosition(log.file.name, log.file.size, log.file.created)
        definitions = tuple(
            FetchedDefinition(name, at, definition(name, columns.get(name[0], "c1")))
            for name in request.tables
        )
        statements = tuple(
            statement
            for statement in statements_from(log, request.start)
            if any(statement.altered.concerns(name) for name in request.tables)
        )
        self.world.step(SchemaFetched(request, definitions, statements))
        self.world.flush()

    def _wait(self, seconds: str) -> None:
        world = self.world
        until = world.now + float(seconds)
        while world.now < until:
            wakeup = world.client.next_wakeup()
            due = min(until, world.now + _TICK_S, *([] if wakeup is None else [wakeup]))
            world.now = max(due, world.now + 0.02)
            world.step(Tick())
            world.flush()

    # -- readers ----------------------------------------------------------------------------------------------

    def _poll(self, *names: str) -> None:
        for name in names:
            reader = self.world.readers[name]
            fetched = reader.transactions
            try:
                before = -1
                while before != len(reader.positions):
                    before = len(reader.positions)
                    self.world.poll(name, 1 << 20, ack=False)
            except BinlogError as error:
                self._say(f"{name} is refused: {error.kind}: {error.what}")
                continue
            if not reader.positions:
                self._say(f"{name} is told to wait")
                continue
            count = counted(reader.transactions - fetched)
            tables = "".join(f", {layout}" for layout in self.world.layouts)
            self.world.layouts.clear()
            self._say(f"{name} fetches {count}, up to {of_position(reader.position)}{tables}")

    def _reader(self, name: str) -> None:
        """Let another reader open a session. This reader has no position, so it begins at the acknowledged position."""
        self.world.readers[name].positions.clear()
        self.world.opened.discard(name)

    def _ack(self, *names: str) -> None:
        for name in names:
            self.world.acknowledge(name, self.world.readers[name].position)

    def _seek(self, name: str, count: str) -> None:
        world = self.world
        epoch = world.client.consumers[name].queue.epoch
        after = self._position(int(count), epoch)
        world.opened.add(name)
        try:
            world.resume(name, after)
        except BinlogError as error:
            self._say(f"{name} is refused: {error.kind}: {error.what}")
        else:
            world.readers[name].positions = [after]

    def _say(self, text: str) -> None:
        self.transcript.said(self.world.now, text)
