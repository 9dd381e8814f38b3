"""A channel reads exactly the requested bytes, notices when its client closes the connection, and waits for a client
that reads slowly."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import sys
import termios
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from dispatcher.front.wire.channel import UNSENT_BYTES_MAX, Channel, ClientGone
from dispatcher.front.wire.errors import WireError
from dispatcher.front.wire.packets import PACKET_BYTES_MAX, framed
from tests.front.wire.fronts import DEADLINE_S, HOST, LOOPS

FIRST_BYTES_MAX = 100
Result = TypeVar("Result")
Pair = tuple[Channel, socket.socket]
Test = Callable[[Channel, socket.socket], Awaitable[None]]


@contextlib.asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    """A channel and the socket of its client."""
    loop = asyncio.get_running_loop()
    opened: asyncio.Future[Channel] = loop.create_future()
    server = await loop.create_server(lambda: Channel(FIRST_BYTES_MAX, opened.set_result), HOST, 0)
    client = socket.socket()
    client.setblocking(False)
    await loop.sock_connect(client, server.sockets[0].getsockname())
    channel = await opened
    try:
        yield channel, client
    finally:
        channel.abort()
        client.close()
        server.close()
        await server.wait_closed()


@pytest.fixture(params=LOOPS)
def play(request: pytest.FixtureRequest) -> Callable[[Test], None]:
    """Runs a test on each kind of event loop, and asserts that the loop reports no error."""

    def run(test: Test) -> None:
        reported: list[object] = []

        async def within_deadline() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: reported.append(context))
            async with asyncio.timeout(DEADLINE_S), pair() as (channel, client):
                await test(channel, client)

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(within_deadline())
        assert reported == []

    return run


async def send(client: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(client, data)


async def receive(client: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    at = 0
    while at < size:
        at += await asyncio.get_running_loop().sock_recv_into(client, memoryview(data)[at:])
    return bytes(data)


def start(coroutine: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
    return asyncio.get_running_loop().create_task(coroutine)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - any condition; `play` has a deadline
        await asyncio.sleep(0)


async def until_closed(channel: Channel) -> None:
    await asyncio.wait((channel.closed,))


def reset(client: socket.socket) -> None:
    """Close the socket with RST instead of FIN."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def unread_bytes(channel: Channel) -> int:
    """Returns the number of bytes in the kernel's buffer that the channel has not read."""
    assert channel._socket is not None
    number = channel._socket.get_extra_info("socket").fileno()
    return int.from_bytes(fcntl.ioctl(number, termios.FIONREAD, bytes(4)), sys.byteorder)


# -- reading ---------------------------------------------------------------------------------------------------


def test_nothing_is_read_behind_the_packet_that_is_wanted(play: Callable[[Test], None]) -> None:
    async def test(channel: Channel, client: socket.socket) -> None:
        await send(client, framed(b"one", 0) + framed(b"", 1) + framed(b"three", 2))
        assert await channel.read_packet(100, None) == b"one"
        assert unread_bytes(channel) == 4 + 4 + 5
        assert await channel.read_packet(100, None) == b""
        assert unread_bytes(channel) == 4 + 5
        assert await channel.read_packet(100, None) == b"three"

    play(test)


def test_a_packet_may_come_byte_by_byte(play: Callable[[Test], None]) -> None:
    async def test(channel: Channel, client: socket.socket) -> None:
        reading = start(channel.read_packet(100, None))
        for byte in framed(b"slow", 0):
            await send(client, bytes([byte]))
            await asyncio.sleep(0)
        assert await reading == b"slow"

    play(test)


def test_a_packet_that_comes_before_it_is_wanted_is_kept(play: Callable[[Test], None]) -> None:
    async def test(channel: Channel, client: socket.socket) -> None:
        await send(client, framed(b"early", 0))
        await until(lambda: channel._payload is not None)
        assert await channel.read_packet(100, None) == b"early"

    play(test)


