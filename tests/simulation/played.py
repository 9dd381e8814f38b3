"""The checks of histories that the tests of several simulations share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.simulation.runs import Play

_ROOT = Path(__file__).parents[2]
_TRACE = """
from {package}.play import trace
for seed in (2, 5, 8, 11):
    print("\\n".join(trace(seed)))
"""


def require_no_broken_rule(play: Play, seeds: Iterable[int], package: str) -> None:
    """Plays seeds. An error names the seed, and the command that plays it again."""
    for seed in seeds:
        try:
            play(seed)
        except Exception as error:
            repeated = f"python -m {package} --show {seed}"
            raise AssertionError(f"seed {seed} ({repeated})") from error


def trace_for_any_hash_seed(package: str) -> str:
    """Returns the transcripts of some seeds, which have to be the same in processes with different hash seeds."""
    traces = {
        subprocess.run(
            [sys.executable, "-c", _TRACE.format(package=package)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(traces) == 1
    return traces.pop()
