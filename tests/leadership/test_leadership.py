"""The rules of leadership, one at a time: what a daemon asks, and when it leads, resigns and exits."""

from __future__ import annotations

from dispatcher.leadership.leadership import POLL_S, RETRY_S, Leadership
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
    Resign,
    Resigned,
    SendRequest,
    WakeUp,
    WriteRefused,
)
from dispatcher.leadership.states import StandingBy
from dispatcher.model.errors import BinlogError, ErrorKind

LEASE_S = 4.0
MINE = LeaseRow("me", "http://me", 7, LEASE_S)
OTHER = LeaseRow("other", "http://other", 8, LEASE_S)
FREE = LeaseRow("other", "http://other", 6, -1.0)
LOST = BinlogError(ErrorKind.STATE_STORE, "the connection was lost")


class Daemon:
    """The rules of one daemon at a time that the test sets. `step` returns the effects without notes; `asked` is the
    number of the newest request."""

    def __init__(self) -> None:
        self.rules = Leadership("me", LEASE_S)
        self.now = 100.0
        self.asked = 0
        self.notes: list[str] = []

    def step(self, event: Event) -> list[Effect]:
        effects = self.rules.step(event, self.now)
        self.notes += [effect.event for effect in effects if isinstance(effect, LogEvent)]
        for effect in effects:
            if isinstance(effect, SendRequest):
                self.asked = effect.number
        return [effect for effect in effects if not isinstance(effect, LogEvent)]

    def answer(self, row: LeaseRow | None) -> list[Effect]:
        return self.step(Answered(self.asked, row))

    def fail(self) -> list[Effect]:
        return self.step(Failed(self.asked, LOST))

    def wait(self) -> list[Effect]:
        """Let time pass until the rules need a tick."""
        wakeup = self.rules.next_wakeup()
        assert wakeup is not None
        self.now = wakeup
        return self.step(WakeUp())

    @property
    def serves(self) -> bool:
        return self.rules.serves(self.now)


def standby() -> Daemon:
    daemon = Daemon()
    assert daemon.step(WakeUp()) == [SendRequest(1, ReadLease())]
    return daemon


def leader() -> Daemon:
    daemon = standby()
    assert daemon.answer(FREE) == [SendRequest(2, Campaign("me"))]
    assert daemon.answer(MINE) == [Lead("me", 7)]
    return daemon


# -- standby ----------------------------------------------------------------------------------------------------


def test_a_standby_reads_the_lease_regularly() -> None:
    daemon = standby()
    assert daemon.answer(OTHER) == []
    assert daemon.rules.next_wakeup() == daemon.now + POLL_S
    assert daemon.wait() == [SendRequest(2, ReadLease())]


def test_a_standby_knows_the_leader_until_its_lease_expires() -> None:
    daemon = standby()
    daemon.answer(OTHER)
    assert daemon.rules.leader(daemon.now) == OTHER
    assert daemon.rules.leader(daemon.now + LEASE_S) is None


def test_who_leads_is_logged_once() -> None:
    daemon = standby()
    for _ in range(3):
        daemon.answer(OTHER)
        daemon.wait()
    assert daemon.notes == ["standby"]


def test_a_campaign_that_another_daemon_has_won_is_over() -> None:
    daemon = standby()
    daemon.answer(FREE)
    assert daemon.answer(OTHER) == []
    assert not daemon.serves
    assert daemon.wait() == [SendRequest(3, ReadLease())]


def test_a_row_that_is_only_read_does_not_make_a_leader() -> None:
    """The answer to the campaign was lost, so the term passes without a leader."""
    daemon = standby()
    daemon.answer(FREE)
    daemon.fail()
    daemon.wait()
    assert daemon.answer(MINE) == []
    assert not daemon.serves


def test_an_error_is_logged_once_and_the_lease_is_read_again() -> None:
    daemon = standby()
    for _ in range(3):
        assert daemon.fail() == []
        assert daemon.wait() == [SendRequest(daemon.asked, ReadLease())]
    daemon.answer(OTHER)
    assert daemon.notes == ["lease not reached", "lease reached again", "standby"]


def test_an_answer_to_an_earlier_request_counts_for_nothing() -> None:
    daemon = standby()
    abandoned = daemon.wait()
    assert abandoned == [Abandon(1)]
    assert daemon.wait() == [SendRequest(2, ReadLease())]
    assert daemon.step(Answered(1, FREE)) == []
    assert daemon.answer(OTHER) == []
    assert daemon.step(Answered(2, FREE)) == []


# -- leading ----------------------------------------------------------------------------------------------------


def test_a_leader_renews_its_lease_at_a_third_of_it() -> None:
    daemon = leader()
    began = daemon.now
    assert daemon.wait() == [SendRequest(3, Renew("me", 7))]
    assert daemon.now == began + LEASE_S / 3
    daemon.answer(MINE)
    assert daemon.wait() == [SendRequest(4, Renew("me", 7))]


def test_a_lease_counts_from_when_its_renewal_was_sent() -> None:
    daemon = leader()
    daemon.wait()
    sent = daemon.now
    daemon.now += 0.9
    daemon.answer(MINE)
    assert daemon.rules.serves(sent + LEASE_S - 0.001)
    assert not daemon.rules.serves(sent + LEASE_S)


def test_a_leader_gives_up_an_unanswered_renewal_and_asks_again_before_its_lease_expires() -> None:
    daemon = leader()
    asked = 0
    while daemon.serves:
        asked += sum(isinstance(effect, SendRequest) for effect in daemon.wait())
    assert asked >= 2


