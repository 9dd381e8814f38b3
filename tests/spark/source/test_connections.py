"""The pool of connections: one connection serves all slices that a process reads, and stale connections are not
used."""

from __future__ import annotations

import http.client
import os
from collections.abc import Iterator
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dispatcher.model.api_addresses import ApiAddress
from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.source import slices
from spark_sink.source.http.client import ConsumerClient, SliceCut
from spark_sink.source.http.connections import IDLE_MAX, IDLE_MAX_S, ConnectionPool, open_connection
from spark_sink.source.http.endpoint import DaemonEndpoint
from spark_sink.source.options import SourceOptions
from spark_sink.source.slices import Slice, read_bytes
from tests.support.fake_daemon import Answer, FakeDaemon, fake_daemon, position, problem


@pytest.fixture
def daemon() -> Iterator[FakeDaemon]:
    with fake_daemon() as daemon:
        yield daemon


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pool(clock: Clock) -> Iterator[ConnectionPool]:
    pool = ConnectionPool(clock)
    yield pool
    pool.clear()


@pytest.fixture
def accepted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A line for each connection that a server of this process accepts."""
    lines: list[object] = []
    process = ThreadingHTTPServer.process_request

    def counted(self: ThreadingHTTPServer, request: object, address: object) -> None:
        lines.append(address)
        process(self, request, address)  # type: ignore[arg-type]

    monkeypatch.setattr(ThreadingHTTPServer, "process_request", counted)
    return lines


def route(daemon: FakeDaemon) -> tuple[DaemonEndpoint, ApiAddress]:
    endpoint = DaemonEndpoint(daemon.url)
    return endpoint, endpoint.addresses[0]


def acknowledge(daemon: FakeDaemon, pool: ConnectionPool, **more: Any) -> None:
    """A task of its own, with one call."""
    address = replace(DaemonEndpoint(daemon.url, retry_timeout_s=5), **more)
    waits: list[float] = []
    client = ConsumerClient(address, "shop", sleep=waits.append, pool=pool)
    try:
        client.acknowledge(daemon.session, position(0))
    finally:
        client.close()
    assert waits == [], "no call had to wait"


def test_tasks_of_a_process_share_a_connection(
    daemon: FakeDaemon,
    monkeypatch: pytest.MonkeyPatch,
    pool: ConnectionPool,
    accepted: list[object],
) -> None:
    monkeypatch.setattr(slices, "PROCESS_POOL", pool)
    daemon.preamble = b"head"
    ends = [daemon.add(bytes(10)) for _ in range(3)]
    options = SourceOptions.parse({"url": daemon.url, "consumer": "shop"})
    cuts = [SliceCut(at) for at in (position(0), *ends)]
    for number in range(3):
        _, data = read_bytes(options, Slice(daemon.session, number, cuts[number], cuts[number + 1]))
        assert data == b"head" + bytes(10)
    assert len(accepted) == 1
    assert len(pool) == 1


def test_a_connection_is_for_all_tokens(
    daemon: FakeDaemon, pool: ConnectionPool, accepted: list[object]
) -> None:
    """Each request has its own token."""
    daemon.token = "right"
    acknowledge(daemon, pool, token="right")
    with pytest.raises(BinlogError) as caught:
        acknowledge(daemon, pool, token="wrong")
    assert caught.value.kind is ErrorKind.UNAUTHORIZED
    acknowledge(daemon, pool, token="right")
    assert len(accepted) == 1


@pytest.mark.parametrize("other", [{"ca_file": "authority.pem"}, {"timeout_s": 5.0}])
def test_a_connection_is_for_one_way_to_connect(
    daemon: FakeDaemon, pool: ConnectionPool, accepted: list[object], other: dict[str, Any]
) -> None:
    acknowledge(daemon, pool)
    acknowledge(daemon, pool, **other)
    assert len(accepted) == 2


def test_after_a_restart_of_the_daemon_all_idle_connections_are_given_up(
    daemon: FakeDaemon, pool: ConnectionPool, accepted: list[object]
) -> None:
    """The daemon closes a connection while a request is on its way to it."""
    address = DaemonEndpoint(daemon.url)
    clients = [ConsumerClient(address, "shop", pool=pool) for _ in range(2)]
    for client in clients:
        client.acknowledge(daemon.session, position(0))
    for client in clients:
        client.close()
    assert len(pool) == 2
    daemon.faults["ack"] = [Answer(cut=True)]
    acknowledge(daemon, pool)
    assert len(accepted) == 3
    assert len(pool) == 1, "the other one was closed"


def test_a_connection_that_the_daemon_closed_is_not_used(
    daemon: FakeDaemon, pool: ConnectionPool
) -> None:
    acknowledge(daemon, pool)
    (idle,) = pool._idle
    assert idle.connection.sock is not None
    idle.connection.sock.shutdown(2)
    assert pool.take(*route(daemon)) is None
    assert len(pool) == 0


def test_a_connection_with_an_outstanding_answer_is_closed(
    daemon: FakeDaemon, pool: ConnectionPool
) -> None:
    daemon.faults["ack"] = [Answer(body=b"{", cut=True)] * 2
    client = ConsumerClient(DaemonEndpoint(daemon.url, retry_timeout_s=0), "shop", pool=pool)
    with pytest.raises(BinlogError, match="gave up after 1 attempts"):
        client.acknowledge(daemon.session, position(0))
    client.close()
    assert len(pool) == 0


def test_a_final_answer_leaves_the_connection(daemon: FakeDaemon, pool: ConnectionPool) -> None:
    daemon.faults["ack"] = [problem(409, ErrorKind.SESSION_FENCED, "fenced")]
    with pytest.raises(BinlogError, match="fenced"):
        acknowledge(daemon, pool)
    assert len(pool) == 1


def test_idle_connections_are_few_and_young(
    daemon: FakeDaemon, pool: ConnectionPool, clock: Clock
) -> None:
    way = route(daemon)
    made = [open_connection(*way) for _ in range(IDLE_MAX + 1)]
    for connection in made:
        connection.connect()
        pool.give(*way, connection)
    assert len(pool) == IDLE_MAX
    assert made[0].sock is None, "the oldest one was closed"
    clock.now = IDLE_MAX_S + 1
    assert pool.take(*way) is None
    assert [connection.sock for connection in made] == [None] * len(made)


def test_a_forked_process_does_not_use_the_connections_of_its_parent(
    daemon: FakeDaemon, pool: ConnectionPool
) -> None:
    acknowledge(daemon, pool)
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writable, str(len(pool)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(readable, 10) == b"0"
    os.close(readable)
    os.close(writable)
    taken = pool.take(*route(daemon))
    assert isinstance(taken, http.client.HTTPConnection), "the parent's connection is still open"
    taken.close()


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    endpoint = DaemonEndpoint("https://127.0.0.1:1", ca_file=str(missing))
    with pytest.raises(BinlogError, match="cannot read the certificates"):
        open_connection(endpoint, endpoint.addresses[0])
