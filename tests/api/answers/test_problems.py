"""Every error is a problem document; its kind distinguishes errors of the request and of the settings."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from dispatcher.settings.api import ApiLimitSettings
from tests.api.conftest import FULL, TOKENS, Connect
from tests.support.fake_readers import PLACE, FakeReaders

SESSION = "/v1/consumers/shop/session"
JSON = {"Content-Type": "application/json"}


def problem(answer: httpx.Response, status: int, kind: str = "REQUEST") -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert sorted(body) == ["detail", "hint", "kind", "status", "title", "type"]
    assert (body["status"], body["kind"]) == (status, kind)
    assert body["hint"]
    return body


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/static/nothing.js",
        "/status",
        "/v1/consumers/",
        "/v1/binlogs/",
        "/v1/consumers/shop/nothing",
    ],
)
async def test_an_unknown_path_is_404(connect: Connect, path: str) -> None:
    async with connect() as client:
        problem(await client.get(path), 404)


async def test_another_method_is_405_and_names_the_right_one(connect: Connect) -> None:
    async with connect() as client:
        answer = await client.get(SESSION)
    problem(answer, 405)
    assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize(
    "body",
    [b"{", b"\xff\xfe", b'{"read_only": nul}', b"[" * 100_000, b'"\x80"'],
    ids=["cut", "no UTF-8", "no JSON", "nested", "broken text"],
)
async def test_a_body_that_is_not_json_is_400(connect: Connect, body: bytes) -> None:
    async with connect() as client:
        problem(await client.post(SESSION, content=body, headers=JSON), 400)


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"after": {"server": 7}}, "body.after"),
        ({"unknown": 1}, "unknown"),
        ([], "body"),
        ({"read_only": "yes"}, "read_only"),
    ],
)
async def test_a_wrong_field_is_422_and_named(connect: Connect, body: Any, detail: str) -> None:
    async with connect() as client:
        assert detail in problem(await client.post(SESSION, json=body), 422)["detail"]


async def test_a_number_beyond_64_bits_is_422(connect: Connect) -> None:
    async with connect() as client:
        body = {"after": {**PLACE.as_dict(), "seq": 2**63}}
        assert (
            "9223372036854775807" in problem(await client.post(SESSION, json=body), 422)["detail"]
        )


async def test_a_surrogate_in_a_name_is_answered(connect: Connect) -> None:
    async with connect() as client:
        content = json.dumps({"after": {**PLACE.as_dict(), "\ud800": 1}}).encode()
        problem(await client.post(SESSION, content=content, headers=JSON), 400)


async def test_a_defect_is_500_without_details(
    connect: Connect, readers: FakeReaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> dict[str, Any]:
        raise ZeroDivisionError("the secret of the house")

    monkeypatch.setattr(readers, "open_session", fail)
    async with connect() as client:
        body = problem(await client.post(SESSION, json={}), 500, "INTERNAL")
    assert "secret" not in json.dumps(body)


class Watched:
    """A body that counts how much of it was read."""

    def __init__(self, chunks: int) -> None:
        self.chunks = chunks
        self.read = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self.chunks):
            self.read += 1
            yield b"[]," * 10_000


@pytest.mark.parametrize("token", ["", "a-wrong-token-of-some-length"])
async def test_no_byte_of_a_body_is_read_without_a_token(connect: Connect, token: str) -> None:
    body = Watched(1000)
    async with connect(token, tokens=TOKENS) as client:
        problem(await client.post(SESSION, content=body, headers=JSON), 401, "UNAUTHORIZED")
    assert body.read == 0


async def test_a_body_is_read_up_to_the_limit_only(connect: Connect) -> None:
    body = Watched(1000)
    async with connect(
        FULL, tokens=TOKENS, limits=ApiLimitSettings.model_construct(max_bytes_in_request=50_000)
    ) as client:
        document = problem(await client.post(SESSION, content=body, headers=JSON), 413)
    assert body.read == 2
    assert "50000 bytes" in document["detail"] and "api.max_bytes_in_request" in document["hint"]


async def test_a_body_that_is_announced_too_large_is_not_read(connect: Connect) -> None:
    body = Watched(1)
    async with connect(
        limits=ApiLimitSettings.model_construct(max_bytes_in_request=1000)
    ) as client:
        headers = {**JSON, "Content-Length": "30000"}
        problem(await client.post(SESSION, content=body, headers=headers), 413)
    assert body.read == 0
