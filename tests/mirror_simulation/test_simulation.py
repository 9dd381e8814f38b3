"""A minute of the histories that `make simulate` plays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mirror_simulation.play import play, trace
from tests.simulation.runs import SEEDS_PER_RUN, play_all
from tests.support.commit_seed import commit_seed

RUNS = 30


@pytest.mark.parametrize("first", [0, *(commit_seed() + n * SEEDS_PER_RUN for n in range(RUNS))])
def test_no_rule_is_broken(first: int) -> None:
    """Of the histories that have always been played, and of those of this commit."""
    for seed in range(first, first + SEEDS_PER_RUN):
        try:
            play(seed)
        except Exception as error:
            repeated = f"python -m tests.mirror_simulation --show {seed}"
            raise AssertionError(f"seed {seed} ({repeated})") from error


def test_plays_run_in_several_processes() -> None:
    assert list(play_all(play, 7, 3, 2)) == [(3, None)]


def test_a_seed_gives_the_same_play_each_time() -> None:
    assert trace(7) == trace(7)


TRACE = """
from tests.mirror_simulation.play import trace
for seed in (2, 5, 8, 11):
    print("\\n".join(trace(seed)))
"""


def test_a_play_does_not_depend_on_the_hash_seed() -> None:
    root = Path(__file__).parents[2]
    traces = {
        subprocess.run(
            [sys.executable, "-c", TRACE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(traces) == 1
    assert "RowsCommitted" in traces.pop()
