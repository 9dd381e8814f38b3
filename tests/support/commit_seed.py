"""Numbers that depend on the commit: random tests and the choice of slow tests differ from commit to commit, and a run
can be repeated."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

VARIABLE = "COMMIT_SEED"
_SEEDS = 10**9


@cache
def commit_seed() -> int:
    """Returns $COMMIT_SEED, or a number made from the commit that is checked out; 0 outside a repository."""
    if given := os.environ.get(VARIABLE):
        return int(given)
    return int(_git("rev-parse", "HEAD") or "0", 16) % _SEEDS


@cache
def commit_number() -> int:
    """Returns $COMMIT_SEED, or the number of commits up to the one that is checked out; 0 outside a repository."""
    if given := os.environ.get(VARIABLE):
        return int(given)
    return int(_git("rev-list", "--count", "HEAD") or "0")


def _git(*arguments: str) -> str:
    """Returns what git prints; "" outside a repository."""
    git = ["git", *arguments]
    done = subprocess.run(
        git, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else ""
