"""Clients, their readers and the store together, on a server in memory: sessions, acknowledgements, settings that
change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import structlog

from dispatcher.dispatch import retry
from dispatcher.dispatch.events import Tick
from dispatcher.dispatch.executed_position import Mode
from dispatcher.dispatch.specs import ConsumerSpec, Earliest, Latest, OnPurged, Start
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.runtime.client_registry import ClientRegistry
from dispatcher.runtime.client_service import ClientDecl, ConsumerDecl
from dispatcher.runtime.consumer_sessions import ConsumerSessions
from dispatcher.runtime.from_settings import ClientKey
from dispatcher.runtime.store_thread import StoreThread
from dispatcher.source.protocols import Source
from tests.support.event_encoder import LogWriter
from tests.support.fake_server import Server
from tests.support.fake_source import DEADLINE_S, FakeSource, write
from tests.support.fake_state import FakeState

Json = dict[str, Any]
EARLIEST = Earliest()


async def until(condition: Callable[[], object], what: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - whatever the condition is
            await asyncio.sleep(0.002)
    assert condition(), what


def declared(
    name: str, *databases: str, bytes_max: int = 1 << 20, start: Start = EARLIEST, **more: Any
) -> ConsumerDecl:
    spec = ConsumerSpec(name, databases or ("a",), None, bytes_max, start, **more)
    return ConsumerDecl(spec, marker_s=0.0)


class Daemon:
    """The clients of a daemon, over restarts, on one state store."""

    def __init__(self, source: FakeSource, state: FakeState) -> None:
        self.source = source
        self.state = state
        self.errors: list[BaseException] = []
        self.wanted: dict[str, list[ConsumerDecl]] = {}
        self.settings: object = None
        self._make()

    def _make(self) -> None:
        log = structlog.get_logger("test")
        self.store = StoreThread(self.state)
        self.clients = ClientRegistry(
            self.store, None, log, lambda _, error: self.errors.append(error)
        )

    async def declare(self, *consumers: ConsumerDecl) -> Any:
        self.wanted = {"key": list(consumers)}
        groups: dict[ClientKey, ClientDecl] = {
            key: ClientDecl(key, cast(Source, self.source), tuple(those), settings=self.settings)
            for key, those in self.wanted.items()
            if those
        }
        await self.clients.check(groups)
        return await self.clients.apply(groups)

    async def start(self, *consumers: ConsumerDecl) -> ConsumerSessions:
        await self.declare(*consumers)
        self.clients.start()
        return self.sessions

    async def restart(self) -> ConsumerSessions:
        await self.stop()
        self._make()
        return await self.start(*self.wanted["key"])

    async def stop(self) -> None:
        await self.clients.stop()
        await self.store.close()

    @property
    def sessions(self) -> ConsumerSessions:
        return self.clients.sessions

    def row(self, name: str) -> Json:
        return next(row for row, _ in self.sessions.rows_with_consumers() if row["name"] == name)

    @property
    def tip(self) -> int:
        return len(self.source.fake.log.transactions)

    async def until_queued(self, *names: str) -> None:
        """Wait until the server's whole log is in these queues."""

        def queued() -> bool:
            consumers = self.clients.clients()[0].consumers
            return all(consumers[name].queue.queued.seq == self.tip for name in names)

        await until(queued, "everything is queued")


@pytest.fixture
def log() -> LogWriter:
    log = LogWriter()
    write(log, "a", 3)
    return log


@pytest.fixture
def source(log: LogWriter) -> FakeSource:
    return FakeSource(Server(log, Mode.GTID))


@pytest.fixture
def state() -> FakeState:
    return FakeState()


@pytest.fixture
async def daemon(source: FakeSource, state: FakeState) -> AsyncIterator[Daemon]:
    daemon = Daemon(source, state)
    yield daemon
    source.release()
    state.release()
    await daemon.stop()
    await until(lambda: not any(source.busy.values()), "everything is closed in the end")
    assert source.overlaps == 0 and daemon.errors == []


def position(value: Json) -> Position:
    return Position.from_dict(value)


