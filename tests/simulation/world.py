"""What may happen in a play: to the network, the server, the daemon and its settings. Readers stand in `readers`.

Each method is one move, and a move ends where the daemon awaits something: so a crash between any two of them is a
crash at any await, with the store as it was on disk. A login, for one, is four moves: the server is asked, what it said
is stepped, what follows from that is stored, the dump is asked for.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np

from dispatcher.binlog.kernel.bytes import U8
from dispatcher.dispatch.effects import Effect, Store
from dispatcher.dispatch.events import Acknowledged, Added, Input, LoggedIn, Removed, Tick
from dispatcher.dispatch.executed_position import Mode
from dispatcher.dispatch.server_view import ServerView
from dispatcher.dispatch.specs import ClientLimits, ConsumerSpec, Earliest, Progress
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet
from tests.simulation.histories import History
from tests.simulation.lives import purge_would_be_noticed, write
from tests.simulation.rules import Rules
from tests.simulation.transcript import Transcript
from tests.support.random_log import Wanted
from tests.support.simulation import BUFFER, Connection, Link, Reader, World

LABEL = "user@host:3306"
# How many bytes come at a time, in a play: large pieces are quick to play, small ones end inside of transactions.
SIZES = ((BUFFER,), (400, 1200, 3000), (60, 700, 3000, BUFFER, BUFFER))
SILENCE_MAX_S = 30.0
SURVEY_EVERY_S = 30.0
GARBLES_MAX = 2  # one less than what is taken for damage of the log itself


@dataclass
class Scenario:
    """What a play begins with. `histories`: one for each life of the server, of the log of the seed `log`."""

    mode: Mode
    log: int
    histories: list[History]
    specs: list[ConsumerSpec]
    stored: dict[str, Progress]
    limits: ClientLimits
    written: int  # transactions there are at first, about
    large_bytes: int  # larger transactions go to disk
    slow: bool  # one reader is slow all the time


@dataclass
class PlayedReader(Reader):
    """`history`: that its positions belong to, None until it has a place; `manner`: how it reads."""

    history: History | None = None
    manner: str = "keen"


class Wire(Connection):
    """A connection that may stall, or go silent for ever."""

    def __init__(self, world: PlayedWorld, link: Link) -> None:
        assert link.server is not None and link.dump is not None
        sizes = SIZES[0] if world.settled else world.sizes
        super().__init__(link.server, world.client, link.dump.place, world.rng, sizes)
        self.stalled_until = 0.0
        self.silent_since: float | None = None


class PlayedWorld(World):
    """See the module. `history`: the server's present one; `servers`: all that hold it."""

    readers: dict[str, PlayedReader]  # type: ignore[assignment]

    def __init__(self, rng: random.Random, scenario: Scenario, transcript: Transcript) -> None:
        self.transcript = transcript
        self.scenario = scenario
        self.histories = list(scenario.histories)
        self.history = self.histories.pop(0)
        self.servers = self.history.servers()
        for server in self.servers:
            write(server, scenario.written)
        self.refuses_until = 0.0
        self.survey_at = 0.0
        self.failed_over_at = float("inf")  # first
        self.garbles = 0
        self.dumps_refused = 0
        self.shelved: list[ConsumerSpec] = []  # declared no longer
        self.pending: dict[str, Acknowledged] = {}  # stored, not stepped yet
        self.told: dict[int, ServerView] = {}  # what the last login of a dispatcher said
        self.first_life = True
        self.restored = False
        self.sizes = rng.choice(SIZES)
        self.tick_max_s = rng.choice((1.0, 10.0))
        self.disk_full_until = 0.0
        self.settled = False  # nothing bad happens any more
        self.sought: set[str] = set()  # what is stored of them may be less than it was
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
        """Does some consumer stand in a log that is no more?"""
        return any(r.history not in (None, self.history) for r in self.readers.values())

    # -- steps -----------------------------------------------------------------------------------------------

    def step(self, what: Input) -> None:
        effects = self.client.step(what, self.now)
        self.transcript.stepped(self.now, what, effects)
        self.execute(effects)
        self.rules.stepped(what, effects)

    def execute(self, effects: list[Effect]) -> None:
        """An acknowledgement that is being stored is not overtaken by what the rules knew before it."""
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
        """Make durable what waits for it; nothing that was acknowledged is unsaid."""
        for name, progress in self.to_store.items():
            old = self.store.get(name)
            if old is not None and name not in self.sought:
                assert progress.acknowledged.order >= old.acknowledged.order, (
                    f"what {name} has acknowledged is stored no longer"
                )
                assert progress.covered.order >= old.covered.order, (
                    f"how far {name} is covered is stored no longer"
                )
        self.sought.difference_update(self.to_store)
        super().flush()

    # -- time ------------------------------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """With a daemon that looks at the clock when it has asked to, or a moment later."""
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
        """To the next moment for which something waits."""
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
        """What the rules have asked the server for."""
        self.tell_survey()
        if self.survey_ordered:
            self.survey()
            self.tell_survey()

    # -- network ---------------------------------------------------------------------------------------------

    def some_link(self) -> Link | None:
        return self.rng.choice(list(self.links.values())) if self.links else None

    def advance(self, link: Link) -> bool:
        """One more move of a connection; False where there is nothing to do."""
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
        self.told[link.number] = view
        self.rules.logs_in(link.number, view)
        self.step(LoggedIn(link.number, view))

    def open(self, link: Link) -> None:
        if self.links.get(link.number) is not link:
            return
        assert link.dump is not None, "logged in for nothing"
        gtids = link.dump.place.gtids
        if isinstance(gtids, GtidSet) and link.server is not None:
            executed = self.history.parse(link.server.stop.executed)
            assert executed.contains(gtids), "a dump behind what the server has executed"
            purged = self.history.parse(self.told[link.number].purged)
            assert gtids.contains(purged), "a dump of what the server has said it purged"
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
        """The connection, or the attempt to make one, ends."""
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
        if all(file.checksum for file in feed.server.log.files):  # else nobody can know
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
        """The server writes, and its replica follows."""
        self.server.grow(transactions)
        for other in self.servers:
            if other is not self.server and self.rng.random() < 0.4:
                while other.stop.transactions < self.server.stop.transactions:
                    other.grow(1)

    def purge(self) -> None:
        """All files that no consumer needs, or some that one needs; never one that is just being sent. After a RESET
        only where the consumers that have read the old log can be told by what they hold."""
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
        """Another server that holds the same, or will yet. Those who read the old one may go on doing so."""
        if len(self.servers) < 2:
            return
        self.server = next(server for server in self.servers if server is not self.server)
        self.failed_over_at = min(self.failed_over_at, self.now)
        if self.rng.random() < 0.7:
            for link in list(self.links.values()):
                if link.server is not None:
                    self.cut(link)

    def survey_or_tell(self) -> None:
        """The server is asked, or what it said a while ago is told."""
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
        """What the remedy of a failure says: copy the tables afresh, and begin anew."""
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
        self.readers[name] = PlayedReader(Wanted(spec.databases, spec.tables))
        self.declare(spec, None)
