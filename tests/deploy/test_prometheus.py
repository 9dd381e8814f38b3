"""Alerts and dashboard, with a real Prometheus that scrapes a real daemon under load, and the metrics text of a
mirror."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from deploy.grafana import dashboard
from deploy.metrics_reference import of_daemon, of_mirror, of_streams
from spark_sink.metrics_server import serve_metrics
from spark_sink.mirror.copy.progress import CopyProgress
from spark_sink.mirror.metrics import MirrorCollector
from spark_sink.mirror.rules.states import TableState
from spark_sink.mirror.runtime.progress import ConsumerProgress, TableSteps
from spark_sink.source.listener import BinlogListener, StreamCollector
from tests.daemon.harness import PASSWORD, Daemon, Problem, Reader, until
from tests.daemon.scene import consumer_settings
from tests.servers.plugin import ServerFactory
from tests.servers.ports import free_port
from tests.support.prometheus import Prometheus, promtool, running
from tests.support.stream_reports import progress_report, query_reported

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus/alerts.yaml"
# Metrics without samples in this test: the control group has no limit, the daemon has no broker and no webhook, and its
# state is in a file.
MAY_BE_EMPTY = (
    "binlog_dispatcher_memory_limit_bytes",
    "binlog_dispatcher_mqtt_connected",
    "binlog_dispatcher_webhook_up",
    "binlog_dispatcher_leader",
    "binlog_mirror_proof",
    "binlog_mirror_differing_tables",
    "binlog_mirror_unproved_tables",
)


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_bytes())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> list[str]:
    """The queries of the dashboard, with their variables replaced."""
    every = re.compile(r"\$(instance|connection|consumer)")
    return [
        every.sub(".*", expression).replace("$__rate_interval", "10s")
        for expression in dashboard.queries()
    ]


def test_the_rules_pass_their_unit_tests() -> None:
    folder = DEPLOY / "prometheus"
    assert f"{len(rules())} rules found" in promtool("check", "rules", str(ALERTS))
    promtool("check", "config", str(folder / "prometheus.yaml"))
    assert "SUCCESS" in promtool("test", "rules", str(folder / "alerts_test.yaml"))


def test_the_mirror_s_job_is_for_those_who_have_a_mirror(tmp_path: Path) -> None:
    """The scrape job of the mirror is only for users with a mirror, because BinlogMirrorAbsent fires for a job that
    Prometheus cannot reach."""
    text = (DEPLOY / "prometheus/prometheus.yaml").read_text(encoding="utf-8")
    jobs = [job["job_name"] for job in yaml.safe_load(text)["scrape_configs"]]
    assert jobs == ["binlog-dispatcher"]
    file = tmp_path / "prometheus.yaml"
    file.write_text(re.sub(r"^  # ((?:- job_name|  static).*)", r"  \1", text, flags=re.MULTILINE))
    shutil.copy(ALERTS, tmp_path)
    promtool("check", "config", str(file))
    jobs = [job["job_name"] for job in yaml.safe_load(file.read_bytes())["scrape_configs"]]
    assert jobs == ["binlog-dispatcher", "binlog-mirror"]


def test_the_handbook_names_panels_of_the_dashboard() -> None:
    text = (DEPLOY.parent / "docs/operating.md").read_text(encoding="utf-8")
    symptoms = text.split("\n### ")[0].split("on the dashboard; alert", 1)[1]
    named = set(re.findall(r'"([A-Z][^"]+)"', symptoms))
    titles = {panel.title for _, panels in dashboard.ROWS for panel in panels}
    assert len(named) > 5 and named <= titles


def test_every_alert_has_a_unit_test() -> None:
    text = (DEPLOY / "prometheus/alerts_test.yaml").read_text(encoding="utf-8")
    assert [rule["alert"] for rule in rules() if rule["alert"] not in text] == []


def test_every_alert_says_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}


def test_every_metric_that_is_asked_for_exists() -> None:
    known = {metric.name for metric in (*of_daemon(), *of_mirror(), *of_streams())}
    known |= {f"{name}_{part}" for name in known for part in ("bucket", "count", "sum")}
    asked = " ".join([*dashboard.queries(), *(rule["expr"] for rule in rules())])
    assert set(re.findall(r"\bbinlog_(?:dispatcher|mirror|stream)_\w+", asked)) <= known


def test_the_dashboard_is_what_its_program_writes() -> None:
    """If this test fails after a change of the program, run `python -m deploy.grafana.dashboard`."""
    assert dashboard.PATH.read_text(encoding="utf-8") == dashboard.text()


def test_the_panels_lie_beside_each_other() -> None:
    document = dashboard.dashboard()
    numbers = [panel["id"] for panel in document["panels"]]
    assert len(numbers) == len(set(numbers))
    taken: set[tuple[int, int]] = set()
    for panel in document["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= dashboard.WIDTH
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@dataclass
class Watched:
    prometheus: Prometheus
    daemon: Daemon
    mirror: str


def mirror_progress() -> list[ConsumerProgress]:
    copy = CopyProgress(
        "d.t", rows=5, rows_estimated=10, bytes=500, chunks=1, seconds=3.0, rest_s=3.0
    )
    now = time.time()
    return [
        ConsumerProgress(
            "d", logged_seq=7, applied_seq=5, logged_at=now, applied_at=now - 60, rows=3, steps=2,
            tables={TableState.COMPLETE: 2}, copies=(copy,),
            stopped={"d.bad": now}, stepped={"d.t": TableSteps(2, 3)},
        )
    ]  # fmt: skip


@pytest.fixture(scope="module")
def watched(
    module_server_factory: ServerFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    """A daemon with three consumers: a reader reads `d` while rows are written, `beside` has no reader, and `refused`
    cannot log in."""
    server = module_server_factory("mysql97")
    settings = consumer_settings(server)
    refused = settings | {"mysql": f"unknown@{server.host}:{server.port}"}
    consumers = {"d": settings, "beside": settings, "refused": refused}
    daemon = Daemon(tmp_path_factory.mktemp("daemon"), {"consumers": consumers})
    folder, port, mirror_port = tmp_path_factory.mktemp("prometheus"), free_port(), free_port()
    targets = {"binlog-dispatcher": daemon.port, "binlog-mirror": mirror_port}
    configuration = {
        "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{at}"]}]}
            for job, at in targets.items()
        ],
    }
    with ExitStack() as stack:
        stack.callback(daemon.close)
        daemon.start()
        listener = BinlogListener()
        query_reported(listener, progress_report())
        collectors = (
            MirrorCollector(mirror_progress, lambda: [("d", True)]),
            StreamCollector(listener),
        )
        mirror = serve_metrics("127.0.0.1", mirror_port, *collectors)
        stack.callback(mirror.server_close)
        stack.callback(mirror.shutdown)
        prometheus = stack.enter_context(running(folder, port, configuration))
        over = threading.Event()

        def load() -> None:
            reader = Reader(daemon, "d").open()
            while not over.is_set():
                server.execute("INSERT INTO d.t VALUES ()")
                reader.step(wait_ms=100)
                with pytest.raises(Problem):
                    daemon.api.call("unknown", "ack")

        thread = threading.Thread(target=load)
        thread.start()
        stack.callback(thread.join)
        stack.callback(over.set)
        until(lambda: set(prometheus.targets().values()) == {"up"}, "both jobs are up")
        yield Watched(prometheus, daemon, f"http://127.0.0.1:{mirror_port}/metrics")


def test_every_query_of_the_dashboard_returns_data(watched: Watched) -> None:
    waiting = expressions()

    def all_answered() -> bool:
        # Prometheus returns an error for an invalid query, and the error ends the wait.
        waiting[:] = [one for one in waiting if not watched.prometheus.query(one)]
        return all(any(name in one for name in MAY_BE_EMPTY) for one in waiting)

    try:
        until(all_answered, "every query returns data")
    except AssertionError as late:
        raise AssertionError(f"without data: {waiting}") from late


def test_the_alerts_are_evaluated(watched: Watched) -> None:
    def states() -> dict[str, str]:
        groups = watched.prometheus.get("rules")["groups"]
        loaded = [rule for group in groups for rule in group["rules"]]
        assert len(loaded) == len(rules())
        assert [rule["lastError"] for rule in loaded if rule["health"] == "err"] == []
        return {rule["name"]: rule["state"] for rule in loaded}

    def expected() -> bool:
        seen = states()
        assert "firing" not in seen.values(), seen
        # `refused` cannot log in, so these alerts are pending; they fire after some minutes.
        return seen["BinlogConnectionDown"] == seen["BinlogConsumerFailed"] == "pending"

    until(expected, "the alerts of the consumer that cannot log in are pending")


def test_promtool_finds_no_fault_with_the_metrics(watched: Watched) -> None:
    assert promtool("check", "metrics", text=watched.daemon.api.text("/metrics")) == ""
    with urlopen(watched.mirror) as answer:
        text = answer.read().decode()
    # The Python client exports the time at which a counter began as a separate series.
    lines = [line for line in text.splitlines(keepends=True) if "_created" not in line]
    assert promtool("check", "metrics", text="".join(lines)) == ""
    assert PASSWORD not in watched.daemon.api.text("/metrics")


def test_every_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    text = (DEPLOY.parent / "docs/runbooks.md").read_text(encoding="utf-8")
    sections = {
        f"docs/runbooks.md#{title.lower()}"
        for title in re.findall(r"^## (\w+)$", text, re.MULTILINE)
    }
    assert {rule["annotations"]["runbook_url"] for rule in rules()} == sections
    for rule in rules():
        assert rule["alert"] in text, f"{rule['alert']} is in no section"
    for section in text.split("\n## ")[1:]:
        assert [f"**{part}.**" in section for part in ("Means", "Look", "Do")] == [True] * 3
