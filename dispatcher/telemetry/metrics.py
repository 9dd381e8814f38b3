"""Every metric of the daemon, with its meaning. Prometheus text; prefix `binlog_dispatcher_`; base
units.

Values are not kept here: each scrape reads the state of the clients and the rows of `GET
/v1/binlogs`, so a metric cannot disagree with the page, and what is not scraped costs nothing.
Labels: `connection` (user@host:port, never a password), `dispatcher` beside it (as `dispatcher_name` of GET
/v1/binlogs), and `consumer`. No label grows with the data: no tables, no GTIDs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from dispatcher.dispatch.client import Client
from dispatcher.dispatch.consumer import Consumer
from dispatcher.dispatch.dispatcher import Dispatcher, Phase
from dispatcher.dispatch.status import STATES, name_of

PREFIX = "binlog_dispatcher_"

StatusRow = dict[str, Any]  # of GET /v1/binlogs


@dataclass(frozen=True, slots=True)
class ConnectionMetric:
    """A metric of one connection key. `name` without prefix; counters end in `_total`. Several clients may have one
    key; their values are added up."""

    name: str
    meaning: str
    read: Callable[[Client], float]


@dataclass(frozen=True, slots=True)
class DispatcherMetric:
    """A metric of one dispatcher, for as long as there is that dispatcher."""

    name: str
    meaning: str
    read: Callable[[Dispatcher], float]


@dataclass(frozen=True, slots=True)
class ConsumerMetric:
    """A metric of one consumer; `read` may return None for what is not known yet."""

    name: str
    meaning: str
    read: Callable[[StatusRow, Consumer], float | None]


CONNECTION_METRICS = (
    ConnectionMetric(
        "source_connections",
        "Replication connections that are open now.",
        lambda client: sum(d.open for d in client.dispatchers.values()),
    ),
    ConnectionMetric(
        "source_side_dispatchers",
        "Dispatchers beside the one furthest ahead of each client: 0 once all have caught up.",
        lambda client: max(0, len(client.dispatchers) - 1),
    ),
    ConnectionMetric(
        "source_merges_total",
        "Dispatchers that were merged into another one.",
        lambda client: client.merges,
    ),
)

DISPATCHER_METRICS = (
    DispatcherMetric(
        "source_up",
        "1 if the newest attempt to reach the server went well.",
        lambda dispatcher: dispatcher.error is None and dispatcher.phase is not Phase.CONNECTING,
    ),
    DispatcherMetric(
        "source_paused",
        "1 while a full queue keeps the connection from being read, be it open or closed for it.",
        lambda dispatcher: dispatcher.phase in (Phase.PAUSED, Phase.BACKPRESSURE_CLOSED),
    ),
    DispatcherMetric(
        "source_consumers",
        "Consumers that ride on it.",
        lambda dispatcher: len(dispatcher.attached),
    ),
    DispatcherMetric(
        "source_received_bytes_total",
        "Bytes of binlog events received.",
        lambda dispatcher: dispatcher.bytes,
    ),
    DispatcherMetric(
        "source_events_total", "Binlog events received.", lambda dispatcher: dispatcher.events
    ),
    DispatcherMetric(
        "source_reconnects_total",
        "Connections that were lost while they streamed.",
        lambda dispatcher: dispatcher.reconnects,
    ),
    DispatcherMetric(
        "source_last_event_timestamp_seconds",
        "When the newest event that was received was written, by the server's clock; 0: none yet.",
        lambda dispatcher: dispatcher.last_timestamp,
    ),
)

CONSUMER_METRICS = (
    ConsumerMetric("queue_bytes", "Memory that the queue holds.", lambda row, _: row["bytes"]),
    ConsumerMetric(
        "queue_limit_bytes",
        "max_bytes_in_binlog_queue; a single transaction that is larger goes to disk.",
        lambda row, _: row["max_bytes"],
    ),
    ConsumerMetric(
        "queue_events", "Events in the queue, not acknowledged.", lambda row, _: row["size"]
    ),
    ConsumerMetric(
        "unacknowledged_bytes",
        "Bytes queued for the reader and not acknowledged by it.",
        lambda row, _: row["unacknowledged_bytes"],
    ),
    ConsumerMetric(
        "lag_seconds",
        "Age of the oldest transaction that is not acknowledged; 0: the reader has all of them.",
        lambda row, _: row["lag_seconds"],
    ),
    ConsumerMetric(
        "consumer_bytes_total",
        "Bytes put into the queue: what the consumer's databases cost it.",
        lambda _, consumer: consumer.queue.taken_bytes,
    ),
    ConsumerMetric(
        "consumer_transactions_total",
        "Transactions put into the queue.",
        lambda _, consumer: consumer.queue.taken_transactions,
    ),
    ConsumerMetric(
        "consumer_acknowledged_seq",
        "seq of the acknowledged position; grows by one with each transaction where there are GTIDs.",
        lambda row, _: row["acknowledged"]["seq"] if row["acknowledged"] else None,
    ),
    ConsumerMetric(
        "runway_seconds",
        "How long until the server purges the oldest binlog that it still needs; none: never, or not known.",
        lambda row, _: row["runway_seconds"],
    ),
    ConsumerMetric(
        "spilled_bytes",
        "Bytes on disk: transactions that are larger than its queue, not acknowledged.",
        lambda row, _: row["spilled_bytes"],
    ),
    ConsumerMetric(
        "consumer_waited_seconds_total",
        "How long the others on its dispatcher have waited for room in its queue.",
        lambda _, consumer: consumer.patience.waited_s,
    ),
    ConsumerMetric(
        "consumer_detaches_total",
        "How often the others went on without it, because its queue stayed full.",
        lambda row, _: row["detaches"],
    ),
    ConsumerMetric(
        "consumer_gaps_total",
        "How often it went on behind what the server had purged (on_purged: latest).",
        lambda row, _: row["gaps"],
    ),
)
STATE_METRIC = "consumer_state"
STATE_MEANING = f"1 for the state that the consumer is in, of {', '.join(STATES)}."


class Family:
    """The samples of one metric as lines of Prometheus text.

    Lines are made at once, without the library's samples: a thousand consumers have some 30,000 of those, and making
    and collecting the objects takes half a second of the loop's thread, the lines a tenth of it.
    """

    def __init__(self, name: str, meaning: str, labels: Sequence[str]) -> None:
        """`name` without prefix; counters end in `_total`."""
        name = PREFIX + name
        kind = "counter" if name.endswith("_total") else "gauge"
        self.lines = [f"# HELP {name} {_escaped(meaning)}\n# TYPE {name} {kind}\n"]
        self._template = "%s{%s} %%s\n" % (name, ",".join(f'{label}="%s"' for label in labels))  # noqa: UP031

    def add(self, values: tuple[str, ...], value: float) -> None:
        """`values`: of the labels, escaped."""
        self.lines.append(self._template % (*values, floatToGoString(value)))  # type: ignore[no-untyped-call]


class Snapshot:
    """What a scrape answers with: samples that have been taken."""

    def __init__(self) -> None:
        self.families: list[Family] = []

    def family(self, name: str, meaning: str, labels: Sequence[str]) -> Family:
        family = Family(name, meaning, labels)
        self.families.append(family)
        return family


class Metrics:
    """The daemon's metrics, taken when they are asked for.

    `rows`: those of GET /v1/binlogs with their consumers, each made when it is asked for; `clients`: all clients.
    """

    def __init__(
        self,
        version: str,
        rows: Callable[[], Iterable[tuple[StatusRow, Consumer]]],
        clients: Callable[[], Sequence[Client]],
    ) -> None:
        self._rows = rows
        self._clients = clients
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Build(version))
        # Resident memory, CPU time, open files of the process.
        ProcessCollector(registry=self._registry)

    def fill(self, snapshot: Snapshot) -> Iterator[None]:
        """Takes all samples, a little at each step, so that the caller can do other things between two steps.

        All samples of one consumer, and of one dispatcher, are of one moment.
        """
        yield from _of_connections(self._clients(), snapshot)
        yield from _of_dispatchers(self._clients(), snapshot)
        yield from _of_consumers(self._rows(), snapshot)

    def render(self, snapshot: Snapshot) -> tuple[bytes, str]:
        """The answer to a scrape, and its content type."""
        lines = "".join("".join(family.lines) for family in snapshot.families)
        return generate_latest(self._registry) + lines.encode(), CONTENT_TYPE_LATEST


class _Build(Collector):
    def __init__(self, version: str) -> None:
        self._version = version

    def collect(self) -> Iterator[Metric]:
        version = {"version": self._version}
        yield InfoMetricFamily(PREFIX + "build", "Version of the daemon.", value=version)


def _of_connections(clients: Sequence[Client], snapshot: Snapshot) -> Iterator[None]:
    sums: dict[str, list[float]] = {}
    for client in clients:
        values = sums.setdefault(client.label, [0.0] * len(CONNECTION_METRICS))
        for n, metric in enumerate(CONNECTION_METRICS):
            values[n] += float(metric.read(client))
        yield
    families = [snapshot.family(m.name, m.meaning, ("connection",)) for m in CONNECTION_METRICS]
    for label, values in sums.items():
        for family, value in zip(families, values, strict=True):
            family.add((_escaped(label),), value)
        yield


def _of_dispatchers(clients: Sequence[Client], snapshot: Snapshot) -> Iterator[None]:
    labels = ("connection", "dispatcher")
    families = [snapshot.family(m.name, m.meaning, labels) for m in DISPATCHER_METRICS]
    for client in clients:
        for dispatcher in list(client.dispatchers.values()):
            values = _escaped(client.label), _escaped(name_of(client, dispatcher))
            for metric, family in zip(DISPATCHER_METRICS, families, strict=True):
                family.add(values, float(metric.read(dispatcher)))
            yield


def _of_consumers(rows: Iterable[tuple[StatusRow, Consumer]], snapshot: Snapshot) -> Iterator[None]:
    families = [snapshot.family(m.name, m.meaning, ("consumer",)) for m in CONSUMER_METRICS]
    states = snapshot.family(STATE_METRIC, STATE_MEANING, ("consumer", "state"))
    for row, consumer in rows:
        name = _escaped(row["name"])
        for metric, family in zip(CONSUMER_METRICS, families, strict=True):
            value = metric.read(row, consumer)
            if value is not None:
                family.add((name,), float(value))
        for state in STATES:
            states.add((name, state), float(row["state"] == state))
        yield


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
