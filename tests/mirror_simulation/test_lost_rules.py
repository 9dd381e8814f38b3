"""Rules of the mirror about entries that the log has lost, and about tables that may exist without a trace in the
log."""

from __future__ import annotations

import pytest

from spark_sink.mirror.rules.effects import (
    CopyTable,
)
from spark_sink.mirror.rules.states import Stopped
from tests.mirror_simulation.moves import (
    COPIED,
    STOPPED,
    all_but_histories,
    ids,
    kinds,
    made,
    staged,
    swapped_during_a_replay,
    table,
)

# -- tables that may exist -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "moves",
    [
        ("create a", "drop a", "append", "works", "create a", "insert a 1=1", "append", "lose 2", "works"),
        ("create a", "drop a", "append", "works", "stop", "exclude a", "start", "create a", "insert a 1=1", "append",
         "works", "stop", "include a", "start", "works"),
        ("create a", "drop a", "append", "works", "old x 1=1", "rename x a"),
        ("create a", "drop a", "create b", "rename b a", "append", "works", "old x 1=1", "swap a x"),
    ],
    ids=["lost", "left out", "renamed", "swapped"],
)  # fmt: skip
def test_a_table_that_may_exist_is_not_taken_for_a_new_one(moves: tuple[str, ...]) -> None:
    stage = staged("settings unknown=partial", "start", *moves)
    made(stage, "create a absent=yes", "append", "works", "insert a 2=2", "append", "works")
    assert table(stage, "a").word == "partial"


# -- what the log has lost -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("keyless", ["", "yes"])
def test_a_copy_begins_again_if_it_meets_a_truncate_that_was_lost(keyless: str) -> None:
    stage = staged("settings", "start", f"create a keyless={keyless}", "insert a 1=1", "append")
    made(stage, "works", "ask a recopy", "work StoreRecords ClearCopy StoreRecords")
    made(stage, "truncate a", "insert a 2=2", "append", "lose 2", "work ReadLog")
    while CopyTable in kinds(stage):
        made(stage, "work CopyTable")
    made(stage, "insert a 3=3", "append", "work StoreRecords", "restore", "works", "append")
    made(stage, "wait 60", "works")
    assert table(stage, "a").word == "complete" and ids(stage, "a") == {2, 3}


def test_a_table_is_copied_if_its_replay_meets_a_drop_that_was_lost() -> None:
    stage = staged("settings", "start", "create a", "insert a 1=1", "append", "works", "drop a")
    made(stage, "create a", "insert a 2=2", "append", "lose 2", "works", "insert a 3=3", "append")
    made(stage, "works", "restore", "ask a retry", "works", "append", "wait 60", "works")
    assert table(stage, "a").word == "complete" and ids(stage, "a") == {2, 3}


def test_what_is_lost_before_a_rename_does_not_stop_the_table_behind_it() -> None:
    stage = swapped_during_a_replay()
    made(stage, "lose 1", "work StoreRecords", "ask c retry", "works")
    assert table(stage, "c").word == "partial" and ids(stage, "c") == {4}


def test_a_history_stops_before_entries_that_are_lost() -> None:
    stage = staged("settings history=yes", "start", "create a", "insert a 1=1", "append")
    all_but_histories(stage)
    made(stage, "lose 1", "works")
    (history,) = (r for r in stage.world.control.records.values() if r.history)
    assert history.word == "stopped"


def test_the_log_is_kept_until_a_record_that_needs_less_is_stored() -> None:
    stage = staged("settings purged=partial", "start", "create a", "append", "works")
    made(stage, "insert a 1=1", "append", "lose 2", "works")
    made(stage, "insert a 2=2", "append", "works", "wait 60", "works", "purge", "gap")
    # The table becomes partial after the gap, and that is not stored.
    made(stage, "work ReadLog", "work StoreRecords fails=before", "forget", "kill", "restore")
    made(stage, "start", "ask a retry")
    for works in ("work StoreRecords", "work AskTable ChangeTable StoreRecords"):
        made(stage, works)
        *_, replay = stage.world.running()
        stage.world.finish(replay)
    made(stage, "work CommitRows", "works")
    assert table(stage, "a").word == "partial"
    assert ids(stage, "a") == {1, 2}


