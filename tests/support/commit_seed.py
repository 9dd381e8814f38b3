"""A seed that depends on the commit: random tests differ from commit to commit, and a run can be repeated."""

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
    git = ["git", "rev-parse", "HEAD"]
    head = subprocess.run(
        git, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return int(head.stdout, 16) % _SEEDS if head.returncode == 0 else 0
