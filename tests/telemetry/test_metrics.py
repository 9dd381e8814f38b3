"""The metrics agree with the clients and the rows of /v1/binlogs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy import metrics_reference
from dispatcher.dispatch import status
from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.connection.dispatcher import Dispatcher, Phase
from dispatcher.dispatch.messages.events import Lost, Removed
from dispatcher.dispatch.queue.reader import ReaderState
from dispatcher.dispatch.status import STATES
from dispatcher.dispatch.tables.versions import Versions
from dispatcher.dispatch.values.specs import ConsumerSpec
from dispatcher.leadership.role import Role
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.timings import ConnectionTimings, Durations
from dispatcher.telemetry.exposition import ScrapeSamples
from dispatcher.telemetry.metrics import (
    CONNECTION_METRICS,
    CONSUMER_METRICS,
    DISPATCHER_METRICS,
    ERROR_METRIC,
    PREFIX,
    READER_METRIC,
    STATE_METRIC,
    TIMED,
    FrontTotals,
    Measured,
    Metrics,
    MetricSpec,
    MqttCounts,
    StatusRow,
    WebhookCounts,
    memory_limit_bytes,
)

SPECS: tuple[MetricSpec[Any], ...] = (*CONNECTION_METRICS, *DISPATCHER_METRICS, *CONSUMER_METRICS)
NOW = 12.5  # by the clock of the rules, which begins at 0
# Metrics whose values are unknown before the consumer has begun and a survey was made.
UNKNOWN = ("consumer_acknowledged_seq", "runway_seconds", "lag_bytes")


READER = {
    "reader": "slow", "session_age_seconds": 90.5, "poll_age_seconds": 2.5, "acknowledgement_age_seconds": 61.0,
    "delivered_transactions": 7, "delivered_bytes": 4096,
}  # fmt: skip


def spec(name: str) -> ConsumerSpec:
    return ConsumerSpec(name, (name,), None, 1 << 20)


@pytest.fixture
def clients() -> list[Client]:
    """A client that two consumers share, and a client of the same connection key for a consumer that does not share.
    All of them connect."""
    made = [
        Client("repl@db1:3306", [spec("shop"), spec("billing")], {}),
        Client("repl@db1:3306", [spec("alone")], {}),
    ]
    for client in made:
        client.start()
    return made


@pytest.fixture
def metrics(clients: list[Client]) -> Metrics:
    def rows() -> list[tuple[StatusRow, Consumer]]:
        return [
            (status.status_row(client, consumer, lambda _: (0.0, 0.0), 1e9, NOW) | READER, consumer)
            for client in clients
            for consumer in client.consumers.values()
        ]

    return Metrics("1.2.3", rows, lambda: clients)


def samples(metrics: Metrics) -> Iterator[tuple[str, dict[str, str], float]]:
    snapshot = ScrapeSamples()
    for _ in metrics.fill(snapshot):
        pass
    text, content_type = metrics.render(snapshot)
    assert content_type.startswith("text/plain")
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def value(metrics: Metrics, name: str, **labels: str) -> float:
    found = [
        v
        for n, seen, v in samples(metrics)
        if n == PREFIX + name and labels.items() <= seen.items()
    ]
    (one,) = found
    return one


def test_no_series_occurs_twice(metrics: Metrics) -> None:
    series = [(name, tuple(sorted(labels.items()))) for name, labels, _ in samples(metrics)]
    assert len(series) == len(set(series))


WEBHOOK = {f"{PREFIX}webhook_{name}" for name in ("up", "delivered_total")}
MQTT = {f"{PREFIX}mqtt_{name}" for name in ("connected", "connects_total", "published_total")}


def test_metrics_of_mqtt_are_there_with_a_broker_only(metrics: Metrics) -> None:
    assert MQTT.isdisjoint(name for name, _, _ in samples(metrics))
    counts = MqttCounts(True, 2, 17, {"event": 0, "commit": 5})
    metrics._measured.mqtt = lambda: counts
    found = {(name, *labels.values()): value for name, labels, value in samples(metrics)}
    assert [found[name,] for name in sorted(MQTT)] == [1, 2, 17]
    assert found[f"{PREFIX}mqtt_dropped_total", "commit"] == 5


def test_metrics_of_the_webhook_are_there_with_a_webhook_only(metrics: Metrics) -> None:
    assert WEBHOOK.isdisjoint(name for name, _, _ in samples(metrics))
    counts = WebhookCounts(False, 17, {"queue_full": 5, "given_up": 0})
    metrics._measured.webhook = lambda: counts
    found = {(name, *labels.values()): value for name, labels, value in samples(metrics)}
    assert [found[name,] for name in sorted(WEBHOOK)] == [17, 0]
    assert found[f"{PREFIX}webhook_dropped_total", "queue_full"] == 5


def test_metrics_of_the_front_are_there_with_a_front_only(metrics: Metrics) -> None:
    names = {f"{PREFIX}front_connections", f"{PREFIX}front_logins_total"}
    assert names.isdisjoint(name for name, _, _ in samples(metrics))
    metrics._measured.front = lambda: FrontTotals(3, 17, {"wrong password": 5})
    found = {(name, *labels.values()): value for name, labels, value in samples(metrics)}
    assert [found[name,] for name in sorted(names)] == [3, 17]
    assert found[f"{PREFIX}front_refused_total", "wrong password"] == 5


def test_every_declared_metric_is_there(metrics: Metrics) -> None:
    seen = {name for name, _, _ in samples(metrics)}
    for metric in SPECS:
        assert (PREFIX + metric.name in seen) == (metric.name not in UNKNOWN)
    assert PREFIX + "build_info" in seen and PREFIX + STATE_METRIC in seen
    assert {
        PREFIX + timed.name for timed in TIMED if not timed.labels and timed.type != "histogram"
    } - seen <= {
        f"{PREFIX}{name}"
        for name in (
            "memory_limit_bytes",
            "state_store_bytes",
            "state_store_free_bytes",
            "leader",
            "leader_term",
            "leader_settings_different",
            "front_connections",
            "front_logins_total",
        )
    } | MQTT | WEBHOOK
    assert "process_resident_memory_bytes" in seen


def test_names_follow_the_rules() -> None:
    """The names follow https://prometheus.io/docs/practices/naming"""
    for metric in SPECS:
        assert re.fullmatch(r"[a-z][a-z_]*", metric.name)
        assert metric.meaning.endswith(".")
        if "bytes" in metric.name or "seconds" in metric.name:
            assert re.search(r"_(bytes|seconds)(_total)?$", metric.name)


