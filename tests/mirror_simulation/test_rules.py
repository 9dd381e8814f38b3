"""Rules of the mirror that random histories hardly ever reach. Each test plays moves that reach one rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import count

import pytest

from spark_sink.mirror.rules.effects import (
    AskTable,
    ChangeTable,
    CommitRows,
    CompareVersions,
    CopyTable,
    MoveFolders,
    ReadLog,
    StoreRecords,
)
from spark_sink.mirror.rules.events import Answer, Failure, RequestsRead, Ticked
from spark_sink.mirror.rules.retries import REPORTED_AFTER
from spark_sink.mirror.rules.states import CatchingUp, Creating, LeftOut, Live, Stopped
from spark_sink.mirror.rules.table_record import Wish
from spark_sink.mirror.rules.tasks.task import Task
from spark_sink.mirror.values.entries import first_lsn
from tests.mirror_simulation.moves import (
    COPIED,
    STOPPED,
    all_but_histories,
    ids,
    is_of_history,
    kinds,
    made,
    staged,
    swapped_during_a_replay,
    table,
)
from tests.mirror_simulation.plays import Stage

# -- records -------------------------------------------------------------------------------------------------------


def test_a_table_of_another_consumer_is_not_mirrored() -> None:
    stage = staged("settings")
    stage.world.owners[("shop", "a")] = "crm"
    made(stage, "start", "old a 1=1", "insert a 2=2", "append", "work ReadLog", "work StoreRecords")
    record = table(stage, "a")
    assert isinstance(record.state, Stopped) and "crm" in record.reason and not record.folder


def test_a_folder_of_somebody_else_is_not_touched() -> None:
    stage = staged("settings", "put a", "start", "create a", "insert a 1=1", "append", "works")
    record = table(stage, "a")
    assert isinstance(record.state, Stopped) and "python -m spark_sink adopt" in record.reason


@pytest.mark.parametrize("moves", [(), ("drop b", "append", "works")])
def test_a_folder_that_somebody_copied_is_not_touched(moves: tuple[str, ...]) -> None:
    stage = staged("settings", "start", "create b", "insert b 1=1", "append", "works")
    folders = stage.world.lake.folders
    folders["shop/a"] = replace(folders["shop/b"], rows=Counter(folders["shop/b"].rows))
    made(stage, *moves, "create a", "insert a 2=2", "append", "works")
    assert folders["shop/a"].rows and isinstance(table(stage, "a").state, Stopped)


def test_rows_of_another_history_of_the_server_stop_a_table() -> None:
    stage = staged("settings", "start", "create a", "insert a 1=1", "append", "works")
    stage.server.epoch += 1
    made(stage, "insert a 2=2", "append", "works")
    assert isinstance(table(stage, "a").state, Stopped)
    made(stage, "ask a applied", "works")
    assert stage.move("wait 0") == [] and table(stage, "a").word == "complete"


# -- requests ------------------------------------------------------------------------------------------------------


def test_a_request_ends_a_pause() -> None:
    moves = ("rename a c", "append", "works", "free c")
    stage = staged(*STOPPED[:6], "put c", *moves)
    assert kinds(stage) == []
    made(stage, "ask c retry", "work StoreRecords")
    assert MoveFolders in kinds(stage)


def test_a_copy_does_not_wait_for_the_pause_of_its_queue() -> None:
    stage = staged("settings", "start", "create a", "insert a 1=1", "append")
    stage.policy = replace(stage.policy, interval_s=3600.0)
    made(stage, "works", "insert a 2=2", "append", "works")
    assert stage.world.mirror.state.queues.items == 1
    made(stage, "ask a recopy", "works")
    assert stage.world.now == 0.0 and table(stage, "a").copied_at is not None


def test_a_request_is_answered_once() -> None:
    stage = staged(*STOPPED, "ask a retry", "works")
    request = stage.world.control.requests[table(stage, "a").table_id]
    assert table(stage, "a").handled == request.id
    lines: list[str] = []
    stage.transcript.lines = lines
    stage.world.step(RequestsRead({table(stage, "a").table_id: request}, {}, {}))
    assert not any("request" in line for line in lines[1:])


def test_skip_goes_on_behind_the_entry() -> None:
    stage = staged(*STOPPED, "ask a skip", "works")
    assert stage.move("wait 0") == [] and table(stage, "a").word == "partial"
    assert 2 not in ids(stage, "a")


def test_a_request_for_a_copy_by_name_does_not_begin_a_copy_again() -> None:
    stage = staged("settings", "old a 1=1", "start", "insert a 2=2", "append")
    made(
        stage,
        "work ReadLog",
        "work StoreRecords",
        "work ClearCopy",
        "work StoreRecords",
        "copy a",
        "work StoreRecords",
    )
    assert not isinstance(table(stage, "a").state, Creating)
    made(stage, "works", "append", "works")
    assert table(stage, "a").word == "complete" and table(stage, "a").answered


# -- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", ["before", "after"])
def test_after_a_failure_the_delta_table_is_asked_what_it_has(fails: str) -> None:
    """A commit that failed may exist nevertheless, so the facts about the Delta table are read again."""
    stage = staged("settings", "start", "create a", "insert a 1=1", "append", "works")
    made(stage, "insert a 2=2", "append", "work ReadLog", f"work CommitRows fails={fails}")
    made(stage, "wait 100")
    assert AskTable in kinds(stage) and CommitRows not in kinds(stage)
    made(stage, "works")
    assert table(stage, "a").word == "complete"


def test_that_a_table_has_recovered_is_stored() -> None:
    stage = staged("settings", "start", "create a", "insert a 1=1", "append", "works")
    made(stage, "insert a 2=2", "append", "work ReadLog")
    for _ in range(REPORTED_AFTER):
        made(stage, "work CommitRows fails=before", "wait 100")
        for kind in (StoreRecords, AskTable):
            if kind in kinds(stage):
                made(stage, f"work {kind.__name__}")
    failing = table(stage, "a").state
    assert isinstance(failing, Live) and failing.failing is not None
    made(stage, "works")
    assert table(stage, "a").state == replace(failing, failing=None)


# -- copies and gaps -----------------------------------------------------------------------------------------------


def test_a_copy_begins_again_behind_a_gap_so_that_its_table_is_complete() -> None:
    stage = staged("settings unknown=copy purged=partial", "old a 1=1 2=2", "start")
    made(stage, "insert a 3=3", "append")
    made(stage, "work ReadLog StoreRecords ClearCopy StoreRecords CopyTable")
    made(stage, "purge", "delete a 1", "gap", "works")
    assert table(stage, "a").word == "complete"


# -- the settings --------------------------------------------------------------------------------------------------


def test_a_table_that_is_left_out_takes_no_gap_of_a_former_name() -> None:
    gap = ("purge", "gap", "works")
    rename = ("rename a out", "append", "works")
    stage = staged(*STOPPED, *gap, *rename, "kill", "exclude out", "start", "works")
    assert isinstance(table(stage, "out").state, LeftOut)


# -- former names --------------------------------------------------------------------------------------------------


def test_former_names_stay_while_a_history_needs_them() -> None:
    begun = ("create a", "insert a 1=1", "append", "works")
    stage = staged("settings history=yes", "start", *begun, "insert a 2=2", "append")
    made(stage, "work ReadLog", "work CommitRows", "rename a b", "append")
    all_but_histories(stage)
    made(stage, "wait 6", "work StoreRecords")
    assert stage.world.control.applied >= table(stage, "b").names[0].until


def test_a_history_compares_with_the_table_that_had_the_name() -> None:
    begun = ("create a", "insert a 1=1", "append", "works")
    stage = staged("settings history=yes", "start", *begun, "add a b=5", "append")
    made(stage, "rename a c", "append", "drop c", "append", "create a", "append")
    all_but_histories(stage)
    while not (compared := _comparisons(stage)):
        made(stage, "work ReadLog")
    (compares,) = compared
    assert compares.mirrored is not None
    assert compares.mirrored.folder == "shop/c" and table(stage, "a").folder == ""


def test_a_history_waits_while_it_is_not_known_where_its_table_lies() -> None:
    begun = ("create a", "insert a 1=1", "append", "works")
    stage = staged("settings history=yes", "start", *begun, "add a b=5", "append")
    made(stage, "work ReadLog ChangeTable", "rename a c", "append")
    while MoveFolders not in kinds(stage):
        others = [effect for effect in stage.world.running() if not is_of_history(effect)]
        stage.world.finish(others[0])
    made(stage, "work MoveFolders fails=after", "works")
    assert not _comparisons(stage)
    made(stage, "wait 60", "works")
    history = stage.world.lake.folders["shop/a__history"]
    assert history.version > first_lsn(2) and not history.rows


def test_a_history_of_a_new_table_has_every_version() -> None:
    begun = ("create a", "insert a 1=1", "update a 1=2", "add a b=5", "append", "works")
    stage = staged("settings history=yes", "start", *begun)
    history = stage.world.lake.folders["shop/a__history"]
    ((created, alter),) = [[e.lsn for e in stage.world.log.entries if e.statement]]
    assert created < history.past[0][0] < alter


def test_a_history_has_the_rows_that_a_copy_brings_to_a_partial_table() -> None:
    stage = staged("settings history=yes unknown=partial", "old a 1=1", "start")
    made(stage, "insert a 2=2", "append", "works", "ask a recopy", "works", "append", "works")
    history = stage.world.lake.folders["shop/a__history"]
    assert history.rows == stage.world.lake.folders["shop/a"].rows
    assert {dict(row)["id"] for row in history.rows} == {1, 2}


def _comparisons(stage: Stage) -> list[CompareVersions]:
    return [effect for effect in stage.world.running() if isinstance(effect, CompareVersions)]


# -- works ---------------------------------------------------------------------------------------------------------


class _Twice(Task):
    """Begins a work, and a second work when the first is answered."""

    answers = 0

    def go(self) -> None:
        if self.answers == 0:
            self._begin()

    def failed(self, failure: Failure) -> None:
        raise AssertionError(failure.text)

    def _begin(self) -> None:
        self.begin([], lambda run: ReadLog(run, 0), self._answered)

    def _answered(self, _: Answer) -> None:
        self.answers += 1
        if self.answers == 1:
            self._begin()


def test_a_work_that_begins_in_an_answer_is_answered() -> None:
    stage = staged("settings", "start", "works")
    mirror = stage.world.mirror
    job = mirror._reader = _Twice(mirror.state)  # type: ignore[assignment]
    stage.world.step(Ticked())
    made(stage, "works")
    assert (job.answers, job.run) == (2, None)


def test_a_place_that_is_taken_is_looked_at_again() -> None:
    stage = staged(*STOPPED[:6], "put c", "rename a c", "append", "works")
    assert isinstance(table(stage, "c").state, CatchingUp)
    made(stage, "free c", "wait 60", "works")
    assert table(stage, "c").word == "complete"


def test_a_statement_of_a_replay_gets_into_the_record_after_a_kill() -> None:
    stage = staged(*STOPPED, "add a c=7", "append", "works", "ask a retry")
    while ChangeTable not in kinds(stage):
        stage.world.finish(stage.world.running()[0])
    made(stage, "kill ChangeTable", "start", "works")
    assert table(stage, "a").word == "complete"
    assert '"c"' in table(stage, "a").signature


# -- moves ---------------------------------------------------------------------------------------------------------


def test_a_request_waits_for_the_end_of_a_move() -> None:
    stage = staged(*COPIED, "work MoveFolders fails=before")
    made(stage, "ask a recopy", "insert a 3=3", "append", "works", "wait 60", "works")
    assert table(stage, "a").word == "complete"


def test_a_copy_that_has_not_moved_is_not_deleted_by_the_next_one() -> None:
    stage = staged(*COPIED[:-1], "work StoreRecords StoreRecords AskTable", "ask a recopy")
    made(stage, "work StoreRecords StoreRecords", "drop a", "create a", "insert a 3=3", "append")
    made(stage, "works")
    assert table(stage, "a").word == "complete" and ids(stage, "a") == {3}


def test_a_copy_waits_until_the_place_of_an_earlier_one_is_free() -> None:
    stage = staged("settings", "old a 1=1", "put a", "start", "insert a 2=2", "append")
    made(stage, *COPIED[5:], "work MoveFolders StoreRecords", "ask a recopy", "works")
    assert isinstance(table(stage, "a").state, Creating) and not kinds(stage)
    made(stage, "free a", "wait 60", "works")
    assert table(stage, "a").word == "complete" and ids(stage, "a") == {1, 2}


def test_a_statement_waits_for_the_end_of_a_move() -> None:
    stage = staged(*COPIED, "work MoveFolders fails=after")
    made(stage, "truncate a", "append", "works", "wait 60", "works")
    assert not stage.world.lake.folders["shop/a"].rows and table(stage, "a").word == "complete"


def test_a_copy_waits_until_another_table_has_left_its_place() -> None:
    stage = staged("settings files=yes", "start", "create b", "insert b 1=1", "append", "works")
    made(stage, "old a 2=2", "insert a 3=3", "append")
    made(stage, "work ReadLog StoreRecords ClearCopy StoreRecords", "insert a 4=4")
    made(stage, "work CopyTable CopyTable StoreRecords", "append")
    made(stage, "work ReadLog ReadLog StoreRecords", "swap a b", "append")
    made(stage, "work AskTable ReadLog StoreRecords")
    # The folder of `b` has not moved, and the copy of `a` has to move to this place.
    made(stage, "work MoveFolders fails=before", "works", "wait 60", "works")
    assert {table(stage, name).word for name in ("a", "b")} == {"complete"}


def test_a_replay_waits_until_a_rename_has_moved_the_table() -> None:
    stage = staged("settings files=yes", "start", "create a", "insert a 1=1", "append", "works")
    made(stage, "ask a recopy", "work StoreRecords ClearCopy StoreRecords", "insert a 2=2")
    made(stage, "work CopyTable CopyTable StoreRecords", "append", "work ReadLog", "append")
    made(stage, "work ReadLog StoreRecords AskTable", "rename a b", "append")
    read = next(w for w in stage.world.running() if isinstance(w, ReadLog) and w.tables)
    while MoveFolders not in kinds(stage):
        others = [effect for effect in stage.world.running() if effect != read]
        stage.world.finish(others[0])
    made(stage, "work MoveFolders", "work StoreRecords", "work MoveFolders fails=before")
    stage.world.finish(read)
    assert not {AskTable, CommitRows} & set(kinds(stage))
    made(stage, "wait 60", "works")
    assert table(stage, "b").word == "complete"


def test_a_lost_table_that_is_put_back_does_not_get_the_name_of_another_one() -> None:
    stage = staged("settings", "start", "create a", "insert a 1=1", "append", "works")
    made(stage, "create c", "insert c 5=5", "append", "lose 2", "works")
    made(stage, "rename c d", "rename a c", "append", "works")
    made(stage, "restore", "kill", "start", "works", "insert d 6=6", "append", "works")
    made(stage, "ask c retry", "works")
    assert {table(stage, name).word for name in ("c", "d")} == {"complete"}
    assert ids(stage, "d") == {5, 6}


def test_a_dropped_table_loses_the_folder_that_another_one_gets() -> None:
    stage = staged("settings unknown=partial", "start", "create b", "insert b 1=1", "drop b")
    made(stage, "create a", "insert a 2=2", "append", "works", "rename a b", "append", "works")
    made(stage, "rename b c", "append", "works")
    made(stage, "purge", "create b", "gap", "works", "kill", "start", "works")
    made(stage, "insert b 3=3", "append", "works")
    assert table(stage, "b").word == "partial"


def test_a_table_that_another_one_gets_the_name_of_is_dropped() -> None:
    stage = staged("settings", "start", "create a", "insert a 1=1", "append", "works")
    # A person requests a copy of a table that does not exist.
    made(stage, "copy c", "works", "rename a c", "append", "works")
    assert table(stage, "c").word == "complete"


def test_a_table_in_the_way_leaves_no_rows() -> None:
    stage = staged("settings purged=partial", "start", "create b", "insert b 1=1", "create a")
    made(
        stage, "append", "works", "purge", "drop b", "gap", "works", "rename a b", "append", "works"
    )
    assert not stage.world.lake.folders["shop/b"].rows
    made(stage, "rename b c", "create b", "insert b 3=3", "append", "works")
    assert table(stage, "b").word == "complete"
    assert ids(stage, "b") == {3}


@pytest.mark.parametrize("files", ["files=no", "files=yes"])
def test_a_table_without_rows_gets_the_place_of_a_dropped_one(files: str) -> None:
    stage = staged(f"settings {files}", "start", "create a", "insert a 1=1", "append", "works")
    made(stage, "drop a", "create b", "append", "works", "rename b a", "append", "works")
    made(
        stage,
        "insert a 5=5",
        "append",
        "work ReadLog AskTable ChangeTable",
        "kill",
        "start",
        "works",
    )
    assert table(stage, "a").word == "complete"
    made(stage, "rename a c", "create a", "insert a 6=6", "append", "works")
    assert {table(stage, name).word for name in ("a", "c")} == {"complete"}
    folders = stage.world.lake.folders
    assert {dict(row)["id"] for row in folders["shop/a"].rows} == {6}
    assert {dict(row)["id"] for row in folders["shop/c"].rows} == {5}


def test_a_repair_goes_on_without_a_table_whose_place_is_taken() -> None:
    stage = staged("settings files=yes", "start", "create a", "insert a 1=1", "append", "works")
    made(stage, "rename a c", "append", "work ReadLog StoreRecords", "kill", "put c", "start")
    made(stage, "works", "create b", "append", "works")
    assert table(stage, "b").word == "complete"


def test_a_replay_waits_for_a_statement_whose_record_is_not_written() -> None:
    stage = staged("settings", "start", "create a", "insert a 1=1", "append", "works")
    made(stage, "insert a 2=2", "append", "work ReadLog", "work CommitRows fails=fault", "works")
    made(stage, "add a b=5", "append", "works", "ask a retry")
    made(stage, "work StoreRecords AskTable", "truncate a", "append")
    *_, of_queues = stage.world.running()
    stage.world.finish(of_queues)
    # The Delta table is emptied under the lsn of the TRUNCATE, but the step fails, so the record does not show the
    # TRUNCATE. The replay has read the ALTER TABLE before the TRUNCATE.
    made(stage, "work ChangeTable fails=after", "work ReadLog", "works")
    made(stage, "insert a 3=3", "append", "wait 2", "works")
    assert table(stage, "a").word == "complete"
    assert stage.world.lake.folders["shop/a"].rows == {(("id", 3), ("a", 3), ("b", 3)): 1}


def test_a_replay_does_not_go_back_behind_a_rename_that_its_table_has_passed() -> None:
    stage = swapped_during_a_replay()
    made(stage, "work StoreRecords", "ask c retry", "work StoreRecords", "works")
    assert table(stage, "c").word == "partial"
    assert ids(stage, "c") == {4}


def test_a_table_that_waits_for_its_place_goes_on_when_it_is_renamed() -> None:
    stage = staged(*STOPPED[:6], "put c", "rename a c", "append", "works")
    made(stage, "rename c b", "append", "works")
    assert table(stage, "b").word == "complete"


# -- the border of the mirror --------------------------------------------------------------------------------------


def test_a_table_whose_rows_were_deleted_to_leave_is_copied_if_it_stays() -> None:
    stage = staged(
        "settings", "exclude out", "start", "create a", "insert a 1=1", "append", "works"
    )
    made(
        stage, "rename a out", "append", "work ReadLog", "kill ChangeTable", "include out", "start"
    )
    made(stage, "works")
    assert table(stage, "out").word == "complete"
    assert len(stage.world.lake.folders["shop/out"].rows) == 1


def test_a_dropped_table_is_not_copied_that_the_settings_leave_out() -> None:
    stage = staged("settings", "start", "create out", "insert out 1=1", "append", "works")
    made(stage, "drop out", "append", "works", "kill", "exclude out", "start", "works")
    (record,) = stage.world.control.records.values()
    stage.world.ask(record.table_id, Wish.RECOPY)
    stage.world.look()
    made(stage, "works")
    (record,) = stage.world.control.records.values()
    assert record.is_dropped and record.handled


# -- drains --------------------------------------------------------------------------------------------------------


def test_a_drain_answers_a_request_before_it_ends() -> None:
    stage = staged("settings", "old a 1=1", "insert a 2=2", "append", "start drain=yes")
    made(stage, *COPIED[5:], "work MoveFolders fails=before", "ask a recopy")
    made(stage, "work MoveFolders fails=before")
    assert not stage.world.mirror.at_rest()
    made(stage, "wait 60", "works")
    assert stage.world.mirror.at_rest() and table(stage, "a").handled


def test_a_drain_waits_for_a_copy_that_has_no_turn() -> None:
    stage = staged("settings", "create c", "insert c 1=1", "append", "start", "works", "kill")
    made(stage, "old a 1=1", "old b 1=1", "insert a 2=2", "insert b 2=2", "clean c", "append")
    made(stage, "start drain=yes")
    keys = count(3)
    while works := [e for e in stage.world.running() if not isinstance(e, AskTable)]:
        if isinstance(works[0], CopyTable):
            made(stage, f"insert a {next(keys)}=1")
        stage.world.finish(works[0])
    # The copies of `a` and `b` have read rows that the log does not have yet, so both copies fail. Then they wait until
    # the log has these rows, by the next `append`.
    made(stage, "append", "wait 2")
    while others := [e for e in stage.world.running() if not isinstance(e, ReadLog)]:
        stage.world.finish(others[0])
    assert isinstance(table(stage, "c").state, Creating) and kinds(stage) == [ReadLog]
    assert not stage.world.mirror.at_rest()
    made(stage, "works", "wait 2", "works")
    assert stage.world.mirror.at_rest() and table(stage, "c").word == "complete"


# -- the end of a replay -------------------------------------------------------------------------------------------


def rest_but_rows(stage: Stage) -> None:
    """Let all works end except commits of rows."""
    while works := [e for e in stage.world.running() if not isinstance(e, CommitRows)]:
        stage.world.finish(works[0])


def written_all_the_time(stage: Stage, keys: Iterable[int]) -> None:
    """Whenever a commit of rows ends, the log has another entry of the table."""
    for key in keys:
        made(stage, f"insert a {key}={key}", "append")
        rest_but_rows(stage)
        made(stage, "work CommitRows")
        rest_but_rows(stage)


def test_a_table_that_is_written_all_the_time_becomes_complete() -> None:
    """Each step of the replay takes longer than the next entries need to arrive."""
    stage = staged(*COPIED, "insert a 3=3", "append")
    rest_but_rows(stage)
    written_all_the_time(stage, range(4, 8))
    assert table(stage, "a").word == "complete"
    made(stage, "works")
    assert ids(stage, "a") == set(range(1, 8))


def test_the_queue_goes_on_if_a_replay_that_is_about_to_end_fails() -> None:
    stage = staged(*COPIED, "insert a 3=3", "append")
    rest_but_rows(stage)
    written_all_the_time(stage, range(4, 5))
    assert stage.world.mirror.state.joining
    made(stage, "work CommitRows fails=before")
    assert not stage.world.mirror.state.joining
    made(stage, "insert a 5=5", "append", "works", "wait 60", "works")
    assert table(stage, "a").word == "complete" and ids(stage, "a") == set(range(1, 6))
