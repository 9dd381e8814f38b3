"""Plays histories of `make simulate` for a minute."""

from __future__ import annotations

import pytest

from tests.simulation.play import SEEDS_PER_LOG, play, trace
from tests.simulation.played import require_no_broken_rule, trace_for_any_hash_seed
from tests.simulation.runs import play_all
from tests.support.commit_seed import commit_seed

RUNS = 12  # groups of seeds; the seeds of a group share a log


@pytest.mark.parametrize("log", [0, *(commit_seed() // SEEDS_PER_LOG + n for n in range(RUNS))])
def test_no_rule_is_broken(log: int) -> None:
    """Plays the histories of fixed seeds, and histories of seeds that change with each commit."""
    require_no_broken_rule(
        play, range(log * SEEDS_PER_LOG, (log + 1) * SEEDS_PER_LOG), "tests.simulation"
    )


def test_plays_run_in_several_processes() -> None:
    assert list(play_all(play, 7, 3, 2)) == [(3, None)]


def test_a_seed_gives_the_same_play_each_time() -> None:
    assert trace(7) == trace(7)


def test_a_play_does_not_depend_on_the_hash_seed() -> None:
    assert "BatchReceived" in trace_for_any_hash_seed("tests.simulation")
