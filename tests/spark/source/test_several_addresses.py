"""A reader that was given the addresses of several daemons follows the leader."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import StructType

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.source.http import client as client_module
from spark_sink.source.http.client import ConsumerClient, SliceCut
from spark_sink.source.http.connections import CONNECT_S, ConnectionPool, open_connection
from spark_sink.source.http.endpoint import DaemonEndpoint
from spark_sink.source.options import SourceOptions
from spark_sink.source.readers.stream_reader import BinlogStreamReader
from spark_sink.source.slices import Slice, read_bytes
from tests.support.fake_daemon import (
    FakeDaemon,
    Listener,
    listening,
    position,
    problem,
    standby_answer,
)


class Pair:
    """Two daemons with one state store, and a reader of both. `a` is the leader and the first address."""

    def __init__(self, a: Listener, b: Listener) -> None:
        self.a, self.b, self.daemon = a, b, a.daemon
        self.b.standby = standby_answer(a.url)
        self.url = f"{a.url},{b.url}"
        self.slept: list[float] = []
        self.clients: list[ConsumerClient] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def clock(self) -> float:
        return sum(self.slept)

    def client(self, url: str = "", **more: Any) -> ConsumerClient:
        endpoint = DaemonEndpoint(url or self.url, token="secret", retry_timeout_s=60)
        clock: dict[str, Any] = {"sleep": self.sleep, "clock": self.clock, "jitter": lambda: 1.0}
        self.clients.append(ConsumerClient(endpoint, "shop", **clock, **more))
        return self.clients[-1]

    def b_leads_after(
        self, seconds: float, client: ConsumerClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Let `b` lead when the client has slept so long."""

        def sleep(pause_s: float) -> None:
            self.sleep(pause_s)
            if self.clock() >= seconds:
                self.b.standby = None

        monkeypatch.setattr(client, "_sleep", sleep)

    def b_takes_over(self) -> None:
        self.a.standby, self.b.standby = standby_answer(self.b.url), None


@pytest.fixture
def pair() -> Iterator[Pair]:
    daemon = FakeDaemon()
    daemon.token = "secret"
    with listening(daemon) as a, listening(daemon) as b:
        pair = Pair(a, b)
        yield pair
        for client in pair.clients:
            client.close()


def poll(client: ConsumerClient, session: int) -> None:
    client.poll(session, position(0), max_bytes=None, wait_ms=0)


def names(listener: Listener) -> list[str]:
    return [call for call, _ in listener.received]


def test_a_standby_leads_to_the_leader_and_later_calls_go_there(pair: Pair) -> None:
    client = pair.client(f"{pair.b.url},{pair.a.url}")
    session = client.open_session(None).number
    poll(client, session)
    assert (names(pair.a), names(pair.b)) == (["session", "poll"], ["session"])
    assert (pair.slept, client.address_number) == ([], 1)


def test_without_the_leader_s_address_the_next_one_is_tried(pair: Pair) -> None:
    pair.b.standby = standby_answer(None)
    client = pair.client(f"{pair.b.url},{pair.a.url}")
    assert client.open_session(None).number == 1
    assert pair.slept == []


def test_a_refused_connection_leads_to_the_next_address_without_a_wait(pair: Pair) -> None:
    pair.a.end()
    pair.b.standby = None
    client = pair.client()
    session = client.open_session(None).number
    poll(client, session)
    assert (names(pair.b), pair.slept) == (["session", "poll"], [])


def test_a_takeover_keeps_the_session(pair: Pair) -> None:
    """The old leader is alive: it has lost its lease."""
    client = pair.client()
    session = client.open_session(None).number
    end = pair.daemon.add(bytes(10))
    pair.b_takes_over()
    assert client.poll(session, position(0), max_bytes=None, wait_ms=0).end == end
    assert client.acknowledge(session, end) == end
    assert (names(pair.a), names(pair.b)) == (["session", "poll"], ["poll", "ack"])
    assert pair.slept == []