def test_a_rename_that_was_lost_when_it_was_due_stops_a_replay() -> None:
    stage = staged("settings", "start", "create a", "insert a 1=1", "create b", "append", "works")
    made(stage, "swap a b", "append", "lose 2", "works", "insert a 2=2", "append", "works")
    made(stage, "restore", "ask a retry", "works")
    record = table(stage, "a")
    assert isinstance(record.state, Stopped) and "RENAME" in record.reason


def test_a_rename_that_is_read_after_a_later_one_does_not_change_names() -> None:
    begun = ("create a", "insert a 1=1", "create b", "insert b 2=2", "append", "works")
    stage = staged("settings", "start", *begun, *STOPPED[6:], "wait 60", "works")
    made(stage, "swap a b", "append", "lose 3", "works", "rename a c", "append", "works")
    # The watermark is before the entries that were lost, so the next job reads them again.
    made(stage, "kill", "restore", "start", "works", "ask c retry", "works")
    assert table(stage, "c").word == "stopped" and "RENAME" in table(stage, "c").reason


def test_a_copy_begins_behind_the_newest_entries_if_they_are_lost() -> None:
    stage = staged("settings", "start", "create a", "insert a 1=1", "append", "works")
    made(stage, "insert a 2=2", "append", "lose 2", "works", "ask a recopy", "works")
    made(stage, "insert a 3=3", "append", "works", "wait 60", "works")
    assert table(stage, "a").word == "complete"


def test_a_copy_does_not_go_back_behind_entries_that_were_skipped() -> None:
    stage = staged("settings", "start", "create a", "insert a 1=1", "append", "works")
    made(stage, "insert a 2=2", "append", "lose 2", "works", "ask a skip", "works")
    made(stage, "ask a recopy", "works")
    assert "newest entries of the log are lost" in table(stage, "a").reason


def test_a_change_of_the_columns_that_was_lost_begins_a_copy_again() -> None:
    moves = COPIED[1:5]
    stage = staged("settings unfollowed=stop", *moves)
    made(stage, "work ReadLog StoreRecords ClearCopy StoreRecords")
    assert kinds(stage) == [CopyTable]
    made(stage, "add a b=5", "append", "lose 2", "work ReadLog", "restore")
    made(stage, "work CopyTable CopyTable", "works")
    assert table(stage, "a").word == "complete"


AHEAD = (
    "settings purged=partial",
    "start",
    "create a",
    "insert a 1=1",
    "append",
    "works",
    "add a b=5",
    "append",
    "work ReadLog ChangeTable",
    "kill",
    "lose 2",
    "start",
    "works",
)


@pytest.mark.parametrize(
    "moves", [("ask a skip",), ("wait 60", "purge", "gap")], ids=["skip", "gap"]
)
def test_columns_that_only_the_delta_table_shows_are_those_that_the_next_rows_must_have(
    moves: tuple[str, ...],
) -> None:
    """The job is killed between the change of the Delta table and the record of it, and then the log loses the ALTER
    TABLE."""
    stage = staged(*AHEAD)
    state = table(stage, "a").state
    assert isinstance(state, Stopped) and state.ahead
    made(stage, *moves, "works", "insert a 2=2", "append", "works")
    assert table(stage, "a").word == "partial" and ids(stage, "a") == {1, 2}


def test_a_replay_knows_that_the_delta_table_shows_an_entry_that_was_lost() -> None:
    stage = staged(*AHEAD, "restore", "ask a retry", "work StoreRecords", "lose 2", "works")
    state = table(stage, "a").state
    assert isinstance(state, Stopped) and state.ahead
