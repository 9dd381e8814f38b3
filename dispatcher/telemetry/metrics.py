"""The daemon's metrics in Prometheus text format, with the prefix `binlog_dispatcher_` and base units.

Each scrape reads its values from the clients, from the rows of GET /v1/binlogs, and from `Measured`. So the metrics
agree with these rows, and cost nothing between scrapes. The labels are `connection` (user@host:port, without a
password), `dispatcher` (`dispatcher_name` of GET /v1/binlogs), `consumer`, `route`, and labels with few values, such as
`state`. No label depends on the data: no tables, no GTIDs, no paths of requests. When a consumer, a dispatcher or a
connection ends, its series end, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.connection.dispatcher import Dispatcher, Phase
from dispatcher.dispatch.queue.reader import ReaderState
from dispatcher.dispatch.status import STATES, dispatcher_name
from dispatcher.leadership.role import Role
from dispatcher.model.timings import (
    SHORT_S,
    ConnectionTimings,
    Durations,
    RequestTimings,
    StoreTimings,
)
from dispatcher.telemetry.exposition import HISTOGRAM, ScrapeSamples, kind_of, label_text

PREFIX = "binlog_dispatcher_"

StatusRow = dict[str, Any]  # of GET /v1/binlogs
S = TypeVar("S")


class ConsumerStatus(NamedTuple):
    """The objects from which the metrics of a consumer are read."""

    row: StatusRow
    consumer: Consumer


@dataclass(frozen=True, slots=True)
class MetricSpec(Generic[S]):
    """A metric and the function that reads its value; the function returns None if the value is not known yet. `name`
    has no prefix; counters end in `_total`."""

    name: str
    meaning: str
    read: Callable[[S], float | None]


# Several clients can have one label; the values of these clients are added.
CONNECTION_METRICS: tuple[MetricSpec[Client], ...] = (
    MetricSpec("source_connections", "Open replication connections.",
               lambda client: sum(d.open for d in client.dispatchers.values())),
    MetricSpec("source_side_dispatchers",
               "Dispatchers of each client besides its main dispatcher; they serve consumers that catch up.",
               lambda client: max(0, len(client.dispatchers) - 1)),
    MetricSpec("source_merges_total", "Dispatchers that were merged into another dispatcher.",
               lambda client: client.merges),
)  # fmt: skip

DISPATCHER_METRICS: tuple[MetricSpec[Dispatcher], ...] = (
    MetricSpec("source_up", "1 if the last attempt to reach the server succeeded.",
               lambda d: d.error is None and d.phase is not Phase.CONNECTING),
    MetricSpec("source_paused",
               "1 while a full queue stops the reading of the log, with an open or a closed connection.",
               lambda d: d.phase in (Phase.PAUSED, Phase.BACKPRESSURE_CLOSED)),
    MetricSpec("source_consumers", "Consumers attached to the dispatcher.", lambda d: len(d.attached)),
    MetricSpec("source_received_bytes_total", "Bytes of binlog events received.", lambda d: d.bytes),
    MetricSpec("source_events_total", "Binlog events received.", lambda d: d.events),
    MetricSpec("source_reconnects_total", "Connections lost while streaming.", lambda d: d.reconnects),
    MetricSpec("source_last_event_timestamp_seconds",
               "Time at which the newest received event was written, by the server's clock; 0: none yet.",
               lambda d: d.last_timestamp),
)  # fmt: skip

CONSUMER_METRICS: tuple[MetricSpec[ConsumerStatus], ...] = (
    MetricSpec("queue_bytes", "Memory used by the queue.", lambda c: c.row["bytes"]),
    MetricSpec("queue_limit_bytes", "max_bytes_in_binlog_queue; a single larger transaction goes to disk.",
               lambda c: c.row["max_bytes"]),
    MetricSpec("queue_events", "Unacknowledged events in the queue.", lambda c: c.row["size"]),
    MetricSpec("unacknowledged_bytes", "Bytes in the queue that the reader has not acknowledged.",
               lambda c: c.row["unacknowledged_bytes"]),
    MetricSpec("lag_seconds",
               "Age of the oldest unacknowledged transaction; 0: all are acknowledged. While the daemon reads nothing"
               " for the consumer, this is at least the time since the daemon last reached the end of the log.",
               lambda c: c.row["lag_seconds"]),
    MetricSpec("consumer_bytes_total", "Bytes added to the queue.", lambda c: c.consumer.queue.pushed_bytes),
    MetricSpec("consumer_transactions_total", "Transactions added to the queue.",
               lambda c: c.consumer.queue.pushed_transactions),
    MetricSpec("consumer_acknowledged_seq",
               "seq of the acknowledged position; with GTIDs it grows by one per transaction.",
               lambda c: c.row["acknowledged"]["seq"] if c.row["acknowledged"] else None),
    MetricSpec("runway_seconds",
               "Time until the server purges the oldest binlog that the consumer needs; no sample: never by age, or"
               " not known.",
               lambda c: c.row["runway_seconds"]),
    MetricSpec("lag_bytes",
               "Bytes of the server's log that the consumer is behind, as of the last survey; no sample: not known.",
               lambda c: c.row["lag_bytes"]),
    MetricSpec("spilled_bytes", "Unacknowledged bytes on disk, of transactions that are larger than the queue.",
               lambda c: c.row["spilled_bytes"]),
    MetricSpec("consumer_waited_seconds_total",
               "Time for which the other consumers of the dispatcher have waited for space in the queue of this"
               " consumer.",
               lambda c: c.consumer.wait_budget.waited_s),
    MetricSpec("consumer_detaches_total", "Times that the consumer was detached because its queue stayed full.",
               lambda c: c.row["detaches"]),
    MetricSpec("consumer_gaps_total", "Times that the consumer skipped purged transactions (on_purged: latest).",
               lambda c: c.row["gaps"]),
    MetricSpec("consumer_delivered_bytes_total", "Bytes that readers have fetched, repeats included.",
               lambda c: c.row["delivered_bytes"]),
    MetricSpec("consumer_delivered_transactions_total", "Transactions that readers have fetched, repeats included.",
               lambda c: c.row["delivered_transactions"]),
    MetricSpec("consumer_declared",
               "1 if a token has declared the consumer over the API, 0 if the settings declare it.",
               lambda c: c.row["declared_by"] is not None),
    MetricSpec("consumer_session_age_seconds",
               "Time since the newest session was opened; no sample: no session was opened.",
               lambda c: c.row["session_age_seconds"]),
    MetricSpec("consumer_poll_age_seconds",
               "Time since the newest poll of the newest session; no sample: none since the daemon started.",
               lambda c: c.row["poll_age_seconds"]),
    MetricSpec("consumer_acknowledgement_age_seconds",
               "Time since the newest session acknowledged a newer position; no sample: none since the daemon started.",
               lambda c: c.row["acknowledgement_age_seconds"]),
)  # fmt: skip
STATE_METRIC = "consumer_state"
STATE_MEANING = f"1 for the current state of the consumer: {', '.join(STATES)}."
ERROR_METRIC = "consumer_error"
ERROR_MEANING = "1 for the kind of the consumer's error (`last_error_kind` of `GET /v1/binlogs`); no sample: no error."
READER_METRIC = "consumer_reader"
READER_MEANING = f"1 for the current state of the consumer's reader: {', '.join(ReaderState)}."


class TimedSpec(NamedTuple):
    """A metric of `Measured`. A histogram's `name` ends in its unit."""

    name: str
    meaning: str
    labels: tuple[str, ...] = ()
    kind: str = ""

    @property
    def type(self) -> str:
        return self.kind or kind_of(self.name)


