"""A simulated daemon process: the rules of leadership, their effects, and the parts that run during a term.

This module replaces `dispatcher/terms/standby.py` and the parts of the daemon that it starts. A stopped process
handles received events when it continues. A killed process handles no more events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dispatcher.leadership.leadership import Leadership
from dispatcher.leadership.lease import LeaseRow
from dispatcher.leadership.messages import (
    Abandon,
    Answered,
    Campaign,
    Effect,
    Event,
    Exit,
    Failed,
    HandOver,
    Lead,
    LogEvent,
    NotLed,
    Renew,
    Resign,
    Resigned,
    SendRequest,
    WakeUp,
    WriteRefused,
)
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.leadership_simulation import transactions
from tests.leadership_simulation.agenda import Action
from tests.leadership_simulation.database import Contents
from tests.leadership_simulation.network import Connection, ConnectionLost, Outcome
from tests.leadership_simulation.transactions import NotLeader

if TYPE_CHECKING:
    from tests.leadership_simulation.world import World

RETRY_S = 0.2
FLUSH_S = 2.0  # how long a daemon that hands over may store queued acknowledgements


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer of a daemon that does not lead. `leader`: the leader's address, "" if the daemon knows none."""

    leader: str


@dataclass(frozen=True, slots=True)
class Opened:
    session: int
    position: int


@dataclass(frozen=True, slots=True)
class Polled:
    """The answer to a poll: transactions of the server's log, by number."""

    after: int
    transactions: tuple[int, ...]


ReaderAnswer = Refused | Opened | Polled
Reply = Callable[[ReaderAnswer], None]


@dataclass(slots=True)
class _Acknowledgement:
    consumer: str
    position: int
    stored: Action
    refused: Action


