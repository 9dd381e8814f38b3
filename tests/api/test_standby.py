"""The API of a daemon that stands by: it refuses the calls that only the leader can answer, and names the leader."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
import pytest

from dispatcher.access.tokens import Scope, Token
from dispatcher.api.answers.models import ConsumerService
from dispatcher.api.app import Access, Api
from dispatcher.leadership.role import Role
from dispatcher.model.errors import NotLeaderError
from dispatcher.settings.api import ApiLimitSettings
from tests.api.conftest import ADMINISTER, FULL, TOKENS
from tests.support.fake_readers import PLACE, FakeDeclarer, FakeReaders

LEADER = "http://b:8085"
AT = PLACE.as_dict()
CALLS = {
    "session": {"after": None},
    "poll": {"session": 1, "after": AT},
    "read": {"session": 1, "after": AT},
    "binlog": {"session": 1, "start": AT, "end": AT},
    "slices": {"session": 1, "start": AT, "end": AT, "n": 2},
    "resolve": {"to": "latest"},
    "ack": {"session": 1, "position": AT},
    "seek": {"to": "latest"},
    "forget": {},
    "pause": {},
    "resume": {},
}
ADMINISTRATION = ("seek", "forget", "pause", "resume")


class Standby:
    """`leader`: the address of the daemon that leads, "" if none does."""

    def __init__(self, leader: str = LEADER) -> None:
        self.role = Role(False, 7 if leader else 0, leader)

    def consumers(self) -> ConsumerService:
        raise NotLeaderError.of(self.role.leader)

    def administrator(self) -> FakeReaders:
        raise NotLeaderError.of(self.role.leader)

    def declarer(self) -> FakeDeclarer:
        raise NotLeaderError.of(self.role.leader)

    def ready(self) -> Sequence[str]:
        return [str(self.role)]

    async def metrics(self) -> tuple[bytes, str]:
        return b"metric 1\n", "text/plain; charset=utf-8"

    def client(self, token: str) -> httpx.AsyncClient:
        api = Api(
            self.consumers,
            Access((*TOKENS, _DECLARING)),
            ApiLimitSettings(),
            administrator=self.administrator,
            declarer=self.declarer,
            owners=lambda: None,
            live=FakeReaders(()),
            listen="127.0.0.1",
            version="1",
            metrics=self.metrics,
            ready=self.ready,
            role=lambda: self.role,
        )
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        transport = httpx.ASGITransport(api.asgi)
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers)


@pytest.mark.parametrize("call", CALLS)
async def test_each_call_of_a_consumer_is_refused(call: str) -> None:
    token = ADMINISTER if call in ADMINISTRATION else FULL
    async with Standby().client(token) as client:
        answer = await client.post(f"/v1/consumers/shop/{call}", json=CALLS[call])
    assert (answer.status_code, answer.json()["kind"]) == (503, "NOT_LEADER")
    assert answer.json()["leader"] == answer.headers["binlog-leader"] == LEADER
    assert int(answer.headers["retry-after"]) > 0


DECLARE = "token-to-declare-consumers"
_DECLARING = Token(DECLARE, frozenset(), frozenset(Scope), "notebook", frozenset({"db"}))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/consumers"),
        ("DELETE", "/v1/consumers/nb-1"),
        ("GET", "/v1/tables/shop.orders"),
        ("POST", "/v1/consumers/nb-1/session"),
        ("POST", "/v1/consumers/nb-1/poll"),
    ],
)
async def test_what_a_token_has_declared_is_refused_as_all_else(method: str, path: str) -> None:
    """The standby does not know the declared consumers, so it must not answer that the consumer does not exist."""
    bodies: dict[str, object] = {"/v1/consumers": {"name": "nb-1", "databases": ["shop"]}}
    bodies["/v1/consumers/nb-1/session"] = CALLS["session"]
    bodies["/v1/consumers/nb-1/poll"] = CALLS["poll"]
    async with Standby().client(DECLARE) as client:
        answer = await client.request(method, path, json=bodies.get(path))
    assert (answer.status_code, answer.json()["leader"]) == (503, LEADER)


@pytest.mark.parametrize("path", ["/v1/binlogs", "/v1/consumers/shop/tables/shop.orders"])
async def test_what_only_the_leader_knows_is_refused(path: str) -> None:
    async with Standby().client(FULL) as client:
        answer = await client.get(path)
    assert (answer.status_code, answer.json()["leader"]) == (503, LEADER)


async def test_without_a_leader_none_is_named() -> None:
    async with Standby("").client(FULL) as client:
        answer = await client.post("/v1/consumers/shop/session", json=CALLS["session"])
    assert answer.json()["leader"] is None and "binlog-leader" not in answer.headers


async def test_a_wrong_token_is_told_nothing_of_the_leader() -> None:
    async with Standby().client("a-wrong-token-of-somebody") as client:
        answers = [
            await client.post("/v1/consumers/shop/poll", json=CALLS["poll"]),
            await client.post("/v1/consumers/shop/session", json=CALLS["session"]),
            await client.get("/v1/leader"),
        ]
    assert [answer.status_code for answer in answers] == [401] * 3
    assert not [answer for answer in answers if LEADER in answer.text]


async def test_it_lives_and_is_not_ready() -> None:
    async with Standby().client(FULL) as client:
        live, ready = await client.get("/livez"), await client.get("/readyz?verbose")
    assert live.status_code == 200
    assert (ready.status_code, ready.text) == (503, f"not ready: standby: {LEADER} leads, term 7\n")


@pytest.mark.parametrize(
    ("leader", "answer"),
    [(LEADER, (200, "ok\n")), ("", (503, "not ready: standby: no daemon leads now\n"))],
)
async def test_who_asks_for_a_standby_finds_it_ready_if_a_daemon_leads(
    leader: str, answer: tuple[int, str]
) -> None:
    async with Standby(leader).client("") as client:
        ready = await client.get("/readyz?standby")
    assert (ready.status_code, ready.text) == answer


async def test_it_says_who_leads_and_has_metrics() -> None:
    async with Standby().client(FULL) as client:
        leader, metrics = await client.get("/v1/leader"), await client.get("/metrics")
    assert leader.json() == {"role": "standby", "term": 7, "leader": LEADER}
    assert metrics.status_code == 200
