"""Acknowledgements that come at the same time are stored in one write, and acknowledgements that could not be stored
stay queued."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.messages.effects import StoreVersions
from dispatcher.dispatch.tables.versions import StoredVersions
from dispatcher.dispatch.values.specs import ConsumerSpec, Progress
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import LogPosition
from dispatcher.runtime.store.store_queue import StoreQueue
from dispatcher.runtime.store.store_thread import StoreThread
from tests.support.dispatch_parts import stored_at
from tests.support.fake_state import FakeState

CONSUMERS, ROUNDS = 16, 10
NAMES = [f"consumer{n}" for n in range(CONSUMERS)]


def progress(last: int) -> Progress:
    return Progress(stored_at(last), stored_at(last), 0)


@asynccontextmanager
async def queue_on(state: FakeState) -> AsyncIterator[StoreQueue]:
    client = Client("repl@db1:3306", [ConsumerSpec(name, (name,), None, 1) for name in NAMES], {})
    store = StoreThread(state)
    yield StoreQueue(store, client, "key")
    await store.close()


async def test_each_reader_that_acknowledges_again_and_again_needs_no_write_of_its_own() -> None:
    """While a write is made, the acknowledgements of all other readers come, and the next write has all of them."""
    state = FakeState()

    async def acknowledge(queue: StoreQueue, name: str) -> None:
        for last in range(1, ROUNDS + 1):
            await queue.acknowledge(name, progress(last))
            assert state.rows[name] == progress(last)

    async with queue_on(state) as queue:
        await asyncio.gather(*(acknowledge(queue, name) for name in NAMES))
    assert len(state.saves) <= 3 * ROUNDS


async def test_versions_that_cannot_be_stored_are_a_fault() -> None:
    """They are stored before the progress, so a full disk is noticed there first."""
    state = FakeState()
    state.full = True
    place = LogPosition("binlog.000001", 4)
    async with queue_on(state) as queue:
        queue.put_versions(StoreVersions(place, StoredVersions("server", place, ())))
        with pytest.raises(BinlogError, match="the disk is full") as caught:
            await queue.acknowledge(NAMES[0], progress(1))
        assert caught.value in queue._store.faults
        state.full = False
        await queue.flush()
        assert queue._store.faults == ()
    assert list(state.rows) == NAMES[:1] and list(state.versions) == ["key"]


@pytest.mark.parametrize("final", [False, True])
async def test_changed_versions_are_stored_before_progress(
    monkeypatch: pytest.MonkeyPatch, final: bool
) -> None:
    """This needs no Tick: after a crash, the stream begins at the progress, and reads no earlier statement again."""
    state = FakeState()
    place = LogPosition("binlog.000001", 900)
    asked: list[bool] = []

    def changed(_: Client, *, final: bool = False) -> list[StoreVersions]:
        asked.append(final)
        return [StoreVersions(place, StoredVersions("server", place, ()))]

    monkeypatch.setattr(Client, "unstored_versions", changed)
    async with queue_on(state) as queue:
        state.full = True
        queue.put_progress(NAMES[0], progress(1))
        with pytest.raises(BinlogError, match="the disk is full"):
            await queue.flush(final=final)
        assert not state.rows, "the versions come first"
        state.full = False
        await queue.flush(final=final)
    assert asked == [final, final]
    assert state.versions["key"].position == place
    assert list(state.rows) == NAMES[:1]


async def test_an_acknowledgement_that_waited_for_a_failed_write_is_tried_by_itself() -> None:
    state = FakeState()
    state.hold()
    state.full = True

    async def release() -> None:
        state.release()

    async with queue_on(state) as queue:
        calls = [queue.acknowledge(name, progress(1)) for name in NAMES[:3]]
        *answers, _ = await asyncio.gather(*calls, release(), return_exceptions=True)
        assert [type(answer) for answer in answers] == [BinlogError] * 3
        state.full = False
        await queue.flush()
    assert sorted(state.rows) == NAMES[:3]
