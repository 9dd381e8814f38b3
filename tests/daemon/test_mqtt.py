"""The daemon with a real MQTT broker: the messages that it publishes; a bad broker does not delay the daemon."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Daemon, Reader, load, until
from tests.daemon.watch import probed
from tests.servers import Server
from tests.support.broker import Broker, SilentBroker, Subscriber

PREFIX = "binlogs/test"
BROKER_PASSWORD = "the broker's secret"

StartBroker = Callable[..., Broker]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    with ExitStack() as stack:

        def make(**options: Any) -> Broker:
            folder = tmp_path / "broker"
            folder.mkdir()
            broker = Broker(folder, **options)
            stack.callback(broker.kill)
            broker.start()
            return broker

        yield make


def mqtt(broker: Broker | SilentBroker, **more: Any) -> dict[str, Any]:
    return {
        "url": broker.url,
        "topic_prefix": "binlogs/{name}",
        "name": "test",
        "status_seconds": 1,
        **more,
    }


def until_status(subscriber: Subscriber, consumer: str, state: str) -> dict[str, Any]:
    def reached() -> dict[str, Any] | None:
        last = subscriber.last(f"{PREFIX}/consumers/{consumer}/status")
        found = last is not None and last.text and last.body["state"] == state
        return last.body if last is not None and found else None

    body = until(reached, f"the status of {consumer} is {state}")
    assert body is not None
    return body


def until_event(subscriber: Subscriber, topic: str) -> dict[str, Any]:
    until(lambda: subscriber.of(f"{PREFIX}/{topic}"), f"the event {topic}")
    return subscriber.of(f"{PREFIX}/{topic}")[-1].body


def test_statuses_events_and_commits(
    mysql97: Server, make_daemon: MakeDaemon, source: Source, start_broker: StartBroker
) -> None:
    broker = start_broker()
    consumers = {"a": source(mysql97, "m", mqtt={"commits": True}), "b": source(mysql97, "m")}
    daemon = make_daemon(consumers, mqtt=mqtt(broker))
    mysql97.execute("CREATE DATABASE IF NOT EXISTS m")
    with broker.subscriber() as subscriber:
        daemon.start()
        until(lambda: subscriber.last(f"{PREFIX}/status"), "the daemon says that it is online")
        assert subscriber.last(f"{PREFIX}/status").text == "online"  # type: ignore[union-attr]
        until_status(subscriber, "a", "streaming")
        assert until_event(subscriber, "events/started")["details"]["version"]
        assert until_event(subscriber, "consumers/b/events/attached")["consumer"] == "b"
        connection = consumers["a"]["mysql"]
        connected = until_event(subscriber, f"connections/{connection}/events/connected")
        assert connected["connection"] == connection

        reader = Reader(daemon, "a").open()
        with load(mysql97, "m") as writing:
            writing.until_written(20)
        reader.read_to(mysql97)
        row = daemon.api.row("a")

        def acknowledged() -> bool:
            status = until_status(subscriber, "a", "streaming")
            return bool(status["position"] == row["acknowledged"])

        until(acknowledged, "the status shows what is acknowledged")
        commits = [message.body for message in subscriber.of(f"{PREFIX}/consumers/a/commits")]
        # The CREATE TABLE of the load is a transaction, too.
        assert sum(one["transactions"] for one in commits) >= writing.written
        assert commits[-1]["position"]["seq"] == row["acknowledged"]["seq"]
        assert all(one["bytes"] > 0 and one["committed_at"] <= one["at"] for one in commits)
        assert subscriber.of(f"{PREFIX}/consumers/b/commits") == []

        # The daemon clears the retained messages of a removed consumer.
        del daemon.settings["consumers"]["b"]
        daemon.reload()
        until(
            lambda: subscriber.last(f"{PREFIX}/consumers/b/status").text == "",  # type: ignore[union-attr]
            "b's status is cleared",
        )
        assert until_event(subscriber, "events/reloaded")["details"]["removed"] == ["b"]
        daemon.stop()
        until(lambda: subscriber.last(f"{PREFIX}/status").text == "offline", "it is offline")  # type: ignore[union-attr]
        assert until_event(subscriber, "events/stopped")["daemon"]
    # Later subscribers get the retained messages.
    with broker.subscriber() as subscriber:
        until(lambda: len(subscriber.messages) >= 2, "retained messages")
        assert {(m.topic, m.retained) for m in subscriber.messages} == {
            (f"{PREFIX}/status", True),
            (f"{PREFIX}/consumers/a/status", True),
        }


def test_a_killed_daemon_is_offline_and_a_consumer_removed_meanwhile_is_cleared(
    mysql97: Server, make_daemon: MakeDaemon, source: Source, start_broker: StartBroker
) -> None:
    broker = start_broker()
    daemon = make_daemon(
        {"a": source(mysql97, "m"), "b": source(mysql97, "m")},
        mqtt=mqtt(broker, protocol="3.1.1", qos=0),
    )
    with broker.subscriber() as subscriber:
        daemon.start()
        until_status(subscriber, "b", "streaming")
        daemon.kill()
        until(lambda: subscriber.last(f"{PREFIX}/status").text == "offline", "its last will")  # type: ignore[union-attr]
        del daemon.settings["consumers"]["b"]
        daemon.start()
        until(
            lambda: subscriber.last(f"{PREFIX}/consumers/b/status").text == "",  # type: ignore[union-attr]
            "b's status is cleared",
        )
        until_status(subscriber, "a", "streaming")
    daemon.stop()


def test_a_broker_that_is_killed_and_started_again_gets_all_statuses_again(
    mysql97: Server, make_daemon: MakeDaemon, source: Source, start_broker: StartBroker
) -> None:
    broker = start_broker(password=BROKER_PASSWORD)
    settings = mqtt(broker, user="dispatcher", password=BROKER_PASSWORD)
    daemon = make_daemon({"a": source(mysql97, "m")}, mqtt=settings)
    with broker.subscriber() as subscriber:
        daemon.start()
        until_status(subscriber, "a", "streaming")
    broker.kill()
    until(lambda: "mqtt not connected" in daemon.log, "the loss is said")
    until(lambda: "check mqtt.url, the firewall" in daemon.log, "why no new connection is made")
    assert "look whether the broker runs, and at its log" in daemon.log
    daemon.reload()  # the daemon has an event to publish when the broker starts
    broker.start()  # the broker has no persistence, so it has forgotten everything
    with broker.subscriber() as subscriber:
        until_status(subscriber, "a", "streaming")
        until_event(subscriber, "events/reloaded")
    assert daemon.log.count("mqtt connected") == 2
    metrics = daemon.api.text("/metrics")
    assert "binlog_dispatcher_mqtt_connected 1.0" in metrics
    assert "binlog_dispatcher_mqtt_connects_total 2.0" in metrics
    daemon.stop()


def test_a_wrong_password_is_said_with_its_remedy_until_it_is_corrected(
    mysql97: Server, make_daemon: MakeDaemon, source: Source, start_broker: StartBroker
) -> None:
    broker = start_broker(password=BROKER_PASSWORD)
    settings = mqtt(broker, user="dispatcher", password="not the secret")
    daemon = make_daemon({"a": source(mysql97, "m")}, mqtt=settings)
    daemon.start()
    until(lambda: "correct mqtt.user and mqtt.password_file" in daemon.log, "the remedy is said")
    daemon.settings["mqtt"]["password"] = BROKER_PASSWORD
    daemon.reload()
    with broker.subscriber() as subscriber:
        until_status(subscriber, "a", "streaming")
    daemon.stop()


def test_tls_with_an_authority_of_its_own_and_without(
    mysql97: Server, make_daemon: MakeDaemon, source: Source, start_broker: StartBroker
) -> None:
    broker = start_broker(tls=True)
    daemon = make_daemon({"a": source(mysql97, "m")}, mqtt=mqtt(broker))
    daemon.start()
    until(lambda: "set mqtt.tls.ca to the authority" in daemon.log, "it is not trusted")
    daemon.settings["mqtt"]["tls"] = {"ca": str(broker.ca)}
    daemon.reload()
    with broker.subscriber() as subscriber:
        until_status(subscriber, "a", "streaming")
    daemon.stop()


def read_all(daemon: Daemon, server: Server, transactions: int) -> None:
    """Write this number of transactions while a reader reads, until the reader has all of them."""
    reader = Reader(daemon, "a").open()
    with load(server, "m") as writing:
        until(
            lambda: reader.step(wait_ms=100) or writing.written >= transactions,
            "written",
        )
        writing.until_written(transactions)
    reader.read_to(server)


def test_a_broker_that_stops_delays_no_reader_and_costs_the_oldest_commits_only(
    mysql97: Server, make_daemon: MakeDaemon, source: Source, start_broker: StartBroker
) -> None:
    broker = start_broker()
    daemon = make_daemon(
        {"a": source(mysql97, "m", mqtt={"commits": True})},
        mqtt=mqtt(broker, max_queued_messages=3),
    )
    mysql97.execute("CREATE DATABASE IF NOT EXISTS m")
    with broker.subscriber() as subscriber:
        daemon.start()
        until_status(subscriber, "a", "streaming")
        read_all(daemon, mysql97, 200)
        until(lambda: subscriber.of(f"{PREFIX}/consumers/a/commits"), "commits come")
        broker.signal(signal.SIGSTOP)
        with probed(daemon):
            read_all(daemon, mysql97, 200)
        broker.signal(signal.SIGCONT)

        def dropped() -> bool:
            read_all(daemon, mysql97, 1)
            line = 'binlog_dispatcher_mqtt_dropped_total{kind="commit"} 0.0'
            return line not in daemon.api.text("/metrics")

        broker.signal(signal.SIGSTOP)
        until(dropped, "the oldest commits are dropped")
        broker.signal(signal.SIGCONT)
        seq = daemon.api.row("a")["acknowledged"]["seq"]
        until(
            lambda: subscriber.of("/commits")[-1].body["position"]["seq"] == seq,
            "the newest commit comes",
        )
    # The daemon logs this once per connection.
    assert 1 <= daemon.log.count("mqtt messages are dropped") <= 2
    broker.signal(signal.SIGSTOP)
    daemon.stop()  # a broker that does not answer does not delay the daemon's end
    assert "the shutdown took more than" not in daemon.log
    broker.signal(signal.SIGCONT)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x20\x03\x00\x00\x00" + b"\x40\xff\xff\xff\x7f" + b"x" * 1000,  # CONNACK, then garbage
        b"\x20\x03\x00\x00\x00" + b"\x30\x02\xff\xff" * 50,  # a topic longer than its packet
    ],
    ids=["silence", "http", "length", "topic"],
)
def test_a_broker_that_lies_disturbs_nothing(
    mysql97: Server, make_daemon: MakeDaemon, source: Source, answer: bytes
) -> None:
    broker = SilentBroker(answer)
    try:
        daemon = make_daemon({"a": source(mysql97, "m")}, mqtt=mqtt(broker))
        daemon.start()
        daemon.api.until_state("a", "streaming")
        until(lambda: broker.accepted, "it connects")
        with probed(daemon):
            pass
        daemon.stop()
    finally:
        broker.close()
