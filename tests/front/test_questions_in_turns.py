"""The work of questions is bounded: a long one passes its turn on, and a too large one is refused."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any, cast

import pytest

from dispatcher.front.client_session import QUESTION_BYTES_MAX, ClientSession, FrontServices
from dispatcher.front.connections import Connections
from dispatcher.front.dump.request import GTID_BYTES_MAX
from dispatcher.front.turns import STEP_UNITS, UNITS_PER_ROW, Asker, Turns
from dispatcher.front.wire.channel import Channel, ClientGone
from dispatcher.front.wire.errors import WireError
from dispatcher.front.wire.login import FrontLogin
from dispatcher.front.wire.packets import Capability
from dispatcher.model.gtid import GtidSet
from dispatcher.model.server_picture import Picture, ServerAnswer, TableColumn
from dispatcher.model.subscription import Subscription
from dispatcher.settings.front import FrontSettings
from tests.front.dump.raw_dump import by_gtids
from tests.front.questions.made_picture import UUID, picture
from tests.support.fake_clients import until

ROWS = 20_000
TABLES = ServerAnswer(
    (TableColumn("Tables_in_shop"), TableColumn("Table_type")),
    tuple((f"t{n}", "BASE TABLE") for n in range(ROWS)),
)
GREEDY, OTHER = Asker("greedy", "shop"), Asker("other", "shop")


class CountedTurns(Turns):
    """`taken`: the turns of each token, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[str | None] = []

    async def _take(self, asker: Asker) -> None:
        await super()._take(asker)
        self.taken.append(asker.token)


class Consumers:
    """A server with ROWS tables. `asked`: how many questions the server is answering now, and the most so far."""

    def __init__(self) -> None:
        self.asked = self.most = 0

    def subscription(self, _name: str) -> Subscription:
        return Subscription(["shop"])

    async def picture(self, _name: str) -> Picture:
        return picture()

    async def look_up(self, _name: str, _statement: str) -> ServerAnswer:
        self.asked += 1
        self.most = max(self.most, self.asked)
        await asyncio.sleep(0)
        self.asked -= 1
        return TABLES


class Client:
    """A client that sends its commands one after the other. `sent`: the payloads that it got."""

    def __init__(self, services: FrontServices, asker: Asker, *commands: bytes) -> None:
        self._commands = list(commands)
        self.sent: list[bytes] = []
        login = FrontLogin(
            asker.consumer, None, asker.token, Capability.PROTOCOL_41, 45, {}, False, "127.0.0.1",
            id(self),
        )  # fmt: skip
        self._session = ClientSession(cast(Channel, self), login, services)

    async def run(self) -> None:
        with suppress(ClientGone):
            await self._session.run()

    async def read_command(self, _bytes_max: int, _timeout_s: float) -> bytes:
        if not self._commands:
            raise ClientGone("the client has no more commands")
        return self._commands.pop(0)

    def send(self, payloads: Any) -> None:
        self.sent += payloads

    async def drain(self, _timeout_s: float) -> None: ...

    def close(self) -> None: ...


def services() -> tuple[FrontServices, CountedTurns, Consumers]:
    turns, consumers = CountedTurns(), Consumers()
    settings = FrontSettings.model_validate({"listen": "127.0.0.1:3307"})
    get = cast(Any, lambda: consumers)
    return FrontServices(get, settings, Connections(64), turns), turns, consumers


async def test_a_long_answer_is_made_in_many_turns() -> None:
    front, turns, _ = services()
    client = Client(front, GREEDY, b"\x03SHOW TABLES FROM shop")
    await client.run()
    assert len(client.sent) == 1 + 1 + 1 + ROWS + 1  # number of columns, the column, EOF, rows, EOF
    # Each row is computed, and encoded.
    least = 2 * ROWS * UNITS_PER_ROW // (2 * STEP_UNITS)
    assert len(turns.taken) >= least > 20


async def test_a_short_question_takes_one_turn() -> None:
    front, turns, _ = services()
    await Client(front, OTHER, b"\x03SELECT @@server_id", b"\x03SET @a = 1").run()
    assert turns.taken == ["other", "other"]


async def test_one_turn_of_another_token_delays_a_question() -> None:
    """20 clients of one token ask for long answers again and again."""
    front, turns, _ = services()
    long = b"\x03SHOW TABLES FROM shop"
    greedy = [Client(front, GREEDY, *[long] * 3) for _ in range(20)]
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(client.run()) for client in greedy]
        delays: Counter[int] = Counter()
        for _ in range(50):
            await until(lambda: len(turns.taken) >= 100, "the greedy clients are busy")
            before = len(turns.taken)
            other = Client(front, OTHER, b"\x03SELECT @@server_id")
            await other.run()
            assert other.sent
            delays[turns.taken.index("other", before) - before] += 1
        assert not all(task.done() for task in running)
        # One turn may have been given already, and the next token's turn comes before this one.
        assert max(delays) <= 2, delays
        for task in running:
            task.cancel()


async def test_a_token_asks_the_server_one_question_at_a_time() -> None:
    front, _, consumers = services()
    clients = [Client(front, GREEDY, b"\x03SHOW TABLES FROM shop") for _ in range(8)]
    await asyncio.gather(*(client.run() for client in clients))
    assert consumers.most == 1


async def test_too_large_questions_and_sets_are_refused() -> None:
    front, turns, _ = services()
    text = b"\x03SELECT '" + b"x" * QUESTION_BYTES_MAX + b"'"
    client = Client(front, GREEDY, text)
    await client.run()
    (refusal,) = client.sent
    assert f"more than {QUESTION_BYTES_MAX} bytes is refused".encode() in refusal
    assert not turns.taken
    gaps = ":".join(str(2 * n + 1) for n in range(GTID_BYTES_MAX // 16 + 1))
    dump = Client(front, GREEDY, by_gtids(GtidSet.parse(f"{UUID}:{gaps}")))
    with pytest.raises(WireError, match=f"accepts at most {GTID_BYTES_MAX}"):
        await dump.run()


async def test_a_client_that_leaves_between_two_turns_blocks_no_other() -> None:
    turns = Turns()

    async def ask(turn_of: Asker, steps: int) -> None:
        async with turns.turn(turn_of) as turn:
            for _ in range(steps):
                await turn.spend(STEP_UNITS)

    tasks = [asyncio.ensure_future(ask(GREEDY, 1000)) for _ in range(3)]  # noqa: TID251
    for _ in range(20):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.wait_for(ask(OTHER, 3), 10)