def test_the_version(metrics: Metrics) -> None:
    assert value(metrics, "build_info", version="1.2.3") == 1


def test_dispatchers(metrics: Metrics, clients: list[Client]) -> None:
    (shared,), (alone,) = (client.dispatchers.values() for client in clients)
    shared.phase, alone.phase = Phase.STREAMING, Phase.BACKPRESSURE_CLOSED
    shared.events, shared.bytes, shared.reconnects, shared.last_timestamp = 7, 700, 2, 1700000000
    names = {"connection": "repl@db1:3306", "dispatcher": "shop:1"}
    other = names | {"dispatcher": "alone:1"}
    assert value(metrics, "source_up", **names) == 1
    assert value(metrics, "source_paused", **names) == 0
    assert value(metrics, "source_paused", **other) == 1
    assert value(metrics, "source_consumers", **names) == 2
    assert value(metrics, "source_received_bytes_total", **names) == 700
    assert value(metrics, "source_events_total", **names) == 7
    assert value(metrics, "source_reconnects_total", **names) == 2
    assert value(metrics, "source_last_event_timestamp_seconds", **names) == 1700000000


def test_metrics_of_a_connection_are_sums_over_its_clients(
    metrics: Metrics, clients: list[Client]
) -> None:
    assert value(metrics, "source_connections", connection="repl@db1:3306") == 0
    for client in clients:
        client.dispatchers[1].phase = Phase.STREAMING
    assert value(metrics, "source_connections", connection="repl@db1:3306") == 2
    assert value(metrics, "source_side_dispatchers", connection="repl@db1:3306") == 0
    side = Dispatcher(2, clients[0].label, clients[0].routes, Versions.from_stored(None))
    clients[0].dispatchers[2] = side
    assert value(metrics, "source_side_dispatchers", connection="repl@db1:3306") == 1
    clients[0]._dispatcher_set.merges, clients[1]._dispatcher_set.merges = 3, 4
    assert value(metrics, "source_merges_total", connection="repl@db1:3306") == 7


def test_a_server_that_is_down(metrics: Metrics, clients: list[Client]) -> None:
    assert value(metrics, "source_up", dispatcher="shop:1") == 0
    clients[0].step(Lost(1, BinlogError(ErrorKind.CONNECT_FAILED, "refused")), 0.0)
    assert value(metrics, "source_up", dispatcher="shop:1") == 0
    assert value(metrics, "consumer_state", consumer="shop", state="connecting") == 1


