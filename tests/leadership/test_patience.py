"""A lease that the rules name for a slow database is long enough, and the daemon says when the database is too slow."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.leadership.lease import LeaseRow
from dispatcher.leadership.messages import Campaign, ReadLease
from dispatcher.leadership.patience import (
    leader_patience_s,
    standby_patience_s,
    sufficient_lease_s,
)
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.runtime.loop.tasks import Tasks
from dispatcher.terms.answer_times import AnswerTimes
from tests.support.fake_clients import until

LEASE_S = 4.0


@pytest.mark.parametrize("answer_s", [0.01, 0.9, 2.0, 7.0, 28.0, 420.0])
def test_a_daemon_with_the_sufficient_lease_waits_for_the_answer(answer_s: float) -> None:
    lease_s = sufficient_lease_s(answer_s)
    assert standby_patience_s(lease_s) >= leader_patience_s(lease_s) > answer_s
    assert lease_s <= 3600, "`state.lease` allows it"


class Log:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def log(self, level: int, event: str, **fields: Any) -> None:  # noqa: ARG002
        self.lines.append((event, fields["error"]))


def answer_times(log: Log, answer: float | BinlogError) -> AnswerTimes:
    def measure() -> float:
        if isinstance(answer, BinlogError):
            raise answer
        return answer

    def defect(name: str, error: BaseException) -> None:
        raise AssertionError(name) from error

    return AnswerTimes(measure, LEASE_S, Tasks(defect), log)


async def test_it_measures_after_a_request_without_an_answer() -> None:
    log = Log()
    times = answer_times(log, 1.5)
    times.given_up()
    await until(lambda: bool(times.trouble), "it has measured")
    assert "answered after 1.5 s; the lease is 4 s" in times.trouble
    assert "set state.lease: 8 " in times.trouble
    assert log.lines == [("state database too slow", times.trouble)]
    times.answered(ReadLease(), LeaseRow("b", "http://b", 1, 3.0), 0.1)
    assert not times.trouble, "a daemon leads"


@pytest.mark.parametrize("answer", [0.5, BinlogError(ErrorKind.STATE_STORE, "down")])
async def test_it_says_nothing_of_a_database_that_is_fast_or_down(
    answer: float | BinlogError,
) -> None:
    log = Log()
    times = answer_times(log, answer)
    times.given_up()
    await until(lambda: not times.measuring, "it has measured")
    assert not (times.trouble or log.lines)


async def test_a_campaign_answered_later_than_a_leader_would_wait_is_told() -> None:
    log = Log()
    times = answer_times(log, 0.0)
    times.answered(Campaign("a"), LeaseRow("a", "http://a", 1, 4.0), 2.0)
    assert "answered after 2.0 s" in times.trouble
