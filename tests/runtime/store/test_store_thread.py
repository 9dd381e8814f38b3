"""Calls of the state store run in their order in one thread, and a call that is cancelled while it waits does not
run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from dispatcher.dispatch.messages.effects import StoreVersions
from dispatcher.dispatch.tables.versions import StoredVersions
from dispatcher.dispatch.values.specs import Progress
from dispatcher.model.errors import BinlogError, ErrorKind, NotLeaderError
from dispatcher.model.position import LogPosition, Position
from dispatcher.runtime.store.store_thread import StoredConsumer, StoreThread
from dispatcher.stream.xa_store import XaStore
from tests.support.fake_clients import until
from tests.support.fake_state import FakeState

PLACE = Position("server", "", "binlog.000001", 4, 1, 1)
PROGRESS = Progress(PLACE, PLACE, 0)
MARK = LogPosition("binlog.000001", 4)
VERSIONS = StoreVersions(MARK, StoredVersions("server", MARK, ()))


@pytest.fixture
def state() -> FakeState:
    return FakeState()


async def test_all_consumers_are_loaded_in_one_call(state: FakeState) -> None:
    state.rows["b"], state.sessions["b"], state.paused_names = PROGRESS, 7, {"b"}
    store = StoreThread(state)
    assert await store.load_all(["a", "b"]) == {
        "a": StoredConsumer(0, None, False),
        "b": StoredConsumer(7, PROGRESS, True),
    }
    assert store.timings.errors == store.timings.waiting == 0
    await store.close()


class Unreadable(FakeState):
    """The row of `a` cannot be read: `load` raises an error of this kind."""

    kind = ErrorKind.STORED_POSITION

    def load(self, consumer: str) -> Progress | None:
        if consumer == "a":
            raise BinlogError(self.kind, "unreadable")
        return super().load(consumer)


async def test_a_row_that_cannot_be_read_is_told_for_its_consumer() -> None:
    store = StoreThread(Unreadable())
    loaded = await store.load_all(["a", "b"])
    assert isinstance(loaded["a"].progress, BinlogError)
    assert loaded["b"].progress is None
    await store.close()


async def test_a_store_that_cannot_be_read_is_an_error() -> None:
    state = Unreadable()
    state.kind = ErrorKind.STATE_STORE
    store = StoreThread(state)
    with pytest.raises(BinlogError, match="unreadable"):
        await store.load_all(["b", "a"])
    assert (store.timings.errors, store.timings.waiting) == (1, 0)
    await store.close()


async def test_a_cancelled_call_that_waits_does_not_run(state: FakeState) -> None:
    store = StoreThread(state)
    state.hold()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(store.next_session("a"))
        second = group.create_task(store.next_session("a"))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        state.release()
    assert first.result() == 1
    assert second.cancelled() and state.sessions == {"a": 1}
    await store.close()


async def test_the_result_for_a_cancelled_call_that_runs_is_dropped(state: FakeState) -> None:
    store = StoreThread(state)
    state.hold()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(store.next_session("a"))
        while not store.timings.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        state.release()
        assert await store.next_session("b") == 1
    assert task.cancelled() and store.timings.waiting == 0
    await store.close()


async def test_the_store_is_checkpointed_regularly(state: FakeState) -> None:
    store = StoreThread(state, checkpoint_every_s=0.01)
    await until(lambda: state.checkpoints > 1, "two checkpoints")
    assert store.faults == ()
    await store.close()


async def test_a_checkpoint_that_fails_is_a_fault_until_one_succeeds(state: FakeState) -> None:
    state.full = True
    store = StoreThread(state, checkpoint_every_s=0.01)
    await until(lambda: store.faults, "the fault is seen")
    state.full = False
    await until(lambda: not store.faults, "the fault is over")
    await store.close()


WRITES: dict[str, Callable[[StoreThread], Awaitable[object]]] = {
    "save": lambda store: store.save([("a", PROGRESS)], "client", XaStore()),
    "save_versions": lambda store: store.save_versions("client", VERSIONS),
    "next_session": lambda store: store.next_session("a"),
    "set_paused": lambda store: store.set_paused("a", True),
    "forget": lambda store: store.forget("a"),
}


@pytest.mark.parametrize("name", WRITES)
async def test_a_write_that_fails_is_a_fault_until_one_succeeds(
    state: FakeState, name: str
) -> None:
    store = StoreThread(state)
    state.full = True
    with pytest.raises(BinlogError, match="the disk is full") as caught:
        await WRITES[name](store)
    assert caught.value in store.faults
    assert await store.session("a") == 0
    assert caught.value in store.faults, "a read says nothing of writes"
    state.full = False
    await WRITES[name](store)
    assert store.faults == ()
    await store.close()


@pytest.mark.parametrize("name", WRITES)
async def test_the_fault_of_another_write_ends_with_a_write_that_is_not_put_off(
    state: FakeState, name: str
) -> None:
    """A store in a database does not write each position of `save_versions`."""
    store = StoreThread(state)
    state.full = True
    with pytest.raises(BinlogError):
        await WRITES[name](store)
    state.full = False
    await WRITES["save_versions"](store)
    assert (store.faults == ()) == (name == "save_versions")
    await WRITES["save"](store)
    assert store.faults == ()
    await store.close()


class OtherLeads(FakeState):
    """The store of a daemon whose lease another one has taken."""

    def next_session(self, consumer: str) -> int:
        raise BinlogError(ErrorKind.NOT_LEADER, consumer)


async def test_a_write_that_is_refused_is_told() -> None:
    refused: list[str] = []
    store = StoreThread(OtherLeads(), on_refused=lambda: refused.append("refused"))
    with pytest.raises(BinlogError, match="not the leader"):
        await store.next_session("a")
    assert refused == ["refused"]
    await store.close()


class Telling(FakeState):
    """`begun` is set when a call has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()

    def next_session(self, consumer: str) -> int:
        self.begun.set()
        return super().next_session(consumer)


async def test_a_store_that_is_abandoned_refuses_all_calls_and_makes_none_that_waits() -> None:
    state = Telling()
    store = StoreThread(state)
    closed = asyncio.Event()
    loop = asyncio.get_running_loop()
    state.hold()
    calls = [asyncio.ensure_future(store.next_session("a")) for _ in range(2)]  # noqa: TID251
    await asyncio.to_thread(state.begun.wait)
    await until(lambda: store.timings.waiting == 2, "both calls wait")

    def close() -> None:
        loop.call_soon_threadsafe(closed.set)

    store.abandon(partial(NotLeaderError.of, "http://b"), close)
    for call in (*calls, store.session("a")):
        with pytest.raises(BinlogError, match="not the leader"):
            await call
    assert not closed.is_set()
    state.release()  # lets the thread's call end
    await closed.wait()
    assert state.sessions == {"a": 1}
