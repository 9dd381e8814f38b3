"""What a queue knows of its files: creation times, and which positions are anchored."""

from __future__ import annotations

from dispatcher.dispatch.queue.queue_files import QueueFiles
from dispatcher.dispatch.values.executed_position import Mode, make_executed

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
EARLY = make_executed(Mode.GTID, f"{UUID}:1-3", "binlog.000003", 400)
LATE = make_executed(Mode.GTID, f"{UUID}:1-5", "binlog.000004", 90)


def begun(mode: Mode = Mode.GTID, *, anchored: bool = False) -> QueueFiles:
    files = QueueFiles()
    files.begin(mode, EARLY, 30, anchored=anchored)
    return files


def test_what_a_server_says_does_not_replace_a_known_creation_time() -> None:
    files = begun()
    files.learn_created("binlog.000003", 31)
    files.learn_created("binlog.000004", 40)
    assert [files.created_of(file) for file in ("binlog.000003", "binlog.000004")] == [30, 40]


def test_files_before_the_acknowledged_one_are_dropped() -> None:
    files = begun()
    files.read("binlog.000004", 40)
    files.drop_before("binlog.000004")
    assert [files.created_of(file) for file in ("binlog.000003", "binlog.000004")] == [0, 40]


def test_a_position_is_anchored_from_the_first_anchor_on() -> None:
    files = begun()
    assert not files.is_anchored(LATE)
    files.anchor(LATE)
    files.anchor(EARLY)
    assert files.is_anchored(LATE) and not files.is_anchored(EARLY)


def test_without_gtids_every_position_is_anchored() -> None:
    assert begun(Mode.FILE).is_anchored(EARLY)


def test_the_stored_creation_time_is_negative_for_a_position_that_is_not_anchored() -> None:
    assert begun().created_stored(EARLY) == -30
    assert begun(anchored=True).created_stored(EARLY) == 30
