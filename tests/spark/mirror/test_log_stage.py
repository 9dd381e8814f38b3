"""When a log stage starts its query again, and when it gives its consumer up, without Spark."""

from __future__ import annotations

import threading
from typing import Any
from unittest.mock import MagicMock, patch

import pytest

import spark_sink.mirror.log.stage as stages
from dispatcher.model.errors import ErrorKind
from spark_sink.mirror.log.stage import (
    FENCED_MAX,
    REST_MAX_S,
    JobCalls,
    LogStage,
    StageFault,
    StageState,
)
from spark_sink.mirror.values.entries import LogEnd
from spark_sink.mirror.values.settings import MirrorSettings
from tests.support.fake_daemon import position

FENCED = StageFault(ErrorKind.SESSION_FENCED, "session fenced: a newer session reads it")


class Stage:
    """A log stage whose query fails as a test specifies. `lost`: True if another job has claimed the consumer."""

    def __init__(self, *, lost: bool = False, now: bool = False) -> None:
        values = {"url": "http://127.0.0.1:8085", "target": "/t", "consumers": ["shop"]}
        settings = MirrorSettings.model_validate(values | {"available_now": now})
        self.time = 0.0
        self.lost = lost
        self.behind = False
        self.rested: list[float] = []
        self.stage = LogStage(
            MagicMock(),
            settings,
            "shop",
            JobCalls(lambda: None, lambda: self.lost, lambda: 0, lambda _: self.behind),
            clock=lambda: self.time,
            jitter=lambda: 0.0,
        )

    def append(self, seconds: float) -> None:
        """Append a batch within this time."""

        def append(*_: object) -> int:
            self.time += seconds
            return 1

        with (
            patch.object(self.stage, "_appender", MagicMock(append=append)),
            patch.object(self.stage, "_stopping", MagicMock(wait=self.rested.append)),
        ):
            self.stage._append_from(1, MagicMock())(MagicMock(), 0)

    def fail(self, times: int = 1) -> StageState:
        for _ in range(times):
            self.stage._failed(FENCED)
        return self.stage.state


def test_an_append_rests_as_long_as_it_took_if_the_tables_are_behind() -> None:
    stage = Stage()
    stage.append(0.3)
    assert stage.rested == []
    stage.behind = True
    stage.append(0.3)
    stage.append(9.0)
    assert stage.rested == [pytest.approx(0.3), REST_MAX_S]


@pytest.mark.parametrize("now", [False, True])
def test_a_session_that_a_job_which_has_lost_its_claim_took_is_opened_again(now: bool) -> None:
    assert Stage(now=now).fail() is StageState.WAITING


@pytest.mark.parametrize("now", [False, True])
def test_a_consumer_that_another_reader_takes_again_and_again_is_given_up(now: bool) -> None:
    assert Stage(now=now).fail(FENCED_MAX) is StageState.FAILED


def test_sessions_that_were_lost_long_ago_do_not_count() -> None:
    stage = Stage()
    stage.fail(FENCED_MAX - 1)
    stage.time = 1_000.0
    assert stage.fail() is StageState.WAITING


def test_a_consumer_whose_claim_is_lost_is_given_up_without_a_second_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage(lost=True)
    assert stage.fail() is StageState.FAILED
    assert not caplog.records


def test_a_claim_is_lost_while_nothing_changes_on_the_server() -> None:
    stage = Stage(lost=True)
    stage.stage.look_for_claims()
    assert stage.stage.state is StageState.FAILED


def test_a_stage_that_has_its_claim_goes_on() -> None:
    stage = Stage()
    stage.stage.look_for_claims()
    assert stage.stage.state is StageState.WAITING


@pytest.mark.parametrize(
    ("reached", "began", "state"),
    [
        (7, None, StageState.DONE),  # as far as the query of a Spark with admission control
        (9, 3, StageState.DONE),
        (7, 3, StageState.WAITING),
        (7, 7, StageState.DONE),  # the query has appended nothing
    ],
)
def test_a_query_that_ended_before_the_target_is_started_again(
    reached: int, began: int | None, state: StageState
) -> None:
    """`began`: where the query began, for a Spark without admission control; its target is 9."""
    stage = Stage(now=True).stage
    if began is not None:
        stage._target, stage._run_began = position(9), position(began)
    stage._appender = MagicMock()
    stage._appender.log.end.return_value = LogEnd(1, position(reached))
    stage._query = MagicMock()
    stage._query.exception.return_value = None
    stage._ended()
    assert stage.state is state
    assert stage.restarts == 0


def test_a_query_is_not_started_without_a_claim() -> None:
    stage = Stage(lost=True)
    stage.stage._start()
    assert stage.stage.state is StageState.FAILED


def test_a_log_without_a_position_begins_at_that_of_the_consumer() -> None:
    stage = Stage().stage
    stage._appender = appender = MagicMock()
    appender.claim.return_value = LogEnd(1, None)
    with patch.object(stage, "_stored_position", return_value=position(7)):
        assert stage._claim() is appender.append_end.return_value
    appender.append_end.assert_called_once_with("shop", 2, position(7))


@pytest.mark.parametrize("error", [None, OSError("the daemon does not answer")])
def test_a_stop_does_not_wait_for_a_start_that_hangs(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stages, "START_STOP_S", 0.01)
    stage, answers = Stage().stage, threading.Event()

    def claim() -> LogEnd:
        assert answers.wait(60)
        if error is not None:
            raise error
        return LogEnd(1, position(7))

    with patch.object(stage, "_claim", claim), patch.object(stages, "FileSystem"):
        stage.check()
        starter = stage._starter
        assert starter is not None
        stage.stop()
        assert starter.is_alive() and starter.daemon
        answers.set()
        starter.join(60)
    query: Any = stage._query  # a mock
    assert (query is None) is (error is not None)
    assert query is None or query.stop.called
    assert stage.state is StageState.STARTING
    assert not caplog.records
