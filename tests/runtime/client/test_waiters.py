"""Waiting calls are woken when there is something new for their readers, and only then."""

from __future__ import annotations

import asyncio

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.runtime.client.waiters import Waiters

SOON_S = 20.0


async def begin(waiters: Waiters, *names: str, **more: object) -> list[asyncio.Task[bool]]:
    tasks = [
        asyncio.get_running_loop().create_task(waiters.wait(name, SOON_S, **more))  # type: ignore[arg-type]
        for name in names
    ]
    await asyncio.sleep(0)
    return tasks


async def test_a_wake_reaches_all_calls_of_its_consumer_only() -> None:
    waiters = Waiters()
    first, second, other = await begin(waiters, "a", "a", "b")
    waiters.wake("a")
    assert await first and await second
    assert not other.done()
    waiters.wake("b")
    assert await other


async def test_a_call_returns_false_when_its_time_is_over() -> None:
    assert not await Waiters().wait("a", 0.01)


async def test_a_condition_is_checked_after_a_change_only() -> None:
    waiters, looks, looked = Waiters(), [], asyncio.Event()

    def met() -> bool:
        looks.append(True)
        looked.set()
        return len(looks) == 2

    (waiting,) = await begin(waiters, "a", until=met)
    assert looks == []
    for _ in range(100):
        waiters.changed()
    await looked.wait()
    assert len(looks) == 1, "changes that come together are looked at once"
    assert not waiting.done()
    waiters.changed()
    assert await waiting


async def test_a_condition_that_raises_wakes_its_call() -> None:
    def fenced() -> bool:
        raise UserError(ErrorKind.SESSION_FENCED, "a newer one")

    waiters = Waiters()
    (waiting,) = await begin(waiters, "a", until=fenced)
    waiters.changed()
    assert await waiting


async def test_idle_calls_cost_no_timer_but_their_own() -> None:
    waiters = Waiters()
    waiting = await begin(waiters, *["a"] * 50)
    waiters.changed()
    assert waiters._timer is None
    waiters.wake("a")
    assert all(await asyncio.gather(*waiting))
    assert waiters._waiters == {} and not waiters._watching