class Process:
    """One start of a daemon. `name`: the daemon's host, whose address readers know; `id`: names this start; each
    `holder` of this process begins with this id."""

    def __init__(
        self, world: World, name: str, id_: str, clock: tuple[float, float], lease_s: float
    ) -> None:
        """`clock`: (offset, rate) of the process's local clock."""
        self.name = name
        self.id = id_
        self._holders = 1
        self.alive = True
        self.stopped = False
        self.leaving_since: float | None = None
        self.able_since = self.running_since = world.agenda.now
        self.term: Term | None = None
        self.confirmed_s = float(
            "-inf"
        )  # the local time at which the last request that confirmed the lease was sent
        self.leadership = Leadership(self.holder, lease_s)
        self._offset_s, self.rate = clock
        self.lease_s = lease_s
        self.world = world
        self._inbox: list[Action] = []
        self._lease = Connection(world.network, self.id, self.id, self.handle)
        self._open: dict[int, float] = {}  # when each request was sent
        self._wakeups = 0
        self.handle(lambda: self.step(WakeUp()))

    @property
    def now(self) -> float:
        return self._offset_s + self.rate * self.world.agenda.now

    @property
    def serves(self) -> bool:
        return self.leadership.serves(self.now)

    # -- the process -----------------------------------------------------------------------------------------

    def handle(self, action: Action) -> None:
        if self.stopped and self.alive:
            self._inbox.append(action)
        elif self.alive:
            action()

    def stop(self) -> None:
        self.stopped = True

    def go_on(self) -> None:
        """Continue a stopped process. The process first handles the events that were due while it was stopped."""
        self.stopped = False
        inbox, self._inbox = self._inbox, []
        self.world.rng.shuffle(inbox)  # a process may serve timers and sockets in any order
        for action in inbox:
            self.handle(action)

    def kill(self) -> None:
        """Kill the process. The operating system closes its connections."""
        self.alive = False
        self.stopped = False
        self._lease.close()
        if self.term is not None:
            self.term.connection.close()

    # -- the rules -------------------------------------------------------------------------------------------

    def step(self, event: Event) -> None:
        effects = self.leadership.step(event, self.now)
        self.world.transcript.stepped(self.world.agenda.now, self.name, event, effects)
        for effect in effects:
            self._execute(effect)
        self._wake_up_in_time()

    def _wake_up_in_time(self) -> None:
        wakeup = self.leadership.next_wakeup()
        if wakeup is None or not self.alive:
            return
        self._wakeups += 1
        number = self._wakeups
        # The local clock may be slightly late because of rounding.
        after_s = max(0.0, wakeup - self.now) / self.rate + 1e-6

        def wake_up() -> None:
            if number == self._wakeups:
                self.step(WakeUp())

        self.world.agenda.after(after_s, lambda: self.handle(wake_up))

    def _execute(self, effect: Effect) -> None:
        match effect:
            case SendRequest():
                self._ask(effect)
            case Abandon(number):
                self._open.pop(number, None)
                self._renew_connection()
            case Lead(holder, term):
                self._lead(holder, term)
            case Resign(term, orderly):
                assert self.term is not None and self.term.number == term
                self.term.end(orderly)
            case Exit():
                self.world.exited(self)
            case LogEvent():
                pass

    def _ask(self, ask: SendRequest) -> None:
        assert not self._open, "one request is open at a time"
        number, request = ask.number, ask.request
        self._open[number] = sent_s = self.now
        if not self._lease.usable:
            self._renew_connection()

        def done(outcome: Outcome) -> None:
            self._open.pop(number, None)
            if isinstance(outcome, LeaseRow | None):
                proves = isinstance(request, Renew | Campaign) and outcome is not None
                if proves and outcome is not None and is_of(outcome.holder, self.id):
                    self.confirmed_s = max(self.confirmed_s, sent_s)
                self._answered(Answered(number, outcome))
            else:
                self.step(Failed(number, _error(outcome)))

        self._lease.run(
            transactions.ask(request, self.name, self.lease_s),
            done,
            patient=True,
        )

    def _answered(self, event: Answered) -> None:
        self.step(event)
        if self.world.rng.random() < 0.02:
            self.step(event)

    def _renew_connection(self) -> None:
        self._lease.close()
        self._lease = Connection(self.world.network, self.id, self.id, self.handle)

    def _lead(self, holder: str, number: int) -> None:
        assert self.term is None, "one term ends before the next one begins"
        self.world.judge.leads(holder, number)
        self.term = Term(self, holder, number)

    @property
    def holder(self) -> str:
        return f"{self.id}.{self._holders}"

    def next_holder(self) -> str:
        self._holders += 1
        return self.holder

    def hand_over(self) -> None:
        self.leaving_since = self.world.agenda.now
        self.handle(lambda: self.step(HandOver()))

    # -- calls of readers ------------------------------------------------------------------------------------

    def call(self, act: Callable[[Term], None], reply: Reply) -> None:
        """Pass a reader's call to the term of this process, or refuse it if this process does not lead."""
        term = self.term
        if term is None or not self.serves or not term.serving:
            leader = self.leadership.leader(self.now)
            reply(Refused(leader.address if leader else ""))
        else:
            act(term)


