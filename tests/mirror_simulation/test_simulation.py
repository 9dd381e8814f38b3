"""Half a minute of the histories that `make simulate` plays."""

from __future__ import annotations

import pytest

from tests.mirror_simulation.play import play, trace
from tests.simulation.played import require_no_broken_rule, trace_for_any_hash_seed
from tests.simulation.runs import SEEDS_PER_RUN, play_all
from tests.support.commit_seed import commit_seed

RUNS = 15


@pytest.mark.parametrize("first", [0, *(commit_seed() + n * SEEDS_PER_RUN for n in range(RUNS))])
def test_no_rule_is_broken(first: int) -> None:
    """Plays the histories of fixed seeds, and histories of seeds that change with each commit."""
    require_no_broken_rule(play, range(first, first + SEEDS_PER_RUN), "tests.mirror_simulation")


@pytest.mark.parametrize("seed", [12006532, 12016850, 13012016])
def test_no_rule_is_broken_in_rare_histories(seed: int) -> None:
    """These histories have broken a rule once. Hardly any others reach the same states."""
    play(seed)


def test_plays_run_in_several_processes() -> None:
    assert list(play_all(play, 7, 3, 2)) == [(3, None)]


def test_a_seed_gives_the_same_play_each_time() -> None:
    assert trace(7) == trace(7)


def test_a_play_does_not_depend_on_the_hash_seed() -> None:
    assert "RowsCommitted" in trace_for_any_hash_seed("tests.mirror_simulation")
