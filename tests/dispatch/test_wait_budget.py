"""The budget of waiting for a slow consumer: by a clock of numbers, against its definition in small steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.dispatch.wait_budget import (
    DETACHES_MAX,
    MERGE_AFTER_S,
    REFILL,
    WINDOW_S,
    WaitBudget,
)

TIMES = st.floats(0.001, 40.0)


def test_it_is_waited_for_as_long_as_its_budget_lasts() -> None:
    assert WaitBudget(10.0).deadline is None
    patience = WaitBudget(10.0)
    patience.begin(100.0)
    assert patience.deadline == 110.0
    assert not patience.exhausted(109.9)
    assert patience.exhausted(110.0)


def test_one_without_a_budget_is_not_waited_for() -> None:
    patience = WaitBudget(0.0)
    patience.begin(5.0)
    assert patience.exhausted(5.0)


def test_beginning_twice_is_beginning_once() -> None:
    patience = WaitBudget(10.0)
    patience.begin(100.0)
    patience.begin(104.0)
    assert patience.deadline == 110.0


@given(st.floats(0.0, 60.0), st.lists(st.tuples(TIMES, TIMES), max_size=30))
def test_waiting_spends_it_and_time_refills_it(
    max_s: float, turns: list[tuple[float, float]]
) -> None:
    patience, now, left, waited = WaitBudget(max_s), 0.0, max_s, 0.0
    for apart, wait in turns:
        now += apart
        left = min(max_s, left + REFILL * apart)
        patience.begin(now)
        deadline = patience.deadline
        assert deadline is not None
        assert deadline == pytest.approx(now + left)
        now += wait
        left, waited = max(0.0, left - wait), waited + wait
        patience.end(now)
    assert patience.waited_s == pytest.approx(waited)


@given(st.floats(0.1, 30.0), st.lists(TIMES, min_size=1, max_size=200))
def test_over_any_time_the_others_lose_a_twentieth_and_one_budget(
    max_s: float, apart: list[float]
) -> None:
    """A consumer that others wait for until each deadline, without detaching it."""
    patience, now, lost = WaitBudget(max_s), 0.0, 0.0
    for gap in apart:
        now += gap
        patience.begin(now)
        deadline = patience.deadline
        assert deadline is not None
        lost += deadline - now
        now = deadline
        patience.end(now)
    assert lost <= max_s + REFILL * now + 1e-6


def test_thrice_detached_it_is_not_waited_for_until_the_first_time_is_long_ago() -> None:
    patience = WaitBudget(10.0)
    for n in range(DETACHES_MAX):
        patience.begin(100.0 * n)
        assert not patience.exhausted(100.0 * n)
        patience.record_detach(100.0 * n + 10)
    patience.begin(300.0)
    assert patience.exhausted(300.0)
    patience.end(300.0)
    patience.begin(10 + WINDOW_S)
    assert not patience.exhausted(10 + WINDOW_S)


def test_each_detach_within_the_window_puts_off_the_merging() -> None:
    patience = WaitBudget(0.0)
    for n, delay in enumerate((*MERGE_AFTER_S, MERGE_AFTER_S[-1])):
        patience.begin(float(n))
        patience.record_detach(float(n))
        assert patience.merge_after == n + delay
    patience.begin(1e6)
    patience.record_detach(1e6)
    assert patience.merge_after == 1e6