LEADS = TimedSpec(
    "leader",
    "1 if this daemon leads, 0 if it stands by; no sample: the state is in a file.",
)
TERM = TimedSpec(
    "leader_term",
    "Number of the leader's term, as far as this daemon knows; no sample: the state is in a file, or no term is known.",
)
SETTINGS_DIFFERENT = TimedSpec(
    "leader_settings_different",
    "On a standby: number of consumers and sections of the settings that differ from the leader's; no sample: this"
    " daemon leads, does not know the leader's settings, or has its state in a file.",
)
LOGINS = TimedSpec("source_logins_total", "Logins that succeeded.", ("connection",))
FAULTS = TimedSpec(
    "source_connection_faults_total",
    "Connections that failed or were lost, by the kind of the fault.",
    ("connection", "kind"),
)
FLUSH = TimedSpec(
    "flush_duration_seconds",
    "Time from the arrival of a buffer's first byte until its events are in the queues of all consumers.",
    ("connection",),
    HISTOGRAM,
)
DELIVERY = TimedSpec(
    "delivery_duration_seconds",
    "Time from the commit of the oldest transaction in the answer to a poll, by the server's clock, to this answer.",
    ("connection",),
    HISTOGRAM,
)
REQUESTS = TimedSpec(
    "http_request_duration_seconds",
    "Time from the headers of a request to the end of its answer, including the wait of a poll.",
    ("route", "status"),
    HISTOGRAM,
)
COMMITS = TimedSpec(
    "state_store_commit_duration_seconds",
    "Time that the state store took to commit progress.",
    kind=HISTOGRAM,
)
STORE_ERRORS = TimedSpec("state_store_errors_total", "Calls of the state store that failed.")
STORE_QUEUE = TimedSpec("state_store_queue_calls", "Calls that wait for the state store, or run.")
STORE_UP = TimedSpec(
    "state_store_up",
    "1 if the daemon can store progress; 0 after an error of the state store,"
    " until the store works again.",
)
STORE_BYTES = TimedSpec("state_store_bytes", "Size of the state store, with its write-ahead log.")
STORE_FREE = TimedSpec(
    "state_store_free_bytes",
    "Free space on the file system of the state store, which by default also contains the spill files.",
)
LOOP_LAG = TimedSpec(
    "event_loop_lag_seconds",
    "How late the event loop runs a timer. The daemon measures one timer each second.",
    kind=HISTOGRAM,
)
SPILL_BYTES = TimedSpec(
    "spill_bytes", "Disk space of transactions that are larger than their queues."
)
SPILL_LIMIT = TimedSpec("spill_limit_bytes", "max_bytes_in_spill.")
MEMORY_LIMIT = TimedSpec(
    "memory_limit_bytes",
    "Memory that the daemon's control group may use (systemd, Kubernetes, containers); no sample: no limit.",
)
RELOADED = TimedSpec(
    "settings_reload_successful",
    "1 if the last reload of the settings was applied, or if there was no reload.",
)
MQTT_CONNECTED = TimedSpec(
    "mqtt_connected",
    "1 while the daemon is connected to the broker; no sample: the settings name no broker.",
)
MQTT_CONNECTS = TimedSpec("mqtt_connects_total", "Connections made to the broker.")
MQTT_PUBLISHED = TimedSpec("mqtt_published_total", "Messages that the broker has accepted.")
MQTT_DROPPED = TimedSpec(
    "mqtt_dropped_total",
    "Messages that the daemon dropped because too many messages waited for the broker.",
    ("kind",),
)
WEBHOOK_UP = TimedSpec(
    "webhook_up",
    "0 if the receiver has not accepted the last request, else 1; no sample: the settings have no section webhook.",
)
WEBHOOK_DELIVERED = TimedSpec("webhook_delivered_total", "Events that the receiver has accepted.")
WEBHOOK_DROPPED = TimedSpec(
    "webhook_dropped_total",
    "Events that the daemon dropped: `queue_full`: too many events waited; `given_up`: the receiver did not accept the"
    " event.",
    ("reason",),
)
FRONT_CONNECTIONS = TimedSpec(
    "front_connections",
    "Open connections of replication clients; no sample: the settings have no section front.",
)
FRONT_LOGINS = TimedSpec("front_logins_total", "Logins of replication clients.")
FRONT_REFUSED = TimedSpec(
    "front_refused_total",
    "Connections of replication clients that ended without a login.",
    ("reason",),
)
BUILD = TimedSpec("build_info", "Version of the daemon.", ("version",))
TIMED = (
    LEADS, TERM, SETTINGS_DIFFERENT, LOGINS, FAULTS, FLUSH, DELIVERY, REQUESTS, COMMITS, STORE_ERRORS, STORE_QUEUE,
    STORE_UP, STORE_BYTES, STORE_FREE, LOOP_LAG, SPILL_BYTES, SPILL_LIMIT, MEMORY_LIMIT, RELOADED, MQTT_CONNECTED,
    MQTT_CONNECTS, MQTT_PUBLISHED, MQTT_DROPPED, WEBHOOK_UP, WEBHOOK_DELIVERED, WEBHOOK_DROPPED, FRONT_CONNECTIONS,
    FRONT_LOGINS, FRONT_REFUSED, BUILD,
)  # fmt: skip


