"""If a peer stops answering during a login, a survey or a dump, the daemon closes the connection in time. It does not
close the connection to a slow peer."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from dispatcher.dispatch.values.executed_position import Mode, make_executed
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.login import Endpoint, Tls, TlsMode, connect
from dispatcher.mysql.replication_commands import Identity, drop, socket_of
from dispatcher.source.mysql import dump_stream
from dispatcher.source.mysql import source as source_module
from dispatcher.source.mysql.dump_stream import LoggedInConnection, ServerStream
from dispatcher.source.mysql.source import ServerSource
from dispatcher.source.protocols import ViewRequest
from dispatcher.stream.batch import Batch
from dispatcher.stream.routes import Routes
from dispatcher.stream.splitter import Splitter
from tests.servers.server import Server
from tests.support.dumps import account
from tests.support.event_encoder import LogWriter, Statement

IDLE_S = 3.0
SILENT = (ErrorKind.CONNECT_FAILED, ErrorKind.CONNECTION_LOST)


@contextmanager
def falling_silent(server: Server, passed_bytes: int) -> Iterator[int]:
    """Yields a port that forwards to the server. After `passed_bytes` bytes from the server, it forwards nothing more
    and keeps the connection open."""
    done = threading.Event()

    def pass_on(source: socket.socket, sink: socket.socket, left: int) -> None:
        source.settimeout(0.05)
        while not done.is_set() and left > 0:
            try:
                data = source.recv(min(left, 1 << 16))
            except TimeoutError:
                continue
            except OSError:
                return
            if not data:
                return
            left -= len(data)
            sink.sendall(data)

    def serve(listener: socket.socket) -> None:
        with (
            listener.accept()[0] as client,
            socket.create_connection((server.host, server.port)) as upstream,
        ):
            up = threading.Thread(target=pass_on, args=(client, upstream, 1 << 60))
            up.start()
            pass_on(upstream, client, passed_bytes)
            done.wait()
            up.join()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            done.set()
            thread.join()


@pytest.fixture(scope="module")
def endpoint(mysql97: Server) -> Endpoint:
    return account(mysql97, "liveness")


# The greeting has about 90 bytes, TLS and the login have 3 to 4 KiB, and the first queries another 3 to 4 KiB.
@pytest.mark.parametrize("passed_bytes", [0, 4, 60, 1000, 4500])
def test_a_server_that_stops_answering_in_the_login(
    mysql97: Server, endpoint: Endpoint, passed_bytes: int
) -> None:
    left: list[str] = []
    # Without a time limit, the login would wait for ever.
    with falling_silent(mysql97, passed_bytes) as port, pytest.raises(BinlogError) as caught:
        LoggedInConnection(
            replace(endpoint, port=port),
            Identity.for_once(),
            heartbeat_s=1,
            timeout_s=0.4,
            next_host=lambda: left.append("left"),
        )
    assert caught.value.kind in SILENT and left == ["left"]


def test_a_server_that_stops_answering_a_survey(
    mysql97: Server, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "SURVEY_TIMEOUT_S", 0.4)
    plain = replace(endpoint, user="liveness_plain", tls=Tls(TlsMode.DISABLED))
    mysql97.add_user(plain.user, plain.password)
    for passed_bytes in (300, 1200):
        with falling_silent(mysql97, passed_bytes) as port:
            source = ServerSource([replace(plain, port=port)], UUID(int=1), "s", heartbeat_s=1)
            with pytest.raises(BinlogError) as caught:
                source.survey(ViewRequest())
        assert caught.value.kind in SILENT


def test_connections_have_tcp_keepalive(endpoint: Endpoint) -> None:
    connection = connect(endpoint)
    sock = socket_of(connection)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    idle = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
    between = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
    assert idle + 3 * between <= 60
    drop(connection)


# -- a dump ---------------------------------------------------------------------------------------------------


class Dumped:
    """A dump stream. The test acts as the server, and advances the clock of the event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._ahead_s = 0.0
        clock = self.loop.time
        self.loop.time = lambda: clock() + self._ahead_s  # type: ignore[method-assign]
        ours, self.server = socket.socketpair()
        splitter = Splitter(Routes(), packets=True, checksum=True, buffer_bytes=1 << 16)
        connection: Any = SimpleNamespace(_sock=ours, _rfile=None, _force_close=ours.close)
        self.stream = ServerStream(connection, splitter, "repl@db:1", idle_s=IDLE_S)
        log = LogWriter()
        for _ in range(5):
            log.begin()
            log.statement(Statement((("shop", "orders"),), ((0, 30),)))
            log.commit()
        self._events = [
            (len(event) + 1).to_bytes(3, "little") + b"\0\0" + event
            for event in log.dump(file=log.file.name)
        ]

    def wait(self, seconds: float) -> None:
        self._ahead_s += seconds

    def say(self, count: int = 1000) -> None:
        said, self._events = self._events[:count], self._events[count:]
        self.server.sendall(b"".join(said))

    def read(self, meanwhile: Callable[[], None] | None = None) -> int:
        """Return the number of received transactions. `meanwhile` is called during the wait."""

        async def batches() -> int:
            if meanwhile is not None:
                self.loop.call_soon(lambda: self.loop.call_soon(meanwhile))
            found = await self.stream.batches()
            return sum(len(batch.tx.end) for batch in found if isinstance(batch, Batch))

        return self.loop.run_until_complete(asyncio.wait_for(batches(), 1000))


