"""Rules of the mirror that random histories hardly ever draw, one at a time, by the moves of plays."""

from __future__ import annotations

from spark_sink.mirror.rules.effects import Effect, MoveFolders, ReadLog
from spark_sink.mirror.rules.events import Answer, Failure, RequestsRead, Ticked
from spark_sink.mirror.rules.states import CatchingUp, Creating, LeftOut, Live, Stopped
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.tasks.task import Task
from tests.mirror_simulation.plays import Stage


def staged(*moves: str) -> Stage:
    stage = Stage()
    for move in moves:
        stage.move(move)
    return stage


def made(stage: Stage, *moves: str) -> None:
    for move in moves:
        stage.move(move)


def table(stage: Stage, name: str) -> TableRecord:
    (record,) = (r for r in stage.world.control.tables(("shop", name)) if not r.is_dropped)
    return record


def kinds(stage: Stage) -> list[type[Effect]]:
    return [type(effect) for effect in stage.world.running()]


STOPPED = (
    "settings",
    "start",
    "create a",
    "insert a 1=1",
    "append",
    "works",
    "insert a 2=2",
    "append",
    "work ReadLog",
    "work CommitRows fails=fault",
    "works",
)


# -- records -------------------------------------------------------------------------------------------------------


def test_of_two_records_of_a_name_the_live_one_stays() -> None:
    stage = staged("settings")
    for table_id, state in (("t8", Stopped(0, Live())), ("t9", Live())):
        record = TableRecord(
            table_id, "shop", "shop", "a", state=state, reason="python -m spark_sink"
        )
        stage.world.control.records[table_id] = record
    made(stage, "start", "works")
    assert table(stage, "a").table_id == "t9"


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
    assert 2 not in {dict(row)["id"] for row in stage.world.lake.folders["shop/a"].rows}


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
    history = {"WriteVersions", "CompareVersions"}
    while running := [e for e in stage.world.running() if type(e).__name__ not in history]:
        stage.world.finish(running[0])
    made(stage, "wait 6", "work StoreRecords")
    assert stage.world.control.applied >= table(stage, "b").names[0].until


# -- works ---------------------------------------------------------------------------------------------------------


class _Twice(Task):
    """Begins a work, and another one in its answer."""

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
