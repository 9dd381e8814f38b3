"""Shares of connections, and the turns of questions."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from dispatcher.front.connections import Connected, Connections
from dispatcher.front.turns import Turns
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


async def test_consumers_take_turns() -> None:
    """The questions of one consumer delay each question of another consumer by one."""
    turns, served = Turns(), list[str]()

    async def ask(consumer: str) -> None:
        async with turns.turn(consumer):
            served.append(consumer)

    await asyncio.gather(*map(ask, ("greedy",) * 6 + ("b", "c", "b")))
    assert served == [
        "greedy", "greedy", "b", "c", "greedy", "b", "greedy", "greedy", "greedy",
    ]  # fmt: skip


async def test_the_event_loop_goes_on_between_two_questions() -> None:
    turns, served = Turns(), list[str]()

    async def ask() -> None:
        async with turns.turn("a"):
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
        async with turns.turn("a"):
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