@pytest.mark.parametrize("size", [PACKET_BYTES_MAX - 1, PACKET_BYTES_MAX, PACKET_BYTES_MAX + 1])
def test_a_payload_may_have_several_packets(play: Callable[[Test], None], size: int) -> None:
    async def test(channel: Channel, client: socket.socket) -> None:
        await send(client, framed(b"first", 0))
        await channel.read_packet(100, None)
        payload = b"\x01" + bytes(size - 1)
        sending = start(send(client, framed(payload, 1)))
        assert await channel.read_packet(size, None) == payload
        await sending

    play(test)


def test_a_packet_that_is_too_large_is_refused_by_its_header(play: Callable[[Test], None]) -> None:
    async def test(channel: Channel, client: socket.socket) -> None:
        await send(client, (FIRST_BYTES_MAX + 1).to_bytes(3, "little") + b"\0body")
        for _ in range(2):  # nothing more can be read
            with pytest.raises(WireError) as refused:
                await channel.read_packet(FIRST_BYTES_MAX, None)
            assert refused.value.number == 1153
        assert unread_bytes(channel) == len(b"body")
        channel.send([b"answer"])
        assert await receive(client, 10) == framed(b"answer", 1)

    play(test)


def test_all_packets_of_a_payload_count(play: Callable[[Test], None]) -> None:
    async def test(channel: Channel, client: socket.socket) -> None:
        await send(client, framed(b"first", 0))
        await channel.read_packet(100, None)
        await send(client, b"\xff\xff\xff\x01")
        sending = start(send(client, bytes(PACKET_BYTES_MAX) + b"\x02\0\0\x02"))
        with pytest.raises(WireError) as refused:
            await channel.read_packet(PACKET_BYTES_MAX + 1, None)
        assert refused.value.number == 1153
        await sending

    play(test)


def test_sequence_numbers_count_on_and_begin_again(play: Callable[[Test], None]) -> None:
    async def test(channel: Channel, client: socket.socket) -> None:
        channel.send([b"a", b"b"])
        assert await receive(client, 10) == framed(b"a", 0) + framed(b"b", 1)
        await send(client, framed(b"c", 2))
        assert await channel.read_packet(100, None) == b"c"
        channel.send([b"d"])
        assert await receive(client, 5) == framed(b"d", 3)
        await send(client, framed(b"command", 0))
        assert await channel.read_command(100, None) == b"command"
        channel.send([b"e"])
        assert await receive(client, 5) == framed(b"e", 1)
        await send(client, framed(b"f", 5))
        with pytest.raises(WireError) as refused:
            await channel.read_packet(100, None)
        assert refused.value.number == 1156

    play(test)


def test_a_read_may_end_before_its_packet(play: Callable[[Test], None]) -> None:
    async def test(channel: Channel, client: socket.socket) -> None:
        await send(client, framed(b"late", 0)[:5])
        with pytest.raises(TimeoutError):
            await channel.read_command(100, 0.01)
        await send(client, framed(b"late", 0)[5:])
        assert await channel.read_command(100, None) == b"late"

    play(test)


# -- the end ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [socket.socket.close, reset])
def test_a_read_notices_that_the_client_has_gone(
    play: Callable[[Test], None], end: Callable[[socket.socket], None]
) -> None:
    async def test(channel: Channel, client: socket.socket) -> None:
        reading = start(channel.read_packet(100, None))
        await asyncio.sleep(0)
        end(client)
        with pytest.raises(ClientGone):
            await reading
        with pytest.raises(ClientGone):
            channel.write(b"more")
        with pytest.raises(ClientGone):
            await channel.drain(DEADLINE_S)

    play(test)


@pytest.mark.parametrize("end", [socket.socket.close, reset])
def test_a_watched_channel_notices_that_the_client_has_gone(
    play: Callable[[Test], None], end: Callable[[socket.socket], None]
) -> None:
    async def test(channel: Channel, client: socket.socket) -> None:
        await send(client, framed(b"dump", 0))
        await channel.read_command(100, None)
        channel.watch(lambda _: None, 100)
        channel.write(bytes(100))
        end(client)
        await until_closed(channel)

    play(test)


