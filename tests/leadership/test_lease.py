"""What a campaign, a renewal and a release do with the row of the lease."""

from __future__ import annotations

import pytest

from dispatcher.leadership.lease import (
    LeaseRow,
    campaigned,
    released,
    renewed,
)

NO_LEASE = LeaseRow("", "", 0, 0.0)  # before the first term
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
def test_no_one_else_changes_it(holder: str, term: int) -> None:
    assert renewed(HELD, holder, term, 4.0) is HELD
    assert released(HELD, holder, term) is HELD


def test_a_lease_that_is_given_back_is_free() -> None:
    assert not HELD.free
    assert released(HELD, "a", 3).free
