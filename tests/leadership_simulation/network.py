"""The connections of the daemons to the database: statements and answers that come late, twice or never.

A connection runs one transaction at a time. A statement that was sent may be executed after its sender has closed the
connection or has died. A cut link either holds back what is sent until it is repaired, or loses it without an error.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from tests.leadership_simulation.agenda import Action, Agenda
from tests.leadership_simulation.database import Answer, Database, Session, Statement
from tests.leadership_simulation.transactions import NotLeader, Transaction

LATENCY_S = (0.001, 0.03)
LATE_S = (0.1, 6.0)
TIMEOUT_S = 3.0
"""read_timeout of the store's connections: they are closed if an answer takes longer."""


class ConnectionLost(Exception):
    """The transaction may have been committed."""


class _Fate(Enum):
    FINE = auto()
    LATE = auto()
    STATEMENT_LOST = auto()
    ANSWER_LOST = auto()
    RESET_BEFORE = auto()
    RESET_AFTER = auto()


_FATES = (
    (_Fate.FINE,) * 24
    + (_Fate.LATE,) * 2
    + (_Fate.STATEMENT_LOST, _Fate.ANSWER_LOST, _Fate.RESET_BEFORE, _Fate.RESET_AFTER)
)


@dataclass(slots=True)
class Link:
    """Between a daemon and the database. `noisy_until_s`: any statement may be lost until then."""

    cut_until_s: float = 0.0
    noisy_until_s: float = 0.0

    def is_sound(self, now: float) -> bool:
        return now >= max(self.cut_until_s, self.noisy_until_s)


class Network:
    def __init__(self, agenda: Agenda, rng: random.Random, database: Database) -> None:
        self.agenda = agenda
        self.rng = rng
        self.database = database
        self.links: dict[str, Link] = {}

    def carry(self, link: Link, action: Action, *, late: bool = False) -> None:
        """Let something arrive at the other end, unless it is lost on a cut link."""
        low, high = LATE_S if late else LATENCY_S
        latency_s = self.rng.uniform(low, high)
        now = self.agenda.now
        if now < link.cut_until_s:
            if self.rng.random() < 0.5:
                self.agenda.at(link.cut_until_s + latency_s, action)
            return
        self.agenda.after(latency_s, action)

    def fate(self, link: Link) -> _Fate:
        noisy = self.agenda.now < link.noisy_until_s
        return self.rng.choice(_FATES) if noisy else _Fate.FINE


Outcome = Answer | NotLeader | ConnectionLost


class Connection:
    """`process`: the process whose link the connection uses; `owner`: its name at the server; `handle`: makes the
    process execute an action, at once or when it goes on."""

    def __init__(
        self, network: Network, process: str, owner: str, handle: Callable[[Action], None]
    ) -> None:
        self.usable = True
        self._network = network
        self._link = network.links[process]
        self._handle = handle
        self._session = Session(owner, self._ended_by_server)
        self._transaction: Transaction | None = None
        self._done: Callable[[Outcome], None] | None = None

    def run(
        self, transaction: Transaction, done: Callable[[Outcome], None], *, patient: bool = False
    ) -> None:
        """Run a transaction. `done` gets its result, NotLeader or ConnectionLost. `patient`: it may wait for ever."""
        self._transaction, self._done = transaction, done
        if not self.usable:
            self._network.agenda.after(0.01, lambda: self._handle(self._lost))
            return
        if not patient:
            self._network.agenda.after(
                TIMEOUT_S, lambda: self._handle(lambda: self._expire(transaction))
            )
        self._send(next(transaction))

    def close(self) -> None:
        """Close the connection from the client's side. Statements that were sent may still be executed."""
        self.usable = False
        self._session.left = True
        self._transaction = self._done = None
        self._network.carry(self._link, self._disconnected)

    # -- the client ------------------------------------------------------------------------------------------

    def _send(self, statement: Statement) -> None:
        fate = self._network.fate(self._link)
        if fate is _Fate.RESET_BEFORE:
            self._reset()
        elif fate is not _Fate.STATEMENT_LOST:
            arrive = _Arrival(self, statement, fate)
            self._network.carry(self._link, arrive, late=fate is _Fate.LATE)

    def _answered(self, answer: Answer) -> None:
        if self._transaction is None:
            return
        try:
            statement = self._transaction.send(answer)
        except StopIteration as end:
            self._end(end.value)
        except NotLeader as error:
            self._end(error)
        else:
            self._send(statement)

    def _expire(self, transaction: Transaction) -> None:
        if self._transaction is transaction:
            done = self._done
            self.close()
            assert done is not None
            done(ConnectionLost())

    def _lost(self) -> None:
        self.usable = False
        if self._transaction is not None:
            self._end(ConnectionLost())

    def _end(self, outcome: Outcome) -> None:
        done, self._transaction, self._done = self._done, None, None
        assert done is not None
        done(outcome)

    # -- the server ------------------------------------------------------------------------------------------

    def arrive(self, statement: Statement, fate: _Fate) -> None:
        database = self._network.database
        if not database.up or not self._session.alive:
            self._reset()
            return
        database.execute(self._session, statement, lambda answer: self._reply(answer, fate))

    def _reply(self, answer: Answer, fate: _Fate) -> None:
        if fate is _Fate.RESET_AFTER:
            self._disconnected()
            self._reset()
        elif fate is not _Fate.ANSWER_LOST:
            self._network.carry(self._link, lambda: self._handle(lambda: self._answered(answer)))

    def _ended_by_server(self) -> None:
        self._reset()

    def _disconnected(self) -> None:
        self._network.database.disconnected(self._session)

    def _reset(self) -> None:
        self._network.carry(self._link, lambda: self._handle(self._lost))


@dataclass(frozen=True, slots=True)
class _Arrival:
    connection: Connection
    statement: Statement
    fate: _Fate

    def __call__(self) -> None:
        self.connection.arrive(self.statement, self.fate)
