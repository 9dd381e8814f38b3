"""How long the server keeps the files that a consumer needs."""

from __future__ import annotations

import pytest

from dispatcher.dispatch.history.runway import bytes_behind, files_to_poll, seconds_to_purge
from dispatcher.dispatch.messages.events import ServerPolled
from dispatcher.dispatch.values.executed_position import Mode
from dispatcher.dispatch.values.server_view import ServerView

NAMES = ("binlog.999999", "binlog.1000000", "binlog.1000001")
SIZES = tuple((name, 100) for name in NAMES)
CREATED = {"binlog.1000000": 5000, "binlog.1000001": 6000}
VIEW = ServerView("here", Mode.GTID, "", "", SIZES, NAMES[-1], 100, CREATED)


@pytest.mark.parametrize(
    ("file", "now_s", "want"),
    [
        (NAMES[0], 5100.0, 900.0),
        (NAMES[0], 6500.0, 0.0),
        (NAMES[1], 6500.0, 500.0),
        (NAMES[2], 6500.0, 1000.0),
        ("binlog.999998", 0.0, 0.0),
        ("binlog.1000002", 0.0, None),
        ("", 0.0, None),
    ],
)
def test_a_file_is_purged_some_time_after_it_was_closed(
    file: str, now_s: float, want: float | None
) -> None:
    assert seconds_to_purge(ServerPolled(VIEW, 1000), "here", file, now_s) == want


def test_an_unknown_runway_is_none() -> None:
    assert seconds_to_purge(ServerPolled(VIEW, None), "here", NAMES[0], 0.0) is None
    assert seconds_to_purge(ServerPolled(VIEW, 1000), "elsewhere", NAMES[0], 0.0) is None
    unknown = ServerView("here", Mode.GTID, "", "", SIZES, NAMES[-1], 100, {})
    assert seconds_to_purge(ServerPolled(unknown, 1000), "here", NAMES[0], 0.0) is None


def test_the_creation_time_of_the_next_file_is_polled() -> None:
    poll = ServerPolled(VIEW, 1000)
    assert files_to_poll(poll, [NAMES[1], NAMES[0], NAMES[0]]) == sorted(NAMES[1:])
    assert files_to_poll(poll, [NAMES[2], "", "binlog.999998"]) == []
    assert files_to_poll(None, [NAMES[0]]) == []


@pytest.mark.parametrize(
    ("file", "offset", "want"),
    [
        (NAMES[0], 40, 260),
        (NAMES[2], 100, 0),
        (NAMES[2], 150, 0),  # the consumer has read more since the server was asked
        ("binlog.1000002", 4, 0),
        ("binlog.999998", 4, None),
        ("", 0, None),
    ],
)
def test_bytes_behind_the_end_of_the_log(file: str, offset: int, want: int | None) -> None:
    assert bytes_behind(ServerPolled(VIEW, 1000), "here", file, offset) == want
    assert bytes_behind(ServerPolled(VIEW, 1000), "elsewhere", file, offset) is None