class MqttCounts(NamedTuple):
    """`dropped`: the number of dropped messages by kind."""

    connected: bool
    connects: int
    published: int
    dropped: Mapping[str, int]


class WebhookCounts(NamedTuple):
    """`up`: False if the last request failed; `dropped`: the number of dropped events by reason."""

    up: bool
    delivered: int
    dropped: Mapping[str, int]


class FrontTotals(NamedTuple):
    """Connections of replication clients. `refused`: by reason."""

    open: int
    logged_in: int
    refused: Mapping[str, int]


@dataclass(slots=True)
class Measured:
    """What was counted and timed outside of the rules.

    `connections`: the labels of all clients with their timings; `store_up`: False while progress cannot be stored;
    `spill`: the number of allocated bytes, and its limit; `reloaded`: False if the last reload of the settings was
    refused; `role`: the role of this daemon, None if the state is in a file; `settings_different`: see
    `SETTINGS_DIFFERENT`, None for no sample.
    """

    connections: Callable[[], Iterable[tuple[str, ConnectionTimings]]] = list
    requests: RequestTimings = field(default_factory=RequestTimings)
    store: StoreTimings = field(default_factory=StoreTimings)
    store_up: Callable[[], bool] = lambda: True
    store_path: Path | None = None
    spill: Callable[[], tuple[int, int]] = lambda: (0, 0)
    loop_lag: Durations = field(default_factory=lambda: Durations(SHORT_S))
    reloaded: bool = True
    mqtt: Callable[[], MqttCounts | None] = lambda: None
    webhook: Callable[[], WebhookCounts | None] = lambda: None
    front: Callable[[], FrontTotals | None] = lambda: None
    role: Callable[[], Role | None] = lambda: None
    settings_different: Callable[[], int | None] = lambda: None


