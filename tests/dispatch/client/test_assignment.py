"""Which dispatcher a waiting consumer attaches to, and which two merge."""

from __future__ import annotations

import pytest

from dispatcher.dispatch.client.assignment import Assignment
from dispatcher.dispatch.connection.dispatcher import Phase
from dispatcher.dispatch.history.attachment import ServerFiles
from dispatcher.dispatch.values.specs import ClientLimits
from tests.support.dispatch_parts import at, connecting, consumer_at, declared, streaming, view

NOW = 100.0


@pytest.fixture
def assignment() -> Assignment:
    files = ServerFiles()
    files.update(view())
    return Assignment(files, ClientLimits(merge_bytes_max=50))


def test_the_nearest_dispatcher_comes_first(assignment: Assignment) -> None:
    far, near = streaming(consumer_at(5), number=1), streaming(consumer_at(9, "crm"), number=2)
    unread = connecting(declared("new"), number=3)
    far.read, near.read = at(5, offset=10), at(9, offset=90)
    waiting = consumer_at(10, "late")
    assert assignment.nearest_first(waiting, [unread, far, near]) == [near, far, unread]


def test_a_consumer_attaches_to_a_stream_that_has_read_nothing_it_lacks(
    assignment: Assignment,
) -> None:
    dispatcher = streaming(consumer_at(10))
    assert assignment.may_attach(consumer_at(10, "same"), dispatcher, NOW)
    assert not assignment.may_attach(consumer_at(9, "behind"), dispatcher, NOW)


def test_a_consumer_that_is_far_ahead_does_not_attach(assignment: Assignment) -> None:
    dispatcher = streaming(consumer_at(10))
    dispatcher.read = at(10, offset=40)
    assert not assignment.may_attach(consumer_at(12, "far"), dispatcher, NOW)


def test_a_paused_stream_accepts_no_consumer(assignment: Assignment) -> None:
    dispatcher = streaming(consumer_at(10))
    dispatcher.pause(NOW)
    assert not assignment.may_attach(consumer_at(10, "same"), dispatcher, NOW)


def test_a_position_that_no_login_has_checked_waits_for_a_login(assignment: Assignment) -> None:
    consumer = consumer_at(10, "sought")
    consumer.verified = False
    assert not assignment.may_attach(consumer, streaming(consumer_at(10)), NOW)
    assert assignment.may_attach(consumer, connecting(consumer_at(10, "other")), NOW)


def test_a_consumer_detached_before_the_stream_began_waits_for_a_login(
    assignment: Assignment,
) -> None:
    consumer = consumer_at(10, "detached")
    consumer.detached_at = 1.0
    assert not assignment.may_attach(consumer, streaming(consumer_at(10), now=2.0), NOW)
    assert assignment.may_attach(consumer, streaming(consumer_at(10, "crm"), now=0.5), NOW)


def test_no_consumer_joins_a_login_that_has_begun(assignment: Assignment) -> None:
    dispatcher = connecting(consumer_at(10))
    dispatcher.login_begun = True
    assert not assignment.may_attach(consumer_at(10, "same"), dispatcher, NOW)


def test_new_consumers_log_in_together_but_not_with_placed_ones(assignment: Assignment) -> None:
    new = declared("new")
    assert assignment.may_attach(new, connecting(declared("other")), NOW)
    assert not assignment.may_attach(new, connecting(consumer_at(10)), NOW)


def test_the_dispatcher_ahead_merges_into_the_one_behind(assignment: Assignment) -> None:
    ahead, behind = (
        streaming(consumer_at(12), number=1),
        streaming(consumer_at(10, "crm"), number=2),
    )
    assert assignment.may_merge(ahead, behind, NOW)
    assert not assignment.may_merge(behind, ahead, NOW)


def test_a_consumer_that_was_detached_merges_later(assignment: Assignment) -> None:
    ahead, behind = (
        streaming(consumer_at(12), number=1),
        streaming(consumer_at(10, "crm"), number=2),
    )
    ahead.attached[0].wait_budget.merge_after = NOW + 1
    assert not assignment.may_merge(ahead, behind, NOW)
    assert assignment.may_merge(ahead, behind, NOW + 1)


def test_two_that_have_read_the_same_files_to_the_end_merge(assignment: Assignment) -> None:
    one, other = streaming(consumer_at(30), number=1), streaming(consumer_at(30, "crm"), number=2)
    one.ended(NOW)
    assert not assignment.may_merge(one, other, NOW)
    other.ended(NOW)
    assert one.phase is other.phase is Phase.ENDED
    assert assignment.may_merge(one, other, NOW)


def test_only_dispatchers_that_have_changed_are_compared_again(assignment: Assignment) -> None:
    one, other = streaming(consumer_at(12), number=1), streaming(consumer_at(10, "crm"), number=2)
    assert assignment.merge_candidates([one, other], NOW) == ([one, other], {1, 2})
    assert assignment.merge_candidates([one, other], NOW) == ([one, other], set())
    other.read = at(11)
    assert assignment.merge_candidates([one, other], NOW) == ([one, other], {2})