def test_a_watched_channel_passes_on_what_the_client_sends(play: Callable[[Test], None]) -> None:
    async def test(channel: Channel, client: socket.socket) -> None:
        await send(client, framed(b"dump", 0))
        await channel.read_command(100, None)
        received: list[bytes] = []
        channel.watch(received.append, 100)
        await send(client, framed(b"ack 1", 0) + framed(b"ack 2", 0))
        await until(lambda: len(received) == 2)
        assert received == [b"ack 1", b"ack 2"]
        channel.unwatch()
        await send(client, framed(b"command", 0))
        assert await channel.read_command(100, None) == b"command"

    play(test)


@pytest.mark.parametrize(
    "data",
    [framed(b"", 1), b"\x65\0\0\0", framed(b"refused", 0)],
    ids=["sequence", "large", "refused"],
)
def test_a_watched_channel_closes_on_what_a_client_must_not_send(
    play: Callable[[Test], None], data: bytes
) -> None:
    def refuse(_: bytes) -> None:
        raise WireError(1047, "Unknown command")

    async def test(channel: Channel, client: socket.socket) -> None:
        await send(client, framed(b"dump", 0))
        await channel.read_command(100, None)
        channel.watch(refuse, 100)
        await send(client, data)
        await until_closed(channel)

    play(test)


# -- writing ---------------------------------------------------------------------------------------------------


def test_a_drain_ends_when_the_client_has_read(play: Callable[[Test], None]) -> None:
    async def test(channel: Channel, client: socket.socket) -> None:
        chunks, size = 32, 1 << 20

        async def write() -> int:
            waits = 0
            for _ in range(chunks):
                channel.write(bytes(size))
                waits += channel._writable is not None
                await channel.drain(DEADLINE_S)
            return waits

        writing = start(write())
        await receive(client, chunks * size)
        assert await writing > 1

    play(test)


def test_a_client_that_reads_nothing_is_closed(play: Callable[[Test], None]) -> None:
    async def test(channel: Channel, client: socket.socket) -> None:
        async def write_for_ever() -> None:
            while True:
                channel.write(bytes(UNSENT_BYTES_MAX))
                await channel.drain(0.01)

        with pytest.raises(ClientGone):
            await write_for_ever()
        assert channel.closed.done()

    play(test)


def test_a_client_that_reads_little_is_waited_for(play: Callable[[Test], None]) -> None:
    """The channel waits as long as the number of unsent bytes decreases in each interval."""

    async def test(channel: Channel, client: socket.socket) -> None:
        while channel._writable is None:
            channel.write(bytes(UNSENT_BYTES_MAX))
        unsent = iter([5, 4, 4, 3, 3, 2, 2, 2])
        channel._unsent = lambda: next(unsent)  # type: ignore[method-assign]
        with pytest.raises(ClientGone):
            await channel.drain(0.01)
        assert list(unsent) == []

    play(test)


def test_unsent_bytes_are_those_that_the_client_has_not_taken(play: Callable[[Test], None]) -> None:
    async def test(channel: Channel, client: socket.socket) -> None:
        size = 1 << 23
        channel.write(bytes(size))
        before = channel._unsent()
        assert 0 < before <= size
        await receive(client, size)
        await until(lambda: not channel._unsent())  # until the client has acknowledged all
        await channel.drain(DEADLINE_S)

    play(test)


def test_a_close_sends_what_was_written(play: Callable[[Test], None]) -> None:
    async def test(channel: Channel, client: socket.socket) -> None:
        size = 1 << 23
        channel.write(bytes(size))
        channel.close()
        assert await receive(client, size) == bytes(size)
        assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
        await until_closed(channel)

    play(test)


def test_a_close_does_not_wait_for_ever(
    play: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatcher.front.wire.channel.CLOSE_S", 0.01)

    async def test(channel: Channel, client: socket.socket) -> None:
        channel.write(bytes(1 << 24))
        channel.close()
        await until_closed(channel)

    play(test)
