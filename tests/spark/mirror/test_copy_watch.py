"""`run --copy` and `run --until-copied`: which options they refuse, when the copies have ended, and what an error of
the watch does to the job. tests/mirror/test_until_copied.py runs both."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from spark_sink.mirror.copy.progress import CopyProgress
from spark_sink.mirror.copy_watch import CopyWatch, chosen_watch
from spark_sink.mirror.job import ApplyStage, Job
from spark_sink.mirror.log.stage import LogStage
from spark_sink.mirror.own_command import completing
from spark_sink.mirror.rules.control_rows import ControlRows
from spark_sink.mirror.rules.states import Copying, Dropped, Live, State, Stopped
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.runtime.claims import Claims
from spark_sink.mirror.values.settings import MirrorSettings
from tests.mirror_rules.test_named_requests import BEGIN


def settings_of(**more: Any) -> MirrorSettings:
    values: dict[str, Any] = {
        "url": "http://127.0.0.1:1",
        "consumers": ["shop"],
        "target": "/data/mirror",
        "copy": {"mysql": "repl@127.0.0.1:1", "password": "x"},
    }
    return MirrorSettings.model_validate(values | more)


# -- the options ---------------------------------------------------------------------------------------------------


def test_the_two_options_exclude_each_other() -> None:
    with pytest.raises(UserError) as refused:
        chosen_watch(settings_of(), until_copied=True, go_on=True)
    assert str(refused.value) == (
        "settings: both --copy and --until-copied; use --copy to go on mirroring after the copies, --until-copied to"
        " end after them"
    )


@pytest.mark.parametrize("until_copied", [True, False])
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"copy": None}, "the settings name no server to read tables from"),
        ({"stages": "apply"}, "needs both stages, and no --available-now"),
        ({"stages": "log"}, "needs both stages, and no --available-now"),
        ({"available_now": True}, "needs both stages, and no --available-now"),
    ],
)
def test_the_settings_must_allow_copies(
    until_copied: bool, more: dict[str, Any], said: str
) -> None:
    settings = settings_of(**more)
    with pytest.raises(UserError) as refused:
        chosen_watch(settings, until_copied=until_copied, go_on=not until_copied)
    assert said in str(refused.value)
    if "needs" in said:
        option = "--until-copied" if until_copied else "--copy"
        assert f"settings: {option} needs" in str(refused.value)
    assert chosen_watch(settings, until_copied=False, go_on=False) is None


def test_only_until_copied_ends_the_job() -> None:
    for ends in (True, False):
        watch = chosen_watch(settings_of(), until_copied=ends, go_on=not ends)
        assert watch is not None and watch.ends_job is ends


# -- the end of the copies -----------------------------------------------------------------------------------------


def rows_of(**states: State) -> ControlRows:
    """Returns the rows of tables of the database shop, by name."""
    records = {
        name: TableRecord(name, "shop", "shop", name, f"shop/{name}", state)
        for name, state in states.items()
    }
    return ControlRows(records)


def run(
    capsys: pytest.CaptureFixture[str],
    *rows: ControlRows,
    complete: Callable[[str], str] = str,
) -> tuple[int, list[str]]:
    """Watch the copies of `a` and `b`. `rows`: the control table's rows at each look. Returns the exit code and the
    printed lines."""
    watch = CopyWatch(settings_of(), names=[("shop", "a"), ("shop", "b")], complete=complete)
    stop, looks = threading.Event(), list(rows)

    def look() -> ControlRows:
        if len(looks) == 1:
            stop.set()  # the watch must not look again
        return looks.pop(0)

    code = watch.run(look, tuple, stop)
    assert looks == []
    return code, capsys.readouterr().out.splitlines()


def test_the_copies_end_when_all_tables_are_complete(capsys: pytest.CaptureFixture[str]) -> None:
    ended = rows_of(a=Live(), b=Live())
    asked = replace(rows_of(a=Live()), named={("shop", ("shop", "b")): "request"})
    code, said = run(capsys, asked, rows_of(a=Live(), b=Copying(BEGIN)), ended)
    assert code == 0 and said[0].startswith("2 tables are complete: ")
    assert len(said) == 4 and "/data/mirror/shop/a" in said[1]


def test_the_time_left_counts_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = CopyWatch(settings_of(), names=[("shop", "a"), ("shop", "b"), ("shop", "c")])
    watch.rows_estimated = {"shop.a": 10, "shop.b": 10, "shop.c": 10}
    watch.began = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: 120.0)
    of_a = CopyProgress("shop.a", 10, 10, 100, 1, 1.0, None)
    records = list(rows_of(a=Live(), b=Copying(BEGIN)).records.values())
    assert watch.line(records, [of_a], []).endswith(", about 40 s left")


def test_a_stopped_table_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(a=Stopped(5, Live()), b=Live())
    rows.records["a"] = replace(rows.records["a"], reason="no key")
    code, said = run(capsys, rows)
    assert code == 1
    assert said[0] == "shop.a is stopped: no key" and said[1].startswith("1 tables are complete: ")


def test_a_dropped_table_does_not_keep_the_watch(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(capsys, rows_of(a=Dropped(), b=Live()))
    assert code == 1
    assert said[0] == "shop.a was dropped or renamed before its copy was complete"
    assert said[1].startswith("1 tables are complete: ")


def test_the_reason_of_a_stopped_table_has_complete_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = rows_of(a=Stopped(5, Live()), b=Live())
    reason = "no key; copy it again: python -m spark_sink resolve shop.a --as recopy"
    rows.records["a"] = replace(rows.records["a"], reason=reason)
    complete = completing([Path("mirror.yaml")], {})
    _, said = run(capsys, rows, complete=complete)
    assert "resolve --config mirror.yaml shop.a --as recopy" in said[0]


# -- an error ------------------------------------------------------------------------------------------------------


class FailingWatch(CopyWatch):
    """Fails when the copies are requested, or when they are watched."""

    at = ""
    error: Exception = RuntimeError("defect")

    def begin(self, _: object) -> None:
        if self.at == "begin":
            raise self.error

    def run(self, *_: object) -> int:
        raise self.error


def watched(watch: FailingWatch, at: str, error: Exception) -> Job:
    """Returns a job after its watch has failed."""
    watch.at, watch.error = at, error
    job = Job(settings_of(), None, watch)
    stage = SimpleNamespace(has_position=True, works=True)
    job._stages = [cast(LogStage, stage)]
    claims = SimpleNamespace(control=SimpleNamespace(rows=ControlRows))
    job._watch_copies(
        watch, cast(ApplyStage, SimpleNamespace(progress=tuple)), cast(Claims, claims)
    )
    return job


ERRORS = [
    UserError(ErrorKind.UNKNOWN_TABLE, "no table fits"),
    BinlogError(ErrorKind.SETTINGS, "no"),
    RuntimeError("defect"),
]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("begin", "no copy was requested, the job goes on; to request the copies: "),
        ("run", "the job and the copies go on without a line of their progress; "),
    ],
)
def test_a_job_that_goes_on_logs_an_error_of_its_watch(
    at: str, said: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    job = watched(FailingWatch(settings_of(), ends_job=False), at, error)
    assert not job._stop.is_set() and job._watched_code == 0
    (record,) = caplog.records
    assert record.levelno == logging.ERROR and record.getMessage().startswith(said)
    assert (str(error) in record.getMessage()) or record.exc_info
    command = "copy" if at == "begin" else "tables"
    complete = completing([Path("mirror.yaml")], {})
    assert f"python -m spark_sink {command} --config mirror.yaml " in complete(record.getMessage())


@pytest.mark.parametrize("error", ERRORS)
def test_a_job_that_ends_with_its_copies_fails(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    job = watched(FailingWatch(settings_of()), "begin", error)
    assert job._stop.is_set()
    assert job._watched_code == (2 if isinstance(error, UserError) else 1)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
