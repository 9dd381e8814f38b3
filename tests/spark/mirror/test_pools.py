"""The threads of an applier: a work that waits does not delay works of another kind. Without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from spark_sink.mirror.rules.effects import ClearCopy, CopyTable, ReadLog, StoreRecords
from spark_sink.mirror.rules.events import (
    CopyCleared,
    Event,
    Failure,
    StoreFailed,
    TableCopied,
    WorkFailed,
)
from spark_sink.mirror.rules.mirror import COPIES
from spark_sink.mirror.rules.states import Copying
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.runtime import pools as pools_module
from spark_sink.mirror.runtime.copies import Copies
from spark_sink.mirror.runtime.pools import Pools
from spark_sink.mirror.runtime.progress import ProgressCounter
from spark_sink.mirror.values.entries import LogEnd
from tests.daemon.harness import until

BEGIN = Position("server", "", "binlog.1", 100, 1, 1)
STORAGE = OSError("storage does not answer")


class Works:
    """Works of a consumer. Each copy waits until the test releases one; the other works do what a test sets."""

    def __init__(self, consumer: str) -> None:
        self.consumer, self.go = consumer, threading.Semaphore(0)
        self.begun: list[int] = []
        self.other: Callable[[Any], Event] = lambda work: CopyCleared(work.run)

    def do(self, work: Any, _session: object) -> Event:
        self.begun.append(work.run)
        if not isinstance(work, CopyTable):
            return self.other(work)
        self.go.acquire()
        return TableCopied(work.run, True, BEGIN, False, "", ())


class Scene:
    def __init__(self) -> None:
        self.answers: list[tuple[str, Event]] = []
        nothing: Any = None
        self.pools = Pools(nothing, 1, 2, lambda name, event: self.answers.append((name, event)))

    def submit(self, works: Works, *effects: Any) -> None:
        for effect in effects:
            self.pools.submit(works, effect)  # type: ignore[arg-type]

    def answered(self, works: Works, run: int) -> Event:
        def found() -> list[Event]:
            return [e for name, e in self.answers if (name, e.run) == (works.consumer, run)]  # type: ignore[union-attr]

        until(lambda: bool(found()), "the work is answered")
        (event,) = found()
        return event


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(pools_module, "StepSession", lambda _: None)
    scene = Scene()
    yield scene
    scene.pools.finish()
    scene.pools.close()


@pytest.fixture
def works() -> Iterator[Works]:
    works = Works("shop")
    yield works
    works.go.release(100)


def copies(first: int, number: int) -> list[CopyTable]:
    record = TableRecord("t", "shop", "shop", "t", state=Copying(BEGIN))
    return [CopyTable(run, record) for run in range(first, first + number)]


def test_all_other_works_go_on_while_copies_wait(scene: Scene, works: Works) -> None:
    scene.submit(works, *copies(1, COPIES + 3))
    until(lambda: len(works.begun) == COPIES, "copies have begun")
    for effect in (ClearCopy(20, "t"), ReadLog(21, 0), StoreRecords(22, (), 5)):
        scene.submit(works, effect)
        scene.answered(works, effect.run)
    done = threading.Event()
    scene.pools.maintain(done.set)
    assert done.wait(60)
    assert len([run for run in works.begun if run < 20]) == COPIES


def test_the_copies_of_a_second_consumer_do_not_wait_for_all_of_the_first(
    scene: Scene, works: Works
) -> None:
    other = Works("billing")
    scene.submit(works, *copies(1, COPIES))
    scene.submit(other, *copies(1, COPIES))
    until(lambda: len(works.begun) == COPIES, "copies have begun")
    works.go.release()
    until(lambda: other.begun == [1], "the other's first copy has begun")
    other.go.release(100)


def test_a_work_that_fails_is_answered_with_what_it_is(scene: Scene, works: Works) -> None:
    fault = BinlogError(ErrorKind.INVALID_VALUE, "a value")
    errors = {
        1: (STORAGE, Failure("OSError: storage does not answer")),
        2: (fault, Failure(str(fault), fault)),
        3: (
            RuntimeError("[DELTA_CONCURRENT_APPEND] x"),
            Failure("RuntimeError: [DELTA_CONCURRENT_APPEND] x", conflict=True),
        ),
    }

    def failing(work: Any) -> Event:
        raise errors[work.run][0]

    works.other = failing
    for run, (_, failure) in errors.items():
        scene.submit(works, ClearCopy(run, "t"))
        assert scene.answered(works, run) == WorkFailed(run, failure)
    works.other = lambda _: (_ for _ in ()).throw(STORAGE)
    scene.submit(works, StoreRecords(9, (), None))
    assert scene.answered(works, 9) == StoreFailed(9, errors[1][1])


def test_at_the_end_what_runs_is_answered_and_stores_go_on(scene: Scene, works: Works) -> None:
    scene.submit(works, *copies(1, COPIES + 1))
    until(lambda: len(works.begun) == COPIES, "copies have begun")
    ending = threading.Thread(target=scene.pools.finish)
    ending.start()
    scene.submit(works, StoreRecords(9, (), None))
    scene.answered(works, 9)
    works.go.release(100)
    ending.join(60)
    scene.submit(works, ClearCopy(10, "t"))
    assert scene.pools.wait_for_stores()
    assert not scene.pools.wait_for_stores()
    assert sorted(works.begun) == [1, 2, 9]


# -- copies ----------------------------------------------------------------------------------------------------


class Copier:
    """Copies until it is stopped, or says that it is done."""

    def __init__(self) -> None:
        self.begins: list[LogEnd] = []
        self.chunk = threading.Event()
        self.complete = False

    def copy(self, _record: TableRecord, *, begin: LogEnd, progress: Any, stopping: Any) -> Any:
        self.begins.append(begin)
        rows = {"rows": 5, "rows_estimated": 9, "bytes": 50, "chunks": 1, "rest_s": None}
        progress(SimpleNamespace(label="shop.t", **rows))
        self.chunk.set()
        until(lambda: self.complete or stopping(), "the copy ends")
        return SimpleNamespace(
            complete=self.complete,
            executed=BEGIN,
            exact=True,
            signature="columns",
            generated=(),
            invalid_values=0,
        )


def copying(copier: Copier) -> tuple[Copies, ProgressCounter, CopyTable]:
    counter = ProgressCounter("shop")
    record = TableRecord("t", "shop", "shop", "t", state=Copying(BEGIN), from_lsn=(2 << 32) + 5)
    return Copies(copier, counter), counter, CopyTable(3, record)


def test_a_copy_begins_at_the_end_of_the_log_that_its_record_names_and_is_counted() -> None:
    copier = Copier()
    found, counter, work = copying(copier)
    answers: list[TableCopied] = []
    thread = threading.Thread(target=lambda: answers.append(found.copy(work)))
    thread.start()
    assert copier.chunk.wait(60)
    (state,) = counter.progress(0, 0, []).copies
    assert (state.label, state.rows, state.rows_estimated) == ("shop.t", 5, 9)
    copier.complete = True
    thread.join(60)
    assert answers == [TableCopied(3, True, BEGIN, True, "columns", ())]
    assert copier.begins == [LogEnd(2, BEGIN)]
    assert counter.progress(0, 0, []).copies == ()


@pytest.mark.parametrize("every", [False, True])
def test_a_copy_ends_when_it_or_every_copy_is_stopped(every: bool) -> None:
    copier = Copier()
    found, _, work = copying(copier)
    answers: list[TableCopied] = []
    thread = threading.Thread(target=lambda: answers.append(found.copy(work)))
    thread.start()
    assert copier.chunk.wait(60)
    found.stop_all() if every else found.stop(work.run)
    thread.join(60)
    assert [answer.complete for answer in answers] == [False]


def test_a_copy_that_is_stopped_before_it_begins_reads_nothing() -> None:
    copier = Copier()
    found, _, work = copying(copier)
    found.stop(work.run)
    assert not found.copy(work).complete
    assert copier.begins == []
