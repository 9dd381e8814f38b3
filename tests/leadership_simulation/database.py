"""Simulates the database server of the state store: its committed contents, its clock, and transactions that lock the
lease.

A statement is executed at one moment. A statement that needs the lock waits for it. As with NOW(), the time of the
statement is the time at which it arrived. A server that crashes loses its open transactions. If the server does not
write its log at each commit, it also loses the transactions that were committed within the last second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from dispatcher.leadership.lease import LeaseRow
from tests.leadership_simulation.agenda import Agenda

LOCK_WAIT_S = 3.0
"""innodb_lock_wait_timeout"""
IDLE_S = 4.0
"""wait_timeout: if a client sends nothing for this time, the server ends its session and thus frees the session's
lock."""
LOST_S = 1.0
"""A server that writes its log once a second loses the commits of this time in a crash."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The committed contents of the database. `expires_s`: the end of the lease, by the database's clock;
    `acknowledged`, `sessions`: by consumer."""

    holder: str = ""
    address: str = ""
    term: int = 0
    expires_s: float = 0.0
    acknowledged: Mapping[str, int] = field(default_factory=dict)
    sessions: Mapping[str, int] = field(default_factory=dict)

    def lease(self, clock_s: float) -> LeaseRow:
        return LeaseRow(self.holder, self.address, self.term, self.expires_s - clock_s)


# -- statements -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SelectLease:
    """Reads the lease. The answer is a LeaseRow. `locks`: True for FOR UPDATE."""

    locks: bool


@dataclass(frozen=True, slots=True)
class UpdateLease:
    row: LeaseRow


@dataclass(frozen=True, slots=True)
class SelectContents:
    """Reads the state. The answer is the Contents."""


@dataclass(frozen=True, slots=True)
class UpdateProgress:
    acknowledged: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NextSession:
    """Draws a session number. The answer is higher than all earlier numbers."""

    consumer: str


@dataclass(frozen=True, slots=True)
class Commit:
    pass


@dataclass(frozen=True, slots=True)
class Rollback:
    pass


Statement = (
    SelectLease | UpdateLease | SelectContents | UpdateProgress | NextSession | Commit | Rollback
)
Answer = LeaseRow | Contents | int | None
Reply = Callable[[Answer], None]


class Session:
    """The server's side of one connection. `ended`: called if the server ends the session."""

    def __init__(self, owner: str, ended: Callable[[], None]) -> None:
        self.owner = owner
        self.ended = ended
        self.alive = True
        self.left = False  # the client has closed the session, perhaps unnoticed by the server
        self.changes: list[Callable[[Contents], Contents]] = []
        self.heard = 0
        self.looked_s = 0.0  # the database's time of the last read of the lease


Committed = Callable[[str, float, Contents, Contents], None]


