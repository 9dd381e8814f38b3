"""How a dispatcher's task executes orders: there are no events after a close, and a dispatcher number has one
connection at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import cast

import pytest

from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.messages.effects import StartDump
from dispatcher.dispatch.messages.events import BatchReceived, Input, LoggedIn, Lost
from dispatcher.dispatch.values.executed_position import Mode, make_executed
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.timings import ConnectionTimings
from dispatcher.runtime.client.dispatcher_task import DispatcherRunner, KernelsLoaded
from dispatcher.runtime.loop.tasks import Tasks
from dispatcher.source.protocols import Source
from dispatcher.stream.batch import OPEN
from tests.support.event_encoder import LogWriter
from tests.support.fake_clients import until
from tests.support.fake_source import DEADLINE_S, FakeSource, write

LoggingIn = tuple[DispatcherRunner, asyncio.Task[None]]
START = make_executed(Mode.GTID, "", "binlog.000001", 4)


class Rules:
    """Replaces a client and its runner: orders a dump at each login, and records the events."""

    buffer_bytes = 1 << 14

    def __init__(self, source: FakeSource) -> None:
        self.client = Client(source.label, [], {})
        self.timings = ConnectionTimings()
        self.fake = source
        self.source = cast(Source, source)
        self.stepped: list[Input] = []
        self.runners: dict[int, DispatcherRunner] = {}
        self.on_login: Callable[[int], None] = self.dump
        self.on_batch: Callable[[int], None] = lambda _: None
        self.kernels = asyncio.Event()
        self.kernels.set()
        self.kernels_loaded: KernelsLoaded = self._kernels_loaded

    async def _kernels_loaded(self) -> None:
        await self.kernels.wait()

    def step(self, what: Input) -> None:
        self.stepped.append(what)
        if isinstance(what, LoggedIn):
            self.on_login(what.dispatcher)
        if isinstance(what, BatchReceived):
            self.on_batch(what.dispatcher)

    def dump(self, number: int) -> None:
        self.runners[number].dump(StartDump(number, Mode.GTID, START))

    def logged_in(self, view: ServerView, found: Sequence[BinlogError]) -> None: ...

    async def flush(self) -> None: ...

    def guarded(self, what: str) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()

    def count(self, kind: type) -> int:
        return sum(isinstance(what, kind) for what in self.stepped)

    @property
    def transactions(self) -> int:
        return sum(
            int((what.batch.tx.flags & OPEN == 0).sum())
            for what in self.stepped
            if isinstance(what, BatchReceived)
        )


@pytest.fixture
def log() -> LogWriter:
    log = LogWriter()
    write(log, "a", 20)
    return log


@pytest.fixture
def rules(source: FakeSource) -> Rules:
    return Rules(source)


class Run:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.errors: list[BaseException] = []
        self.tasks = Tasks(lambda _, error: self.errors.append(error))

    def dispatcher(
        self, number: int = 1, before: asyncio.Task[None] | None = None
    ) -> tuple[DispatcherRunner, asyncio.Task[None]]:
        runner = DispatcherRunner(number, self.rules, before)
        self.rules.runners[number] = runner
        return runner, self.tasks.start(f"dispatcher {number}", runner.run())


@pytest.fixture
async def run(rules: Rules) -> AsyncIterator[Run]:
    run = Run(rules)
    yield run
    rules.fake.release()
    await run.tasks.cancel_all()
    await until(lambda: not any(rules.fake.busy.values()), "everything is closed in the end")
    assert rules.fake.overlaps == 0
    assert run.errors == []


@pytest.fixture
async def caught_up(run: Run, rules: Rules) -> DispatcherRunner:
    """Returns a dispatcher that has read the whole log."""
    runner, _ = run.dispatcher()
    runner.connect(0.0)
    await until(lambda: rules.transactions == 20, "the whole log is read")
    return runner


@pytest.fixture
async def logging_in(run: Run, source: FakeSource) -> LoggingIn:
    """A dispatcher whose login lasts until `source.release()`, and its task."""
    source.hold()
    runner, task = run.dispatcher()
    runner.connect(0.0)
    await until(lambda: source.opened == [1], "it is logging in")
    return runner, task


async def test_a_dump_waits_for_the_kernels_after_the_login(rules: Rules, run: Run) -> None:
    rules.kernels.clear()
    runner, _ = run.dispatcher()
    runner.connect(0)
    await until(lambda: rules.fake.opened == [1], "it has logged in")
    assert rules.stepped == []
    rules.kernels.set()
    await until(lambda: any(isinstance(each, LoggedIn) for each in rules.stepped), "it goes on")
    runner.retire()


@pytest.mark.usefixtures("caught_up")
async def test_it_reads_the_whole_log(rules: Rules) -> None:
    assert rules.count(LoggedIn) == 1 and rules.count(Lost) == 0


async def test_a_login_that_ends_after_close_is_closed_and_gives_no_event(
    rules: Rules, source: FakeSource, logging_in: LoggingIn
) -> None:
    runner, _ = logging_in
    runner.close()
    runner.connect(0.0)
    await asyncio.sleep(0.05)
    assert source.opened == [1], "a second one must wait for the first"
    source.release()
    await until(lambda: rules.count(LoggedIn) == 1, "the second one is stepped")
    assert source.opened == [1, 1] and source.closed == 1


async def test_a_login_that_fails_after_close_gives_no_event(
    rules: Rules, source: FakeSource, logging_in: LoggingIn
) -> None:
    source.error = BinlogError(ErrorKind.CONNECT_FAILED, "refused")
    runner, task = logging_in
    runner.retire()
    source.release()
    await asyncio.wait([task], timeout=DEADLINE_S)
    assert task.done() and rules.stepped == []


async def test_a_number_is_reused_when_its_last_connection_has_ended(
    run: Run, rules: Rules, source: FakeSource, logging_in: LoggingIn
) -> None:
    old, task = logging_in
    old.retire()
    new, _ = run.dispatcher(before=task)
    new.connect(0.0)
    other, _ = run.dispatcher(2)
    other.connect(0.0)
    await until(lambda: source.opened == [1, 2], "another number need not wait")
    source.release()
    await until(lambda: rules.count(LoggedIn) == 2, "both log in")
    assert source.opened == [1, 2, 1] and source.closed == 1


async def test_a_task_that_is_cancelled_leaves_no_connection_behind(
    run: Run, rules: Rules, source: FakeSource, logging_in: LoggingIn
) -> None:
    _, task = logging_in
    await run.tasks.cancel_all()
    assert task.cancelled() and source.busy == {1: 1}
    source.release()
    await until(lambda: source.closed == 1, "what the thread made is closed")
    assert rules.stepped == []


async def test_a_paused_or_closed_dispatcher_gives_no_event(
    run: Run, rules: Rules, source: FakeSource, log: LogWriter
) -> None:
    runner, _ = run.dispatcher()
    rules.on_batch = lambda _: runner.pause(True)
    runner.connect(0.0)
    await until(lambda: rules.count(BatchReceived) == 1, "the first batch")
    write(log, "a", 5)
    await asyncio.sleep(0.05)
    assert rules.count(BatchReceived) == 1
    runner.pause(False)
    await until(lambda: rules.count(BatchReceived) == 2, "the second one after it is resumed")
    seen = rules.transactions
    runner.close()
    await until(lambda: not source.live(), "it is closed")
    assert rules.transactions == seen and rules.count(Lost) == 0


async def test_a_lost_connection_is_reported_once_and_made_again_when_ordered(
    rules: Rules, source: FakeSource, caught_up: DispatcherRunner
) -> None:
    (stream,) = source.live()
    stream.lost = BinlogError(ErrorKind.CONNECTION_LOST, "gone")
    await until(lambda: rules.count(Lost) == 1, "the rules are told")
    assert source.live() == []
    caught_up.connect(0.01)
    await until(lambda: rules.transactions == 40, "it is read again")
    assert rules.count(Lost) == 1


async def test_close_ends_the_wait_before_connecting(run: Run, source: FakeSource) -> None:
    runner, task = run.dispatcher()
    runner.connect(3600.0)
    await asyncio.sleep(0)
    runner.close()
    runner.connect(0.0)
    await until(source.live, "it connects now")
    runner.retire()
    await asyncio.wait([task], timeout=DEADLINE_S)
    assert task.done() and source.live() == []


async def test_dispatchers_take_turns(run: Run, rules: Rules, log: LogWriter) -> None:
    write(log, "a", 2000)
    for number in (1, 2, 3):
        run.dispatcher(number)[0].connect(0.0)
    await until(lambda: rules.transactions == 3 * 2020, "each has all")
    order = [what.dispatcher for what in rules.stepped if isinstance(what, BatchReceived)]
    # Between two of its batches, a dispatcher waits for at most one buffer of each other dispatcher.
    start = max(order.index(number) for number in (1, 2, 3))
    end = min(len(order) - order[::-1].index(number) for number in (1, 2, 3))
    assert end - start > 12, "all three read at a time"
    for at in range(start, end - 5):
        assert set(order[at : at + 6]) == {1, 2, 3}