async def open_session(
    readers: ConsumerSessions, name: str, after: Position | None = None
) -> tuple[int, Position]:
    answer = await readers.open_session(name, after, False)
    return answer["session"], position(answer["position"])


async def poll(
    readers: ConsumerSessions, name: str, session: int, after: Position, **more: Any
) -> Json:
    arguments = {"bytes_max": None, "wait_s": 5.0, "markers": True} | more
    return await readers.poll(name, session, after, **arguments)


# -- acknowledgements -----------------------------------------------------------------------------------------


async def test_acknowledgements_that_come_together_are_one_write(
    daemon: Daemon, state: FakeState
) -> None:
    names = [f"c{n}" for n in range(8)]
    readers = await daemon.start(*(declared(name) for name in names))
    sessions = {name: await open_session(readers, name) for name in names}
    ends = {name: position((await poll(readers, name, *sessions[name]))["end"]) for name in names}
    state.saves.clear()
    state.hold()
    coming = [
        asyncio.ensure_future(readers.acknowledge(name, sessions[name][0], ends[name]))  # noqa: TID251
        for name in names
    ]
    await asyncio.sleep(0.02)
    state.release()
    answers = await asyncio.gather(*coming)
    assert [position(answer) for answer in answers] == list(ends.values())
    assert len(state.saves) <= 3 and {n for save in state.saves for n in save} == set(names)
    assert {name: row.acknowledged for name, row in state.rows.items()} == ends


