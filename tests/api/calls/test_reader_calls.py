"""The calls of a reader's cycle, correct and wrong ones, and their answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.types import Message

from dispatcher.api.calls.reader_calls import JOINED_BYTES_MAX
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
    """A request, who sends it, and what is answered."""

    def __init__(self, name: str, call: str, content: bytes, status: int, **more: Any) -> None:
        self.name = name
        self.call = call
        self.content = content
        self.status = status
        self.detail = more.pop("detail", "")
        self.token = more.pop("token", FULL)
        self.consumer = more.pop("consumer", "shop")
        self.headers = {"Content-Type": JSON, **more.pop("headers", {})}
        assert not more, more

    async def answer(self, connect: Connect) -> httpx.Response:
        async with connect(self.token, tokens=TOKENS, limits=LIMITS) as client:
            path = f"/v1/consumers/{self.consumer}/{self.call}"
            return await client.post(path, content=self.content, headers=self.headers)


def cases() -> list[Case]:
    found = []
    integer, no_json = (
        "body.session: Input should be a valid integer",
        "the body is not valid JSON: ",
    )
    no_type = "the Content-Type is not application/json"
    no_scope = "the token does not have the scope "
    for call, body in BODIES.items():
        data = json.dumps(body).encode()
        found += [
            Case("valid", call, data, 200),
            Case("a charset", call, data, 200, headers={"Content-Type": f"{JSON}; charset=utf-8"}),
            Case("capitals", call, data, 200, headers={"Content-Type": "Application/JSON"}),
            Case("another type", call, data, 422, detail=no_type, headers={"Content-Type": "text/plain"}),
            Case("no type", call, data, 422, detail=no_type, headers={"Content-Type": ""}),
            Case("UTF-16", call, json.dumps(body).encode("utf-16"), 400, detail=no_json),
            Case("an unknown key", call, json.dumps({**body, "more": 1}).encode(), 422,
                 detail="body.more: Extra inputs are not permitted"),
            Case("a text for a number", call, json.dumps({**body, "session": "1"}).encode(), 422, detail=integer),
            Case("a fraction", call, json.dumps({**body, "session": 1.0}).encode(), 422, detail=integer),
            Case("a truth", call, json.dumps({**body, "session": True}).encode(), 422, detail=integer),
            Case("a number too large", call, json.dumps({**body, "session": 2**63}).encode(), 422,
                 detail="body.session: Input should be less than or equal to"),
            Case("no number", call, data.replace(b'"session": 1', b'"session": NaN'), 422, detail=integer),
            Case("a key twice", call, data.replace(b"{", b'{"session": -1, ', 1), 200),
            Case("a surrogate", call, data.replace(b'"server"', b'"\\ud800": 1, "server"'), 400, detail=no_json),
            Case("a list", call, b"[]", 422, detail="body: Input should be an object"),
            Case("nothing", call, b"", 400, detail=no_json),
            Case("half of it", call, data[:-1], 400, detail=no_json),
            Case("too large", call, data + b" " * 2000, 413, detail="the body is larger than 2000 bytes"),
            Case("no token", call, data, 401, token="", detail="a bearer token is required"),
            Case("a wrong token", call, data, 401, token="a-wrong-token-of-some-length",
                 detail="the bearer token is not valid"),
            Case("a token to read", call, data, 200 if call == "binlog" else 403, token=READ,
                 detail="" if call == "binlog" else f"{no_scope}acknowledge"),
            Case("a token to scrape", call, data, 403, token=SCRAPE, detail=no_scope),
            Case("a token to administer", call, data, 403, token=ADMINISTER, detail=no_scope),
            Case("not the token's", call, data, 404, token=READ, consumer="billing", detail="'billing'"),
            Case("unknown", call, data, 404, consumer="unknown", detail="'unknown'"),
            Case("a long name", call, data, 404, consumer="n" * 65, detail="'nnn"),
        ]  # fmt: skip
    return found


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.call}: {case.name}")
async def test_every_request_is_answered(connect: Connect, case: Case) -> None:
    answer = await case.answer(connect)
    assert answer.status_code == case.status, answer.text
    if case.status != 200:
        problem = answer.json()
        assert problem["status"] == case.status and case.detail in problem["detail"], problem


@pytest.mark.parametrize("call", BODIES)
async def test_a_call_is_a_post_to_a_consumer(connect: Connect, call: str) -> None:
    async with connect(FULL, tokens=TOKENS) as client:
        for method in ("GET", "HEAD", "PUT"):
            answer = await client.request(method, f"/v1/consumers/shop/{call}")
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        for path in (
            f"/v1/consumers//{call}",
            f"/v1/consumers/a/b/{call}",
            f"/v1/consumers/a/{call}/",
        ):
            assert (await client.post(path, json=BODIES[call])).status_code == 404


@pytest.mark.parametrize("call", BODIES)
async def test_a_refused_call_is_a_problem(
    connect: Connect, readers: FakeReaders, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    async def refuse(*_: object) -> dict[str, Any]:
        raise BinlogError(ErrorKind.RANGE_UNAVAILABLE, "not yet", where="consumer shop")

    for name in ("poll", "binlog", "acknowledge"):
        monkeypatch.setattr(readers, name, refuse)
    answer = await Case("refused", call, json.dumps(BODIES[call]).encode(), 503).answer(connect)
    assert (answer.status_code, answer.json()["kind"]) == (503, "RANGE_UNAVAILABLE")
    assert answer.headers["retry-after"]


@pytest.mark.parametrize("call", BODIES)
async def test_a_defect_is_500_without_details(
    connect: Connect, readers: FakeReaders, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    async def fail(*_: object) -> dict[str, Any]:
        raise ZeroDivisionError("the secret of the house")

    for name in ("poll", "binlog", "acknowledge"):
        monkeypatch.setattr(readers, name, fail)
    answer = await Case("a defect", call, json.dumps(BODIES[call]).encode(), 500).answer(connect)
    assert (answer.status_code, answer.json()["kind"]) == (500, "INTERNAL")
    assert "secret" not in answer.text


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
