"""The calls of a reader's cycle answer the same, whether a direct route or the framework's makes them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.types import Message

from dispatcher.api.direct_routes import DirectRoutes
from dispatcher.api.reader_calls import JOINED_BYTES_MAX
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.timings import RequestTimings
from dispatcher.settings.api import ApiLimitSettings
from tests.api.conftest import ADMINISTER, FULL, READ, SCRAPE, TOKENS, Connect, MakeApi
from tests.support.fake_readers import PLACE, FakeReaders

POSITION = PLACE.as_dict()
POLL: dict[str, Any] = {"session": 1, "after": POSITION}
BODIES: dict[str, dict[str, Any]] = {
    "poll": POLL,
    "read": POLL,
    "binlog": {"session": 1, "start": POSITION, "end": POSITION},
    "ack": {"session": 1, "position": POSITION},
}
JSON = "application/json"
LIMITS = ApiLimitSettings.model_construct(max_bytes_in_request=2000)


class Case:
    """A request, and who sends it."""

    def __init__(self, name: str, call: str, content: bytes, **more: Any) -> None:
        self.name = name
        self.call = call
        self.content = content
        self.token = more.pop("token", FULL)
        self.consumer = more.pop("consumer", "shop")
        self.headers = {"Content-Type": JSON, **more.pop("headers", {})}
        assert not more, more

    async def answer(self, connect: Connect) -> tuple[int, dict[str, str], bytes]:
        async with connect(self.token, tokens=TOKENS, limits=LIMITS) as client:
            path = f"/v1/consumers/{self.consumer}/{self.call}"
            got = await client.post(path, content=self.content, headers=self.headers)
        return got.status_code, dict(got.headers), got.content


def cases() -> list[Case]:
    found = []
    for call, body in BODIES.items():
        data = json.dumps(body).encode()
        found += [
            Case("valid", call, data),
            Case("a charset", call, data, headers={"Content-Type": f"{JSON}; charset=utf-8"}),
            Case("another type", call, data, headers={"Content-Type": "text/plain"}),
            Case("capitals", call, data, headers={"Content-Type": "Application/JSON"}),
            Case("json of a kind", call, data, headers={"Content-Type": "application/x+json"}),
            Case("UTF-16", call, json.dumps(body).encode("utf-16")),
            Case("an unknown key", call, json.dumps({**body, "more": 1}).encode()),
            Case("a text for a number", call, json.dumps({**body, "session": "1"}).encode()),
            Case("a fraction", call, json.dumps({**body, "session": 1.0}).encode()),
            Case("a truth", call, json.dumps({**body, "session": True}).encode()),
            Case("a number too large", call, json.dumps({**body, "session": 2**63}).encode()),
            Case("no number", call, data.replace(b'"session": 1', b'"session": NaN')),
            Case("a key twice", call, data.replace(b"{", b'{"session": -1, ', 1)),
            Case("a surrogate", call, data.replace(b'"server"', b'"\\ud800": 1, "server"')),
            Case("a list", call, b"[]"),
            Case("nothing", call, b""),
            Case("half of it", call, data[:-1]),
            Case("too large", call, data + b" " * 2000),
            Case("no token", call, data, token=""),
            Case("a wrong token", call, data, token="a-wrong-token-of-some-length"),
            Case("a token to read", call, data, token=READ),
            Case("a token to scrape", call, data, token=SCRAPE),
            Case("a token to administer", call, data, token=ADMINISTER),
            Case("not the token's", call, data, token=READ, consumer="billing"),
            Case("unknown", call, data, consumer="unknown"),
            Case("a long name", call, data, consumer="n" * 65),
            Case("no name", call, data, consumer=""),
        ]
    return found


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.call}: {case.name}")
async def test_both_routes_answer_the_same(
    connect: Connect, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct = await case.answer(connect)
    with monkeypatch.context() as patch:
        patch.setattr(DirectRoutes, "_match", lambda *_: (None, ""))
        assert await case.answer(connect) == direct
    assert direct[0] == 200 or json.loads(direct[2])["status"] == direct[0]


@pytest.mark.parametrize("call", BODIES)
async def test_a_refused_call_is_the_same_problem(
    connect: Connect, readers: FakeReaders, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    async def refuse(*_: object) -> dict[str, Any]:
        raise BinlogError(ErrorKind.RANGE_UNAVAILABLE, "not yet", where="consumer shop")

    for name in ("poll", "binlog", "acknowledge"):
        monkeypatch.setattr(readers, name, refuse)
    case = Case("refused", call, json.dumps(BODIES[call]).encode())
    direct = await case.answer(connect)
    assert direct[0] == 503 and direct[1]["retry-after"]
    monkeypatch.setattr(DirectRoutes, "_match", lambda *_: (None, ""))
    assert await case.answer(connect) == direct


@pytest.mark.parametrize("call", BODIES)
async def test_a_defect_is_500_without_details(
    connect: Connect, readers: FakeReaders, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    async def fail(*_: object) -> dict[str, Any]:
        raise ZeroDivisionError("the secret of the house")

    for name in ("poll", "binlog", "acknowledge"):
        monkeypatch.setattr(readers, name, fail)
    direct = await Case("a defect", call, json.dumps(BODIES[call]).encode()).answer(connect)
    assert (direct[0], json.loads(direct[2])["kind"]) == (500, "INTERNAL")
    assert b"secret" not in direct[2]


@pytest.mark.parametrize("call", BODIES)
async def test_the_framework_is_not_asked(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def passed_on(*_: object) -> None:
        raise AssertionError("a plain call was passed on")

    monkeypatch.setattr("fastapi.FastAPI.__call__", passed_on)
    case = Case("valid", call, json.dumps(BODIES[call]).encode())
    assert (await case.answer(connect))[0] == 200


async def test_a_body_in_pieces(connect: Connect, readers: FakeReaders) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for byte in json.dumps(POLL).encode():
            yield bytes((byte,))

    async with connect() as client:
        path = "/v1/consumers/shop/poll"
        answer = await client.post(path, content=pieces(), headers={"Content-Type": JSON})
    assert (answer.status_code, readers.calls) == (200, ["poll"])


async def test_a_client_that_disconnects_within_its_body_is_forgotten(
    make_api: MakeApi, readers: FakeReaders
) -> None:
    parts: list[Message] = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return parts.pop(0)

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/v1/consumers/shop/poll", "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
    }  # fmt: skip
    await make_api().asgi(scope, receive, send)
    assert (sent[0]["status"], readers.calls, parts) == (400, [], [])


# -- read ----------------------------------------------------------------------------------------------------


async def read(client: httpx.AsyncClient) -> tuple[dict[str, Any], bytes]:
    answer = await client.post("/v1/consumers/shop/read", json=POLL)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/octet-stream"
    line, _, data = answer.content.partition(b"\n")
    return json.loads(line), data


async def test_read_without_transactions_is_the_answer_of_poll(
    connect: Connect, readers: FakeReaders
) -> None:
    async with connect() as client:
        polled = (await client.post("/v1/consumers/shop/poll", json=POLL)).json()
        assert await read(client) == (polled, b"")
    assert readers.calls == ["poll", "poll"]


@pytest.mark.parametrize("size", [10, JOINED_BYTES_MAX, 1 << 20])
async def test_read_with_transactions_is_followed_by_the_binlog(
    connect: Connect, readers: FakeReaders, size: int
) -> None:
    readers.transactions = 3
    readers.parts = [b"\xfebin", memoryview(b"\n" * size)]
    async with connect() as client:
        answer, data = await read(client)
    assert answer["transactions"] == 3
    assert data == b"\xfebin" + b"\n" * size
    assert readers.calls == ["poll", "binlog", "answer ended"]


async def test_an_unsent_answer_of_read_counts_as_one_of_binlog(
    connect: Connect, readers: FakeReaders
) -> None:
    readers.transactions = 1
    limits = ApiLimitSettings.model_construct(max_answers_per_consumer=0)
    async with connect(limits=limits) as client:
        read_only = {**POLL, "session": 0}
        answer = await client.post("/v1/consumers/shop/read", json=read_only)
    assert answer.status_code == 429
    assert "api.max_answers_per_consumer" in answer.json()["detail"]
    assert readers.calls == ["poll"]


async def test_direct_calls_are_counted_by_their_template(make_api: MakeApi) -> None:
    timings = RequestTimings()
    transport = httpx.ASGITransport(make_api(timings=timings).asgi)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for call, body in BODIES.items():
            await client.post(f"/v1/consumers/shop/{call}", json=body)
            await client.post(f"/v1/consumers/shop/{call}", json={})
    assert set(timings.series) == {
        (f"/v1/consumers/{{consumer}}/{call}", status)
        for call in BODIES
        for status in ("2xx", "4xx")
    }