async def test_progress_is_not_stored_over_an_acknowledgement_that_is_being_stored(
    daemon: Daemon, state: FakeState, log: LogWriter
) -> None:
    readers = await daemon.start(declared("c"), declared("other", "b"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    state.hold()
    coming = asyncio.ensure_future(readers.acknowledge("c", session, end))  # noqa: TID251
    await asyncio.sleep(0.02)
    # The rules do not know of it yet, and order to store progress.
    write(log, "b", 3)
    runner = daemon.clients._running["key"].runner
    consumer = runner.client.consumers["c"]
    runner._execute([consumer.store_progress()])
    runner.step(Tick())
    state.release()
    await coming
    await runner.flush()
    assert state.rows["c"].acknowledged == end


async def test_an_acknowledgement_that_cannot_be_stored_is_refused_and_nothing_is_forgotten(
    daemon: Daemon, state: FakeState
) -> None:
    readers = await daemon.start(declared("c"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    state.full = True
    with pytest.raises(BinlogError) as caught:
        await readers.acknowledge("c", session, end)
    assert caught.value.kind is ErrorKind.STATE_STORE
    assert "disk is full" in str(daemon.store.fault)
    assert await readers.binlog("c", session, start, end), "it is still there"
    state.full = False
    assert position(await readers.acknowledge("c", session, end)) == end
    assert state.rows["c"].acknowledged == end


async def test_a_session_begins_behind_an_older_session_s_acknowledgement(
    daemon: Daemon, state: FakeState
) -> None:
    readers = await daemon.start(declared("c"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    state.hold()
    coming = asyncio.ensure_future(readers.acknowledge("c", session, end))  # noqa: TID251
    opening = asyncio.ensure_future(readers.open_session("c", None, False))  # noqa: TID251
    await asyncio.sleep(0.02)
    state.release()
    await coming
    assert position((await opening)["position"]) == end


async def test_a_reader_may_acknowledge_data_that_was_not_read_again_yet(
    daemon: Daemon, state: FakeState, source: FakeSource
) -> None:
    readers = await daemon.start(declared("c"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    readers = await daemon.restart()
    assert await readers.binlog("c", session, start, end), "it is read again"
    readers = await daemon.restart()
    answer = await poll(readers, "c", session, end, wait_s=0)
    assert position(answer["end"]) == end
    assert state.rows["c"].acknowledged == end


async def test_a_reader_goes_on_after_a_restart_if_its_range_does_not_fit_the_queue(
    daemon: Daemon, log: LogWriter
) -> None:
    readers = await daemon.start(declared("c", bytes_max=1))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start, bytes_max=1 << 20))["end"])
    readers = await daemon.restart()
    write(log, "a", 2)
    before = await readers.binlog("c", session, start, end)
    assert sum(map(len, before)) > 300
    after = end
    async with asyncio.timeout(DEADLINE_S):
        while after.seq < daemon.tip:
            after = position((await poll(readers, "c", session, after, bytes_max=1))["end"])


# -- readers that wait ----------------------------------------------------------------------------------------


async def test_waiting_calls_are_answered_when_the_daemon_ends(daemon: Daemon) -> None:
    readers = await daemon.start(declared("c", "b"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    coming = asyncio.ensure_future(poll(readers, "c", session, end, wait_s=60))  # noqa: TID251
    await asyncio.sleep(0.02)
    readers.close()
    assert position((await asyncio.wait_for(coming, 5))["end"]) == end


async def test_calls_during_a_survey_share_the_next_one(daemon: Daemon, source: FakeSource) -> None:
    await daemon.start(declared("c"))
    await daemon.until_queued("c")
    runner = daemon.clients._running["key"].runner
    before = source.surveys
    source.hold()
    coming = [asyncio.ensure_future(runner.survey()) for _ in range(5)]  # noqa: TID251
    await asyncio.sleep(0.02)
    source.release()
    await asyncio.gather(*coming)
    # The first survey had begun when the other calls came: they share one that began after them.
    assert source.surveys - before == 2


async def test_a_purged_consumer_skips_the_gap_and_tells_its_reader(
    daemon: Daemon, source: FakeSource, log: LogWriter
) -> None:
    readers = await daemon.start(declared("c", on_purged=OnPurged.LATEST), declared("strict"))
    session, start = await open_session(readers, "c")
    strict, strict_start = await open_session(readers, "strict")
    first = position((await poll(readers, "c", session, start))["end"])
    await daemon.stop()
    log.rotate()
    write(log, "a", 2)
    log.rotate()
    source.fake.purge(2)
    daemon._make()
    readers = await daemon.start(*daemon.wanted["key"])
    answer = await poll(readers, "c", session, first)
    assert answer["gap"] and answer["transactions"] == 0
    end = position(answer["end"])
    assert (end.epoch, end.seq) == (first.epoch + 1, daemon.tip)
    # The range before the gap is read again, and is empty.
    assert b"".join(await readers.binlog("c", session, start, first)) == b"\xfebin"
    assert (await readers.open_session("c", first, True))["gap"]
    write(log, "a", 1)
    answer = await poll(readers, "c", session, end)
    assert answer["transactions"] == 1 and not answer["gap"]
    assert daemon.row("c")["gaps"] == 1
    with pytest.raises(BinlogError) as caught:
        await poll(readers, "strict", strict, strict_start)
    assert caught.value.kind is ErrorKind.POSITION_PURGED


# -- settings that change -------------------------------------------------------------------------------------


async def test_consumers_come_and_go_without_an_effect_on_others(
    daemon: Daemon, source: FakeSource, log: LogWriter
) -> None:
    readers = await daemon.start(declared("stays"), declared("goes"))
    session, start = await open_session(readers, "stays")
    gone, gone_start = await open_session(readers, "goes")
    await daemon.until_queued("stays", "goes")
    (stream,) = source.live()
    gone_end = position((await poll(readers, "goes", gone, gone_start))["end"])
    waiting = asyncio.ensure_future(poll(readers, "goes", gone, gone_end, wait_s=60))  # noqa: TID251
    await asyncio.sleep(0.02)
    changes = await daemon.declare(declared("stays"), declared("comes", "b", start=Latest()))
    assert (changes.added, changes.removed, changes.changed) == (("comes",), ("goes",), ())
    with pytest.raises(BinlogError) as caught:
        await asyncio.wait_for(waiting, 5)
    assert caught.value.kind is ErrorKind.UNKNOWN_CONSUMER
    await until(lambda: source.opened == [1, 2], "the new one connects")
    await until(
        lambda: source.live() == [stream],
        "it is attached to the other's dispatcher, whose connection stays",
    )
    write(log, "a", 2)
    await daemon.until_queued("stays", "comes")
    assert (await poll(readers, "stays", session, start))["transactions"] == 5
    assert [row["name"] for row, _ in readers.rows_with_consumers()] == ["stays", "comes"]


async def test_a_changed_consumer_goes_on_under_its_session(
    daemon: Daemon, source: FakeSource, log: LogWriter, state: FakeState
) -> None:
    readers = await daemon.start(declared("c"), declared("other"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    waiting = asyncio.ensure_future(poll(readers, "c", session, end, wait_s=60, markers=False))  # noqa: TID251
    await asyncio.sleep(0.02)
    changes = await daemon.declare(declared("c", "a", "b"), declared("other"))
    assert (changes.added, changes.removed, changes.changed) == ((), (), ("c",))
    write(log, "b", 1)
    answer = await asyncio.wait_for(waiting, 10)
    assert answer["transactions"] == 1
    assert (
        position(await readers.acknowledge("c", session, position(answer["end"]))).seq == daemon.tip
    )
    # An unchanged declaration changes nothing.
    before = list(state.saves)
    changes = await daemon.declare(declared("c", "a", "b"), declared("other"))
    assert (changes.added, changes.removed, changes.changed) == ((), (), ())
    assert state.saves == before


async def test_a_client_with_other_connection_settings_is_replaced(
    daemon: Daemon, source: FakeSource, log: LogWriter
) -> None:
    readers = await daemon.start(declared("c"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    (stream,) = source.live()
    daemon.settings = "another heartbeat"
    changes = await daemon.declare(declared("c"))
    assert changes.changed == ("c",)
    await until(lambda: len(source.live()) == 1 and source.live() != [stream], "a new connection")
    write(log, "a", 1)
    assert (await poll(readers, "c", session, end))["transactions"] == 1


async def test_the_connection_closes_with_its_last_consumer(
    daemon: Daemon, source: FakeSource
) -> None:
    readers = await daemon.start(declared("c"))
    await daemon.until_queued("c")
    changes = await daemon.declare()
    assert changes.removed == ("c",) and source.live() == [] and readers.names() == []
    await daemon.declare(declared("d"))
    await daemon.until_queued("d")


async def test_a_full_store_refuses_a_reload_and_changes_nothing(
    daemon: Daemon, state: FakeState, source: FakeSource, log: LogWriter
) -> None:
    readers = await daemon.start(declared("c"), declared("other", "b"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    state.full = True
    runner = daemon.clients._running["key"].runner
    runner._execute([runner.client.consumers["c"].store_progress()])
    with pytest.raises(BinlogError):
        await daemon.declare(declared("other", "b"))
    state.full = False
    assert readers.names() == ["c", "other"]
    write(log, "a", 1)
    assert (await poll(readers, "c", session, end))["transactions"] == 1


async def test_another_marker_interval_does_not_change_a_consumer(daemon: Daemon) -> None:
    """The session gets the new interval, and the queue stays."""
    readers = await daemon.start(declared("c"))
    changes = await daemon.declare(replace(declared("c"), marker_s=7.0))
    assert changes.changed == () and readers.get("c").marker_s == 7.0


# -- defects --------------------------------------------------------------------------------------------------


async def test_a_defect_in_reading_a_source_fails_that_client_only(
    daemon: Daemon, source: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "BACKOFF_MIN_S", 0.01)
    source.error = ZeroDivisionError("a defect")  # type: ignore[assignment]
    await daemon.start(declared("one"))
    await until(lambda: daemon.row("one")["state"] == "failed", "it has failed")
    assert daemon.row("one")["last_error"].startswith("internal error: log in 1: ZeroDivisionError")
    assert len(source.opened) == retry.DAMAGE_MAX


async def test_a_defect_in_a_survey_ends_nothing(
    daemon: Daemon, source: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    await daemon.start(declared("one"))
    await daemon.until_queued("one")

    def broken(_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(source, "survey", broken)
    session = await daemon.sessions.open_session("one", None, False)
    assert session["session"] == 1
    assert daemon.row("one")["state"] == "streaming"
