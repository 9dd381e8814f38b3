"""Shares of connections, and the turns of questions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import pytest

from dispatcher.front.connections import Connected, Connections
from dispatcher.front.turns import Asker, ServerTurns, Turns
from dispatcher.front.wire.errors import WireError
from dispatcher.front.wire.login import FrontLogin
from dispatcher.front.wire.packets import Capability

MAXIMUM = 64


class Logins:
    def __init__(self) -> None:
        self.connections = Connections(MAXIMUM)
        self._last = 0

    def log_in(self, consumer: str, token: str | None) -> Connected:
        self._last += 1
        login = FrontLogin(
            consumer, None, token, Capability(0), 45, {}, False, "127.0.0.1", self._last
        )
        self.connections.require_room(login)
        connected = Connected(login, lambda: None)
        self.connections.add(connected)
        return connected

    def all_of(self, consumer: str, token: str | None) -> list[Connected]:
        """Log in until the front refuses."""
        taken = []
        try:
            while True:
                taken.append(self.log_in(consumer, token))
        except WireError:
            return taken


def test_each_consumer_gets_half_of_what_is_left() -> None:
    logins = Logins()
    assert [len(logins.all_of(f"c{n}", None)) for n in range(6)] == [32, 16, 8, 4, 2, 1]


def test_a_token_for_many_consumers_has_one_share() -> None:
    logins = Logins()
    first = logins.all_of("a", "secret")
    assert len(first) == 32
    with pytest.raises(WireError, match="its token has 32"):
        logins.log_in("b", "secret")
    assert len(logins.all_of("b", "other")) == 16


def test_a_consumer_with_many_tokens_has_one_share() -> None:
    logins = Logins()
    for n in range(32):
        logins.log_in("a", f"token {n}")
    with pytest.raises(WireError, match="its consumer has 32"):
        logins.log_in("a", "another token")


def test_connections_that_end_are_free_again() -> None:
    logins = Logins()
    for _ in range(3):
        taken = logins.all_of("a", "secret")
        assert len(taken) == 32
        for connected in taken:
            logins.connections.remove(connected)
    assert not logins.connections.of("a")


async def served_by(turns: Turns, askers: Iterable[Asker]) -> list[Asker]:
    """Ask one question of one step for each asker, in this order. Returns the askers as they were served."""
    served = []

    async def ask(asker: Asker) -> None:
        async with turns.turn(asker):
            served.append(asker)

    await asyncio.gather(*map(ask, askers))
    return served


async def test_consumers_take_turns() -> None:
    """Without tokens, the questions of one consumer delay each question of another consumer by one step."""
    greedy, b, c = (Asker(None, name) for name in ("greedy", "b", "c"))
    served = await served_by(Turns(), [*[greedy] * 6, b, c, b])
    assert served == [greedy, greedy, b, c, greedy, b, greedy, greedy, greedy]


async def test_tokens_take_turns() -> None:
    """A token that asks for 20 consumers delays each question of another token by one step."""
    greedy = [Asker("greedy", f"consumer {n}") for n in range(20)]
    other = Asker("other", "shop")
    served = await served_by(Turns(), [*greedy * 2, other, other, other])
    assert [n for n, asker in enumerate(served) if asker is other] == [2, 4, 6]


async def test_the_consumers_of_a_token_take_turns() -> None:
    greedy, other = Asker("token", "greedy"), Asker("token", "other")
    served = await served_by(Turns(), [*[greedy] * 6, other, other])
    assert [n for n, asker in enumerate(served) if asker is other] == [2, 4]


async def test_a_token_asks_the_servers_one_question_at_a_time() -> None:
    turns, go_on = ServerTurns(), asyncio.Event()
    asking: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def ask(asker: Asker) -> None:
        async with turns.turn(asker):
            asking[asker.holder] += 1
            most[asker.holder] = max(most[asker.holder], asking[asker.holder])
            await go_on.wait()
            asking[asker.holder] -= 1

    askers = [Asker("greedy", f"c{n}") for n in range(20)]
    askers += [Asker("other", "c0"), Asker(None, "c0"), Asker(None, "c1")]
    async with asyncio.TaskGroup() as group:
        for asker in askers:
            group.create_task(ask(asker))
        await asyncio.sleep(0)
        assert asking == {"greedy": 1, "other": 1, "c0": 1, "c1": 1}
        go_on.set()
    assert set(most.values()) == {1}
    assert not turns._locks


async def test_the_event_loop_goes_on_between_two_questions() -> None:
    turns, served = Turns(), list[str]()

    async def ask() -> None:
        async with turns.turn(Asker(None, "a")):
            served.append("question")

    async def other_work(passes: int) -> None:
        for _ in range(passes):
            served.append("other")
            await asyncio.sleep(0)

    await asyncio.gather(other_work(12), *(ask() for _ in range(4)))
    for first, second in pairwise(served):
        assert (first, second) != ("question", "question"), served


async def test_a_client_that_leaves_gives_its_turn_on() -> None:
    turns, served = Turns(), list[int]()
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def ask(number: int) -> None:
        async with turns.turn(Asker(None, "a")):
            served.append(number)
            if number == 0:
                inside.set()
                await go_on.wait()

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ask(number)) for number in range(4)]
        await inside.wait()
        asked[1].cancel()
        await asyncio.sleep(0)
        go_on.set()
        await asked[0]
        asked[2].cancel()  # its turn has come, or comes
    await asyncio.wait_for(ask(4), 10)
    assert served[0] == 0 and served[-2:] == [3, 4]
