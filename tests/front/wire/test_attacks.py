"""Clients that send any bytes, incomplete packets, or nothing, on both event loops. Each connection ends without a log
message, and leaves no task and no memory. `running` asserts that no error was reported."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dispatcher.front.wire.channel import Channel
from dispatcher.front.wire.handshake import SHA2, more_data
from dispatcher.front.wire.listener import Refusal
from dispatcher.front.wire.login import LOGIN_BYTES_MAX, FrontLogin
from dispatcher.front.wire.packets import framed
from dispatcher.front.wire.passwords import sha2_proof
from dispatcher.front.wire.result_set import ok_packet
from dispatcher.mysql.driver import trusting_context
from tests.front.wire.fronts import DEADLINE_S, LOOPS, SECRET, Front, rules, running, server_context
from tests.front.wire.raw_client import PING, QUIT, RawClient, RawTls, response, ssl_request
from tests.support.certificates import make_certificate

HTTP = b"GET / HTTP/1.1\r\nHost: front\r\n\r\n"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    folder: Path = tmp_path_factory.mktemp("tls")
    make_certificate(folder)
    return server_context(folder)


@pytest.fixture(params=LOOPS)
def loop_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def front(loop_name: str, context: ssl.SSLContext) -> Iterator[Front]:
    with running(loop_name, rules(tls=context)) as front:
        yield front
        with RawClient(front.port) as client:  # the front still serves clients
            client.log_in()


def refused(front: Front, refusal: Refusal, times: int = 1) -> None:
    front.until(lambda: front.listener.counts.refused == {refusal: times})


def test_a_client_that_names_no_method_may_use_that_of_the_greeting(front: Front) -> None:
    with RawClient(front.port) as client:
        client.send(response(proof=sha2_proof(SECRET.encode(), client.nonce), plugin=""), 1)
        assert client.receive() == (2, more_data(b"\x03"))
        assert client.receive() == (3, ok_packet())


# -- before the login ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (HTTP, 1156),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", 1156),  # a ClientHello
        (bytes(100), 1156),
        (framed(b"", 1), 1043),
        (framed(b"\x8d", 1), 1043),
        (framed(bytes(40), 1), 1251),
        (framed(response()[:-30], 1), 1043),
        (framed(response(), 2), 1156),
        (b"\xff\xff\xff\x01", 1153),
        ((LOGIN_BYTES_MAX + 1).to_bytes(3, "little") + b"\x01", 1153),
    ],
    ids=str,
)
def test_rubbish_is_refused(front: Front, data: bytes, number: int) -> None:
    with RawClient(front.port) as client:
        client.socket.sendall(data)
        assert client.error() == number
    refused(front, Refusal.MALFORMED)


def test_a_large_packet_is_refused_before_its_body_is_read(front: Front) -> None:
    with RawClient(front.port) as client, pytest.raises(ConnectionError):
        client.socket.sendall(b"\xff\xff\xff\x01" + bytes(1 << 26))
    refused(front, Refusal.MALFORMED)


def goes(client: RawClient) -> None:
    client.socket.close()


def goes_after_half_a_header(client: RawClient) -> None:
    client.socket.sendall(b"\x20\0")
    client.socket.close()


def goes_after_half_a_response(client: RawClient) -> None:
    client.socket.sendall(framed(response(), 1)[:-9])
    client.socket.close()


def goes_after_the_change_of_the_method(client: RawClient) -> None:
    client.send(response(), 1)
    client.receive()
    client.socket.close()


def goes_after_the_request_for_tls(client: RawClient) -> None:
    client.send(ssl_request(), 1)
    client.socket.close()


@pytest.mark.parametrize(
    "leave",
    [
        goes,
        goes_after_half_a_header,
        goes_after_half_a_response,
        goes_after_the_change_of_the_method,
        RawClient.reset,
    ],
)
def test_a_client_may_go_at_any_time(front: Front, leave: Callable[[RawClient], None]) -> None:
    with RawClient(front.port) as client:
        leave(client)
    refused(front, Refusal.GONE)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.lists(st.binary(max_size=60), max_size=5), st.booleans())
def test_any_packets_end_cleanly(front: Front, payloads: list[bytes], plausible: bool) -> None:
    """The client sends any bytes, or the right packets with any contents."""
    with RawClient(front.port) as client:
        data = b"".join(framed(payload, 2 * i + 1) for i, payload in enumerate(payloads))
        first = framed(response(plugin=SHA2, proof=b"x" * 32), 1) if plausible else b""
        client.socket.sendall(first + data.replace(b"\x01", b"\x03") if plausible else data)
        client.end()
    front.until(lambda: front.listener.counts.open == 0)


def test_a_login_byte_by_byte_ends_at_its_limit(loop_name: str, context: ssl.SSLContext) -> None:
    """Bytes that arrive do not extend the time limit."""
    with running(loop_name, rules(tls=context, limit_s=0.2)) as front:
        with RawClient(front.port) as slow:
            for byte in framed(bytes(1 << 15), 1):
                if slow.trickled(byte):
                    break
            else:
                pytest.fail("the whole packet was taken")
        refused(front, Refusal.LATE)
        assert front.listener.counts.open == 0


@pytest.mark.parametrize("step", ["nothing", "half a packet", "a request for TLS", "half of TLS"])
def test_a_client_that_is_silent_is_closed(
    loop_name: str, step: str, context: ssl.SSLContext
) -> None:
    with running(loop_name, rules(tls=context, limit_s=0.1)) as front:
        with RawClient(front.port) as client:
            if step == "half a packet":
                client.socket.sendall(b"\x20\0\0\x01half")
            elif step != "nothing":
                client.send(ssl_request(), 1)
            if step == "half of TLS":
                client.socket.sendall(RawTls(client, trusting_context()).hello()[:50])
            assert client.ended()
        refused(front, Refusal.LATE)


# -- TLS -------------------------------------------------------------------------------------------------------


def test_the_handshake_may_follow_its_request_in_the_same_packet(front: Front) -> None:
    with RawClient(front.port) as client:
        tls = RawTls(client, trusting_context())
        client.socket.sendall(framed(ssl_request(), 1) + tls.hello())
        tls.finish()
        tls.send(framed(response(), 2))  # together with the end of the handshake
        assert tls.receive(4)[3] == 3
    refused(front, Refusal.GONE)


def test_no_packet_may_follow_the_response_in_the_handshake(front: Front) -> None:
    """No real client sends such a packet. The front refuses the client at the latest when the front compares the
    response."""
    with RawClient(front.port) as client:
        tls = RawTls(client, trusting_context())
        client.socket.sendall(framed(ssl_request(), 1) + tls.hello())
        tls.finish()
        tls.send(framed(response(), 2) + framed(b"more", 3) + framed(PING, 0) * 100)
        with pytest.raises(ConnectionError):
            tls.receive(1 << 20)
    front.until(lambda: front.listener.counts.refused.total() == 1)


@pytest.mark.parametrize("data", [HTTP, b"\x16\x03\x01", bytes(1000)], ids=str)
def test_a_handshake_that_fails(front: Front, data: bytes) -> None:
    with RawClient(front.port) as client:
        client.send(ssl_request(), 1)
        client.socket.sendall(data)
        client.end()
    front.until(lambda: front.listener.counts.open == 0)
    counts = front.listener.counts.refused
    assert counts[Refusal.TLS_FAILED] + counts[Refusal.GONE] == 1


def test_a_client_may_go_in_the_handshake(front: Front) -> None:
    for leave in (goes_after_the_request_for_tls, _goes_after_its_hello):
        with RawClient(front.port) as client:
            leave(client)
    front.until(lambda: front.listener.counts.refused.total() == 2)


def _goes_after_its_hello(client: RawClient) -> None:
    client.socket.sendall(framed(ssl_request(), 1) + RawTls(client, trusting_context()).hello())
    client.reset()


def test_tls_is_refused_where_there_is_no_certificate(loop_name: str) -> None:
    with running(loop_name) as front:
        with RawClient(front.port) as client:
            client.send(ssl_request(), 1)
            assert client.error() == 1043
        refused(front, Refusal.MALFORMED)


# -- many connections ------------------------------------------------------------------------------------------


def test_a_thousand_silent_connections_keep_no_one_out(loop_name: str) -> None:
    """Of 200 connections, 50 may be without a login. For each further connection, the front closes the oldest of these
    50."""
    with running(loop_name, connections_max=200) as front, ExitStack() as stack:
        clients = [stack.enter_context(RawClient(front.port, greeted=False)) for _ in range(1000)]
        with RawClient(front.port) as client:
            client.log_in()
            counts = front.listener.counts
            front.until(lambda: (counts.open, counts.waiting, counts.logged_in) == (50, 49, 1))
            assert counts.refused == {Refusal.REPLACED: 951}
            for silent in clients[:951]:
                silent.end()
            client.send(PING, 0)
            assert client.receive()[0] == 1


def test_connections_that_have_logged_in_are_not_closed_for_others(loop_name: str) -> None:
    with running(loop_name, connections_max=3) as front, ExitStack() as stack:
        clients = []
        for number in range(1, 4):
            clients.append(stack.enter_context(RawClient(front.port)))
            clients[-1].log_in()
            front.until(lambda number=number: front.listener.counts.logged_in == number)  # type: ignore[misc]
        with RawClient(front.port, greeted=False) as further:
            assert further.error() == 1040
        for client in clients:
            client.send(PING, 0)
            assert client.receive()[0] == 1
        clients[0].send(QUIT, 0)
        assert clients[0].ended()
        with RawClient(front.port) as further:
            further.log_in()


# -- after the login -------------------------------------------------------------------------------------------


def log_in(client: RawClient, *, secured: bool) -> None:
    """Log in at a front that needs no password, and do not read the answer."""
    if not secured:
        client.send(response(plugin=""), 1)
        return
    tls = RawTls(client, trusting_context())
    client.socket.sendall(framed(ssl_request(), 1) + tls.hello())
    tls.finish()
    tls.send(framed(response(plugin=""), 2))


@pytest.mark.parametrize(
    ("data", "number"),
    [(b"\xff\xff\xff\0", 1153), (framed(PING, 1), 1156), (HTTP, 1156)],
    ids=["large", "sequence", "http"],
)
def test_a_command_that_is_malformed_ends_the_connection(
    front: Front, data: bytes, number: int
) -> None:
    with RawClient(front.port) as client:
        client.log_in()
        client.socket.sendall(data)
        assert client.error() == number
    front.until(lambda: front.listener.counts.open == 0)


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
def test_a_client_that_reads_no_answer_is_closed(
    loop_name: str, secured: bool, context: ssl.SSLContext
) -> None:
    ended: list[BaseException | None] = []

    async def serve(channel: Channel, _: FrontLogin) -> None:
        channel.watch(lambda _: None, 100)
        try:
            while True:
                channel.write(bytes(1 << 18))
                await channel.drain(0.05)
        except ConnectionError as error:
            ended.append(error)
            raise

    with (
        running(loop_name, rules(lambda _: None, tls=context), serve) as front,
        RawClient(front.port) as client,
    ):
        log_in(client, secured=secured)
        front.until(lambda: bool(ended))
        front.until(lambda: front.listener.counts.open == 0)


@pytest.mark.parametrize("leave", [goes, RawClient.reset])
@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
def test_a_dump_notices_that_its_client_has_gone(
    loop_name: str, secured: bool, leave: Callable[[RawClient], None], context: ssl.SSLContext
) -> None:
    """The front notices this even while it has nothing to send."""
    began, ended = asyncio.Event(), asyncio.Event()

    async def serve(channel: Channel, _: FrontLogin) -> None:
        channel.watch(lambda _: None, 100)
        began.set()
        await asyncio.wait((channel.closed,), timeout=DEADLINE_S)
        assert channel.closed.done()
        ended.set()

    with (
        running(loop_name, rules(lambda _: None, tls=context), serve) as front,
        RawClient(front.port) as client,
    ):
        log_in(client, secured=secured)
        front.until(began.is_set)
        leave(client)
        front.until(ended.is_set)
