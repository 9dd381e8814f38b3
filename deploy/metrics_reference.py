"""Writes docs/metrics.md from the metrics that the code declares: `python -m deploy.metrics_reference`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from prometheus_client import Metric

from dispatcher.telemetry import metrics
from dispatcher.telemetry.exposition import GAUGE, kind_of
from spark_sink.mirror.metrics import MirrorCollector
from spark_sink.mirror.runtime.progress import ConsumerProgress
from spark_sink.source.listener import BinlogListener, StreamCollector

PATH = Path(__file__).parents[1] / "docs/metrics.md"


class Documented(NamedTuple):
    """A metric of the reference. `name` contains the prefix."""

    name: str
    type: str
    labels: tuple[str, ...]
    meaning: str


def of_daemon() -> Iterator[Documented]:
    """The daemon's metrics, those of connections first."""
    for labels, specs in (
        (("connection",), metrics.CONNECTION_METRICS),
        (("connection", "dispatcher"), metrics.DISPATCHER_METRICS),
        (("consumer",), metrics.CONSUMER_METRICS),
    ):
        for spec in specs:
            yield Documented(metrics.PREFIX + spec.name, kind_of(spec.name), labels, spec.meaning)
    state = metrics.PREFIX + metrics.STATE_METRIC
    yield Documented(state, GAUGE, ("consumer", "state"), metrics.STATE_MEANING)
    reader = metrics.PREFIX + metrics.READER_METRIC
    yield Documented(reader, GAUGE, ("consumer", "reader"), metrics.READER_MEANING)
    error = metrics.PREFIX + metrics.ERROR_METRIC
    yield Documented(error, GAUGE, ("consumer", "kind"), metrics.ERROR_MEANING)
    for timed in metrics.TIMED:
        yield Documented(metrics.PREFIX + timed.name, timed.type, timed.labels, timed.meaning)


def of_mirror() -> Iterator[Documented]:
    """The mirror's metrics."""
    yield from map(_documented, MirrorCollector(lambda: [ConsumerProgress("shop")]).collect())


def of_streams() -> Iterator[Documented]:
    """The metrics of a `BinlogListener`."""
    yield from map(_documented, StreamCollector(BinlogListener()).collect())


def _documented(family: Metric) -> Documented:
    name = family.name + ("_total" if family.type == "counter" else "")
    labels: tuple[str, ...] = getattr(family, "_labelnames", ())  # set even without samples
    return Documented(name, family.type, labels, family.documentation)


def _table(rows: Iterator[Documented]) -> str:
    lines = ["| metric | type | labels | means |", "|---|---|---|---|"]
    lines += [
        f"| `{row.name}` | {row.type} | {', '.join(row.labels)} | {row.meaning.removesuffix('.')} |"
        for row in rows
    ]
    return "\n".join(lines)


def text() -> str:
    """The complete document."""
    return f"""# Metrics

`python -m deploy.metrics_reference` writes this page from the code. [operating.md](operating.md) describes how to run
the daemon, [runbooks.md](runbooks.md) what to do about each alert. How to collect and show the metrics:

* **Prometheus**: `prometheus --config.file=deploy/prometheus/prometheus.yaml` scrapes a daemon at `127.0.0.1:8085` and
  loads the alert rules beside it. If you run Prometheus already, copy the file's `scrape_configs` into its settings,
  and name `deploy/prometheus/alerts.yaml` in `rule_files`. The rules expect the job names `binlog-dispatcher` and, if
  the mirror runs, `binlog-mirror`. The file has the second job as a comment, because an alert fires while Prometheus
  cannot reach it.
* **Grafana**: Dashboards, New, Import, and choose `deploy/grafana/binlog-dispatcher.json`. With
  `deploy/grafana/provisioning` Grafana loads this dashboard when it starts. [compose.yaml](../deploy/compose.yaml) runs
  Prometheus and Grafana with these files.
* **Kubernetes**: the chart makes the objects ([kubernetes.md](kubernetes.md)).

## The daemon

`GET /metrics` returns Prometheus text. If the daemon has tokens, the request needs one with the scope `metrics`
([http-api.md](http-api.md#tokens-and-scopes)), unless `api.open` names `metrics`.

`connection` is `user@host:port`; if clients have the same name but cannot share a connection, their values are added.
`dispatcher` is `<first consumer>:<number>`, as `dispatcher_name` of `GET /v1/binlogs`. `kind` is a kind of error, as in
the API's problem documents. `route` is the template of a route, such as `/v1/consumers/{{consumer}}/poll`, or
`unmatched`; `status` is `2xx` to `5xx`, or `aborted` if the client disconnected before there was an answer.

The number of series is bounded by the numbers of connections, dispatchers and consumers: no label holds the name of a
table, a GTID or a path. The series of a connection, a dispatcher or a consumer end with it.

{_table(of_daemon())}

The metrics `process_*` of the Prometheus client describe the process: resident memory, CPU time, open files, start.

## The mirror

The mirror job serves its metrics at the address of its setting `metrics` ([spark.md](spark.md#the-mirror)), and with
them the metrics of its [streams](#streams), whose `query` is the consumer. The series of a copy end with the copy, the
series of a stopped table when the table continues. The first 200 tables that have a step get series of their own; the
steps of all others are counted together, as `table=""`.

{_table(of_mirror())}

## Streams

A `BinlogListener` reports what the queries of a session read from the source
([spark.md](spark.md#watching-a-stream)). `query` is the name of a query, else its id; `phase` is a name of Spark's
`durationMs`. The series of a query end when it is stopped. If it has failed, they stay until it is started again.

{_table(of_streams())}
"""


def main() -> None:
    PATH.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
