"""A minute of the histories that `make simulate` plays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.play import SEEDS_PER_LOG, play, trace
from tests.simulation.runs import play_all
from tests.support.commit_seed import commit_seed

RUNS = 20  # of seeds that share a log


@pytest.mark.parametrize("log", [0, *(commit_seed() // SEEDS_PER_LOG + n for n in range(RUNS))])
def test_no_rule_is_broken(log: int) -> None:
    """Of the histories that have always been played, and of those of this commit."""
    for seed in range(log * SEEDS_PER_LOG, (log + 1) * SEEDS_PER_LOG):
        try:
            play(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed} (make simulate FIRST={seed} SEEDS=1)") from error


def test_plays_run_in_several_processes() -> None:
    assert list(play_all(play, 7, 3, 2)) == [(3, None)]


def test_a_seed_gives_the_same_play_each_time() -> None:
    assert trace(7) == trace(7)


TRACE = """
from tests.simulation.play import trace
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
    assert "BatchReceived" in traces.pop()
