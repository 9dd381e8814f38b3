"""The wait budget of a slow consumer. The times are numbers. One test compares the budget with its definition, which it
computes in small steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.dispatch.values.wait_budget import (
    DETACHES_MAX,
    MERGE_AFTER_S,
    REFILL,
    WINDOW_S,
    WaitBudget,
)

TIMES = st.floats(0.001, 40.0)


def test_a_wait_lasts_as_long_as_the_budget() -> None:
    assert WaitBudget(10.0).deadline is None
    budget = WaitBudget(10.0)
    budget.begin(100.0)
    assert budget.deadline == 110.0
    assert not budget.exhausted(109.9)
    assert budget.exhausted(110.0)


def test_a_budget_of_0_allows_no_wait() -> None:
    budget = WaitBudget(0.0)
    budget.begin(5.0)
    assert budget.exhausted(5.0)


def test_a_second_begin_changes_nothing() -> None:
    budget = WaitBudget(10.0)
    budget.begin(100.0)
    budget.begin(104.0)
    assert budget.deadline == 110.0


@given(st.floats(0.0, 60.0), st.lists(st.tuples(TIMES, TIMES), max_size=30))
def test_waiting_spends_the_budget_and_time_refills_it(
    max_s: float, turns: list[tuple[float, float]]
) -> None:
    budget, now, left, waited = WaitBudget(max_s), 0.0, max_s, 0.0
    for apart, wait in turns:
        now += apart
        left = min(max_s, left + REFILL * apart)
        budget.begin(now)
        deadline = budget.deadline
        assert deadline is not None
        assert deadline == pytest.approx(now + left)
        now += wait
        left, waited = max(0.0, left - wait), waited + wait
        budget.end(now)
    assert budget.waited_s == pytest.approx(waited)


@given(st.floats(0.1, 30.0), st.lists(TIMES, min_size=1, max_size=200))
def test_waits_take_at_most_a_twentieth_of_any_time_and_one_budget(
    max_s: float, apart: list[float]
) -> None:
    """Each wait lasts until its deadline, and no consumer is detached."""
    budget, now, lost = WaitBudget(max_s), 0.0, 0.0
    for gap in apart:
        now += gap
        budget.begin(now)
        deadline = budget.deadline
        assert deadline is not None
        lost += deadline - now
        now = deadline
        budget.end(now)
    assert lost <= max_s + REFILL * now + 1e-6


def test_after_three_detaches_in_the_window_there_is_no_wait() -> None:
    budget = WaitBudget(10.0)
    for n in range(DETACHES_MAX):
        budget.begin(100.0 * n)
        assert not budget.exhausted(100.0 * n)
        budget.record_detach(100.0 * n + 10)
    budget.begin(300.0)
    assert budget.exhausted(300.0)
    budget.end(300.0)
    budget.begin(10 + WINDOW_S)
    assert not budget.exhausted(10 + WINDOW_S)


def test_each_detach_in_the_window_delays_the_merge() -> None:
    budget = WaitBudget(0.0)
    for n, delay in enumerate((*MERGE_AFTER_S, MERGE_AFTER_S[-1])):
        budget.begin(float(n))
        budget.record_detach(float(n))
        assert budget.merge_after == n + delay
    budget.begin(1e6)
    budget.record_detach(1e6)
    assert budget.merge_after == 1e6
