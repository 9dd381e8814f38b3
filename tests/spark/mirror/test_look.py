"""How changes of the log and of the control table reach the rules, without Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.rules.control_rows import ControlRows
from spark_sink.mirror.rules.events import Claimed, Event, LogFailed, LogGrew, RequestsRead, Started
from spark_sink.mirror.rules.retries import LASTING_AFTER
from spark_sink.mirror.runtime.claims import Claims
from spark_sink.mirror.runtime.look import Look, LookedAt
from spark_sink.mirror.values.entries import LogEnd, last_lsn
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import ApplyOptions

SHOP: TableName = ("shop", "orders")
RETRY_FIRST_S = 2.0  # after the first failure, the wait is twice as long
REFUSED = BinlogError(ErrorKind.SESSION_FENCED, "another job has the consumer")


@dataclass
class Scene:
    """A log and a control table in memory. `threads`: the calls that a thread has to execute; `newest` may be an
    error."""

    newest: int | Exception = 0
    serial: int = 0
    named: dict[tuple[str, TableName], str] = field(default_factory=dict)
    claimed: BinlogError | None = None
    now: float = 0.0
    threads: list[Callable[[], None]] = field(default_factory=list)
    posted: list[Event] = field(default_factory=list)
    held: ControlRows = field(default_factory=lambda: ControlRows({}, {}, {}, 0))
    reads: Callable[[], None] = lambda: None
    path: str = "/lake/_binlog/log"

    def __post_init__(self) -> None:
        at = LookedAt(cast("BinlogLog", self), cast("Claims", self))
        options = ApplyOptions("/lake", ["a"], retry_first_s=RETRY_FIRST_S)
        clocks = (lambda: self.now), (lambda: 0.0)
        self.look = Look("a", options, at, self.threads.append, self.posted.append, *clocks)

    # -- the log

    def last_append(self, consumer: str) -> int:
        assert consumer == "a"
        self.reads()
        if isinstance(self.newest, Exception):
            raise self.newest
        return self.newest

    def end(self, consumer: str) -> LogEnd | None:
        assert consumer == "a"
        return None

    # -- the control table

    @property
    def control(self) -> Scene:
        return self

    def rows(self, applied: int = 0) -> ControlRows:
        """Returns the same object as long as nothing changes, as the control table does."""
        rows = ControlRows({}, {"a": applied}, {}, self.serial, {}, self.named)
        if rows != self.held:
            self.held = rows
        return self.held

    def lost(self, consumer: str, rows: ControlRows) -> BinlogError | None:
        assert consumer == "a" and rows.serial == self.serial
        return self.claimed

    # -- the job

    def first(self, applied: int = 0, *, drain: bool = False) -> list[Event]:
        return self.look.first(self.rows(applied), drain=drain)

    def again(self) -> list[Event]:
        """Read log and control table now. Returns the events that this posts."""
        self.posted.clear()
        self.look.ask(())
        self.run()
        return list(self.posted)

    def run(self) -> None:
        while self.threads:
            self.threads.pop()()


def test_the_first_look_tells_what_the_log_holds() -> None:
    scene = Scene(newest=7)
    assert scene.first(applied=last_lsn(5)) == [
        Started((), {}, last_lsn(5), None, 7),
        RequestsRead({}, {}, {}),
    ]


@pytest.mark.parametrize(("newest", "goal"), [(0, 0), (7, last_lsn(7))])
def test_a_drain_ends_where_the_log_ends(newest: int, goal: int) -> None:
    started = Scene(newest=newest).first(drain=True)[0]
    assert isinstance(started, Started) and started.goal == goal


def test_a_consumer_does_not_begin_without_its_claim() -> None:
    assert Scene(claimed=REFUSED).first()[0] == Claimed(REFUSED)


def test_a_log_that_ends_before_its_tables_ends_the_consumer() -> None:
    scene = Scene(newest=3)
    failed = scene.first(applied=last_lsn(4))[0]
    assert isinstance(failed, LogFailed) and failed.error.where == scene.path


@pytest.fixture(name="scene")
def _scene() -> Scene:
    """Returns a log with three appends, which the job has already seen."""
    scene = Scene(newest=3)
    scene.first()
    return scene


def test_nothing_is_posted_while_nothing_changes(scene: Scene) -> None:
    assert scene.again() == []


def test_changes_are_posted_once(scene: Scene) -> None:
    scene.newest, scene.serial, scene.named = 5, 1, {("a", SHOP): "q1", ("b", SHOP): "q2"}
    assert scene.again() == [LogGrew(5), RequestsRead({}, {SHOP: "q1"}, {})]
    assert scene.again() == []


def test_a_request_is_seen_although_another_process_wrote_a_row_of_the_same_serial(
    scene: Scene,
) -> None:
    scene.serial = 5
    scene.again()
    scene.named = {("a", SHOP): "q1"}
    assert scene.again() == [RequestsRead({}, {SHOP: "q1"}, {})]


def test_a_growth_of_the_log_is_posted_before_the_control_table_is_read(scene: Scene) -> None:
    scene.newest, scene.serial = 4, 1
    scene.look.ask(())
    seen: list[Event] = []
    rows = scene.rows

    def read(applied: int = 0) -> ControlRows:
        seen.extend(scene.posted)
        return rows(applied)

    scene.rows = read  # type: ignore[method-assign]
    scene.run()
    assert seen == [LogGrew(4)]


def test_looks_that_are_asked_for_meanwhile_are_one_more(scene: Scene) -> None:
    reads = 0

    def read() -> None:
        nonlocal reads
        reads += 1
        if reads == 1:
            scene.look.ask(())
            scene.look.ask(())

    scene.reads = read
    scene.look.ask(())
    (thread,) = scene.threads
    thread()
    assert reads == 2 and scene.threads == [thread], "two threads look at the same time"


def test_a_claim_that_is_lost_is_told(scene: Scene) -> None:
    scene.serial, scene.claimed = 1, REFUSED
    assert scene.again() == [Claimed(REFUSED)]


def test_a_fault_of_the_log_ends_the_consumer(scene: Scene) -> None:
    scene.newest = fault = BinlogError(ErrorKind.INTERNAL, "the log is damaged")
    assert scene.again() == [LogFailed(fault)]


def test_a_failure_of_storage_is_tried_again(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.newest = OSError("no answer")
    assert scene.again() == []
    scene.newest = 4
    assert scene.again() == [], "tried again at once"
    scene.now = 2 * RETRY_FIRST_S
    assert scene.again() == [LogGrew(4)]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and "OSError: no answer" in record.getMessage()


@pytest.mark.parametrize("drain", [False, True])
def test_a_failure_that_lasts_ends_only_a_drain(drain: bool) -> None:
    scene = Scene(newest=3)
    scene.first(drain=drain)
    scene.newest = OSError("no answer")
    posted: list[Event] = []
    for attempt in range(LASTING_AFTER):
        assert posted == []
        scene.now = 1000.0 * attempt
        posted = scene.again()
    assert [isinstance(event, LogFailed) for event in posted] == ([True] if drain else [])