def test_consumers(metrics: Metrics, clients: list[Client]) -> None:
    queue = clients[0].consumers["shop"].queue
    queue.pushed_bytes, queue.pushed_transactions = 500, 5
    assert value(metrics, "consumer_bytes_total", consumer="shop") == 500
    assert value(metrics, "consumer_transactions_total", consumer="shop") == 5
    assert value(metrics, "queue_limit_bytes", consumer="shop") == 1 << 20
    assert value(metrics, "unacknowledged_bytes", consumer="alone") == 0
    assert value(metrics, "lag_seconds", consumer="alone") == NOW  # never connected so far
    consumer = clients[0].consumers["shop"]
    consumer.detaches, consumer.gaps, consumer.wait_budget.waited_s = 2, 1, 3.5
    assert value(metrics, "consumer_detaches_total", consumer="shop") == 2
    assert value(metrics, "consumer_gaps_total", consumer="shop") == 1
    assert value(metrics, "consumer_waited_seconds_total", consumer="shop") == 3.5
    assert value(metrics, "spilled_bytes", consumer="shop") == 0


@pytest.mark.parametrize("phase", Phase)
def test_a_consumer_is_in_one_state(metrics: Metrics, clients: list[Client], phase: Phase) -> None:
    clients[0].dispatchers[1].phase = phase
    states = [
        labels["state"]
        for name, labels, on in samples(metrics)
        if name == PREFIX + "consumer_state" and labels["consumer"] == "shop" and on
    ]
    assert len(states) == 1 and states[0] in STATES


def test_a_detached_consumer(metrics: Metrics, clients: list[Client]) -> None:
    client = clients[0]
    client.dispatchers[1].detach(client.consumers["shop"], 0.0)
    assert value(metrics, "consumer_state", consumer="shop", state="detached") == 1
    assert value(metrics, "consumer_state", consumer="billing", state="connecting") == 1


def test_a_failed_consumer(metrics: Metrics, clients: list[Client]) -> None:
    clients[0].consumers["shop"].failed = BinlogError(ErrorKind.POSITION_PURGED, "gone")
    assert value(metrics, "consumer_state", consumer="shop", state="failed") == 1
    assert value(metrics, "consumer_state", consumer="billing", state="failed") == 0


def test_the_kind_of_a_consumer_s_error(metrics: Metrics, clients: list[Client]) -> None:
    clients[0].consumers["shop"].error = BinlogError(ErrorKind.SPILL, "no space")
    errors = [labels for name, labels, _ in samples(metrics) if name == PREFIX + ERROR_METRIC]
    assert errors == [{"consumer": "shop", "kind": "SPILL"}]


def test_every_state_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs/operating.md").read_text(encoding="utf-8")
    states, readers = (
        text[text.index(heading) :].split("\n## ")[0] for heading in ("## States", "## Readers")
    )
    assert sorted(re.findall(r"^\| `([a-z]+)` \|", states, re.MULTILINE)) == sorted(STATES)
    assert re.findall(r"^\| `([a-z]+)` \|", readers, re.MULTILINE) == [*ReaderState]


def test_the_reader_of_a_consumer(metrics: Metrics) -> None:
    on = {
        labels["reader"]
        for name, labels, value_ in samples(metrics)
        if name == PREFIX + READER_METRIC and labels["consumer"] == "shop" and value_
    }
    assert on == {"slow"}
    assert value(metrics, "consumer_delivered_bytes_total", consumer="shop") == 4096
    assert value(metrics, "consumer_acknowledgement_age_seconds", consumer="shop") == 61.0


def test_no_metric_is_named_anywhere_else() -> None:
    root = Path(__file__).parents[2] / "dispatcher"
    others = [file for file in root.rglob("*.py") if file.name != "metrics.py"]
    assert [file for file in others if re.search(rf"\b{PREFIX}", file.read_text())] == []


def test_labels_are_escaped(clients: list[Client]) -> None:
    odd = 'repl"\\\n@db1:3306'
    clients.append(Client(odd, [spec("odd")], {}))
    metrics = Metrics("1", list, lambda: clients)
    assert value(metrics, "source_connections", connection=odd) == 0


def measured(*connections: tuple[str, ConnectionTimings]) -> Measured:
    return Measured(lambda: connections)


