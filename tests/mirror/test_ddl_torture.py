"""Random histories of DDL and DML on a server, mirrored by daemon and job. The mirror equals the server at several
positions and at the end, and copies a table only for a change that the log does not show.

Each history prints its seed. `DDL_SEED` repeats the history with that seed; `DDL_STATEMENTS` is its length.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.mirror.ddl_history import Change, History
from tests.mirror.harness import MirrorJob
from tests.mirror.lake import control_rows

DATABASE = "shop"


def _seed() -> int:
    return int(os.environ.get("DDL_SEED") or random.SystemRandom().randrange(1 << 31))


def _execute(job: MirrorJob, changes: Sequence[Change]) -> None:
    statements = [statement for change in changes for statement in change.statements]
    job.server.execute("SET SESSION foreign_key_checks = 0", *statements, database=DATABASE)


def _copies(target: Path) -> Counter[str]:
    """Returns for each table name how often the mirror began a copy of the table that had this name."""
    copies: Counter[str] = Counter()
    states: dict[str, str] = {}
    for row in control_rows(target):
        if row["kind"] != "table":
            continue
        before = states.get(row["table_id"], "")
        if row["state"] == "creating" and before not in ("creating", "copying"):
            copies[row["table"]] += 1
        states[row["table_id"]] = row["state"]
    return copies


def play(
    job: MirrorJob,
    history: History,
    statements: int,
    positions: int,
    also: Callable[[], None] = lambda: None,
) -> None:
    """Play a history, and compare mirror and server at `positions` positions; the last position is the end. `also`:
    waits for further conditions at each position."""
    _execute(job, list(history.creation()))
    allowed: Counter[str] = Counter()
    for position in range(positions):
        # For each second position, the job starts after all statements are in the log.
        away = position % 2 == 1
        if not away:
            job.start(DATABASE, now=False)
        for change in history.changes(statements // positions):
            _execute(job, [change])
            allowed.update(change.recopied)
        if away:
            job.start(DATABASE, now=False)
        job.until_equal(DATABASE)
        job.until_complete(DATABASE)
        also()
        assert job.stop() == 0, job.log
    copies = _copies(job.target)
    assert not copies - allowed, f"{copies} were copied, and only {allowed} had to be"
    print(f"{copies.total()} copies, and {allowed.total()} were allowed")


@pytest.mark.deep
def test_a_short_history_of_ddl(job: MirrorJob) -> None:
    play(job, History(seed=311, tables=4), statements=40, positions=2)


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_a_long_history_of_ddl(job: MirrorJob) -> None:
    seed = _seed()
    print(f"\nDDL_SEED={seed}")
    statements = int(os.environ.get("DDL_STATEMENTS", "500"))
    play(job, History(seed, tables=10), statements, positions=4)