class Metrics:
    """Collects and renders the metrics. `rows` iterates over the rows of GET /v1/binlogs with their consumers."""

    def __init__(
        self,
        version: str,
        rows: Callable[[], Iterable[tuple[StatusRow, Consumer]]],
        clients: Callable[[], Sequence[Client]],
        measured: Measured | None = None,
    ) -> None:
        self._version = version
        self._rows = rows
        self._clients = clients
        self._measured = measured or Measured()
        self._memory_limit = memory_limit_bytes()
        self._registry = CollectorRegistry(auto_describe=False)
        # Memory, CPU time and open files of the process.
        ProcessCollector(registry=self._registry)

    def fill(self, snapshot: ScrapeSamples) -> Iterator[None]:
        """Collect all samples in small steps, between which the caller can do other work.

        All samples of one consumer are from one moment, and all samples of one dispatcher are from one moment.
        """
        yield from _of_connections(self._clients(), snapshot)
        yield from _of_dispatchers(self._clients(), snapshot)
        yield from _of_consumers(self._rows(), snapshot)
        yield from _of_timings(self._measured.connections(), snapshot)
        yield from _of_requests(self._measured.requests, snapshot)
        self._of_daemon(snapshot)

    def _of_daemon(self, snapshot: ScrapeSamples) -> None:
        measured = self._measured
        _single(snapshot, BUILD, 1, label_text(self._version))
        if (role := measured.role()) is not None:
            _single(snapshot, LEADS, role.leads)
            if role.term:
                _single(snapshot, TERM, role.term)
        if (different := measured.settings_different()) is not None:
            _single(snapshot, SETTINGS_DIFFERENT, different)
        _histogram(snapshot, COMMITS, measured.store.commits)
        _single(snapshot, STORE_ERRORS, measured.store.errors)
        _single(snapshot, STORE_QUEUE, measured.store.waiting)
        _single(snapshot, STORE_UP, measured.store_up())
        _histogram(snapshot, LOOP_LAG, measured.loop_lag)
        spilled, spill_limit = measured.spill()
        _single(snapshot, SPILL_BYTES, spilled)
        _single(snapshot, SPILL_LIMIT, spill_limit)
        _single(snapshot, RELOADED, measured.reloaded)
        if (mqtt := measured.mqtt()) is not None:
            _single(snapshot, MQTT_CONNECTED, mqtt.connected)
            _single(snapshot, MQTT_CONNECTS, mqtt.connects)
            _single(snapshot, MQTT_PUBLISHED, mqtt.published)
            _counts(snapshot, MQTT_DROPPED, mqtt.dropped)
        if (webhook := measured.webhook()) is not None:
            _single(snapshot, WEBHOOK_UP, webhook.up)
            _single(snapshot, WEBHOOK_DELIVERED, webhook.delivered)
            _counts(snapshot, WEBHOOK_DROPPED, webhook.dropped)
        if (front := measured.front()) is not None:
            _single(snapshot, FRONT_CONNECTIONS, front.open)
            _single(snapshot, FRONT_LOGINS, front.logged_in)
            _counts(snapshot, FRONT_REFUSED, front.refused)
        if self._memory_limit is not None:
            _single(snapshot, MEMORY_LIMIT, self._memory_limit)

    def render(self, snapshot: ScrapeSamples) -> tuple[bytes, str]:
        """The answer to a scrape, and its content type. Reads files: call it in a thread."""
        if self._measured.store_path is not None:
            _single(snapshot, STORE_BYTES, store_bytes(self._measured.store_path))
            if (free := free_bytes(self._measured.store_path.parent)) is not None:
                _single(snapshot, STORE_FREE, free)
        return generate_latest(self._registry) + snapshot.text().encode(), CONTENT_TYPE_LATEST


