"""The API at the level of HTTP messages: late, large and unread requests and answers, and which connections stay
open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from dispatcher.access import guesses
from dispatcher.api.app import Api
from dispatcher.api.connections.limits import LINGER_BYTES_MAX, PIPELINED_MAX
from dispatcher.api.connections.protocol import bounded_protocol
from dispatcher.model.position import Position
from dispatcher.settings.api import ApiLimitSettings
from tests.api.conftest import FULL, TOKENS
from tests.support.fake_readers import PLACE, FakeReaders

GET = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
DEADLINE_S = 20.0
SOON_S = 0.2
AUTHORIZED = b"\r\nAuthorization: Bearer " + FULL.encode() + b"\r\n\r\n"
POLL = json.dumps({"session": 0, "after": PLACE.as_dict()}).encode()


class Client:
    """One connection to the API."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def post(self, path: str, body: bytes, length: int | None = None) -> None:
        head = [
            f"POST {path} HTTP/1.1",
            "Host: 127.0.0.1",
            f"Authorization: Bearer {FULL}",
            "Content-Type: application/json",
            f"Content-Length: {len(body) if length is None else length}",
        ]
        self.send("\r\n".join([*head, "", ""]).encode() + body)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Reads (status, headers, body) of the next answer."""
        async with asyncio.timeout(DEADLINE_S):
            first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().splitlines()
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
            }
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(first.split()[1]), headers, body

    async def problem(self) -> tuple[int, str]:
        """Reads (status, detail) of a problem document."""
        status, headers, body = await self.answer()
        assert headers["content-type"] == "application/problem+json", body
        return status, json.loads(body)["detail"]

    async def rest(self) -> bytes:
        """Reads until the connection is closed."""
        data = b""
        async with asyncio.timeout(DEADLINE_S):
            try:
                while more := await self.reader.read(1 << 16):
                    data += more
            except ConnectionResetError:
                pass
        return data


Connect = Callable[[], Awaitable[Client]]
Serve = Callable[..., Awaitable[Connect]]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # uvicorn has no event to wait for


@pytest.fixture
def open_connections() -> set[Any]:
    """Returns the connections of the listener."""
    return set()


@pytest.fixture
async def serve(make_api: Callable[..., Api], open_connections: set[Any]) -> AsyncIterator[Serve]:
    """Yields `serve`: `connect = await serve(header_timeout_seconds=..., ...)` starts the API, and `await connect()`
    returns a client."""
    async with AsyncExitStack() as stack:

        async def start(**given: Any) -> Connect:
            limits = ApiLimitSettings.model_construct(**given)
            api = make_api(tokens=TOKENS, limits=limits)
            config = uvicorn.Config(
                api.asgi, port=0, http=bounded_protocol(limits), ws="none", lifespan="off",
                log_config=None, timeout_keep_alive=2,
            )  # fmt: skip
            config.load()
            state = ServerState()
            state.connections = open_connections
            loop = asyncio.get_running_loop()
            listener = await loop.create_server(
                lambda: config.http_protocol_class(  # type: ignore[call-arg]
                    config=config, server_state=state, app_state={}
                ),
                "127.0.0.1",
                0,
            )
            stack.callback(listener.close)
            port = listener.sockets[0].getsockname()[1]

            async def connect() -> Client:
                client = Client(*await asyncio.open_connection("127.0.0.1", port))
                stack.push_async_callback(client.close)
                return client

            return connect

        yield start
    await until(lambda: not open_connections)


def hold_polls(
    readers: FakeReaders, monkeypatch: pytest.MonkeyPatch
) -> tuple[asyncio.Event, asyncio.Event]:
    """Returns two events. The first is set when a poll arrives; after the test has set the second, polls are
    answered."""
    asked, go = asyncio.Event(), asyncio.Event()
    poll = readers.poll

    async def wait(name: str, session: int, after: Position, *more: Any) -> dict[str, Any]:
        asked.set()
        await go.wait()
        return await poll(name, session, after, *more)

    monkeypatch.setattr(readers, "poll", wait)
    return asked, go


async def test_late_headers_are_408(serve: Serve) -> None:
    client = await (await serve(header_timeout_seconds=SOON_S))()
    client.send(GET[:-2])
    assert await client.problem() == (
        408,
        "request: the headers did not arrive within 0.2 s; send the complete request without pauses",
    )
    assert await client.rest() == b""


async def test_a_silent_connection_is_closed_without_an_answer(serve: Serve) -> None:
    client = await (await serve(header_timeout_seconds=SOON_S))()
    assert await client.rest() == b""


async def test_empty_lines_do_not_keep_a_connection_open(serve: Serve) -> None:
    client = await (await serve(header_timeout_seconds=SOON_S))()
    client.send(GET)
    assert (await client.answer())[0] == 200
    client.send(b"\r\n")
    assert (await client.problem())[0] == 408


async def test_a_late_body_is_408(serve: Serve) -> None:
    client = await (await serve(body_timeout_seconds=SOON_S))()
    client.post("/v1/consumers/shop/session", b"{", length=2)
    status, detail = await client.problem()
    assert status == 408 and "the body did not arrive within 0.2 s" in detail
    assert await client.rest() == b""


async def test_a_connection_is_reused(serve: Serve) -> None:
    client = await (await serve(header_timeout_seconds=SOON_S))()
    for _ in range(3):
        client.post("/v1/consumers/shop/session", b"{}")
        assert (await client.answer())[0] == 200


async def test_pipelined_requests_are_answered_in_order(serve: Serve) -> None:
    client = await (await serve())()
    client.send(GET + GET.replace(b"/livez", b"/none!") + GET)
    assert [(await client.answer())[0] for _ in range(3)] == [200, 404, 200]


async def test_pipelined_requests_beyond_the_limit_are_left_to_another_connection(
    serve: Serve,
) -> None:
    client = await (await serve())()
    client.send(GET * 1000)
    answers = await client.rest()
    assert answers.count(b"HTTP/1.1 200 OK") == 1 + PIPELINED_MAX
    assert answers.count(b"connection: close") == 1


async def test_nothing_is_read_while_requests_are_queued(
    serve: Serve, readers: FakeReaders, open_connections: set[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go = hold_polls(readers, monkeypatch)
    client = await (await serve())()
    client.post("/v1/consumers/shop/poll", POLL)
    await asked.wait()
    client.send(GET)
    (connection,) = open_connections
    await until(lambda: len(connection.pipeline) == 1)
    connection.flow.resume_reading()  # as each call of `receive` does
    assert not connection.transport.is_reading()
    go.set()
    assert [(await client.answer())[0] for _ in range(2)] == [200, 200]
    assert connection.transport.is_reading()


async def test_the_end_of_a_connection_ends_the_request_before_queued_ones(
    serve: Serve,
) -> None:
    connect = await serve()
    viewer, other = await connect(), await connect()
    viewer.send(GET.replace(b"/livez", b"/status/events").replace(b"\r\n\r\n", AUTHORIZED) + GET)
    await viewer.reader.readuntil(b"event: snapshot")

    async def viewers() -> int:
        other.send(GET.replace(b"/livez", b"/status/viewer").replace(b"\r\n\r\n", AUTHORIZED))
        return int(json.loads((await other.answer())[2])["viewers"])

    assert await viewers() == 1
    viewer.writer.transport.abort()
    async with asyncio.timeout(DEADLINE_S):
        while await viewers():
            pass


CHUNKED = (
    b"POST /v1/consumers/shop/session HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
)


async def test_a_trailer_is_no_header(serve: Serve) -> None:
    client = await (await serve())()
    client.send(CHUNKED + b"\r\n2\r\n{}\r\n0" + AUTHORIZED)
    assert (await client.answer())[0] == 401


@pytest.mark.parametrize("begin", [b"0\r\nX: ", b"2;x="], ids=["trailer", "chunk extension"])
async def test_an_endless_part_of_a_chunked_body_is_431(serve: Serve, begin: bytes) -> None:
    client = await (await serve())()
    client.send(CHUNKED + AUTHORIZED[2:] + begin)
    client.send(b"y" * 400_000)
    assert (await client.problem())[0] == 431


async def test_a_body_in_tiny_chunks_is_accepted(serve: Serve) -> None:
    client = await (await serve())()
    client.send(CHUNKED + AUTHORIZED[2:] + b"1\r\n \r\n" * 20_000 + b"2\r\n{}\r\n0\r\n\r\n")
    assert (await client.answer())[0] == 200


async def test_an_upgrade_is_ignored_without_a_word(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    client = await (await serve())()
    client.send(GET[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert (await client.answer())[0] == 200
    assert caplog.records == []


async def test_a_body_after_its_answer_is_ignored(serve: Serve) -> None:
    client = await (await serve())()
    head = (
        b"POST /v1/consumers/shop/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\n\r\n"
    )
    client.send(head)
    assert (await client.answer())[0] == 401
    client.send(b"1234" + GET)
    assert (await client.answer())[0] == 200


async def send_zeros(client: Client, length: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        for _ in range(length >> 16):
            client.send(bytes(1 << 16))
            await client.writer.drain()


async def test_an_endless_body_after_its_answer_is_cut_off(serve: Serve) -> None:
    client = await (await serve())()
    length = 100 * LINGER_BYTES_MAX
    client.post("/v1/consumers/shop/session", b"", length=length)
    assert (await client.answer())[0] == 413
    with pytest.raises(ConnectionError):
        await send_zeros(client, length)


@pytest.mark.parametrize("lines", [[b"X: " + b"y" * 40_000], [b"X: y"] * 101])
async def test_too_many_or_too_large_headers_are_431(serve: Serve, lines: list[bytes]) -> None:
    client = await (await serve())()
    client.send(GET[:-2] + b"".join(line + b"\r\n" for line in lines) + b"\r\n")
    assert (await client.problem())[0] == 431


async def test_a_long_path_is_431(serve: Serve) -> None:
    client = await (await serve())()
    client.send(GET.replace(b"/livez", b"/" + b"x" * 40_000))
    assert (await client.problem())[0] == 431


async def test_the_longest_waiting_connection_is_closed_for_a_new_one(serve: Serve) -> None:
    connect = await serve(max_connections=2)
    oldest, newer = await connect(), await connect()
    for client in (oldest, newer):
        client.send(GET)
        assert (await client.answer())[0] == 200
    another = await connect()
    another.send(GET)
    assert (await another.answer())[0] == 200
    assert await oldest.rest() == b""
    newer.send(GET)
    assert (await newer.answer())[0] == 200


async def test_a_connection_with_a_running_request_is_never_closed_for_a_new_one(
    serve: Serve, readers: FakeReaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go = hold_polls(readers, monkeypatch)
    connect = await serve(max_connections=1)
    busy = await connect()
    busy.post("/v1/consumers/shop/poll", POLL)
    await asked.wait()
    late = await connect()
    status, detail = await late.problem()
    assert status == 503 and "1 connections are open" in detail
    go.set()
    assert (await busy.answer())[0] == 200


async def test_a_connection_whose_wrong_token_waits_is_closed_for_a_new_one(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, open_connections: set[Any]
) -> None:
    monkeypatch.setattr(guesses, "PER_S", 0.1)
    connect = await serve(max_connections=1)
    guesser = await connect()
    wrong = GET.replace(b"/livez", b"/metrics").replace(
        b"\r\n\r\n", AUTHORIZED.replace(b"Bearer ", b"Bearer x")
    )
    for _ in range(guesses.FREE + 1):
        guesser.send(wrong)
        assert (await guesser.answer())[0] == 401
    guesser.send(wrong)
    (connection,) = open_connections
    await until(lambda: not connection.cycle.response_complete and connection in connection.waiting)
    other = await connect()
    other.send(GET)
    assert (await other.answer())[0] == 200
    assert await guesser.rest() == b""


@pytest.mark.parametrize("gap", [False, True])
async def test_a_binlog_says_whether_part_of_it_was_purged(
    serve: Serve, readers: FakeReaders, gap: bool
) -> None:
    readers.gap = gap
    reader = await (await serve())()
    place = PLACE.as_dict()
    body = json.dumps({"session": 0, "start": place, "end": place}).encode()
    reader.post("/v1/consumers/shop/binlog", body)
    status, headers, _ = await reader.answer()
    assert status == 200
    assert headers.get("binlog-gap") == ("true" if gap else None)


async def test_a_reader_that_receives_nothing_is_disconnected(
    serve: Serve, readers: FakeReaders, open_connections: set[Any]
) -> None:
    readers.parts = [bytes(1 << 20)] * 64
    connect = await serve(write_timeout_seconds=SOON_S)
    slow = await connect()
    slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
    place = PLACE.as_dict()
    body = json.dumps({"session": 0, "start": place, "end": place}).encode()
    slow.post("/v1/consumers/shop/binlog", body)
    await until(lambda: bool(open_connections))
    await until(lambda: not open_connections)
    slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
    assert len(await slow.rest()) < 64 << 20
