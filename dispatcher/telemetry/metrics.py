"""Every metric of the daemon, with its meaning. Prometheus text; prefix `binlog_dispatcher_`; base
units.

Values are not kept here: each scrape reads the state of the clients and the rows of `GET
/v1/binlogs`, so a metric cannot disagree with the page, and what is not scraped costs nothing.
Labels: `connection` (user@host:port, never a password) with `dispatcher` (several connections may
have one key), and `consumer`. No label grows with the data: no tables, no GTIDs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from dispatcher.dispatch.client import Client, Consumer, Phase

PREFIX = "binlog_dispatcher_"
STATES = ("idle", "connecting", "streaming", "paused", "closed", "ended", "failed")

Row = dict[str, Any]  # of GET /v1/binlogs


@dataclass(frozen=True, slots=True)
class OfConnection:
    """A metric of one replication connection. `name` without prefix; counters end in `_total`."""

    name: str
    meaning: str
    read: Callable[[Client], float]


@dataclass(frozen=True, slots=True)
class OfConsumer:
    """A metric of one consumer; `read` may return None for what is not known yet."""

    name: str
    meaning: str
    read: Callable[[Row, Consumer], float | None]


CONNECTION_METRICS = (
    OfConnection(
        "source_up",
        "1 if the newest attempt to reach the server went well.",
        lambda client: client.error is None and client.phase is not Phase.CONNECTING,
    ),
    OfConnection(
        "source_connections",
        "Replication connections that are open now.",
        lambda client: client.phase in (Phase.STREAMING, Phase.PAUSED),
    ),
    OfConnection(
        "source_paused",
        "1 while a full queue keeps the connection from being read, be it open or closed for it.",
        lambda client: client.phase in (Phase.PAUSED, Phase.ROOMLESS),
    ),
    OfConnection(
        "source_received_bytes_total",
        "Bytes of binlog events received.",
        lambda client: client.bytes,
    ),
    OfConnection("source_events_total", "Binlog events received.", lambda client: client.events),
    OfConnection(
        "source_reconnects_total",
        "Connections that were lost while they streamed.",
        lambda client: client.reconnects,
    ),
    OfConnection(
        "source_last_event_timestamp_seconds",
        "When the newest event that was received was written, by the server's clock; 0: none yet.",
        lambda client: client.last_timestamp,
    ),
)

CONSUMER_METRICS = (
    OfConsumer("queue_bytes", "Memory that the queue holds.", lambda row, _: row["bytes"]),
    OfConsumer(
        "queue_limit_bytes",
        "max_bytes_in_binlog_queue; a larger single transaction is admitted all the same.",
        lambda row, _: row["max_bytes"],
    ),
    OfConsumer(
        "queue_events", "Events in the queue, not acknowledged.", lambda row, _: row["size"]
    ),
    OfConsumer(
        "unacknowledged_bytes",
        "Bytes queued for the reader and not acknowledged by it.",
        lambda row, _: row["unacknowledged_bytes"],
    ),
    OfConsumer(
        "lag_seconds",
        "Age of the oldest transaction that is not acknowledged; 0: the reader has all of them.",
        lambda row, _: row["lag_seconds"],
    ),
    OfConsumer(
        "consumer_bytes_total",
        "Bytes put into the queue: what the consumer's databases cost it.",
        lambda _, consumer: consumer.queue.taken_bytes,
    ),
    OfConsumer(
        "consumer_transactions_total",
        "Transactions put into the queue.",
        lambda _, consumer: consumer.queue.taken_transactions,
    ),
    OfConsumer(
        "consumer_acknowledged_seq",
        "seq of the acknowledged position; grows by one with each transaction where there are GTIDs.",
        lambda row, _: row["acknowledged"]["seq"] if row["acknowledged"] else None,
    ),
)
STATE_METRIC = "consumer_state"
STATE_MEANING = f"1 for the state that the consumer is in, of {', '.join(STATES)}."


class Metrics(Collector):
    """The daemon's metrics, collected when they are asked for.

    `rows`: those of GET /v1/binlogs, as they are now; `clients`: all clients, whose consumers the
    rows are about.
    """

    def __init__(
        self,
        version: str,
        rows: Callable[[], Sequence[Row]],
        clients: Callable[[], Sequence[Client]],
    ) -> None:
        self._version = version
        self._rows = rows
        self._clients = clients
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        # Resident memory, CPU time, open files of the process.
        ProcessCollector(registry=self._registry)

    def render(self) -> tuple[bytes, str]:
        """The answer to a scrape, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily(
            PREFIX + "build", "Version of the daemon.", value={"version": self._version}
        )
        clients = self._clients()
        yield from _of_connections(clients)
        yield from _of_consumers(self._rows(), clients)


def _of_connections(clients: Iterable[Client]) -> Iterator[Metric]:
    labels = ("connection", "dispatcher")
    named = [((client.label, _dispatcher(client)), client) for client in clients]
    for metric in CONNECTION_METRICS:
        family = _family(metric.name, metric.meaning, labels)
        for values, client in named:
            family.add_metric(values, float(metric.read(client)))
        yield family


def _of_consumers(rows: Sequence[Row], clients: Iterable[Client]) -> Iterator[Metric]:
    consumers = {name: c for client in clients for name, c in client.consumers.items()}
    for metric in CONSUMER_METRICS:
        family = _family(metric.name, metric.meaning, ("consumer",))
        for row in rows:
            value = metric.read(row, consumers[row["name"]])
            if value is not None:
                family.add_metric((row["name"],), float(value))
        yield family
    states = GaugeMetricFamily(PREFIX + STATE_METRIC, STATE_MEANING, labels=("consumer", "state"))
    for row in rows:
        for state in STATES:
            states.add_metric((row["name"], state), float(row["state"] == state))
    yield states


def _dispatcher(client: Client) -> str:
    """As `dispatcher_name` of GET /v1/binlogs."""
    return f"{next(iter(client.consumers))}:1"


def _family(
    name: str, meaning: str, labels: Sequence[str]
) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    return kind(PREFIX + name, meaning, labels=labels)