def memory_limit_bytes(
    groups: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """The memory limit of the process's control group or of a group above it (version 2), None if no group has a limit.

    https://docs.kernel.org/admin-guide/cgroup-v2.html
    """
    limits = []
    try:
        lines = groups.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("0::"):
            folder = mounted / line[3:].lstrip("/")
            while folder.is_relative_to(mounted):
                limits.append(_limit_of(folder / "memory.max"))
                folder = folder.parent
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _limit_of(file: Path) -> int | None:
    try:
        text = file.read_text(encoding="ascii").strip()
    except OSError:  # the root group has no such file
        return None
    return int(text) if text.isdigit() else None


def store_bytes(path: Path) -> int:
    """The sizes of the state store's file and of its write-ahead log; a missing file counts as 0."""
    total = 0
    for file in (path, Path(f"{path}-wal")):
        try:
            total += file.stat().st_size
        except OSError:
            continue
    return total


def free_bytes(folder: Path) -> int | None:
    """How many bytes a process without privileges may still write into a folder; None if the file system does not
    report it."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _single(snapshot: ScrapeSamples, spec: TimedSpec, value: float, *labels: str) -> None:
    snapshot.family(PREFIX + spec.name, spec.meaning, spec.labels).add(labels, float(value))


def _counts(snapshot: ScrapeSamples, spec: TimedSpec, counts: Mapping[str, int]) -> None:
    """Add a sample for each value of the only label of `spec`."""
    family = snapshot.family(PREFIX + spec.name, spec.meaning, spec.labels)
    for label, count in counts.items():
        family.add((label,), count)


def _histogram(snapshot: ScrapeSamples, spec: TimedSpec, durations: Durations) -> None:
    snapshot.histogram(PREFIX + spec.name, spec.meaning, spec.labels).add((), durations)


def _of_connections(clients: Sequence[Client], snapshot: ScrapeSamples) -> Iterator[None]:
    sums: dict[str, list[float]] = {}
    for client in clients:
        values = sums.setdefault(client.label, [0.0] * len(CONNECTION_METRICS))
        for n, metric in enumerate(CONNECTION_METRICS):
            values[n] += metric.read(client) or 0.0
        yield
    families = [
        snapshot.family(PREFIX + m.name, m.meaning, ("connection",)) for m in CONNECTION_METRICS
    ]
    for label, values in sums.items():
        for family, value in zip(families, values, strict=True):
            family.add((label_text(label),), value)
        yield


def _of_dispatchers(clients: Sequence[Client], snapshot: ScrapeSamples) -> Iterator[None]:
    labels = ("connection", "dispatcher")
    families = [snapshot.family(PREFIX + m.name, m.meaning, labels) for m in DISPATCHER_METRICS]
    for client in clients:
        for dispatcher in list(client.dispatchers.values()):
            values = label_text(client.label), label_text(dispatcher_name(client, dispatcher))
            for metric, family in zip(DISPATCHER_METRICS, families, strict=True):
                family.add(values, float(metric.read(dispatcher) or 0))
            yield


def _of_consumers(
    rows: Iterable[tuple[StatusRow, Consumer]], snapshot: ScrapeSamples
) -> Iterator[None]:
    families = [
        snapshot.family(PREFIX + m.name, m.meaning, ("consumer",)) for m in CONSUMER_METRICS
    ]
    states = snapshot.family(PREFIX + STATE_METRIC, STATE_MEANING, ("consumer", "state"))
    readers = snapshot.family(PREFIX + READER_METRIC, READER_MEANING, ("consumer", "reader"))
    errors = snapshot.family(PREFIX + ERROR_METRIC, ERROR_MEANING, ("consumer", "kind"))
    for row, consumer in rows:
        name = label_text(row["name"])
        for metric, family in zip(CONSUMER_METRICS, families, strict=True):
            value = metric.read(ConsumerStatus(row, consumer))
            if value is not None:
                family.add((name,), float(value))
        for state in STATES:
            states.add((name, state), float(row["state"] == state))
        for reader in ReaderState:
            readers.add((name, reader.value), float(row["reader"] == reader))
        if row["last_error_kind"] is not None:
            errors.add((name, row["last_error_kind"]), 1.0)
        yield


def _of_timings(
    connections: Iterable[tuple[str, ConnectionTimings]], snapshot: ScrapeSamples
) -> Iterator[None]:
    """Add the samples of connections. The values of clients with the same label are added up."""
    sums: dict[str, ConnectionTimings] = {}
    for label, timings in connections:
        sums.setdefault(label, ConnectionTimings()).merge(timings)
        yield
    logins, faults = (
        snapshot.family(PREFIX + m.name, m.meaning, m.labels) for m in (LOGINS, FAULTS)
    )
    flush, delivery = (
        snapshot.histogram(PREFIX + m.name, m.meaning, m.labels) for m in (FLUSH, DELIVERY)
    )
    for label, timings in sums.items():
        name = label_text(label)
        logins.add((name,), float(timings.logins))
        for kind, count in timings.faults.items():
            faults.add((name, kind), float(count))
        flush.add((name,), timings.flush)
        delivery.add((name,), timings.delivery)
        yield


def _of_requests(requests: RequestTimings, snapshot: ScrapeSamples) -> Iterator[None]:
    family = snapshot.histogram(PREFIX + REQUESTS.name, REQUESTS.meaning, REQUESTS.labels)
    for (route, status), durations in list(requests.series.items()):
        family.add((label_text(route), status), durations)
        yield
