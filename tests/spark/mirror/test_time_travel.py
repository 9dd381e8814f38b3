"""Which version of a Delta table has the rows of an entry of the log, by what its commits record."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from spark_sink.mirror.tables.time_travel import lsn_of_commit, version_at


@given(st.lists(st.one_of(st.none(), st.integers(1, 3)), max_size=10), st.integers(0, 30))
def test_the_version_is_the_last_one_before_a_later_step(steps: list[int | None], lsn: int) -> None:
    """`steps`: by how much each commit's lsn is larger than the one before, None for a commit of no step."""
    recorded: list[int | None] = []
    newest = 0
    for step in steps:
        newest += step or 0
        recorded.append(newest if step else None)
    later = [v for v, found in enumerate(recorded) if found is not None and found > lsn]
    expected = later[0] - 1 if later else len(recorded) - 1
    assert version_at(len(recorded) - 1, recorded.__getitem__, lsn) == expected


def test_a_commit_records_the_lsn_of_one_application() -> None:
    other, own = ({"txn": {"appId": name, "version": 7}} for name in ("other", "own"))
    assert lsn_of_commit(json.dumps(other) + "\n{}\n" + json.dumps(own), "own") == 7
    assert lsn_of_commit(json.dumps(other) + "\n", "own") is None
