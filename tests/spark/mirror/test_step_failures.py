"""What happens to a table whose steps fail and work again, without Spark."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.rules.plan import RowRun
from spark_sink.mirror.rules.queues import QueuedStep, TableQueues
from spark_sink.mirror.rules.table_record import TableRecord, TableState
from spark_sink.mirror.runtime.catch_up import TableAside
from spark_sink.mirror.runtime.processor import Processor
from spark_sink.mirror.runtime.step_failures import REPORTED_AFTER, StepFailures
from spark_sink.mirror.tables.directory import TableDirectory
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import ApplyOptions
from tests.mirror_rules.test_plan import entry

NAME = ("db", "t")
STORAGE = OSError("storage does not answer")


class Control:
    """A control table in memory. `away`: it cannot be written."""

    def __init__(self, *records: TableRecord) -> None:
        self.rows = {record.table_id: record for record in records}
        self.away = False

    def records(self) -> dict[str, TableRecord]:
        return dict(self.rows)

    def named_requests(self, _consumer: str) -> dict[TableName, str]:
        return {}

    def write(self, *records: TableRecord) -> None:
        if self.away:
            raise STORAGE
        for record in records:
            serial = max((row.serial for row in self.rows.values()), default=0) + 1
            self.rows[record.table_id] = replace(record, serial=serial)


class Failures:
    def __init__(self, record: TableRecord) -> None:
        self.control = Control(record)
        self.directory = TableDirectory("shop", cast("ControlTable", self.control), str)
        self.queues = TableQueues(1 << 20)
        self.found = self.of_a_new_run()

    def of_a_new_run(self) -> StepFailures:
        processor = Processor(self.directory, cast("Any", None), ApplyOptions("/t", ["shop"]))
        return StepFailures(self.directory, processor, self.queues, threading.Lock(), 0.01)

    def step(self) -> QueuedStep:
        self.queues.add(NAME, entry(1, NAME[1]))
        return self.queued()

    def queued(self) -> QueuedStep:
        step = self.queues.start(float("inf"))
        assert step is not None
        return step

    def fail_until_reported(self) -> QueuedStep:
        step = self.step()
        for _ in range(REPORTED_AFTER):
            self.found.failed(step, STORAGE)
            step = self.queued()
        return step

    @property
    def record(self) -> TableRecord:
        return self.directory.record("id")


def mirrored(state: TableState = TableState.COMPLETE, reason: str = "") -> TableRecord:
    return TableRecord("id", "shop", *NAME, folder="shop/t", state=state, reason=reason)


def test_a_step_that_works_again_is_no_failure_while_the_control_table_cannot_be_written() -> None:
    failures = Failures(mirrored())
    step = failures.fail_until_reported()
    failures.control.away = True
    failures.found.recovered(step)
    assert failures.found.names() == []
    assert failures.found.untold()


def test_the_record_says_that_a_table_works_again_when_it_can_be_written() -> None:
    failures = Failures(mirrored())
    step = failures.fail_until_reported()
    assert failures.record.reason == "tried again: OSError: storage does not answer"
    failures.control.away = True
    failures.found.recovered(step)
    with pytest.raises(OSError, match="storage"):
        failures.found.tell_recovered()
    failures.control.away = False
    failures.found.tell_recovered()
    assert failures.record.reason == "" and not failures.found.untold()


def test_a_table_that_failed_in_an_earlier_run_works_again() -> None:
    failures = Failures(mirrored())
    step = failures.fail_until_reported()
    now = failures.of_a_new_run()
    now.recovered(step)
    now.tell_recovered()
    assert failures.record.reason == ""


def test_a_partial_table_keeps_the_reason_why_it_is_partial() -> None:
    failures = Failures(mirrored(TableState.PARTIAL, "rows are missing"))
    step = failures.fail_until_reported()
    failures.found.recovered(step)
    failures.found.tell_recovered()
    assert failures.record.reason == "rows are missing"


def test_a_table_that_stops_does_not_say_that_it_is_tried_again() -> None:
    failures = Failures(mirrored())
    step = failures.fail_until_reported()
    failures.found.failed(step, BinlogError(ErrorKind.INVALID_VALUE, "a value"))
    assert failures.record.state is TableState.STOPPED and "failing" not in failures.record.detail


# -- several threads ------------------------------------------------------------------------------------------


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads take turns after nearly every instruction."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*works: Callable[[], object]) -> list[BaseException]:
    """Run functions at the same time, in a thread each. Returns what they raised."""
    raised: list[BaseException] = []
    start = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        start.wait()
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


@pytest.mark.usefixtures("switching")
def test_counts_are_read_while_other_threads_count() -> None:
    failures = Failures(mirrored())
    found = failures.found

    def count(first: int) -> None:
        for number in range(first, first + 3_000):
            name = ("db", f"t{number}")
            step = QueuedStep((name,), RowRun((entry(1, name[1]),)))
            with found._lock:
                failures.queues.add(name, step.work.entries[0])  # type: ignore[union-attr]
            found.failed(step, STORAGE)
            found.recovered(step)

    def read() -> None:
        for _ in range(6_000):
            found.names()
            found.lasting()

    assert together(lambda: count(0), lambda: count(10_000), read, read) == []


@pytest.mark.usefixtures("switching")
def test_threads_that_change_a_record_do_not_undo_each_others_changes() -> None:
    failures = Failures(mirrored())
    directory = failures.directory
    at_once = threading.Barrier(3)

    def update(number: int) -> None:
        before = directory.record("id")
        at_once.wait()  # all have the same record
        directory.update((before, before.having(**{f"value{number}": number})))

    assert together(*(lambda n=n: update(n) for n in range(3))) == []
    assert failures.record.detail == {"value0": 0, "value1": 1, "value2": 2}


def test_a_table_aside_changes_its_record_as_its_base_does() -> None:
    failures = Failures(replace(mirrored(TableState.STOPPED), detail={"goal": "complete"}))
    aside = TableAside(failures.directory, "id")
    aside.change(lambda now: now.having(deletion_vectors=True), "id")
    assert failures.record.detail == {"goal": "complete", "deletion_vectors": True}
    assert failures.record.state is TableState.STOPPED
