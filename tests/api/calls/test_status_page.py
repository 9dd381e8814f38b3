"""The status page without a browser: which user may see which consumers, logins, the feed, and the files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from dispatcher import api as api_package
from dispatcher import web as web_package
from dispatcher.access.tokens import EVERYTHING, Scope, Token, Tokens
from dispatcher.api.access import logins as logins_module
from dispatcher.api.access.logins import LOGIN_S, LOGINS_MAX, Logins
from dispatcher.api.app import Access, Api
from dispatcher.api.calls import status_page
from dispatcher.api.calls.feed import VIEWERS_MAX, StatusFeed
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.runtime.status.timeline import Timeline
from tests.api.conftest import ADMINISTER, FULL, READ, SCRAPE, TOKENS, Connect
from tests.support.fake_readers import FakeReaders

STATIC = Path(api_package.__file__).with_name("static")
SHARED = Path(web_package.__file__).with_name("static")
MakeApi = Callable[..., Api]
COOKIE = "binlog-dispatcher-8085"


@pytest.fixture
def connect(make_api: MakeApi) -> Connect:
    def client(api: Api | None = None, **more: Any) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app=(api or make_api(tokens=TOKENS)).asgi)
        more.setdefault("base_url", "http://127.0.0.1:8085")
        return httpx.AsyncClient(transport=transport, **more)

    return client


async def log_in(client: httpx.AsyncClient, token: str) -> httpx.Response:
    return await client.post("/login", data={"token": token})


# -- logins ---------------------------------------------------------------------------------------------------


async def test_without_tokens_the_page_needs_no_login(make_api: MakeApi, connect: Connect) -> None:
    async with connect(make_api()) as client:
        page = await client.get("/")
        assert page.status_code == 200 and "page.mjs" in page.text
        assert (await client.get("/login")).headers["Location"] == "./"
        assert (await client.get("/status/viewer")).json()["login"] is False


async def test_a_login_exchanges_the_token_for_a_cookie(connect: Connect) -> None:
    async with connect() as client:
        page = await client.get("/")
        assert (page.status_code, page.headers["Location"]) == (303, "login")
        assert (await client.get("/status/viewer")).status_code == 401
        answer = await log_in(client, READ)
        assert (answer.status_code, answer.headers["Location"]) == (303, "./")
        (cookie,) = answer.headers.get_list("Set-Cookie")
        assert re.fullmatch(
            rf"{COOKIE}=[\w-]{{43}}; HttpOnly; Max-Age={LOGIN_S}; Path=/; SameSite=strict", cookie
        )
        assert READ not in cookie
        assert (await client.get("/")).status_code == 200
        viewer = (await client.get("/status/viewer")).json()
        assert (viewer["login"], viewer["consumers"]) == (True, ["shop"])
        assert (await client.get("/docs")).status_code == 200

        ended = await client.post("/logout")
        assert (ended.status_code, ended.headers["Location"]) == (303, "login")
        client.cookies.set(COOKIE, cookie.split(";")[0].partition("=")[2])
        assert (await client.get("/status/viewer")).status_code == 401, (
            "not only the cookie is gone"
        )


async def test_over_https_the_cookie_is_secure(connect: Connect) -> None:
    async with connect(base_url="https://127.0.0.1:8085") as client:
        assert "; Secure" in (await log_in(client, READ)).headers["Set-Cookie"]


@pytest.mark.parametrize(
    ("token", "status", "what"),
    [("wrong", 401, "the token is not valid"), ("", 401, "a token is required"),
     (ADMINISTER, 403, "the token does not have the scope read or metrics"), ("<b>é\x00", 401, "not valid")],
)  # fmt: skip
async def test_a_refused_login_shows_the_form_again(
    connect: Connect, token: str, status: int, what: str
) -> None:
    async with connect() as client:
        answer = await log_in(client, token)
    assert (answer.status_code, "set-cookie" in answer.headers) == (status, False)
    assert what in answer.text and 'name="token"' in answer.text
    assert "<b>" not in answer.text


async def test_a_form_that_is_too_large_is_refused(connect: Connect) -> None:
    async with connect() as client:
        assert (await log_in(client, "x" * 10_000)).status_code == 413


async def test_the_cookie_admits_to_nothing_that_a_page_of_another_site_could_ask_for(
    connect: Connect, readers: FakeReaders
) -> None:
    async with connect() as client:
        await log_in(client, FULL)
        for path in ("/v1/binlogs", "/metrics"):
            assert (await client.get(path)).status_code == 401
        for call in ("session", "poll", "seek", "forget"):
            answer = await client.post(f"/v1/consumers/shop/{call}", json={})
            assert answer.status_code == 401
        assert readers.calls == []
        for headers in ({"Origin": "https://evil.example"}, {"Origin": "http://127.0.0.1:1"},
                        {"Sec-Fetch-Site": "cross-site"}):  # fmt: skip
            assert (
                await client.post("/login", data={"token": READ}, headers=headers)
            ).status_code == 403
            assert (await client.post("/logout", headers=headers)).status_code == 403
            assert (await client.get("/status/viewer", headers=headers)).status_code == 403
        assert (await client.get("/status/viewer")).status_code == 200


async def test_a_token_in_the_header_counts_before_the_cookie(connect: Connect) -> None:
    async with connect() as client:
        await log_in(client, READ)
        bearer = {"Authorization": f"Bearer {SCRAPE}"}
        assert (await client.get("/status/viewer", headers=bearer)).json()["consumers"] is None
        wrong = {"Authorization": "Bearer wrong"}
        assert (await client.get("/status/viewer", headers=wrong)).status_code == 401
        allowed = {"Authorization": f"Bearer {ADMINISTER}"}
        assert (await client.get("/status/viewer", headers=allowed)).status_code == 403


async def test_a_token_that_the_settings_lose_ends_its_logins(
    make_api: MakeApi, connect: Connect
) -> None:
    api = make_api(tokens=TOKENS)
    async with connect(api) as client:
        await log_in(client, READ)
        narrower = Token(READ, frozenset({"billing"}), frozenset({Scope.READ}))
        api.replace(Access((narrower,)))
        assert (await client.get("/status/viewer")).json()["consumers"] == ["billing"]
        api.replace(Access(TOKENS[1:]))
        assert (await client.get("/status/viewer")).status_code == 401


def test_a_login_ends_after_its_time() -> None:
    logins = Logins(Tokens(TOKENS))
    number = logins.open(READ, 0.0)
    assert logins.identify(number, LOGIN_S - 1).secret == READ
    for late in (LOGIN_S, LOGIN_S + 1):
        with pytest.raises(UserError) as caught:
            logins.identify(number, late)
        assert caught.value.kind is ErrorKind.UNAUTHORIZED


def test_logins_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins_module, "LOGINS_MAX", 3)
    logins = Logins(Tokens(TOKENS))
    numbers = [logins.open(READ, 0.0) for _ in range(5)]
    assert len({*numbers}) == 5 and LOGINS_MAX > 3
    with pytest.raises(BinlogError):
        logins.identify(numbers[1], 1.0)
    assert logins.identify(numbers[2], 1.0).secret == READ


# -- what a viewer gets ---------------------------------------------------------------------------------------


async def feed_of(readers: FakeReaders, token: Token) -> AsyncIterator[tuple[str, Any]]:
    async for event in StatusFeed(readers, "1").events(lambda: token):
        name, data = event.decode().rstrip("\n").split("\n")
        yield name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


async def first_events(readers: FakeReaders, token: Token) -> dict[str, Any]:
    events: dict[str, Any] = {}
    async for name, data in feed_of(readers, token):
        events[name] = data
        if len(events) == 2:
            break
    return events


class Quiet:
    """A Logger that logs nothing."""

    def log(self, level: int, event: str, **fields: Any) -> None: ...


@pytest.fixture
def happened(readers: FakeReaders) -> FakeReaders:
    """Fake readers with a timeline, which has events of each consumer, of both consumers, of their connection, and of
    another connection."""
    timeline = Timeline(Quiet())
    for consumer in ("shop", "billing"):
        timeline.log(20, "detached", client="repl@db1:3306", consumer=consumer, held_bytes=1)
    timeline.log(20, "merged", client="repl@db1:3306", consumers=["shop", "billing"], into=1)
    timeline.log(30, "not connected", client="repl@db1:3306", dispatcher=1, error="refused")
    timeline.log(30, "not connected", client="repl@db2:3306", dispatcher=1, error="refused")
    timeline.log(10, "looked up tables", client="repl@db1:3306", found=1)
    readers.happened = list(timeline.events())
    return readers


async def test_a_viewer_sees_the_rows_and_what_happened(happened: FakeReaders) -> None:
    events = await first_events(happened, EVERYTHING)
    snapshot = events["snapshot"]
    assert [row["name"] for row in snapshot["consumers"]] == ["shop", "billing"]
    assert snapshot["connections"][0]["consumers"] == ["shop", "billing"]
    assert snapshot["version"] == "1"
    assert [(e["kind"], e["consumers"]) for e in events["timeline"]] == [
        ("detached", ["shop"]), ("detached", ["billing"]), ("merged", ["shop", "billing"]),
        ("disconnected", []), ("disconnected", []),
    ]  # fmt: skip


async def test_tokens_see_only_the_consumers_that_they_have_declared(
    happened: FakeReaders,
) -> None:
    def declaring(name: str) -> Token:
        owners = {"shop": "shops", "billing": "bills"}
        return Token(
            name, frozenset(), frozenset({Scope.DECLARE}), name=name, owners=lambda: owners
        )

    feed = StatusFeed(happened, "1")
    shown = []
    for name in ("shops", "bills"):  # within the time of one snapshot
        event = await anext(feed.events(partial(declaring, name)))
        data = json.loads(event.decode().partition("data: ")[2])
        shown.append([row["name"] for row in data["consumers"]])
    assert shown == [["shop"], ["billing"]]


async def test_a_token_sees_no_earlier_events_of_other_consumers_on_a_standby(
    happened: FakeReaders,
) -> None:
    token = Token("x", frozenset({"shop"}), frozenset({Scope.READ}), name="x", owners=lambda: None)
    events = await first_events(happened, token)
    assert {name for event in events["timeline"] for name in event["consumers"]} == {"shop"}


async def test_a_token_for_some_consumers_sees_those_only(happened: FakeReaders) -> None:
    events = await first_events(happened, TOKENS[0])
    assert "billing" not in json.dumps(events)
    assert [row["name"] for row in events["snapshot"]["consumers"]] == ["shop"]
    assert [(e["kind"], e["connection"]) for e in events["timeline"]] == [
        ("detached", "repl@db1:3306"), ("merged", "repl@db1:3306"), ("disconnected", "repl@db1:3306"),
    ]  # fmt: skip
    none = await first_events(happened, Token("x", frozenset({"other"}), frozenset({Scope.READ})))
    assert (
        none["snapshot"]["consumers"] == none["snapshot"]["connections"] == none["timeline"] == []
    )


async def test_a_consumer_s_row_needs_a_token_for_it(connect: Connect) -> None:
    async with connect(headers={"Authorization": f"Bearer {READ}"}) as client:
        answer = (await client.get("/status/consumers/shop")).json()
        assert answer["row"]["name"] == "shop" and answer["history"]["bytes"] == [2.0]
        for name in ("billing", "unknown"):
            assert (await client.get(f"/status/consumers/{name}")).status_code == 404


async def test_viewers_share_snapshots(readers: FakeReaders) -> None:
    made = 0
    rows = readers.rows

    async def counted() -> AsyncIterator[dict[str, Any]]:
        nonlocal made
        made += 1
        async for row in rows():
            yield row

    readers.rows = counted  # type: ignore[method-assign]
    feed = StatusFeed(readers, "1")
    streams = [feed.events(lambda: EVERYTHING) for _ in range(5)]
    assert all([b"event: snapshot" in await anext(stream) for stream in streams])
    assert made == 1


async def test_a_viewer_who_may_no_longer_see_is_told(readers: FakeReaders) -> None:
    def refuse() -> Token:
        raise UserError(ErrorKind.UNAUTHORIZED, "the login has ended")

    events = [event async for event in StatusFeed(readers, "1").events(refuse)]
    assert events == [b"event: end\ndata: {}\n\n"]


async def test_streams_end_with_the_daemon(readers: FakeReaders) -> None:
    feed = StatusFeed(readers, "1")
    stream = feed.events(lambda: EVERYTHING)
    assert b"snapshot" in await anext(stream) and b"timeline" in await anext(stream)
    feed.close()
    assert [event async for event in stream] == []


def test_viewers_are_bounded(readers: FakeReaders) -> None:
    feed = StatusFeed(readers, "1")
    with ExitStack() as stack:
        for _ in range(VIEWERS_MAX):
            stack.enter_context(feed.viewing(EVERYTHING))
        with pytest.raises(UserError) as caught, feed.viewing(EVERYTHING):
            pass
        assert caught.value.kind is ErrorKind.TOO_MANY_REQUESTS
    assert feed.viewers == 0


async def test_the_viewers_of_one_token_leave_room_for_another(
    make_api: MakeApi, connect: Connect
) -> None:
    api = make_api(tokens=TOKENS)
    with ExitStack() as stack:
        for _ in range(VIEWERS_MAX):
            stack.enter_context(api._feed.viewing(TOKENS[0]))
        async with connect(api) as client:
            rooms = [
                (await client.get("/status/viewer", headers=bearer)).json()["room"]
                for bearer in ({"Authorization": f"Bearer {token}"} for token in (READ, FULL))
            ]
    assert rooms == [False, True]


def test_what_repeats_is_one_event() -> None:
    timeline = Timeline(Quiet())
    for _ in range(1000):
        timeline.log(30, "not connected", client="a", dispatcher=1, error="refused")
        timeline.log(30, "not connected", client="b", dispatcher=1, error="timeout")
    assert [(e.connection, e.count) for e in timeline.events()] == [("a", 1000), ("b", 1000)]
    timeline.log(20, "streaming", client="a", dispatcher=1, consumers=["c"])
    timeline.log(30, "not connected", client="a", dispatcher=1, error="reset")
    assert [e.count for e in timeline.events()] == [1000, 1000, 1, 1]


def test_the_remedy_of_an_event_names_its_consumer() -> None:
    timeline = Timeline(Quiet())
    error = BinlogError(ErrorKind.POSITION_PURGED, "gone")
    timeline.log(40, "consumer failed", client="a", consumer="shop", error=str(error))
    assert "consumers seek shop --to POSITION" in timeline.events()[0].detail


def test_a_repeated_event_keeps_the_time_of_its_first(monkeypatch: pytest.MonkeyPatch) -> None:
    timeline = Timeline(Quiet())
    for second in (100.0, 160.0, 220.0):
        monkeypatch.setattr("time.time", lambda second=second: second)
        timeline.log(40, "state not stored", client="a", error="state store: disk is full")
    (event,) = timeline.events()
    assert (event.first_s, event.at_s, event.count, event.kind) == (100.0, 220.0, 3, "failed")


# -- files ----------------------------------------------------------------------------------------------------


async def test_every_file_is_served_and_nothing_else_is_loaded(connect: Connect) -> None:
    kept = {
        file.relative_to(folder).as_posix()
        for folder in (STATIC, SHARED)
        for file in folder.rglob("*")
        if file.is_file()
    }
    pages = {"page.html", "login.html", "vendor/versions.json"}
    assert kept - {*status_page.FILES} - pages == {
        f"vendor/{name}.LICENSE" for name in ("preact", "htm", "uPlot")
    }
    async with connect() as client:
        for name in status_page.FILES:
            answer = await client.get(f"/static/{name}")
            folder = STATIC if name in status_page.OWN else SHARED
            assert answer.status_code == 200 and answer.content == (folder / name).read_bytes()
        page = await client.get("/login")
    policy = page.headers["Content-Security-Policy"]
    assert (
        policy.startswith("default-src 'none'") and "unsafe" not in policy and "http" not in policy
    )
    for file in (
        *STATIC.glob("*.*"),
        *SHARED.glob("*.html"),
        *SHARED.glob("*.mjs"),
        *SHARED.glob("*.css"),
    ):
        addresses = re.findall(r"https?://[\w.]+", file.read_text(encoding="utf-8"))
        assert addresses == [], file.name


def test_libraries_are_the_published_files() -> None:
    versions = json.loads((SHARED / "vendor/versions.json").read_text(encoding="utf-8"))
    pinned = {name: digest for one in versions for name, digest in one["sha256"].items()}
    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in (SHARED / "vendor").iterdir()
        if file.name != "versions.json"
    }
    assert found == pinned
