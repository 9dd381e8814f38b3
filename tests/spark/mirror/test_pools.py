"""The threads of an applier: what is waited for in one kind of work holds up no other. Without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.rules.table_record import TableRecord, TableState
from spark_sink.mirror.runtime import catch_up
from spark_sink.mirror.runtime.catch_up import CatchUps
from spark_sink.mirror.runtime.pools import COPIES, CatchUpRuns, Pools
from spark_sink.mirror.tables.directory import TableDirectory
from tests.daemon.harness import until
from tests.spark.mirror.test_copy_track import Control

TABLES = 10


class Copies:
    """Copies, each of which ends when one is let go."""

    def __init__(self, directory: TableDirectory) -> None:
        self.directory, self.go = directory, threading.Semaphore(0)
        self.begun: list[str] = []

    def run(self, _session: object, table_id: str, _catch_ups: CatchUps) -> None:
        self.begun.append(table_id)
        self.go.acquire()
        self.directory.change(lambda now: replace(now, state=TableState.COMPLETE), table_id)


class Consumer:
    """Tables that wait for copies, and one that is stopped."""

    def __init__(self, name: str, pools: Pools) -> None:
        tables = [
            TableRecord(f"{name}{n}", name, "shop", f"t{n}", state=TableState.CREATING)
            for n in range(TABLES)
        ]
        halted = TableRecord("halted", name, "shop", "halted", state=TableState.STOPPED)
        control = Control(*tables, halted)
        self.directory = TableDirectory(name, cast(ControlTable, control), str)
        self.copies = Copies(self.directory)
        nothing: Any = None
        copies = cast(Any, self.copies)
        self.catch_ups = CatchUps(nothing, self.directory, nothing, nothing, nothing, copies)
        self.runs = CatchUpRuns(self.catch_ups, pools)

    def ask(self, table_id: str, request: str) -> None:
        asked = replace(self.directory.record(table_id), request=request)
        self.directory._records[table_id] = asked.having(asked={"id": request})


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pools]:
    monkeypatch.setattr(catch_up, "StepSession", lambda _: None)
    pools = Pools(1)
    yield pools
    pools.close()


@pytest.fixture
def consumer(pools: Pools) -> Iterator[Consumer]:
    consumer = Consumer("shop", pools)
    yield consumer
    consumer.catch_ups.stop()
    consumer.copies.go.release(TABLES)


def test_a_request_is_answered_while_copies_wait(consumer: Consumer) -> None:
    consumer.runs.start()
    until(lambda: len(consumer.copies.begun) == COPIES, "copies have begun")
    consumer.ask("halted", "recopy")
    consumer.runs.start()
    until(lambda: not consumer.directory.record("halted").request, "the request is answered")
    assert consumer.directory.record("halted").state is TableState.CREATING
    assert len(consumer.copies.begun) == COPIES


def test_a_request_about_a_table_whose_copy_waits_is_answered(consumer: Consumer) -> None:
    consumer.runs.start()
    until(lambda: len(consumer.copies.begun) == COPIES, "copies have begun")
    waiting = f"shop{TABLES - 1}"
    consumer.ask(waiting, "recopy")
    consumer.runs.start()
    until(lambda: not consumer.directory.record(waiting).request, "the request is answered")
    assert waiting not in consumer.copies.begun


def test_maintenance_runs_while_copies_wait(consumer: Consumer, pools: Pools) -> None:
    consumer.runs.start()
    until(lambda: len(consumer.copies.begun) == COPIES, "copies have begun")
    done = threading.Event()
    pools.maintenance.submit(done.set)
    assert done.wait(60)


def test_all_copies_are_made_one_behind_the_other(consumer: Consumer) -> None:
    consumer.copies.go.release(TABLES)
    consumer.runs.start()  # called once
    until(lambda: len(consumer.copies.begun) == TABLES, "every copy is made")
    until(lambda: not consumer.catch_ups.busy(), "nothing is left")
    assert sorted(consumer.copies.begun) == sorted(set(consumer.copies.begun))


def test_the_copies_of_a_second_consumer_do_not_wait_for_all_of_the_first(
    consumer: Consumer, pools: Pools
) -> None:
    other = Consumer("billing", pools)
    consumer.runs.start()
    until(lambda: len(consumer.copies.begun) == COPIES, "copies have begun")
    other.runs.start()
    consumer.copies.go.release()
    until(lambda: other.copies.begun, "the other's first copy has begun")
    assert len(consumer.copies.begun) == COPIES
    other.catch_ups.stop()
    other.copies.go.release(TABLES)


def test_a_step_that_waits_for_its_next_attempt_ends_with_the_job(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catch_up, "BACKOFF_FIRST_S", 1e6)
    monkeypatch.setattr(catch_up, "BACKOFF_MAX_S", 1e6)
    failed, raised = threading.Event(), []
    consumer.directory.change(lambda now: now.having(goal="complete"), "halted")

    class Failing:
        def execute(self, *_: object) -> int:
            failed.set()
            raise OSError("storage does not answer")

    class Work:
        lsn = 1

    def execute() -> None:
        arguments: Any = (None, Failing(), "halted", Work())
        try:
            consumer.catch_ups._execute(*arguments)
        except OSError as error:
            raised.append(error)

    step = threading.Thread(target=execute, daemon=True)
    step.start()
    failed.wait()
    consumer.catch_ups.stop()
    step.join(60)
    assert len(raised) == 1
