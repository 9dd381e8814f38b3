"""Until when prepared transactions are of use, and which of them are of a history that is no more."""

from __future__ import annotations

import pytest

from dispatcher.binlog.stream.xa_store import LogPoint
from dispatcher.dispatch.executed_position import Mode, make_executed
from dispatcher.dispatch.server_view import ServerView
from dispatcher.dispatch.xa_retention import acknowledged_by_all, in_history
from dispatcher.model.position import LogPosition

UUID = "48d18a75-e5c2-11f1-9c9d-02fc00000001"


def spot(
    offset: int, gno: int = 0, *, file: int = 3, server: str = "s", created: int = 30
) -> LogPoint:
    return LogPoint(
        LogPosition(f"binlog.{file:06}", offset, created), UUID if gno else "", gno, server
    )


def view(mode: Mode, executed: str = "") -> ServerView:
    files = (("binlog.000003", 900), ("binlog.000004", 500))
    created = {"binlog.000003": 30}
    return ServerView("s", mode, executed, "", files, "binlog.000004", 500, created)


def test_passed_by_gtid() -> None:
    places = [make_executed(Mode.GTID, f"{UUID}:1-{n}", "binlog.000009", 9) for n in (7, 5)]
    check = acknowledged_by_all(Mode.GTID, places)
    assert [check(spot(10, gno)) for gno in (4, 5, 6, 8)] == [True, True, False, False]
    # One from before GTIDs were turned on.
    assert check(spot(10))
    assert not check(spot(10, file=10))


@pytest.mark.parametrize("mode", [Mode.FILE, Mode.MARIADB])
def test_passed_by_file(mode: Mode) -> None:
    places = [make_executed(mode, "", "binlog.000003", n) for n in (700, 500)]
    check = acknowledged_by_all(mode, places)
    assert [check(spot(n)) for n in (499, 500, 600)] == [True, False, False]
    assert check(spot(9000, file=2))


def test_valid_by_gtid() -> None:
    check = in_history(view(Mode.GTID, f"{UUID}:1-5"))
    assert [check(spot(10, gno, server="any")) for gno in (5, 6)] == [True, False]
    assert [check(spot(10)), check(spot(10, created=31))] == [True, False]


def test_valid_by_file() -> None:
    check = in_history(view(Mode.FILE))
    assert check(spot(900)), "the file's end"
    assert not check(spot(901))
    assert not check(spot(10, created=31)), "made anew"
    assert check(spot(10, file=2)), "purged"
    assert not check(spot(10, file=5)), "the server's files began anew"
    assert check(spot(10, file=5, server="other")), "cannot be told"