def test_histograms_are_cumulative() -> None:
    durations = Durations((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0, -1.0):
        durations.add(seconds)
    assert durations.cumulative() == [3, 4, 5]
    assert durations.sum_s == pytest.approx(7.65)


def test_timings_of_one_connection_are_added() -> None:
    one, two = ConnectionTimings(), ConnectionTimings()
    one.flush.add(0.002)
    two.flush.add(0.2)
    one.logins, two.logins = 2, 3
    one.faults["CONNECT_FAILED"] += 4
    metrics = Metrics("1", list, list, measured(("repl@db1:3306", one), ("repl@db1:3306", two)))
    labels = {"connection": "repl@db1:3306"}
    assert value(metrics, "flush_duration_seconds_count", **labels) == 2
    assert value(metrics, "flush_duration_seconds_bucket", le="0.0025", **labels) == 1
    assert value(metrics, "flush_duration_seconds_bucket", le="+Inf", **labels) == 2
    assert value(metrics, "source_logins_total", **labels) == 5
    assert value(metrics, "source_connection_faults_total", kind="CONNECT_FAILED", **labels) == 4
    assert (one.logins, one.flush.cumulative()[-1]) == (2, 1)  # a scrape changes nothing


def test_series_of_what_is_removed_vanish(metrics: Metrics, clients: list[Client]) -> None:
    before = {labels.get("consumer") for _, labels, _ in samples(metrics)}
    assert {"shop", "billing", "alone"} <= before
    clients[0].step(Removed("shop"), 0.0)
    del clients[1]
    after = list(samples(metrics))
    assert {labels.get("consumer") for _, labels, _ in after} == {None, "billing"}
    assert {labels["dispatcher"] for _, labels, _ in after if "dispatcher" in labels} == {
        "billing:1"
    }


def test_requests() -> None:
    here = Measured()
    here.requests.add("/v1/consumers/{consumer}/poll", "2xx", 3.0)
    here.requests.add("/v1/consumers/{consumer}/poll", "4xx", 0.0)
    metrics = Metrics("1", list, list, here)
    labels = {"route": "/v1/consumers/{consumer}/poll", "status": "2xx"}
    assert value(metrics, "http_request_duration_seconds_sum", **labels) == 3
    assert value(metrics, "http_request_duration_seconds_bucket", le="2.5", **labels) == 0
    assert value(metrics, "http_request_duration_seconds_bucket", le="5.0", **labels) == 1


def test_the_state_store_and_the_process(tmp_path: Path) -> None:
    store = tmp_path / "state.db"
    store.write_bytes(b"x" * 100)
    Path(f"{store}-wal").write_bytes(b"x" * 11)
    here = Measured(store_path=store, store_up=lambda: False, spill=lambda: (5, 10))
    here.store.waiting, here.reloaded = 3, False
    metrics = Metrics("1", list, list, here)
    assert value(metrics, "state_store_bytes") == 111
    free = value(metrics, "state_store_free_bytes")
    assert 0 < free < shutil.disk_usage(tmp_path).total
    assert value(metrics, "state_store_up") == 0
    assert value(metrics, "state_store_queue_calls") == 3
    assert value(metrics, "spill_bytes") == 5 and value(metrics, "spill_limit_bytes") == 10
    assert value(metrics, "settings_reload_successful") == 0


@pytest.mark.parametrize("role", [Role(True, 7, "http://a:8085"), Role(False, 7, "http://b:8085")])
def test_the_role_of_one_of_several_daemons(role: Role) -> None:
    metrics = Metrics("1", list, list, Measured(role=lambda: role))
    assert value(metrics, "leader") == role.leads
    assert value(metrics, "leader_term") == 7


def test_a_standby_that_knows_no_leader_has_no_term() -> None:
    metrics = Metrics("1", list, list, Measured(role=lambda: Role(False, 0, "")))
    assert "binlog_dispatcher_leader_term" not in {name for name, _, _ in samples(metrics)}


def test_the_memory_limit_is_the_lowest_of_the_control_groups(tmp_path: Path) -> None:
    groups, mounted = tmp_path / "cgroup", tmp_path / "fs"
    service = mounted / "system.slice/binlog-dispatcher.service"
    service.mkdir(parents=True)
    groups.write_text("0::/system.slice/binlog-dispatcher.service\n")
    assert memory_limit_bytes(groups, mounted) is None
    (service / "memory.max").write_text("max\n")
    assert memory_limit_bytes(groups, mounted) is None
    (service.parent / "memory.max").write_text("1000\n")
    assert memory_limit_bytes(groups, mounted) == 1000
    (service / "memory.max").write_text("700\n")
    assert memory_limit_bytes(groups, mounted) == 700
    assert memory_limit_bytes(tmp_path / "none", mounted) is None


def test_the_reference_is_what_the_code_declares() -> None:
    """If this test fails after a change of metrics, run `python -m deploy.metrics_reference`."""
    assert metrics_reference.PATH.read_text(encoding="utf-8") == metrics_reference.text()
