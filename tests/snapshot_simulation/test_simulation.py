"""Some of the histories that `python -m tests.snapshot_simulation` plays."""

from __future__ import annotations

import pytest

from tests.simulation.played import require_no_broken_rule
from tests.simulation.runs import SEEDS_PER_RUN
from tests.snapshot_simulation.play import play
from tests.support.commit_seed import commit_seed

RUNS = 6


@pytest.mark.parametrize("first", [0, *(commit_seed() + n * SEEDS_PER_RUN for n in range(RUNS))])
def test_no_rule_is_broken(first: int) -> None:
    """Plays the histories of fixed seeds, and histories of seeds that change with each commit."""
    require_no_broken_rule(play, range(first, first + SEEDS_PER_RUN), "tests.snapshot_simulation")


def test_histories_have_kills_and_chunks_that_are_read_again() -> None:
    worlds = [play(seed) for seed in range(60)]
    events = [event for world in worlds for events in world.sink.values() for event in events]
    assert sum(world.kills for world in worlds) > 100
    assert sum(event.read for event in events) > 200
    assert sum(not event.read for event in events) > 1000
    chunks = [text for world in worlds for text in world.offsets if '"attempt": 2' in text]
    assert len(chunks) > 10


def test_a_seed_gives_the_same_history_each_time() -> None:
    lines: tuple[list[str], list[str]] = ([], [])
    for kept in lines:
        play(7, kept)
    assert lines[0] == lines[1] != []
