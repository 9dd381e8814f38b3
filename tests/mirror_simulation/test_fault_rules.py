"""Rules of the mirror about files of tables that cannot be read, changed or moved."""

from __future__ import annotations

from spark_sink.mirror.rules.effects import (
    AskTable,
    CommitRows,
    Effect,
    MoveFolders,
)
from spark_sink.mirror.rules.states import Creating
from tests.mirror_simulation.moves import (
    COPIED,
    STOPPED,
    ids,
    kinds,
    made,
    staged,
    table,
)
from tests.mirror_simulation.plays import Stage


def test_a_statement_of_a_stopped_table_is_left_in_the_log_if_its_files_are_damaged() -> None:
    stage = staged(*STOPPED, "truncate a", "append", "work ReadLog", "work AskTable fails=fault")
    made(stage, "works", "ask a retry", "works")
    assert table(stage, "a").word == "complete" and not ids(stage, "a")


def test_a_gap_of_a_stopped_table_needs_no_files() -> None:
    stage = staged(*STOPPED, "purge", "insert a 9=9", "gap", "work ReadLog")
    assert AskTable not in kinds(stage)
    made(stage, "works", "ask a retry", "works", "append", "wait 60", "works")
    assert table(stage, "a").word == "complete" and ids(stage, "a") == {1, 2, 9}


def test_a_stopped_table_does_not_go_on_behind_lost_entries() -> None:
    stage = staged(*STOPPED, "insert a 9=9", "append", "lose 3", "works", "ask a retry", "works")
    assert table(stage, "a").word == "stopped"


def test_a_dropped_table_stops_if_its_files_are_damaged_when_it_is_made_again() -> None:
    stage = staged("settings", "start", "create a", "insert a 1=1", "drop a", "append", "works")
    made(stage, "wait 60", "works", "kill", "start", "works", "create a", "insert a 5=5", "append")
    made(stage, "work ReadLog", "work AskTable fails=fault", "works")
    assert table(stage, "a").word == "stopped"
    made(stage, "ask a retry", "works")
    assert table(stage, "a").word == "complete" and ids(stage, "a") == {5}


def test_a_move_that_is_refused_is_tried_again() -> None:
    stage = staged(*COPIED, "work MoveFolders fails=fault", "works")
    assert table(stage, "a").word == "copying"
    made(stage, "wait 60", "works")
    assert table(stage, "a").word == "complete"


def test_a_replay_stops_at_a_fault_behind_the_entries_of_an_earlier_step() -> None:
    stage = staged(*STOPPED, "insert a 3=3", "append", "works", "ask a retry")
    made(stage, "work StoreRecords AskTable ReadLog")
    assert kinds(stage) == [CommitRows]
    made(stage, "work CommitRows fails=before", "wait 5", "work AskTable fails=fault", "works")
    assert table(stage, "a").word == "stopped" and not stage.world.running()


def test_a_read_that_fails_does_not_stop_a_table_that_was_emptied_meanwhile() -> None:
    stage = staged(*STOPPED, "ask a retry", "work StoreRecords AskTable", "truncate a", "append")
    replay, of_queues = stage.world.running()
    stage.world.finish(of_queues)
    while others := [effect for effect in stage.world.running() if effect != replay]:
        stage.world.finish(others[0])
    stage.world.finish(replay, fails="fault")
    made(stage, "works")
    assert table(stage, "a").word == "complete"


def test_a_rename_stops_only_the_table_whose_files_are_damaged() -> None:
    begun = ("create a", "insert a 1=1", "create x", "insert x 1=1", "append", "works", "wait 60")
    stage = staged("settings", "start", *begun, "works", "kill", "start", "works")
    made(stage, "rename a b", "insert x 2=2", "append", "work ReadLog")
    made(stage, "work AskTable fails=fault", "works")
    assert table(stage, "b").word == "stopped" and table(stage, "x").word == "complete"
    made(stage, "ask b retry", "works")
    assert table(stage, "b").word == "complete" and ids(stage, "b") == {1}


def test_a_rename_of_a_table_whose_folder_was_removed_does_not_end_the_consumer() -> None:
    begun = ("create a", "insert a 1=1", "create x", "insert x 1=1", "append", "works", "wait 60")
    stage = staged("settings", "start", *begun, "works", "kill", "free a", "start", "works")
    made(stage, "rename a b add=z", "insert x 2=2", "append", "works")
    assert table(stage, "b").word == "stopped" and table(stage, "x").word == "complete"


def test_a_request_looks_at_the_files_again() -> None:
    stage = staged("settings", "put a", "start", "create a", "insert a 1=1", "append", "works")
    assert table(stage, "a").word == "stopped"
    made(stage, "free a", "ask a retry", "works")
    assert table(stage, "a").word == "complete"


def failing(stage: Stage, kind: type[Effect]) -> None:
    """Let all works end; those of one kind fail."""
    while works := stage.world.running():
        stage.world.finish(works[0], fails="before" if isinstance(works[0], kind) else "")


def test_tables_whose_moves_fail_do_not_keep_others_waiting() -> None:
    stage = staged("settings", "start", "create x", "insert x 1=1", "append", "works")
    made(stage, "old a 1=1", "old b 1=1", "insert a 2=2", "insert b 2=2", "append")
    failing(stage, MoveFolders)
    made(stage, "append")
    failing(stage, MoveFolders)
    made(stage, "insert a 7=7", "insert b 7=7", "insert x 7=7", "append")
    failing(stage, MoveFolders)
    assert ids(stage, "x") == {1, 7}
    made(stage, "wait 60", "works")
    assert {table(stage, name).word for name in ("a", "b")} == {"complete"}


def test_a_drain_ends_without_a_table_whose_move_fails() -> None:
    stage = staged("settings", "old a 1=1", "insert a 2=2", "append", "start drain=yes")
    failing(stage, MoveFolders)
    made(stage, "insert a 7=7", "append")
    for _ in range(12):
        failing(stage, MoveFolders)
        made(stage, "wait 70")
    assert stage.world.mirror.at_rest()


def test_a_table_does_not_wait_for_one_that_had_its_name_before() -> None:
    stage = staged("settings", "start", "create a", "insert a 1=1", "append", "works", "put c")
    made(stage, "rename a c", "append", "works", "free c", "wait 60")
    failing(stage, MoveFolders)
    made(stage, "create a", "insert a 5=5", "append")
    failing(stage, MoveFolders)
    assert ids(stage, "a") == {5}
    made(stage, "wait 60", "works")
    assert table(stage, "c").word == "complete" and ids(stage, "c") == {1}


def test_a_request_during_the_move_before_a_copy_is_answered() -> None:
    stage = staged(*COPIED[:-1], "work StoreRecords StoreRecords AskTable")
    made(stage, "ask a recopy", "work StoreRecords StoreRecords")
    assert isinstance(table(stage, "a").state, Creating) and kinds(stage) == [MoveFolders]
    made(stage, "work MoveFolders fails=before", "ask a retry", "wait 60", "works", "append")
    made(stage, "works")
    assert table(stage, "a").word == "complete"
