"""Which prepared transactions consumers may still need, and which transactions belong to another history."""

from __future__ import annotations

import pytest

from dispatcher.dispatch.history.xa_retention import acknowledged_by_all, in_history
from dispatcher.dispatch.values.executed_position import Mode, make_executed
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.model.position import LogPosition
from dispatcher.stream.xa_store import LogPoint

UUID = "48d18a75-e5c2-11f1-9c9d-02fc00000001"


def point(
    offset: int, gno: int = 0, *, file: int = 3, server: str = "s", created: int = 30
) -> LogPoint:
    return LogPoint(
        LogPosition(f"binlog.{file:06}", offset, created), UUID if gno else "", gno, server
    )


def view(mode: Mode, executed: str = "") -> ServerView:
    files = (("binlog.000003", 900), ("binlog.000004", 500))
    created = {"binlog.000003": 30}
    return ServerView("s", mode, executed, "", files, "binlog.000004", 500, created)


def test_a_point_with_a_gtid_is_acknowledged_when_every_set_has_it() -> None:
    positions = [make_executed(Mode.GTID, f"{UUID}:1-{n}", "binlog.000009", 9) for n in (7, 5)]
    check = acknowledged_by_all(Mode.GTID, positions)
    assert [check(point(10, gno)) for gno in (4, 5, 6, 8)] == [True, True, False, False]
    # A point from before GTIDs were turned on.
    assert check(point(10))
    assert not check(point(10, file=10))


@pytest.mark.parametrize("mode", [Mode.FILE, Mode.MARIADB])
def test_a_point_without_a_gtid_is_acknowledged_when_every_position_lies_behind_it(
    mode: Mode,
) -> None:
    positions = [make_executed(mode, "", "binlog.000003", n) for n in (700, 500)]
    check = acknowledged_by_all(mode, positions)
    assert [check(point(n)) for n in (499, 500, 600)] == [True, False, False]
    assert check(point(9000, file=2))


def test_a_point_with_a_gtid_is_in_history_if_it_was_executed() -> None:
    check = in_history(view(Mode.GTID, f"{UUID}:1-5"))
    assert [check(point(10, gno, server="any")) for gno in (5, 6)] == [True, False]
    assert [check(point(10)), check(point(10, created=31))] == [True, False]


def test_a_point_without_a_gtid_is_in_history_if_its_file_fits() -> None:
    check = in_history(view(Mode.FILE))
    assert check(point(900)), "the file's end"
    assert not check(point(901))
    assert not check(point(10, created=31)), "created again"
    assert check(point(10, file=2)), "purged"
    assert not check(point(10, file=5)), "newer than the server's newest file"
    assert check(point(10, file=5, server="other")), "of another server: not known"
