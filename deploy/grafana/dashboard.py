"""Writes the Grafana dashboard: `python -m deploy.grafana.dashboard`.

A program generates the dashboard, because each panel repeats the same forty lines of JSON. `ROWS` lists the panels, in
the order in which a person on call needs them: full queues and lag, throughput, connections, readers, faults,
resources, and on Spark's side the mirror and all streams. The format is that of Grafana 10 and newer (schema version
39).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("binlog-dispatcher.json")
WIDTH = 24
HEIGHT = 8
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}

# Selectors of labels; the dashboard's variables give the values.
DAEMON = '{instance=~"$instance"}'
CONNECTION = '{instance=~"$instance",connection=~"$connection"}'
CONSUMER = '{instance=~"$instance",consumer=~"$consumer"}'
MIRROR = '{consumer=~"$consumer"}'
P = "binlog_dispatcher_"
M = "binlog_mirror_"
S = "binlog_stream_"
RATE = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel. `queries`: (PromQL, legend); `limit`: the legend of the query that is drawn as a dashed line; `kind`:
    the panel's type in Grafana."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    limit: str = ""
    kind: str = "timeseries"
    width: int = 8
    maximum: float | None = None
    description: str = ""


def quantile(q: float, metric: str, selector: str, by: str) -> str:
    return f"histogram_quantile({q}, sum by ({by}, le) (rate({P}{metric}_bucket{selector}{RATE})))"


def rate(metric: str, selector: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{selector}{RATE}))"


BY_CONSUMER, BY_CONNECTION, BY_QUERY = "{{consumer}}", "{{connection}}", "{{query}}"

ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    ("Queues and lag", (
        Panel("Queue bytes", ((f"{P}queue_bytes{CONSUMER}", BY_CONSUMER),
                              (f"max({P}queue_limit_bytes{CONSUMER})", "largest limit")),
              "bytes", "largest limit", width=12, description="A full one makes its dispatcher wait."),
        Panel("Lag", ((f"{P}lag_seconds{CONSUMER}", BY_CONSUMER),), "s", width=12,
              description="Age of the oldest transaction that the reader has not acknowledged."),
        Panel("Queue fill", ((f"{P}queue_bytes{CONSUMER} / {P}queue_limit_bytes{CONSUMER}", BY_CONSUMER),),
              "percentunit", kind="bargauge", maximum=1),
        Panel("Behind the server's log", ((f"{P}lag_bytes{CONSUMER}", BY_CONSUMER),), "bytes"),
        Panel("Time until needed binlogs are purged", ((f"{P}runway_seconds{CONSUMER}", BY_CONSUMER),), "s"),
        Panel("State of the consumers", ((f"{P}consumer_state{CONSUMER} == 1", "{{consumer}}: {{state}}"),),
              kind="state-timeline", width=WIDTH, description="A line for each state that a consumer has been in."),
    )),
    ("Throughput", (
        Panel("Received from servers", (
            (rate(f"{P}source_received_bytes_total", CONNECTION, "connection"), BY_CONNECTION),), "Bps"),
        Panel("Events received", ((rate(f"{P}source_events_total", CONNECTION, "connection"), BY_CONNECTION),), "ops"),
        Panel("Into the queues", ((rate(f"{P}consumer_bytes_total", CONSUMER, "consumer"), BY_CONSUMER),), "Bps"),
        Panel("Transactions", ((rate(f"{P}consumer_transactions_total", CONSUMER, "consumer"), BY_CONSUMER),), "ops"),
        Panel("Commit to delivery", (
            (quantile(0.5, "delivery_duration_seconds", CONNECTION, "connection"), "{{connection}} median"),
            (quantile(0.99, "delivery_duration_seconds", CONNECTION, "connection"), "{{connection}} 99 %")), "s"),
        Panel("Receipt to queues", (
            (quantile(0.5, "flush_duration_seconds", CONNECTION, "connection"), "{{connection}} median"),
            (quantile(0.99, "flush_duration_seconds", CONNECTION, "connection"), "{{connection}} 99 %")), "s"),
    )),
    ("Connections", (
        Panel("Reached", ((f"max by (instance, connection) ({P}source_up{CONNECTION})", BY_CONNECTION),),
              kind="state-timeline", width=12, description="1: the last attempt to reach the server succeeded."),
        Panel("Open connections and side dispatchers", (
            (f"{P}source_connections{CONNECTION}", "{{connection}} open"),
            (f"{P}source_side_dispatchers{CONNECTION}", "{{connection}} side")), width=12),
        Panel("Logins and merges", (
            (f"sum by (connection) (increase({P}source_logins_total{CONNECTION}{RATE}))", "{{connection}} logins"),
            (f"sum by (connection) (increase({P}source_merges_total{CONNECTION}{RATE}))", "{{connection}} merges"))),
        Panel("Faults by kind", (
            (f"sum by (connection, kind) (increase({P}source_connection_faults_total{CONNECTION}{RATE}))",
             "{{connection}} {{kind}}"),)),
        Panel("Age of the newest event", (
            (f"time() - ({P}source_last_event_timestamp_seconds{CONNECTION} > 0)", "{{dispatcher}}"),), "s"),
        Panel("MQTT broker", ((f"{P}mqtt_connected{DAEMON}", "{{instance}}"),), kind="state-timeline",
              description="1: connected to the broker; without one there is no line."),
        Panel("Webhook", ((f"{P}webhook_up{DAEMON}", "{{instance}}"),), kind="state-timeline",
              description="1: the receiver has accepted the last event; without a webhook there is no line."),
        Panel("Leader", ((f"{P}leader{DAEMON}", "{{instance}}"),), kind="state-timeline",
              description="1: the daemon leads, 0: it stands by; with the state in a file there is no line."),
    )),
    ("Readers", (
        Panel("Reader of each consumer", ((f"{P}consumer_reader{CONSUMER} == 1", "{{consumer}}: {{reader}}"),),
              kind="state-timeline", width=16, description="A line for each state that a reader has been in."),
        Panel("Delivered", ((rate(f"{P}consumer_delivered_bytes_total", CONSUMER, "consumer"), BY_CONSUMER),), "Bps"),
        Panel("Acknowledged transactions", ((f"deriv({P}consumer_acknowledged_seq{CONSUMER}{RATE})", BY_CONSUMER),),
              "ops"),
        Panel("Not acknowledged", ((f"{P}unacknowledged_bytes{CONSUMER}", BY_CONSUMER),), "bytes"),
        Panel("Requests", ((rate(f"{P}http_request_duration_seconds_count", DAEMON, "route, status"),
                            "{{route}} {{status}}"),), "reqps"),
    )),
    ("Faults", (
        Panel("Errors of consumers", ((f"{P}consumer_error{CONSUMER} == 1", "{{consumer}}: {{kind}}"),),
              kind="state-timeline", width=WIDTH, description="A line for each kind of error that a consumer has had."),
        Panel("Detaches and gaps", (
            (f"increase({P}consumer_detaches_total{CONSUMER}{RATE})", "{{consumer}} detached"),
            (f"increase({P}consumer_gaps_total{CONSUMER}{RATE})", "{{consumer}} gap"))),
        Panel("Others waited for", ((rate(f"{P}consumer_waited_seconds_total", CONSUMER, "consumer"), BY_CONSUMER),),
              "percentunit", description="Share of the time for which others waited for this queue."),
        Panel("Errors of the API and the state store", (
            (rate(f"{P}http_request_duration_seconds_count", '{instance=~"$instance",status=~"4xx|5xx|aborted"}',
                  "route, status"), "{{route}} {{status}}"),
            (f"rate({P}state_store_errors_total{DAEMON}{RATE})", "state store")), "ops"),
    )),
    ("Resources", (
        Panel("Memory", (
            ('process_resident_memory_bytes{job="binlog-dispatcher",instance=~"$instance"}', "{{instance}} used"),
            (f"sum by (instance) ({P}queue_limit_bytes{DAEMON})", "{{instance}} limits of all queues"),
            (f"{P}memory_limit_bytes{DAEMON}", "limit")), "bytes", "limit"),
        Panel("Processors", (
            (f'rate(process_cpu_seconds_total{{job="binlog-dispatcher",instance=~"$instance"}}{RATE})',
             "{{instance}}"),), "percentunit"),
        Panel("Event loop and state store, 99 %", (
            (quantile(0.99, "event_loop_lag_seconds", DAEMON, "instance"), "{{instance}} loop lag"),
            (quantile(0.99, "state_store_commit_duration_seconds", DAEMON, "instance"), "{{instance}} commit")), "s"),
        Panel("Disk", (
            (f"{P}state_store_bytes{DAEMON}", "{{instance}} state"), (f"{P}spill_bytes{DAEMON}", "{{instance}} spill"),
            (f"{P}state_store_free_bytes{DAEMON}", "{{instance}} free"),
            (f"{P}spill_limit_bytes{DAEMON}", "limit of spill")), "bytes", "limit of spill"),
        Panel("Open files", (
            ('process_open_fds{job="binlog-dispatcher",instance=~"$instance"}', "{{instance}}"),
            ('process_max_fds{job="binlog-dispatcher",instance=~"$instance"}', "limit")), limit="limit"),
        Panel("Versions", ((f"{P}build_info{DAEMON}", "{{instance}}: {{version}}"),), kind="stat"),
    )),
    ("Mirror", (
        Panel("Behind the log", ((f"{M}lag_seconds{MIRROR}", BY_CONSUMER),), "s"),
        Panel("Applied rows", ((rate(f"{M}applied_rows_total", MIRROR, "consumer"), BY_CONSUMER),), "rowsps"),
        Panel("Tables by state", ((f"sum by (state) ({M}tables{MIRROR}) > 0", "{{state}}"),)),
        Panel("Steps and failures", (
            (rate(f"{M}steps_total", MIRROR, "consumer"), "{{consumer}} steps"),
            (rate(f"{M}failures_total", MIRROR, "consumer"), "{{consumer}} failures")), "ops"),
        Panel("Waiting entries of the log", ((f"{M}waiting_entries{MIRROR}", BY_CONSUMER),)),
        Panel("Copies", ((f"{M}copy_rows{MIRROR} / ({M}copy_rows_estimated{MIRROR} > 0)", "{{table}}"),),
              "percentunit", maximum=1),
        Panel("Stages", ((f"{M}stage_up{MIRROR}", "{{consumer}}: {{stage}}"),), kind="state-timeline",
              description="1: works; 0: has failed, or waits to be tried again."),
        Panel("Time of steps", ((rate(f"{M}table_phase_seconds_total", MIRROR, "phase"), "{{phase}}"),), "s",
              description="Seconds a second, of all tables: reading the log, planning, writing files, commits."),
        Panel("Tables that take most time", (
            (f"topk(10, {rate(f'{M}table_phase_seconds_total', MIRROR, 'table')})", "{{table}}"),), "s"),
        Panel("Stopped tables", ((f"time() - {M}stopped_timestamp_seconds{MIRROR}", "{{table}}"),), "s"),
        Panel("Tables whose steps fail", ((f"{M}failing_tables{MIRROR}", BY_CONSUMER),)),
        Panel("Age of proofs", ((f"topk(10, {M}proof_age_seconds{MIRROR})", "{{table}}"),), "s",
              description="Time since the last comparison of the whole table that found no difference."),
        Panel("Tables that differ, or are not proved", (
            (f"{M}differing_tables{MIRROR}", "{{consumer}}: differ"),
            (f"{M}unproved_tables{MIRROR}", "{{consumer}}: not proved"))),
        Panel("Rows compared with the server, and repaired", (
            (rate(f"{M}proof_rows_total", MIRROR, "consumer"), "{{consumer}}: compared"),
            (rate(f"{M}repaired_rows_total", MIRROR, "consumer"), "{{consumer}}: repaired")), "rowsps"),
    )),
    ("Spark streams", (
        Panel("Streams behind", ((f"{S}lag_seconds{MIRROR}", BY_QUERY),), "s",
              description="Age of the first transaction behind the newest batch."),
        Panel("Transactions behind", ((f"{S}lag_transactions{MIRROR}", BY_QUERY),)),
        Panel("Bytes behind", ((f"{S}lag_bytes{MIRROR}", BY_QUERY),), "bytes"),
        Panel("Rows of streams", ((rate(f"{S}rows_total", MIRROR, "query"), BY_QUERY),), "rowsps"),
        Panel("Transactions of streams", ((rate(f"{S}transactions_total", MIRROR, "query"), BY_QUERY),), "ops"),
        Panel("Bytes of streams", ((rate(f"{S}bytes_total", MIRROR, "query"), BY_QUERY),), "Bps"),
        Panel("Time of batches by phase", (
            (rate(f"{S}phase_seconds_total", MIRROR, "query, phase"), "{{query}}: {{phase}}"),), "s"),
        Panel("Batches", ((rate(f"{S}batches_total", MIRROR, "query"), BY_QUERY),), "ops"),
        Panel("Time of the newest batch", ((f"{S}last_batch_seconds{MIRROR}", BY_QUERY),), "s"),
    )),
)  # fmt: skip


def queries() -> Iterator[str]:
    """Yields each query of the dashboard, with variables such as `$instance` in it."""
    for _, panels in ROWS:
        for panel in panels:
            for expression, _ in panel.queries:
                yield expression


def dashboard() -> dict[str, Any]:
    return {
        "uid": "binlog-dispatcher",
        "title": "binlog-dispatcher",
        "description": "Queues, lag, throughput, connections, readers, faults and resources; written by a program.",
        "tags": ["binlog-dispatcher", "mysql"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(_variables())},
        "annotations": {"list": [_alerts()]},
        "panels": list(_panels()),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
    }
    for name, metric in (
        ("instance", f"{P}build_info"),
        ("connection", f'{P}source_connections{{instance=~"$instance"}}'),
        ("consumer", f'{P}queue_bytes{{instance=~"$instance"}}'),
    ):
        query = f"label_values({metric}, {name})"
        yield {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": _SOURCE,
            "definition": query,
            "query": {"query": query, "refId": name},
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "refresh": 2,
            "sort": 1,
            "current": {"text": ["All"], "value": ["$__all"]},
        }


def _alerts() -> dict[str, Any]:
    return {
        "name": "Alerts",
        "datasource": _SOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'ALERTS{alertname=~"Binlog.*",alertstate="firing"}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{consumer}} {{connection}}",
        "step": "60s",
    }


def _panels() -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for title, panels in ROWS:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
            "panels": [],
        }
        y += 1
        x = 0
        for panel in panels:
            number += 1
            if x + panel.width > WIDTH:
                x, y = 0, y + HEIGHT
            place = {"x": x, "y": y, "w": panel.width, "h": HEIGHT}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            x += panel.width
        y += HEIGHT


def _panel(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    if panel.kind == "timeseries":
        defaults["custom"] = {"fillOpacity": 8, "lineWidth": 1, "showPoints": "never"}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": _limit(panel.limit)},
        "options": _options(panel.kind),
        "targets": [
            {
                "refId": chr(ord("A") + n),
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend,
                "range": panel.kind != "bargauge",
                "instant": panel.kind == "bargauge",
            }
            for n, (expression, legend) in enumerate(panel.queries)
        ],
    }


def _limit(legend: str) -> Sequence[dict[str, Any]]:
    if not legend:
        return []
    dashed = [
        {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 8]}},
        {"id": "custom.fillOpacity", "value": 0},
        {"id": "color", "value": {"mode": "fixed", "fixedColor": "red"}},
    ]
    return [{"matcher": {"id": "byName", "options": legend}, "properties": dashed}]


def _options(kind: str) -> dict[str, Any]:
    last = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    match kind:
        case "timeseries":
            legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
            return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
        case "bargauge":
            return {"displayMode": "lcd", "orientation": "horizontal", "reduceOptions": last}
        case "state-timeline":
            return {"mergeValues": True, "showValue": "never", "rowHeight": 0.8}
        case _:
            return {"reduceOptions": last, "textMode": "name", "colorMode": "none"}


def text() -> str:
    """The file's content."""
    return json.dumps(dashboard(), indent=1) + "\n"


def main() -> None:
    PATH.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
