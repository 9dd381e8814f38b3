"""Logs that real servers wrote decode to the recorded events; no server is needed."""

from __future__ import annotations

import json

import pytest

from tests.data.record import FOLDER, inspected
from tests.servers import KINDS

_SIZE_MAX = 600_000


def test_the_recordings_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.binlog")) < _SIZE_MAX


@pytest.mark.parametrize("kind", KINDS)
def test_a_recorded_log_decodes_to_the_recorded_events(kind: str) -> None:
    wanted = (FOLDER / f"{kind}.jsonl").read_text().splitlines()
    found = inspected(FOLDER / f"{kind}.binlog").splitlines()
    assert len(wanted) > 90
    for one, other in zip(found, wanted, strict=True):
        assert json.loads(one) == json.loads(other)
