"""Which state of a reader the daemon reports after which calls of the reader's session."""

from __future__ import annotations

import pytest

from dispatcher.dispatch.queue.reader import FULL_MIN_S, SILENT_MAX_S, Caller, ReaderActivity

SESSION = 7
LATER = SILENT_MAX_S + 0.1


@pytest.fixture
def reader() -> ReaderActivity:
    """A session that was opened at 0 s."""
    reader = ReaderActivity(0, 0.0)
    reader.begin(SESSION, 0.0)
    reader.called(0.0, full=False)
    return reader


def state(
    reader: ReaderActivity, now: float, *, unacknowledged: bool = False, full: bool = False
) -> str:
    return reader.state(now, unacknowledged=unacknowledged, full=full).value


@pytest.mark.parametrize("now", [0.0, LATER])
@pytest.mark.parametrize("unacknowledged", [False, True])
def test_a_consumer_without_a_session_has_no_reader(now: float, unacknowledged: bool) -> None:
    assert state(ReaderActivity(0, 0.0), now, unacknowledged=unacknowledged) == "none"


def test_the_reader_of_before_a_restart_is_gone_when_it_does_not_come_back() -> None:
    reader = ReaderActivity(SESSION, 0.0)
    assert state(reader, 1.0, unacknowledged=True) == "none"
    assert state(reader, LATER, unacknowledged=True) == "gone"
    assert state(reader, LATER) == "none"


def test_a_reader_waits_or_reads(reader: ReaderActivity) -> None:
    assert state(reader, 1.0) == "waiting"
    assert state(reader, 1.0, unacknowledged=True) == "reading"


def test_a_silent_reader_is_gone_if_something_waits_for_it(reader: ReaderActivity) -> None:
    assert state(reader, SILENT_MAX_S, unacknowledged=True) == "reading"
    assert state(reader, LATER, unacknowledged=True) == "gone"
    assert state(reader, LATER) == "none"
    reader.called(LATER, full=False)
    assert state(reader, LATER, unacknowledged=True) == "reading"


def test_an_open_poll_or_answer_is_not_silence(reader: ReaderActivity) -> None:
    reader.poll_began(1.0)
    assert state(reader, 1 + LATER) == "waiting"
    reader.poll_ended(SESSION, 100.0, disconnected=False)
    reader.answer_began(3, 100)
    assert state(reader, 100 + LATER, unacknowledged=True) == "reading"
    reader.answer_ended(SESSION, 200.0)
    assert state(reader, 201.0, unacknowledged=True) == "reading"
    assert state(reader, 200 + LATER, unacknowledged=True) == "gone"
    assert (reader.events, reader.bytes) == (3, 100)


def test_a_poll_whose_client_disconnects_tells_at_once(reader: ReaderActivity) -> None:
    reader.poll_began(1.0)
    reader.poll_ended(SESSION, 1.5, disconnected=True)
    assert state(reader, 1.5) == "gone"
    reader.called(2.0, full=False)
    assert state(reader, 2.0) == "waiting"


def test_a_reader_whose_calls_find_a_full_queue_is_slow(reader: ReaderActivity) -> None:
    for second in range(1, 21):
        reader.called(float(second), full=True)
        slow = second >= FULL_MIN_S
        # Just after a call, the queue may have room.
        assert state(reader, second + 0.0, unacknowledged=True) == ("slow" if slow else "reading")
    assert state(reader, 20.0) == "waiting", "it has read everything"
    reader.called(21.0, full=False)
    assert state(reader, 21.0, unacknowledged=True) == "slow", "it has made room once"
    for second in range(22, 32):
        reader.called(float(second), full=False)
    assert state(reader, 31.0, unacknowledged=True) == "reading"


def test_a_reader_that_leaves_the_queue_full_between_two_calls_is_slow(
    reader: ReaderActivity,
) -> None:
    assert state(reader, FULL_MIN_S - 1, unacknowledged=True, full=True) == "reading"
    assert state(reader, FULL_MIN_S, unacknowledged=True, full=True) == "slow"
    assert state(reader, LATER, unacknowledged=True, full=True) == "gone"


def test_a_new_session_does_not_inherit_calls(reader: ReaderActivity) -> None:
    reader.caller = Caller("127.0.0.1", "curl")
    reader.poll_began(1.0)
    reader.answer_began(1, 1)
    reader.begin(SESSION + 1, 2.0)
    assert (reader.caller, reader.polled_at) == (Caller(), None)
    reader.poll_ended(SESSION, 3.0, disconnected=True)
    reader.answer_ended(SESSION, 3.0)
    assert state(reader, 3.0, unacknowledged=True) == "none"
    reader.called(3.0, full=False)
    assert state(reader, 3.0, unacknowledged=True) == "reading"


def test_a_user_agent_is_cut() -> None:
    assert Caller.of("::1", "x" * 1000).user_agent == "x" * 200
