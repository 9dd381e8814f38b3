"""The moves of a play, which is one simulated history: moves of the network, of the server, of the daemon and of its
settings. `readers` adds the moves of readers.

Each method is one move, and a move ends where the daemon awaits something. So a crash between two moves is a crash at
an `await`: the next daemon has only the store on disk. A login, for example, consists of four moves: ask the server,
pass the answer to the rules, store the effects, start the dump.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np

from dispatcher.binlog.kernel.bytes import U8
from dispatcher.dispatch.messages.effects import Effect, Store
from dispatcher.dispatch.messages.events import Acknowledged, Added, Input, LoggedIn, Removed, Tick
from dispatcher.dispatch.values.executed_position import Mode
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import ClientLimits, ConsumerSpec, Earliest, Progress
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import DomainGtids, GtidSet
from dispatcher.model.position import Position
from tests.simulation.histories import History
from tests.simulation.lives import purge_would_be_noticed, write
from tests.simulation.rules import Rules
from tests.simulation.transcript import Transcript
from tests.support.simulation import BUFFER, Connection, Link, Reader, World, wanted_by

LABEL = "user@host:3306"
# How many bytes a connection receives at a time. Large pieces are fast, small pieces end inside transactions.
SIZES = ((BUFFER,), (400, 1200, 3000), (60, 700, 3000, BUFFER, BUFFER))
SILENCE_MAX_S = 30.0
SURVEY_EVERY_S = 30.0
FAILOVER_WAITED_MAX_S = 10.0
GARBLES_MAX = (
    2  # damaged events of a play; after one more, the daemon would assume that the log is damaged
)


@dataclass
class Scenario:
    """The values with which a play begins. `histories`: one for each life of the server, made from the seed `log`."""

    mode: Mode
    log: int
    histories: list[History]
    specs: list[ConsumerSpec]
    stored: dict[str, Progress]
    limits: ClientLimits
    written: int  # the approximate number of transactions at the start
    large_bytes: int  # larger transactions are spilled to disk
    slow: bool  # True if one reader is slow all the time


@dataclass
class PlayedReader(Reader):
    """`history`: the history to which the reader's positions belong, None before it has a position; `manner`: how the
    reader reads (see `readers.MANNERS`)."""

    history: History | None = None
    manner: str = "keen"


class Wire(Connection):
    """A connection that may send nothing for a while, or nothing more."""

    def __init__(self, world: PlayedWorld, link: Link) -> None:
        assert link.server is not None and link.dump is not None
        sizes = SIZES[0] if world.settled else world.sizes
        super().__init__(link.server, world.client, link.dump.executed, world.rng, sizes)
        self.stalled_until = 0.0
        self.silent_since: float | None = None


class PlayedWorld(World):
    """A world with the moves of the module. `history`: the present history of `server`; `servers`: all servers that
    have this history."""

    readers: dict[str, PlayedReader]  # type: ignore[assignment]

    def __init__(self, rng: random.Random, scenario: Scenario, transcript: Transcript) -> None:
        self.transcript = transcript
        self.scenario = scenario
        self.histories = list(scenario.histories)
        self.history = self.histories.pop(0)
        self.surveyed_history = self.history  # the server's history at the newest survey
        # The positions of the consumers that had failed at that survey.
        self.surveyed_failures: dict[str, Position | None] = {}
        self.servers = self.history.servers()
        for server in self.servers:
            write(server, scenario.written)
        self.refuses_until = 0.0
        self.survey_at = 0.0
        self.failed_over_at = float("inf")  # the time of the first failover
        self.garbles = 0
        self.dumps_refused = 0
        self.shelved: list[ConsumerSpec] = []  # consumers that were removed from the settings
        self.pending: dict[str, Acknowledged] = {}  # stored, not passed to the rules yet
        self.login_views: dict[int, ServerView] = {}  # the view of each dispatcher's last login
        self.first_life = True
        self.restored = False
        self.sizes = rng.choice(SIZES)
        self.tick_max_s = rng.choice((1.0, 10.0))
        self.disk_full_until = 0.0
        self.settled = False  # True when faults have ended
        self.sought: set[str] = set()  # consumers whose stored position may be earlier than before
        self.rules = Rules(self)
        super().__init__(
            rng,
            self.servers[0],
            scenario.specs,
            scenario.stored,
            scenario.limits,
            largest_transaction=self.history.largest,
        )

    def boot(self) -> None:
        names = {spec.name for spec in self.specs}
        if not isinstance(next(iter(self.readers.values()), None), PlayedReader):
            self.readers = {
                name: PlayedReader(
                    reader.wanted, history=self.history if name in self.store else None
                )
                for name, reader in self.readers.items()
            }
        for name in names:
            reader = self.readers[name]
            if name not in self.store:
                assert not reader.positions, f"{name} has read before its place was stored"
                reader.history = None
        self.pending = {}
        self.rules.begin()
        super().boot()
        self.rules.booted()

    @property
    def history_changed(self) -> bool:
        """True if a consumer has read a log that the server no longer has."""
        return any(r.history not in (None, self.history) for r in self.readers.values())

    # -- steps -----------------------------------------------------------------------------------------------

    def step(self, event: Input) -> None:
        effects = self.client.step(event, self.now)
        self.transcript.stepped(self.now, event, effects)
        self.execute(effects)
        self.rules.stepped(event, effects)

    def execute(self, effects: list[Effect]) -> None:
        """Execute effects, except a `Store` of progress that is older than an acknowledgement that is being stored."""
        super().execute([e for e in effects if not self._is_overtaken(e)])
        for effect in effects:
            if isinstance(effect, Store):
                reader = self.readers[effect.consumer]
                reader.history = reader.history or self.history

    def _is_overtaken(self, effect: Effect) -> bool:
        if not isinstance(effect, Store) or effect.consumer not in self.pending:
            return False
        acknowledged = self.pending[effect.consumer].position
        return effect.progress.acknowledged.epoch == acknowledged.epoch

    def flush(self) -> None:
        """Store `to_store`. Asserts that no acknowledged position becomes earlier."""
        for name, progress in self.to_store.items():
            old = self.store.get(name)
            if old is not None and name not in self.sought:
                assert progress.acknowledged.order >= old.acknowledged.order, (
                    f"the acknowledged position of {name} goes back"
                )
                assert progress.covered.order >= old.covered.order, (
                    f"how far {name} is covered is stored no longer"
                )
        self.sought.difference_update(self.to_store)
        super().flush()

    # -- time ------------------------------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """Let time pass. The daemon's tick takes place at the time that the daemon has requested, or slightly later."""
        until = self.now + seconds
        while self.now < until:
            wakeup = self.client.next_wakeup()
            latest = self.now + self.tick_max_s
            due = latest if wakeup is None else min(wakeup, latest)
            due = max(due + self.rng.choice((0.0, 0.02)), self.now + 0.02)
            if due > until:
                self.now = until
                return
            self.now = due
            self.step(Tick())
            if self.survey_ordered or self.surveyed is not None:
                self.survey_or_tell()
            self.survey_now_and_then()
            if self.rng.random() < 0.7:
                self.flush()

    def skip_time(self) -> None:
        """Advance the clock to the next time at which a connection is due or the daemon has requested a tick."""
        wakeup = self.client.next_wakeup()
        times = [link.connect_at for link in self.links.values()]
        times = [time for time in (*times, *([wakeup] if wakeup else ())) if time > self.now]
        self.now = max(min(times, default=self.now + 1.0), self.now + 0.02)
        self.step(Tick())
        self.answer()
        self.survey_now_and_then()
        self.flush()

    def survey_now_and_then(self) -> None:
        if self.now >= self.survey_at and self.refuses_until <= self.now:
            self.survey_at = self.now + SURVEY_EVERY_S
            self.survey()
            self.tell_survey()

    def answer(self) -> None:
        """Answer the surveys that the client has requested."""
        self.tell_survey()
        if self.survey_ordered:
            self.survey()
            self.tell_survey()

    # -- network ---------------------------------------------------------------------------------------------

    def some_link(self) -> Link | None:
        return self.rng.choice(list(self.links.values())) if self.links else None

    def advance(self, link: Link) -> bool:
        """Make the next move of a connection. Returns False if there is none."""
        if link.connection is not None:
            return self.receive(link)
        if link.view is not None:
            self.logged_in(link)
        elif link.logged_in:
            self.flush()
            self.open(link)
        elif link.connect_at > self.now:
            return False
        elif self.refuses_until > self.now:
            self.lost(link, BinlogError(ErrorKind.CONNECT_FAILED, "refused", where=LABEL))
        else:
            self.log_in(link)
        return True

    def logged_in(self, link: Link) -> None:
        view, link.view = link.view, None
        assert view is not None
        link.logged_in = True
        self.login_views[link.number] = view
        self.rules.connections.logs_in(link.number, view)
        self.step(LoggedIn(link.number, view))

    def open(self, link: Link) -> None:
        if self.links.get(link.number) is not link:
            return
        assert link.dump is not None, "logged in without starting a dump"
        gtids = link.dump.executed.gtids
        if isinstance(gtids, GtidSet | DomainGtids) and link.server is not None:
            executed = self.history.parse(link.server.stop.executed)
            assert executed.contains(gtids), "a dump from GTIDs that the server has not executed"
            purged = self.history.parse(self.login_views[link.number].purged)
            assert gtids.contains(purged), "a dump of GTIDs that the login has said are purged"
        try:
            link.connection = Wire(self, link)
        except BinlogError as error:
            self.dumps_refused += 1
            self.lost(link, error.at(LABEL))

    def receive(self, link: Link) -> bool:
        wire = link.connection
        assert isinstance(wire, Wire)
        if link.paused or self.now < wire.stalled_until:
            return False
        if wire.silent_since is not None:
            if self.now - wire.silent_since < SILENCE_MAX_S:
                return False
            self.lost(link, BinlogError(ErrorKind.CONNECTION_LOST, "not a byte", where=LABEL))
            return True
        return self.read_link(link)

    def cut(self, link: Link, kind: ErrorKind = ErrorKind.CONNECTION_LOST) -> None:
        """End the connection, or the attempt to connect."""
        self.lost(link, BinlogError(kind, "cut", where=LABEL))

    def stall(self, link: Link) -> None:
        if isinstance(link.connection, Wire):
            link.connection.stalled_until = self.now + self.rng.choice((0.5, 4.0, 20.0))

    def silence(self, link: Link) -> None:
        if isinstance(link.connection, Wire):
            link.connection.silent_since = self.now

    def garble(self, link: Link) -> None:
        if not isinstance(link.connection, Wire) or self.garbles >= GARBLES_MAX:
            return
        feed = link.connection.feed
        if all(
            file.checksum for file in feed.server.log.files
        ):  # without checksums, the daemon would not detect the damage
            feed.spoil_at = self.rng.random()
            self.garbles += 1

    # -- the disk --------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> U8:
        if self.now < self.disk_full_until:
            raise BinlogError(ErrorKind.SPILL, f"no room for {size} bytes")
        return np.empty(size, dtype=np.uint8)

    def fill_disk(self) -> None:
        self.disk_full_until = self.now + self.rng.choice((1.0, 15.0))

    # -- the server ------------------------------------------------------------------------------------------

    def grow(self, transactions: int) -> None:
        """Let the server write, and sometimes its replica catch up."""
        self.server.grow(transactions)
        for other in self.servers:
            if other is not self.server and self.rng.random() < 0.4:
                while other.stop.transactions < self.server.stop.transactions:
                    other.grow(1)

    def purge(self) -> None:
        """Purge files that no consumer needs, or sometimes files that a consumer needs, but never a file that the
        server is sending. After a RESET, purge only if the daemon would detect that the log is another log."""
        server = self.server
        if not self.first_life and (self.restored or not purge_would_be_noticed(self)):
            return
        sent = [
            link.connection.feed.file
            for link in self.links.values()
            if link.connection and server in (link.server, link.server and link.server.successor)
        ]
        newest = min([server.extent[0] - 1, *sent])
        if self.first_life and self.rng.random() < 0.6:
            newest = min([newest, *self.rules.files_needed()])
        server.purge(self.rng.randrange(newest + 1))

    def restart_server(self) -> None:
        for link in list(self.links.values()):
            if link.server is not None:
                self.cut(link)
        self.refuses_until = self.now + self.rng.choice((0.0, 2.0, 30.0))

    def fail_over(self) -> None:
        """Fail over to the replica, which may lag behind. Dumps of the old server may continue."""
        if len(self.servers) < 2:
            return
        self.server = next(server for server in self.servers if server is not self.server)
        self.failed_over_at = min(self.failed_over_at, self.now)
        if self.rng.random() < 0.7:
            for link in list(self.links.values()):
                if link.server is not None:
                    self.cut(link)

    def fail_over_too_early(self) -> None:
        """Fail over to a replica that lags for longer than the daemon waits. Later the primary returns, or the replica
        catches up, or neither."""
        before, wait_s = self.server, self.limits.failover_wait_s
        if len(self.servers) < 2 or wait_s > FAILOVER_WAITED_MAX_S:
            return
        before.grow(2)
        for link in [*self.links.values()] * 6:
            if self.links.get(link.number) is link:
                self.advance(link)
        self.fail_over()
        until = self.now + 2 * wait_s
        while self.now < until:
            for link in list(self.links.values()):
                if self.links.get(link.number) is link:
                    self.advance(link)
            self.pass_time(self.rng.choice((0.3, 1.0)))
        choice = self.rng.random()
        if choice < 0.7:
            self.server = before
            for link in list(self.links.values()):
                if link.server is not None:
                    self.cut(link)
        elif choice < 0.85:
            self.server.grow(len(self.history.transactions))
        if self.rng.random() < 0.7:
            self.survey_or_tell()

    def survey(self) -> None:
        """Make a survey of the server. The answer contains nothing about a log that begins later, or about a consumer
        that fails later."""
        super().survey()
        self.surveyed_history = self.history
        failed = (consumer for consumer in self.client.consumers.values() if consumer.failed)
        self.surveyed_failures = {consumer.name: consumer.position for consumer in failed}

    def survey_or_tell(self) -> None:
        """Make a survey of the server, or pass the answer of an earlier survey to the rules."""
        if self.surveyed is not None:
            self.tell_survey()
        elif self.refuses_until <= self.now:
            self.survey()

    # -- the daemon ------------------------------------------------------------------------------------------

    def crash(self) -> None:
        self.transcript.said(self.now, "the daemon crashes and starts again")
        self.now += self.rng.choice((0.1, 5.0))
        self.boot()

    def remove(self, name: str) -> None:
        if len(self.client.consumers) > 1:
            self.specs = [spec for spec in self.specs if spec.name != name]
            self.shelved.append(self.client.consumers[name].spec)
            self.pending.pop(name, None)
            self.step(Removed(name))
            self.flush()
            self.opened.discard(name)

    def add(self, changed: bool) -> None:
        if not self.shelved:
            return
        spec = self.shelved.pop(self.rng.randrange(len(self.shelved)))
        if changed:
            limit = self.rng.choice((1, 30_000, 1 << 22))
            spec = replace(spec, queue_bytes_max=limit)
        self.declare(spec, self.store.get(spec.name))

    def declare(self, spec: ConsumerSpec, progress: Progress | None) -> None:
        self.specs = [*self.specs, spec]
        self.step(Added(spec, progress))

    def revive(self, name: str) -> None:
        """Follow the remedy of a failure: copy the tables again, and let the consumer begin at the position of the
        copy."""
        consumer = self.client.consumers[name]
        if consumer.failed is None:
            return
        spec = replace(consumer.spec, start=Earliest())
        self.specs = [other for other in self.specs if other.name != name]
        self.step(Removed(name))
        self.pending.pop(name, None)
        self.to_store.pop(name, None)
        self.store.pop(name, None)
        self.opened.discard(name)
        self.readers[name] = PlayedReader(wanted_by(spec, self.server.log.lower_case))
        self.declare(spec, None)