def test_a_call_waits_until_a_standby_takes_over(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader was killed. Until its lease has expired, the standby names it."""
    client = pair.client()
    session = client.open_session(None).number
    pair.a.end()
    pair.b_leads_after(4, client, monkeypatch)
    poll(client, session)
    assert pair.slept == [0.125] * 8 + [1.0] * 3, "the standby's Retry-After, but not at first"
    assert names(pair.b) == ["poll"] * 12
    poll(client, session)
    assert names(pair.b) == ["poll"] * 13


def test_a_call_waits_less_than_a_second_for_a_leader_that_hands_over(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = pair.client()
    session = client.open_session(None).number
    pair.a.standby = pair.b.standby = standby_answer(None)
    pair.b_leads_after(0.6, client, monkeypatch)
    poll(client, session)
    assert pair.slept == [0.125] * 5


def test_a_leader_that_needs_time_has_it_also_if_a_standby_was_asked_first(pair: Pair) -> None:
    busy = problem(503, ErrorKind.RANGE_UNAVAILABLE, "still reading", Retry_After="3")
    pair.daemon.faults["session"] = [busy]
    pair.client(f"{pair.b.url},{pair.a.url}").open_session(None)
    assert pair.slept == [3.0]


def test_a_token_goes_to_no_address_that_was_not_given(pair: Pair) -> None:
    with pytest.raises(BinlogError) as caught:
        pair.client(pair.b.url).open_session(None)
    assert pair.a.received == []
    assert caught.value.kind is ErrorKind.NOT_LEADER
    assert caught.value.remedy == f"add {pair.a.url} to url, with a comma between the addresses"
    assert f"consumer shop at {pair.b.url}" in str(caught.value)


def test_the_message_names_the_addresses_that_were_tried(pair: Pair) -> None:
    pair.a.end()
    with pytest.raises(BinlogError) as caught:
        pair.client().open_session(None)
    gone = f"{pair.a.url}: the daemon does not answer: Connection refused"
    message = f"{gone}, {pair.b.url}: this daemon is a standby; gave up"
    assert message in str(caught.value)
    assert (caught.value.kind, caught.value.where) == (ErrorKind.NOT_LEADER, "consumer shop")


def test_a_leader_that_needs_time_is_asked_again(pair: Pair) -> None:
    busy = problem(503, ErrorKind.RANGE_UNAVAILABLE, "still reading", Retry_After="3")
    pair.daemon.faults["session"] = [busy, busy]
    pair.client().open_session(None)
    assert (names(pair.a), names(pair.b)) == (["session"] * 3, [])
    assert pair.slept == [3.0, 3.0]


def test_a_final_answer_ends_the_call_at_any_address(pair: Pair) -> None:
    fenced = problem(409, ErrorKind.SESSION_FENCED, "a newer session")
    pair.daemon.faults["poll"] = [fenced]
    client = pair.client(f"{pair.b.url},{pair.a.url}")
    with pytest.raises(BinlogError, match="a newer session") as caught:
        poll(client, 1)
    assert caught.value.where == f"consumer shop at {pair.a.url}"


def test_a_silent_daemon_leads_to_the_next_address(pair: Pair) -> None:
    """The kernel accepts connections for the daemon, as it does for a stopped process."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = pair.client(f"http://127.0.0.1:{silent.getsockname()[1]},{pair.a.url}")
        client._choice.begin()
        setback = client._try("POST", "session", b"{}", answer_s=0.01)
    assert isinstance(setback, client_module._Setback)
    assert (setback.another, client.address_number) == (True, 1)


def test_one_address_has_all_the_time(pair: Pair) -> None:
    one, two = DaemonEndpoint(pair.a.url), DaemonEndpoint(pair.url)
    assert open_connection(one, one.addresses[0]).timeout == one.timeout_s
    assert open_connection(two, two.addresses[0]).timeout == CONNECT_S
    client = pair.client(pair.a.url)
    client.open_session(None)
    assert client._connection is not None
    assert client._connection.sock.gettimeout() == one.timeout_s


def test_each_round_waits_longer_for_an_answer(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    client = pair.client()
    exchange = client._exchange

    def noted(method: str, path: str, payload: bytes | None, answer_s: float) -> Any:
        waited.append(answer_s)
        return exchange(method, path, payload, answer_s)

    monkeypatch.setattr(client, "_exchange", noted)
    busy = problem(503, ErrorKind.RANGE_UNAVAILABLE, "still reading")
    pair.daemon.faults["poll"] = [busy] * 3
    session = client.open_session(None).number
    client.poll(session, position(0), max_bytes=None, wait_ms=1)
    assert waited == [10.0, 10.001, 20.001, 40.001, 80.001]


def test_a_connection_is_kept_over_calls(pair: Pair) -> None:
    client = pair.client()
    session = client.open_session(None).number
    for _ in range(5):
        poll(client, session)
    pair.b_takes_over()
    for _ in range(5):
        poll(client, session)
    assert (len(pair.a.accepted), len(pair.b.accepted)) == (1, 1)


def test_idle_connections_belong_to_one_address(pair: Pair) -> None:
    pool = ConnectionPool()
    for number in (0, 1, 0, 1):
        pair.a.standby, pair.b.standby = (None, None)
        client = pair.client(first=number, pool=pool)
        client.open_session(None)
        client.close()
    assert len(pool) == 2
    assert (len(pair.a.accepted), len(pair.b.accepted)) == (1, 1)
    pool.clear()


def test_tasks_begin_at_the_address_that_answered_the_planner(pair: Pair) -> None:
    pair.b_takes_over()
    end = pair.daemon.add(b"x" * 10)
    options = SourceOptions.parse({"url": pair.url, "consumer": "shop", "token": "secret"})
    reader = BinlogStreamReader(options, StructType())
    (part,) = reader.partitions(position(0).as_dict(), end.as_dict())
    reader.stop()
    assert isinstance(part, Slice)
    assert part.address == 1
    read_bytes(options, pickle.loads(pickle.dumps(part)))
    assert (names(pair.a), names(pair.b)) == (["session"], ["session", "slices", "binlog"])


def test_a_task_of_a_batch_that_was_planned_before_a_takeover_follows_the_leader(
    pair: Pair,
) -> None:
    end = pair.daemon.add(b"x" * 10)
    pair.daemon.preamble = b"head"
    pair.a.end()
    pair.b.standby = None
    options = SourceOptions.parse({"url": pair.url, "consumer": "shop", "token": "secret"})
    _, data = read_bytes(options, Slice(0, 0, SliceCut(position(0)), SliceCut(end)))
    assert data == b"head" + b"x" * 10


def test_an_endpoint_with_several_addresses_can_be_sent_to_executors(pair: Pair) -> None:
    endpoint = DaemonEndpoint(pair.url, token="secret")
    copy = pickle.loads(pickle.dumps(endpoint))
    assert (copy, copy.addresses) == (endpoint, endpoint.addresses)
    assert [address.text for address in copy.addresses] == [pair.a.url, pair.b.url]