def test_a_leader_asks_again_soon_after_an_error() -> None:
    daemon = leader()
    daemon.wait()
    assert daemon.fail() == []
    assert daemon.rules.next_wakeup() == daemon.now + RETRY_S
    assert daemon.wait() == [SendRequest(4, Renew("me", 7))]
    assert daemon.serves


def test_a_leader_resigns_when_its_lease_was_not_confirmed_for_as_long_as_it_lasts() -> None:
    daemon = leader()
    daemon.now += LEASE_S
    assert not daemon.serves
    assert daemon.step(WakeUp()) == [Resign(7, orderly=False)]
    assert daemon.notes[-1] == "lease lost"


def test_a_leader_resigns_when_it_reads_that_another_daemon_leads() -> None:
    daemon = leader()
    daemon.wait()
    assert daemon.answer(OTHER) == [Resign(7, orderly=False)]
    assert not daemon.serves


def test_a_leader_resigns_when_the_store_refuses_a_write() -> None:
    daemon = leader()
    assert daemon.step(WriteRefused(6)) == []
    assert daemon.serves
    assert daemon.step(WriteRefused(7)) == [Resign(7, orderly=False)]


def test_after_a_term_a_daemon_gives_the_lease_back_and_campaigns_under_a_new_id() -> None:
    daemon = leader()
    daemon.step(WriteRefused(7))
    assert daemon.step(Resigned(7, "new")) == [SendRequest(3, Release("me", 7))]
    assert daemon.answer(None) == [SendRequest(4, ReadLease())]
    assert daemon.answer(FREE) == [SendRequest(5, Campaign("new"))]


def test_after_a_late_answer_to_a_renewal_a_daemon_still_gives_the_lease_back() -> None:
    daemon = leader()
    daemon.wait()
    daemon.step(WriteRefused(7))
    assert daemon.step(Resigned(7, "new")) == []
    assert daemon.answer(MINE) == [SendRequest(4, Release("me", 7))]


def test_a_daemon_gives_the_lease_back_until_the_database_has_answered() -> None:
    daemon = leader()
    daemon.step(WriteRefused(7))
    daemon.step(Resigned(7, "new"))
    for number in (4, 5):
        assert daemon.fail() == []
        assert daemon.wait() == [SendRequest(number, Release("me", 7))]
    assert daemon.answer(None) == [SendRequest(6, ReadLease())]


def test_a_daemon_that_cannot_lead_lets_others_try_first() -> None:
    daemon = leader()
    assert daemon.step(NotLed(7, LOST, "new")) == [SendRequest(3, Release("me", 7))]
    since = daemon.now
    daemon.answer(None)
    while not any(isinstance(effect, SendRequest) for effect in daemon.answer(FREE)):
        daemon.wait()
    assert LEASE_S <= daemon.now - since < LEASE_S + 2 * POLL_S


# -- the end ----------------------------------------------------------------------------------------------------


def test_a_leader_that_ends_stores_what_is_queued_and_gives_the_lease_back() -> None:
    daemon = leader()
    assert daemon.step(HandOver()) == [Resign(7, orderly=True)]
    assert daemon.step(Resigned(7, "new")) == [SendRequest(3, Release("me", 7))]
    assert daemon.answer(None) == [Exit()]
    assert daemon.rules.next_wakeup() is None


def test_a_renewal_that_is_open_is_waited_for_so_that_it_does_not_come_after_the_release() -> None:
    daemon = leader()
    daemon.wait()
    daemon.step(HandOver())
    assert daemon.step(Resigned(7, "new")) == []
    assert daemon.answer(MINE) == [SendRequest(4, Release("me", 7))]


def test_a_standby_exits_at_once() -> None:
    daemon = standby()
    assert daemon.step(HandOver()) == [Exit()]


def test_a_standby_whose_campaign_is_open_waits_for_it_and_gives_the_lease_back() -> None:
    daemon = standby()
    daemon.answer(FREE)
    assert daemon.step(HandOver()) == []
    assert daemon.answer(MINE) == [SendRequest(3, Release("me", 7))]
    assert daemon.answer(None) == [Exit()]


def test_a_database_that_does_not_answer_does_not_keep_a_daemon_from_its_end() -> None:
    daemon = leader()
    daemon.step(HandOver())
    daemon.step(Resigned(7, "new"))
    assert daemon.wait() == [Abandon(3), Exit()]


def test_a_daemon_that_resigns_can_be_told_to_end() -> None:
    daemon = leader()
    daemon.step(WriteRefused(7))
    assert daemon.step(HandOver()) == []
    daemon.step(Resigned(7, "new"))
    assert daemon.answer(None) == [Exit()]


def test_a_standby_that_ends_gives_the_lease_of_its_last_term_back() -> None:
    daemon = leader()
    daemon.step(WriteRefused(7))
    daemon.step(Resigned(7, "new"))
    daemon.fail()
    assert daemon.step(HandOver()) == [SendRequest(4, Release("me", 7))]
    assert daemon.answer(None) == [Exit()]


def test_a_standby_that_ends_waits_for_an_open_release() -> None:
    daemon = leader()
    daemon.step(WriteRefused(7))
    daemon.step(Resigned(7, "new"))
    assert daemon.step(HandOver()) == []
    assert daemon.answer(None) == [Exit()]


def test_a_daemon_begins_as_a_standby() -> None:
    assert isinstance(Daemon().rules.state, StandingBy)
