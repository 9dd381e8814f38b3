"""What a campaign, a renewal, a release and a write may do with the row of the lease."""

from __future__ import annotations

import pytest

from dispatcher.leadership.lease import (
    NO_LEASE,
    LeaseRow,
    campaigned,
    may_write,
    released,
    renewed,
)

HELD = LeaseRow("a", "http://a", 3, 2.5)
EXPIRED = LeaseRow("a", "http://a", 3, -0.5)


@pytest.mark.parametrize(("row", "term"), [(NO_LEASE, 1), (EXPIRED, 4)])
def test_a_campaign_takes_a_free_lease_in_the_next_term(row: LeaseRow, term: int) -> None:
    assert campaigned(row, "b", "http://b", 4.0) == LeaseRow("b", "http://b", term, 4.0)


def test_a_campaign_leaves_a_lease_that_is_held() -> None:
    assert campaigned(HELD, "b", "http://b", 4.0) is HELD


@pytest.mark.parametrize("row", [HELD, EXPIRED])
def test_the_holder_renews_its_lease_also_if_it_has_expired(row: LeaseRow) -> None:
    assert renewed(row, "a", 3, 4.0) == LeaseRow("a", "http://a", 3, 4.0)


@pytest.mark.parametrize(("holder", "term"), [("b", 3), ("a", 2)])
def test_nobody_else_changes_it_or_writes(holder: str, term: int) -> None:
    assert renewed(HELD, holder, term, 4.0) is HELD
    assert released(HELD, holder, term) is HELD
    assert not may_write(HELD, holder, term)


def test_a_lease_that_is_given_back_is_free() -> None:
    assert not HELD.free
    assert released(HELD, "a", 3).free


def test_a_holder_may_write_until_another_daemon_takes_the_lease() -> None:
    assert may_write(HELD, "a", 3) and may_write(EXPIRED, "a", 3)
    assert not may_write(campaigned(EXPIRED, "b", "http://b", 4.0), "a", 3)
