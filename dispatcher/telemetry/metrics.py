"""The daemon's metrics in Prometheus text format, with the prefix `binlog_dispatcher_` and base units.

Each scrape reads its values from the clients and from the rows of GET /v1/binlogs, so metrics agree with these rows and
cost nothing between scrapes. Labels: `connection` (user@host:port, no password), `connection` with `dispatcher`
(`dispatcher_name` of GET /v1/binlogs), or `consumer`. No label depends on the data: no tables, no GTIDs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from dispatcher.dispatch.client import Client
from dispatcher.dispatch.consumer import Consumer
from dispatcher.dispatch.dispatcher import Dispatcher, Phase
from dispatcher.dispatch.status import STATES, dispatcher_name

PREFIX = "binlog_dispatcher_"

StatusRow = dict[str, Any]  # of GET /v1/binlogs
S = TypeVar("S")


class ConsumerStatus(NamedTuple):
    """What the metrics of a consumer are read from."""

    row: StatusRow
    consumer: Consumer


@dataclass(frozen=True, slots=True)
class MetricSpec(Generic[S]):
    """A metric and how to read it; None = not known yet. `name` has no prefix; counters end in `_total`."""

    name: str
    meaning: str
    read: Callable[[S], float | None]


# Several clients can have the same connection key; their values are added.
CONNECTION_METRICS: tuple[MetricSpec[Client], ...] = (
    MetricSpec("source_connections", "Open replication connections.",
               lambda client: sum(d.open for d in client.dispatchers.values())),
    MetricSpec("source_side_dispatchers",
               "Dispatchers of each client besides the one furthest ahead; 0: all have caught up.",
               lambda client: max(0, len(client.dispatchers) - 1)),
    MetricSpec("source_merges_total", "Dispatchers merged into another one.", lambda client: client.merges),
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
    MetricSpec("lag_seconds", "Age of the oldest unacknowledged transaction; 0: all are acknowledged.",
               lambda c: c.row["lag_seconds"]),
    MetricSpec("consumer_bytes_total", "Bytes added to the queue.", lambda c: c.consumer.queue.pushed_bytes),
    MetricSpec("consumer_transactions_total", "Transactions added to the queue.",
               lambda c: c.consumer.queue.pushed_transactions),
    MetricSpec("consumer_acknowledged_seq",
               "seq of the acknowledged position; with GTIDs it grows by one per transaction.",
               lambda c: c.row["acknowledged"]["seq"] if c.row["acknowledged"] else None),
    MetricSpec("runway_seconds",
               "Time until the server purges the oldest binlog that the consumer needs; no sample: unknown or never.",
               lambda c: c.row["runway_seconds"]),
    MetricSpec("spilled_bytes", "Unacknowledged bytes on disk, of transactions that are larger than the queue.",
               lambda c: c.row["spilled_bytes"]),
    MetricSpec("consumer_waited_seconds_total",
               "Time for which the other consumers of its dispatcher have waited for space in its queue.",
               lambda c: c.consumer.wait_budget.waited_s),
    MetricSpec("consumer_detaches_total", "Times that the consumer was detached because its queue stayed full.",
               lambda c: c.row["detaches"]),
    MetricSpec("consumer_gaps_total", "Times that the consumer skipped purged transactions (on_purged: latest).",
               lambda c: c.row["gaps"]),
)  # fmt: skip
STATE_METRIC = "consumer_state"
STATE_MEANING = f"1 for the current state of the consumer: {', '.join(STATES)}."


class Family:
    """The samples of one metric as lines of Prometheus text.

    The lines are formatted directly, without the library's sample objects: a thousand consumers have about 30,000
    samples, and the objects take half a second of the loop's thread, the lines a tenth of that.
    """

    def __init__(self, name: str, meaning: str, labels: Sequence[str]) -> None:
        """`name` without prefix; counters end in `_total`."""
        name = PREFIX + name
        kind = "counter" if name.endswith("_total") else "gauge"
        self.lines = [f"# HELP {name} {_escaped(meaning)}\n# TYPE {name} {kind}\n"]
        self._template = "%s{%s} %%s\n" % (name, ",".join(f'{label}="%s"' for label in labels))  # noqa: UP031

    def add(self, values: tuple[str, ...], value: float) -> None:
        """`values`: the escaped values of the labels."""
        self.lines.append(self._template % (*values, floatToGoString(value)))  # type: ignore[no-untyped-call]


class Snapshot:
    """The samples of one scrape."""

    def __init__(self) -> None:
        self.families: list[Family] = []

    def family(self, name: str, meaning: str, labels: Sequence[str]) -> Family:
        family = Family(name, meaning, labels)
        self.families.append(family)
        return family


class Metrics:
    """Collects and renders the metrics. `rows` iterates over the rows of GET /v1/binlogs with their consumers."""

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
        # Memory, CPU time and open files of the process.
        ProcessCollector(registry=self._registry)

    def fill(self, snapshot: Snapshot) -> Iterator[None]:
        """Collect all samples in small steps, between which the caller can do other work.

        The samples of one consumer, and of one dispatcher, are consistent.
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
            values[n] += metric.read(client) or 0.0
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
            values = _escaped(client.label), _escaped(dispatcher_name(client, dispatcher))
            for metric, family in zip(DISPATCHER_METRICS, families, strict=True):
                family.add(values, float(metric.read(dispatcher) or 0))
            yield


def _of_consumers(rows: Iterable[tuple[StatusRow, Consumer]], snapshot: Snapshot) -> Iterator[None]:
    families = [snapshot.family(m.name, m.meaning, ("consumer",)) for m in CONSUMER_METRICS]
    states = snapshot.family(STATE_METRIC, STATE_MEANING, ("consumer", "state"))
    for row, consumer in rows:
        name = _escaped(row["name"])
        for metric, family in zip(CONSUMER_METRICS, families, strict=True):
            value = metric.read(ConsumerStatus(row, consumer))
            if value is not None:
                family.add((name,), float(value))
        for state in STATES:
            states.add((name, state), float(row["state"] == state))
        yield


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