class Database:
    """Calls `committed` at each commit, with the session's owner, the database's time at which the transaction read the
    lease, and the contents before and after the commit. Calls `lost` when a crash has lost commits."""

    def __init__(self, agenda: Agenda, committed: Committed, lost: Callable[[], None]) -> None:
        self.contents = Contents()
        self.up = True
        self._agenda = agenda
        self._ahead_s = 0.0
        self._committed = committed
        self._lost = lost
        self._history: deque[tuple[float, Contents]] = deque([(0.0, self.contents)])
        self._sessions: dict[Session, None] = {}  # the sessions, in the order in which they began
        self._locked_by: Session | None = None
        self._waiting: list[tuple[Session, float, Reply]] = []

    # -- the server ------------------------------------------------------------------------------------------

    @property
    def clock_s(self) -> float:
        return self._agenda.now + self._ahead_s

    @property
    def lease(self) -> LeaseRow:
        return self.contents.lease(self.clock_s)

    @property
    def locked_for_nothing(self) -> bool:
        """True while the lock belongs to a session whose client will never send its commit."""
        return self._locked_by is not None and self._locked_by.left

    def jump(self, seconds: float) -> None:
        """Change the server's clock by this time."""
        self._ahead_s += seconds

    def crash(self, *, loses: bool) -> None:
        self.up = False
        for session in list(self._sessions):
            self.end(session)
        if loses:
            until = self._agenda.now - LOST_S
            kept = [contents for at, contents in self._history if at <= until]
            self.contents = kept[-1] if kept else Contents()
            self._history = deque([(self._agenda.now, self.contents)])
            self._lost()

    def start(self) -> None:
        self.up = True

    def end_sessions_of(self, process: str) -> None:
        for session in list(self._sessions):
            if session.owner.startswith(process):
                self.end(session)

    def end(self, session: Session) -> None:
        """Roll a session back, and notify its client."""
        self.disconnected(session)
        session.ended()

    def disconnected(self, session: Session) -> None:
        """Handle that the client has closed the connection: roll back the session."""
        session.alive = False
        self._sessions.pop(session, None)
        self._end_transaction(session)
        self._waiting = [one for one in self._waiting if one[0] is not session]

    # -- statements ------------------------------------------------------------------------------------------

    def execute(self, session: Session, statement: Statement, reply: Reply) -> None:
        """Execute a statement. Calls `reply` with the answer, at once or when the lock is free."""
        self._sessions.setdefault(session)
        self._hear(session)
        match statement:
            case SelectLease(locks=True) if self._locked_by not in (None, session):
                self._wait(session, reply)
            case SelectLease(locks=locks):
                self._locked_by = session if locks else self._locked_by
                session.looked_s = self.clock_s
                reply(self.lease)
            case SelectContents():
                reply(self.contents)
            case UpdateLease(row):
                session.changes.append(self._with_lease(row))
                reply(None)
            case UpdateProgress(acknowledged):
                session.changes.append(
                    lambda c: replace(c, acknowledged={**c.acknowledged, **acknowledged})
                )
                reply(None)
            case NextSession(consumer):
                reply(self._next_session(session, consumer))
            case Commit():
                self._commit(session)
                reply(None)
            case Rollback():
                self._end_transaction(session)
                reply(None)

    def _with_lease(self, row: LeaseRow) -> Callable[[Contents], Contents]:
        expires_s = self.clock_s + row.remaining_s
        return lambda c: replace(
            c, holder=row.holder, address=row.address, term=row.term, expires_s=expires_s
        )

    def _next_session(self, session: Session, consumer: str) -> int:
        number = max(self.contents.sessions.get(consumer, 0) + 1, int(self.clock_s * 1000))
        session.changes.append(lambda c: replace(c, sessions={**c.sessions, consumer: number}))
        return number

    def _commit(self, session: Session) -> None:
        before = after = self.contents
        for change in session.changes:
            after = change(after)
        if session.changes:
            self.contents = after
            self._history.append((self._agenda.now, after))
            while len(self._history) > 1 and self._history[1][0] < self._agenda.now - LOST_S:
                self._history.popleft()
            self._committed(session.owner, session.looked_s, before, after)
        self._end_transaction(session)

    def _end_transaction(self, session: Session) -> None:
        session.changes = []
        if self._locked_by is session:
            self._locked_by = None
            if self._waiting:
                waiting, arrived_s, reply = self._waiting.pop(0)
                self._locked_by = waiting
                self._hear(waiting)
                waiting.looked_s = arrived_s
                reply(self.contents.lease(arrived_s))

    # -- the lock --------------------------------------------------------------------------------------------

    def _wait(self, session: Session, reply: Reply) -> None:
        waiting = session, self.clock_s, reply
        self._waiting.append(waiting)

        def give_up() -> None:
            if waiting in self._waiting:
                self.end(session)

        self._agenda.after(LOCK_WAIT_S, give_up)

    def _hear(self, session: Session) -> None:
        """Record that the client has sent something. If the client then sends nothing for `IDLE_S` while its session
        holds the lock, the server ends the session."""
        session.heard += 1
        heard = session.heard

        def check() -> None:
            silent = session.heard == heard
            if session.alive and silent and self._locked_by is session:
                self.end(session)

        self._agenda.after(IDLE_S, check)
