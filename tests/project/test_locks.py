"""The order of the mirror's locks. `tests/spark/mirror` checks it while tables are mirrored."""

from __future__ import annotations

import pytest

from tests.support.lock_order import listed, made, watched


def test_the_page_lists_each_lock_once() -> None:
    assert len(listed()) == len(set(listed()))
    assert set(listed()) == made()


def test_a_wrong_order_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_sink.mirror.lake.group_commit import GroupCommit  # noqa: PLC0415
    from spark_sink.mirror.log import stage  # noqa: PLC0415

    def commit(_: list[int]) -> None:
        with stage._CLAIMING:
            pass

    with watched(monkeypatch) as order:
        GroupCommit(commit).add([1])
    assert order.broken == [
        "('log/stage.py', '_CLAIMING') is taken while ('lake/group_commit.py', '_turn') is held"
    ]