class Term:
    """The parts that run during a term: the store, the queues and the dump."""

    def __init__(self, process: Process, holder: str, number: int) -> None:
        self.holder = holder
        self.number = number
        self.serving = False
        self.ending = False
        self.process = process
        self.world = process.world
        self.acknowledged: dict[str, int] = {}
        self.sessions: dict[str, int] = {}
        self.head = 0  # the last position that the server's dump has sent
        self._queued: list[_Acknowledgement] = []
        self._storing = False
        self.connection = self._connect()
        self.connection.run(transactions.load(), self._loaded)

    def _connect(self) -> Connection:
        process = self.process
        return Connection(self.world.network, process.id, self.holder, process.handle)

    def _loaded(self, outcome: Outcome) -> None:
        if self.ending:
            return
        if not isinstance(outcome, Contents):
            self.connection.close()
            self.process.term = None
            process = self.process
            process.step(NotLed(self.number, _error(outcome), process.next_holder()))
            return
        self.acknowledged = dict(outcome.acknowledged)
        self.sessions = dict(outcome.sessions)
        self.serving = True

    # -- calls of readers ------------------------------------------------------------------------------------

    def open_session(self, consumer: str, after: int | None, reply: Reply) -> None:
        def done(outcome: Outcome) -> None:
            if isinstance(outcome, int):
                self.sessions[consumer] = outcome
                self._open(consumer, outcome, after, reply)
            elif isinstance(outcome, NotLeader):
                reply(Refused(""))
                self.process.step(WriteRefused(self.number))
            else:
                reply(Refused(""))

        connection = self._connect()
        connection.run(transactions.next_session(self.holder, self.number, consumer), done)

    def _open(self, consumer: str, session: int, after: int | None, reply: Reply) -> None:
        """Open a session at the stored position, or at the reader's position if it is newer."""
        stored = self.acknowledged.get(consumer, 0)
        if after is None or after <= stored:
            reply(Opened(session, stored))
            return
        opened = Opened(session, after)
        self._acknowledge(consumer, after, lambda: reply(opened), lambda: reply(Refused("")))

    def poll(self, consumer: str, session: int, after: int, most: int, reply: Reply) -> None:
        if session != self.sessions.get(consumer):
            reply(Refused(""))
            return
        if after > self.acknowledged.get(consumer, 0):
            self._acknowledge(
                consumer,
                after,
                lambda: self._deliver(consumer, after, most, reply),
                lambda: reply(Refused("")),
            )
        else:
            self._deliver(consumer, after, most, reply)

    def _deliver(self, consumer: str, after: int, most: int, reply: Reply) -> None:
        self.world.judge.acknowledgement_answered(consumer, after)
        if not self.process.serves:
            reply(Refused(""))
            return
        if self.world.source_reaches(self.process.name):
            self.head = self.world.written
        self.world.judge.delivered(self.process)
        reply(Polled(after, tuple(range(after + 1, min(after + most, self.head) + 1))))

    # -- the store -------------------------------------------------------------------------------------------

    def _acknowledge(self, consumer: str, position: int, stored: Action, refused: Action) -> None:
        if self.ending:
            refused()
            return
        self._queued.append(_Acknowledgement(consumer, position, stored, refused))
        self._store()

    def _store(self) -> None:
        """Store all queued acknowledgements in one transaction. Only one such transaction runs at a time."""
        if self._storing or not self._queued:
            return
        self._storing = True
        batch = list(self._queued)
        progress: dict[str, int] = {}
        for one in batch:
            stored = max(self.acknowledged.get(one.consumer, 0), progress.get(one.consumer, 0))
            progress[one.consumer] = max(stored, one.position)
        if not self.connection.usable:
            self.connection = self._connect()
        save = transactions.save(self.holder, self.number, progress)
        self.connection.run(save, lambda outcome: self._stored(outcome, batch, progress))

    def _stored(
        self, outcome: Outcome, batch: list[_Acknowledgement], progress: dict[str, int]
    ) -> None:
        self._storing = False
        if isinstance(outcome, NotLeader):
            self._refuse_all()
            self.process.step(WriteRefused(self.number))
        elif isinstance(outcome, ConnectionLost):  # may be committed; storing it again is harmless
            self.world.agenda.after(RETRY_S, lambda: self.process.handle(self._store))
        else:
            del self._queued[: len(batch)]
            self.acknowledged |= progress
            for one in batch:
                one.stored()
            self._store()

    def _refuse_all(self) -> None:
        queued, self._queued = self._queued, []
        for one in queued:
            one.refused()

    # -- the end ---------------------------------------------------------------------------------------------

    def end(self, orderly: bool) -> None:
        """End the term. If `orderly`, store the queued acknowledgements before, for at most `FLUSH_S`."""
        self.serving = False
        if not orderly:
            self._end()
            return
        deadline_s = self.world.agenda.now + FLUSH_S

        def check() -> None:
            if self._queued and self.world.agenda.now < deadline_s:
                self.world.agenda.after(0.02, lambda: self.process.handle(check))
            else:
                self._end()

        check()

    def _end(self) -> None:
        self.ending = True
        if self.process.leaving_since is not None:
            self.world.judge.flushed(self.process, len(self._queued))
        self._refuse_all()
        self.connection.close()

        def ended() -> None:
            self.process.term = None
            self.process.step(Resigned(self.number, self.process.next_holder()))

        after_s = self.world.rng.uniform(0.0, 0.3)
        self.world.agenda.after(after_s, lambda: self.process.handle(ended))


def is_of(holder: str, id_: str) -> bool:
    """True if the holder belongs to the process with this id."""
    return holder.partition(".")[0] == id_


def _error(outcome: Outcome) -> BinlogError:
    kind = ErrorKind.NOT_LEADER if isinstance(outcome, NotLeader) else ErrorKind.STATE_STORE
    return BinlogError(kind, type(outcome).__name__)
