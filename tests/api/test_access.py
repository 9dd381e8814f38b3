"""Access: scopes of tokens, Host and Origin headers, requests without a token."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from dispatcher.access.tokens import Scope, Token
from dispatcher.api.app import Access, Api
from tests.api.conftest import FULL, READ, SCRAPE, TOKENS, Connect
from tests.support.fake_readers import PLACE, FakeReaders

SESSION = "/v1/consumers/shop/session"
POLL = "/v1/consumers/shop/poll"
ACK = "/v1/consumers/shop/ack"


def kind(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["kind"]


def poll(session: int) -> dict[str, Any]:
    return {"session": session, "after": PLACE.as_dict()}


# -- scopes --------------------------------------------------------------------------------------------------


async def test_a_read_token_opens_read_only_sessions_only(connect: Connect) -> None:
    async with connect(READ, tokens=TOKENS) as client:
        assert (await client.post(SESSION, json={"read_only": True})).json()["session"] == 0
        refused = await client.post(SESSION, json={"read_only": False})
    assert kind(refused) == (403, "FORBIDDEN")
    assert "acknowledge" in refused.json()["detail"]


async def test_a_read_token_polls_in_read_only_sessions_only(
    connect: Connect, readers: FakeReaders
) -> None:
    async with connect(READ, tokens=TOKENS) as client:
        assert (await client.post(POLL, json=poll(0))).status_code == 200
        assert kind(await client.post(POLL, json=poll(7))) == (403, "FORBIDDEN")
    assert readers.calls == ["poll"]


async def test_a_read_token_acknowledges_nothing(connect: Connect, readers: FakeReaders) -> None:
    async with connect(READ, tokens=TOKENS) as client:
        body = {"session": 1, "position": PLACE.as_dict()}
        assert kind(await client.post(ACK, json=body)) == (403, "FORBIDDEN")
    assert readers.calls == []


async def test_a_token_for_all_with_both_scopes_does_everything_a_reader_does(
    connect: Connect,
) -> None:
    async with connect(FULL, tokens=TOKENS) as client:
        assert (await client.post(SESSION, json={})).json()["session"] == 1
        assert (await client.post(POLL, json=poll(1))).status_code == 200
        body = {"session": 1, "position": PLACE.as_dict()}
        assert (await client.post(ACK, json=body)).json() == {"acknowledged": PLACE.as_dict()}


@pytest.mark.parametrize("path", [SESSION, POLL, "/v1/consumers/shop/tables/shop.t"])
async def test_a_metrics_token_reads_no_consumer(connect: Connect, path: str) -> None:
    async with connect(SCRAPE, tokens=TOKENS) as client:
        method = "GET" if "tables" in path else "POST"
        assert kind(await client.request(method, path)) == (403, "FORBIDDEN")


async def test_a_consumer_of_another_token_is_unknown(connect: Connect) -> None:
    async with connect(READ, tokens=TOKENS) as client:
        path = "/v1/consumers/billing/session"
        assert kind(await client.post(path, json={})) == (404, "UNKNOWN_CONSUMER")
        assert [row["name"] for row in (await client.get("/v1/binlogs")).json()] == ["shop"]


@pytest.mark.parametrize(
    "path", ["/metrics", "/docs", "/docs/swagger-ui-bundle.js", "/openapi.json", "/readyz?verbose"]
)
async def test_metrics_docs_and_verbose_readyz_need_a_token(connect: Connect, path: str) -> None:
    async with connect(tokens=TOKENS) as client:
        refused = await client.get(path)
        assert kind(refused) == (401, "UNAUTHORIZED")
        assert refused.headers["www-authenticate"] == "Bearer"
    async with connect(FULL, tokens=TOKENS) as client:
        assert (await client.get(path)).status_code == 200
    async with connect(tokens=TOKENS, open_=("metrics", "docs", "readyz")) as client:
        assert (await client.get(path)).status_code == 200
    async with connect() as client:
        assert (await client.get(path)).status_code == 200


async def test_metrics_need_their_scope(connect: Connect) -> None:
    async with connect(READ, tokens=TOKENS) as client:
        assert kind(await client.get("/metrics")) == (403, "FORBIDDEN")
    async with connect(SCRAPE, tokens=TOKENS) as client:
        assert (await client.get("/metrics")).text == "metric 1\n"


async def test_health_needs_no_token(connect: Connect) -> None:
    async with connect(tokens=TOKENS) as client:
        assert (await client.get("/livez")).text == "ok\n"
        assert (await client.get("/readyz")).text == "ok\n"


async def test_readyz_lists_only_the_consumers_of_the_token(connect: Connect) -> None:
    async with connect(READ, tokens=TOKENS) as client:
        text = (await client.get("/readyz?verbose")).text
    assert text == "ok\nshop: failed: it failed\n"


@pytest.mark.parametrize(
    ("state", "error", "listed"),
    [
        ("streaming", None, False),
        ("streaming", "another daemon has this state", True),
        ("connecting", None, True),
    ],
)
async def test_readyz_lists_the_consumers_that_need_help(
    connect: Connect, readers: FakeReaders, state: str, error: str | None, listed: bool
) -> None:
    readers.names, readers.state, readers.error = ("shop",), state, error
    async with connect() as client:
        text = (await client.get("/readyz?verbose")).text
    assert text == "ok\n" + (f"shop: {state}: {error or 'no error'}\n" if listed else "")


# -- Host and Origin -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "settings", "accepted"),
    [
        ("127.0.0.1:8085", {}, True),
        ("localhost:9", {}, True),
        ("LocalHost", {}, True),
        ("[::1]:8085", {}, True),
        ("127.0.0.53", {}, True),
        ("evil.example", {}, False),
        ("127.0.0.1.evil.example:8085", {}, False),
        ("localhost.", {}, False),
        ("10.0.0.1", {}, False),
        ("", {}, False),
        ("localhost@evil.example", {}, False),
        ("db.example", {"hosts": ("db.example",)}, True),
        ("evil.example", {"hosts": ("db.example",)}, False),
        ("10.0.0.1:8085", {"listen": "10.0.0.1", "tokens": TOKENS}, True),
        ("any.example", {"listen": "0.0.0.0", "tokens": TOKENS}, True),
        ("any.example", {"listen": "0.0.0.0", "tokens": TOKENS, "hosts": ("db.example",)}, False),
        ("db.example", {"listen": "0.0.0.0", "tokens": TOKENS, "hosts": ("db.example",)}, True),
        ("10.1.2.3:8085", {"listen": "::", "tokens": TOKENS, "hosts": ("db.example",)}, True),
    ],
)
async def test_host_must_be_a_name_of_the_daemon(
    connect: Connect, host: str, settings: dict[str, Any], accepted: bool
) -> None:
    async with connect(**settings) as client:
        answer = await client.get("/livez", headers={"Host": host})
    if accepted:
        assert answer.status_code == 200
    else:
        assert kind(answer) == (403, "FORBIDDEN")
        assert "api.hosts" in answer.json()["hint"]


@pytest.mark.parametrize(
    ("headers", "accepted"),
    [
        ({"Origin": "http://127.0.0.1:8085"}, True),
        ({"Origin": "http://db.example"}, True),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "http://127.0.0.1:3000"}, False),
        ({"Origin": "http://localhost:8085"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://[nonsense"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Origin": "http://127.0.0.1:8085", "Sec-Fetch-Site": "Cross-Site"}, False),
    ],
)
@pytest.mark.parametrize("tokens", [(), TOKENS])
async def test_a_page_of_another_site_is_refused(
    connect: Connect, headers: dict[str, str], accepted: bool, tokens: Any, readers: FakeReaders
) -> None:
    async with connect(FULL, tokens=tokens, hosts=("db.example",)) as client:
        answer = await client.post(SESSION, json={}, headers=headers)
    if accepted:
        assert answer.status_code == 200
    else:
        assert kind(answer) == (403, "FORBIDDEN")
        assert readers.calls == []


async def test_two_host_headers_are_refused(connect: Connect) -> None:
    async with connect() as client:
        headers = [("Host", "127.0.0.1"), ("Host", "evil.example")]
        assert kind(await client.get("/livez", headers=headers)) == (403, "FORBIDDEN")


# -- the page ------------------------------------------------------------------------------------------------


async def test_the_page_loads_nothing_from_elsewhere(connect: Connect) -> None:
    async with connect() as client:
        page = await client.get("/docs")
        loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert len(loaded) == 4
        for path in loaded:
            answer = await client.get(f"/{path}")
            assert answer.status_code == 200 and answer.content
        start = (await client.get("/docs/start.js")).text
    assert "://" not in page.text + start
    assert 'url: "openapi.json"' in start
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self';" in policy


async def test_openapi_describes_every_call(connect: Connect) -> None:
    async with connect() as client:
        document = (await client.get("/openapi.json")).json()
    assert sorted(document["paths"]) == [
        "/livez",
        "/metrics",
        "/readyz",
        "/v1/binlogs",
        "/v1/consumers",
        "/v1/consumers/{consumer}",
        *(
            f"/v1/consumers/{{consumer}}/{call}"
            for call in (
                "ack",
                "binlog",
                "forget",
                "pause",
                "poll",
                "read",
                "resolve",
                "resume",
                "seek",
                "session",
                "slices",
                "tables/{name}",
            )
        ),
        "/v1/leader",
        "/v1/tables/{name}",
    ]


# -- settings that are read again ----------------------------------------------------------------------------


async def test_tokens_hosts_and_open_calls_are_replaced_together(
    make_api: Callable[..., Api],
) -> None:
    api = make_api(tokens=TOKENS, hosts=("old.example",))
    transport = httpx.ASGITransport(api.asgi)
    new = Token("another-token-for-all", None, frozenset(Scope))
    api.replace(Access((new,), ("new.example",), frozenset({"docs"})))
    async with httpx.AsyncClient(transport=transport, base_url="http://new.example") as client:
        for secret, status in ((FULL, 401), (new.secret, 200)):
            headers = {"Authorization": f"Bearer {secret}"}
            assert (await client.get("/v1/binlogs", headers=headers)).status_code == status
        assert (await client.get("/docs")).status_code == 200
        assert kind(await client.get("/livez", headers={"Host": "old.example"}))[0] == 403
