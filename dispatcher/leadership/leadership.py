"""The rules by which one daemon decides whether it leads.

The lease in the state store's database, with the database's clock, decides which daemon leads. The local clock decides
only when this daemon sends its next request to the database, and when a leader must stop because the database has not
confirmed its lease. The leader counts the duration of the lease from the time at which it sent the newest request that
the database confirmed. The database counts from a later time, so a leader whose clock runs at the right speed stops
before another daemon can lead. The safety of the stored state does not depend on the local clock, because the store
refuses the writes of a former leader.

A daemon leads a term only after it has received the database's answer to its own campaign for this term. If the answer
is lost, the term has no leader, and the daemon campaigns again when the lease has expired. After each term the daemon
gets a new id, so no id leads two terms. This matters if the database loses its newest commits, so that two terms get
the same number: the store still refuses a delayed write of the first of these terms, because the two terms have
different ids.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    ReadLease,
    Release,
    Renew,
    Request,
    Resign,
    Resigned,
    SendRequest,
    WakeUp,
    WriteRefused,
)
from dispatcher.leadership.patience import leader_patience_s, standby_patience_s
from dispatcher.leadership.states import Gone, Leading, Leaving, Resigning, StandingBy, State
from dispatcher.model.errors import BinlogError, ErrorKind

POLL_S = 0.5
"""How long a standby waits before it reads the lease again. Also used after an error."""
RENEWALS = 3
"""How many times a leader renews its lease within the duration of one lease."""
LAST_PATIENCE_S = 2.0
"""The longest time that a daemon waits for an answer while its process ends."""
RETRY_S = 0.25
"""How long a leader waits after an error before it repeats the request."""


@dataclass(frozen=True, slots=True)
class _OpenRequest:
    number: int
    request: Request
    at_s: float


class Leadership:
    """The leadership of one daemon. `now`: seconds of the local monotonic clock, in all methods. `trouble`: the error
    of the newest request that has ended, "" if this request succeeded."""

    def __init__(self, holder: str, lease_s: float) -> None:
        """`holder`: this daemon's id for its first term, which no other daemon has; `lease_s`: the duration of a
        lease."""
        self.state: State = StandingBy(None, 0.0, ReadLease(), float("-inf"))
        self._holder = holder
        self._lease_s = lease_s
        self._open: _OpenRequest | None = None
        self._number = 0
        self.trouble = ""
        self._logged_leader: tuple[str, int] | None = None  # the leader that was logged last

    # -- what others ask -------------------------------------------------------------------------------------

    def serves(self, now: float) -> bool:
        """True if this daemon leads and its lease has not expired, so that it may deliver to readers."""
        return isinstance(self.state, Leading) and now < self._confirmed_until(self.state)

    def leader(self, now: float) -> LeaseRow | None:
        """Return the lease of the daemon that leads; None if this daemon is not a standby, or if it knows of no
        leader."""
        match self.state:
            case StandingBy(seen=LeaseRow() as row, seen_s=seen_s) if (
                row.holder != self._holder and now < seen_s + row.remaining_s
            ):
                return row
        return None

    def next_wakeup(self) -> float | None:
        """Return when the next `WakeUp` is needed, None if none is needed before the next other event."""
        times = []
        if self._open is not None:
            times.append(self._open.at_s + self._patience_s())
        elif isinstance(self.state, StandingBy | Leading):
            times.append(self.state.due_s)
        if isinstance(self.state, Leading):
            times.append(self._confirmed_until(self.state))
        return min(times, default=None)

    # -- the step --------------------------------------------------------------------------------------------

    def step(self, event: Event, now: float) -> list[Effect]:
        effects: list[Effect] = []
        match event:
            case Answered():
                self._answered(event, now, effects)
            case Failed():
                if self._end_request(event.number) is not None:
                    self._failed(event.error, now, effects)
            case WriteRefused():
                if isinstance(self.state, Leading) and self.state.term == event.term:
                    self._lose(self.state, "the state store has refused a write", effects)
            case Resigned():
                self._resigned(event, now)
            case NotLed():
                self._not_led(event, now, effects)
            case HandOver():
                self._hand_over(effects)
            case WakeUp():
                pass
        self._settle(now, effects)
        return effects

    def _settle(self, now: float, effects: list[Effect]) -> None:
        """Do what is due: give up the open request, stop leading, send the next request, or exit."""
        sent = self._open
        if sent is not None and now >= sent.at_s + self._patience_s():
            self._open = None
            effects.append(Abandon(sent.number))
            what = "the state store has not answered in time about the lease"
            self._failed(BinlogError(ErrorKind.STATE_STORE, what, remedy=_REMEDY), now, effects)
        if isinstance(self.state, Leading) and now >= self._confirmed_until(self.state):
            what = f"the state store has not confirmed it for {self._lease_s:g} s"
            self._lose(self.state, what, effects)
        if self._open is None:
            self._send_if_due(now, effects)
        if isinstance(self.state, Leaving) and self._may_exit(self.state):
            self.state = Gone()
            effects.append(Exit())

    def _send_if_due(self, now: float, effects: list[Effect]) -> None:
        match self.state:
            case StandingBy() as state if now >= state.due_s:
                self._send(state.next, now, effects)
            case Leading() as state if now >= state.due_s:
                self._send(Renew(self._holder, state.term), now, effects)
            case Leaving(release=Release() as release, sent=False):
                self.state = Leaving(release, sent=True)
                self._send(release, now, effects)

    def _send(self, request: Request, now: float, effects: list[Effect]) -> None:
        self._number += 1
        self._open = _OpenRequest(self._number, request, now)
        effects.append(SendRequest(self._number, request))

    def _end_request(self, number: int) -> _OpenRequest | None:
        """If the open request has this number, close and return it. Return None for any other number: the caller
        ignores such an answer, because this daemon has given up its request."""
        sent = self._open
        if sent is None or sent.number != number:
            return None
        self._open = None
        return sent

    def _patience_s(self) -> float:
        """How long the daemon waits for the answer to the open request."""
        match self.state:
            case StandingBy():
                return standby_patience_s(self._lease_s)
            case Leading():
                return leader_patience_s(self._lease_s)
        return min(leader_patience_s(self._lease_s), LAST_PATIENCE_S)

    def _confirmed_until(self, state: Leading) -> float:
        return state.proven_s + self._lease_s

    # -- answers ---------------------------------------------------------------------------------------------

    def _answered(self, event: Answered, now: float, effects: list[Effect]) -> None:
        sent = self._end_request(event.number)
        if sent is None:
            return
        if self.trouble:
            self.trouble = ""
            effects.append(LogEvent("info", "lease reached again", {}))
        match self.state:
            case StandingBy() as state:
                self._standby_answer(state, sent, event.row, now, effects)
            case Leading() as state if event.row is not None:
                self._renewal_answer(state, sent, event.row, effects)
            case Leaving(release=None) if (
                event.row is not None and event.row.holder == self._holder
            ):
                self.state = Leaving(Release(self._holder, event.row.term))

    def _standby_answer(
        self,
        state: StandingBy,
        sent: _OpenRequest,
        row: LeaseRow | None,
        now: float,
        effects: list[Effect],
    ) -> None:
        if row is None:  # this is the answer to a Release
            self.state = replace(state, next=ReadLease(), due_s=now)
            return
        if isinstance(state.next, Release):
            # This is the answer to a renewal of the term that has ended.
            self.state = replace(state, due_s=now)
            return
        campaigned = isinstance(sent.request, Campaign)
        if campaigned and row.holder == self._holder:
            self._logged_leader = None
            self.state = Leading(row.term, sent.at_s, sent.at_s + self._lease_s / RENEWALS)
            effects += [
                LogEvent("info", "leading", {"term": row.term}),
                Lead(self._holder, row.term),
            ]
            return
        self._log_leader(row, effects)
        if row.free and not campaigned and now >= state.patient_until_s:
            self.state = replace(
                state, seen=row, seen_s=now, next=Campaign(self._holder), due_s=now
            )
        else:
            due_s = now + POLL_S
            self.state = replace(state, seen=row, seen_s=now, next=ReadLease(), due_s=due_s)

    def _renewal_answer(
        self, state: Leading, sent: _OpenRequest, row: LeaseRow, effects: list[Effect]
    ) -> None:
        if row.is_of(self._holder, state.term):
            due_s = sent.at_s + self._lease_s / RENEWALS
            self.state = Leading(state.term, sent.at_s, due_s)
        else:
            self._lose(
                state, f"{row.address or 'another daemon'} leads in term {row.term}", effects
            )

    def _failed(self, error: BinlogError, now: float, effects: list[Effect]) -> None:
        """Handle a request that has failed, or that this daemon has given up. The database may have executed the
        request nevertheless."""
        if str(error) != self.trouble:
            self.trouble = str(error)
            effects.append(LogEvent("warning", "lease not reached", {"error": str(error)}))
        match self.state:
            case StandingBy() as state:
                # Repeat a release until the database has confirmed it. Do not repeat a campaign.
                after = state.next if isinstance(state.next, Release) else ReadLease()
                self.state = replace(state, next=after, due_s=now + POLL_S)
            case Leading() as state:
                self.state = replace(state, due_s=now + RETRY_S)

    # -- the end of a term -----------------------------------------------------------------------------------

    def _lose(self, state: Leading, reason: str, effects: list[Effect]) -> None:
        self.state = Resigning(state.term, exits=False)
        effects.append(LogEvent("warning", "lease lost", {"term": state.term, "reason": reason}))
        effects.append(Resign(state.term, orderly=False))

    def _hand_over(self, effects: list[Effect]) -> None:
        match self.state:
            case StandingBy(next=Release() as release):
                is_sent = self._open is not None and self._open.request == release
                self.state = Leaving(release, is_sent)
            case StandingBy():
                self.state = Leaving(None)
            case Leading() as state:
                self.state = Resigning(state.term, exits=True)
                effects.append(Resign(state.term, orderly=True))
            case Resigning() as state:
                self.state = replace(state, exits=True)

    def _resigned(self, event: Resigned, now: float) -> None:
        match self.state:
            case Resigning(term=term, exits=True) if term == event.term:
                self.state = Leaving(Release(self._holder, term))
            case Resigning(term=term) if term == event.term:
                self._stand_by(event, now, now)

    def _not_led(self, event: NotLed, now: float, effects: list[Effect]) -> None:
        """Become a standby that does not campaign for the duration of a lease, so that another daemon can try first."""
        match self.state:
            case Leading(term=term) if term == event.term:
                self._stand_by(event, now, now + self._lease_s)
                fields = {"term": term, "error": str(event.error)}
                effects.append(LogEvent("error", "cannot lead", fields))

    def _stand_by(self, event: Resigned | NotLed, now: float, patient_until_s: float) -> None:
        """Become a standby. Its first request releases the lease, which this daemon still has if no other daemon has
        taken it."""
        release = Release(self._holder, event.term)
        self.state = StandingBy(None, now, release, now, patient_until_s)
        self._holder = event.holder

    def _may_exit(self, state: Leaving) -> bool:
        """True if the process may exit. The process may not exit while a request that can change the lease has no
        answer: a campaign, for example, may take the lease."""
        if self._open is not None and not isinstance(self._open.request, ReadLease):
            return False
        return state.release is None or state.sent

    def _log_leader(self, row: LeaseRow, effects: list[Effect]) -> None:
        """Log which daemon leads, once per leader and term."""
        leader = row.holder, row.term
        if not row.free and leader != self._logged_leader:
            self._logged_leader = leader
            fields = {"leader": row.address, "term": row.term}
            effects.append(LogEvent("info", "standby", fields))


_REMEDY = "check that the server of state.mysql is running, and the network to it"