@pytest.fixture
def dumped() -> Iterator[Dumped]:
    one = Dumped()
    yield one
    one.stream.close()
    one.server.close()
    one.loop.close()


def test_a_server_that_stops_sending_a_dump(dumped: Dumped) -> None:
    dumped.say()
    assert dumped.read() == 5
    with pytest.raises(BinlogError, match="not a byte for 3 s, not even a heartbeat") as caught:
        dumped.read(lambda: dumped.wait(IDLE_S + 0.1))
    assert caught.value.kind is ErrorKind.CONNECTION_LOST


def test_a_byte_now_and_then_keeps_a_dump_alive(dumped: Dumped) -> None:
    seen = 0

    def next_event() -> None:
        dumped.wait(IDLE_S - 0.5)
        dumped.say(1)

    while seen < 5:
        seen += dumped.read(next_event)


def test_time_without_a_read_does_not_count(dumped: Dumped) -> None:
    dumped.say(8)
    assert dumped.read() == 1
    dumped.wait(1000)  # reading was paused, and the server sent nothing
    assert dumped.read(dumped.say) == 4
    dumped.wait(1000)
    with pytest.raises(BinlogError, match="not a byte"):
        dumped.read(lambda: dumped.wait(IDLE_S + 0.1))


def test_a_busy_loop_polls_the_socket_before_it_gives_up(dumped: Dumped) -> None:
    def busy() -> None:
        dumped.say()
        dumped.wait(1000)

    assert dumped.read(busy) == 5


def test_a_server_that_closes_the_connection_in_a_dump(dumped: Dumped) -> None:
    with pytest.raises(BinlogError, match="closed the connection"):
        dumped.read(dumped.server.close)


def test_an_interrupted_wait_ends_at_once(dumped: Dumped) -> None:
    assert dumped.read(dumped.stream.interrupt) == 0


CALL_S = 10e-6


class NeverEmpty:
    """A socket that always has data: small transactions without end, `size` bytes for each call.

    `calls`: the number of reads; `clock`: returns the simulated time that these reads take.
    """

    def __init__(self, size: int) -> None:
        log = LogWriter()
        log.begin()
        log.commit()
        events = log.dump(file=log.file.name)
        packets = [(len(event) + 1).to_bytes(3, "little") + b"\0\0" + event for event in events]
        self._size, self._start = size, b"".join(packets)
        self._again = b"".join(packets[-3:]) * 100
        self._bytes = bytearray()
        self.calls = 0

    def clock(self) -> float:
        return self.calls * CALL_S

    def recv_into(self, room: memoryview) -> int:
        self.calls += 1
        if len(self._bytes) < self._size:
            self._bytes += self._start or self._again
            self._start = b""
        size = min(len(room), self._size)
        room[:size] = self._bytes[:size]
        del self._bytes[:size]
        return size


@pytest.mark.parametrize("flush_s", [0.001, 0.2])
def test_events_wait_no_longer_than_the_flush_time_while_the_socket_never_runs_empty(
    flush_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the time limit, the stream would read 1 GiB in pieces of 64 bytes, which takes a minute."""
    splitter = Splitter(Routes(), packets=True, checksum=True, buffer_bytes=1 << 30)
    ours, theirs = socket.socketpair()
    connection: Any = SimpleNamespace(_sock=ours, _rfile=None, _force_close=ours.close)
    never_empty = NeverEmpty(64)
    monkeypatch.setattr(dump_stream, "time", SimpleNamespace(monotonic=never_empty.clock))
    stream = ServerStream(connection, splitter, "repl@db:1", idle_s=IDLE_S, flush_s=flush_s)
    stream._sock = never_empty  # type: ignore[assignment]
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    async def read() -> None:
        asyncio.get_running_loop().call_soon(turn)
        found = await stream.batches()
        assert sum(len(batch.tx.end) for batch in found if isinstance(batch, Batch)) > 10

    try:
        asyncio.run(read())
    finally:
        ours.close()
        theirs.close()
    assert 0.5 * flush_s <= never_empty.clock() <= 1.01 * flush_s + 2 * CALL_S
    assert turns >= 1 or flush_s < 0.01  # other tasks ran on the event loop meanwhile


def test_a_heartbeat_comes_from_a_quiet_server(mysql97: Server, endpoint: Endpoint) -> None:
    """Heartbeats keep a dump without events alive. Without any byte, the daemon closes the dump after three heartbeat
    periods."""
    heartbeat_s = 0.1
    connection = LoggedInConnection(endpoint, Identity.for_once(), heartbeat_s=heartbeat_s)
    view = connection.view(ViewRequest())
    place = make_executed(view.mode, view.executed, view.file, view.offset)
    stream = connection.dump(Mode.GTID, place, Routes(), 1 << 16)

    async def listen() -> None:
        until = time.monotonic() + 10 * heartbeat_s
        while time.monotonic() < until:
            await stream.batches()

    try:
        asyncio.run(listen())
    finally:
        stream.close()
