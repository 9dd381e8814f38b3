"""Follows the runbooks: a fault makes the condition of its alert true in a real Prometheus, and the runbook's remedy
makes it false.

alerts_test.yaml tests rates and waiting times (`for`); these tests evaluate the expressions with a real daemon and
server.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dispatcher.cli import app
from tests.daemon.conftest import MakeDaemon, MakePair, Source
from tests.daemon.harness import Daemon, Reader, until
from tests.daemon.pair import Pair
from tests.deploy.test_prometheus import rules
from tests.servers import Instance
from tests.servers.plugin import ServerFactory
from tests.servers.ports import free_port
from tests.support.prometheus import Prometheus, running

pytestmark = [pytest.mark.deep, pytest.mark.timeout(600)]

KIB = 1 << 10


@pytest.fixture(scope="module")
def server(module_server_factory: ServerFactory) -> Instance:
    return module_server_factory("mysql97")


@pytest.fixture
def table(server: Instance) -> Iterator[str]:
    server.execute(
        "CREATE DATABASE d", "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, v LONGTEXT)"
    )
    yield "d.t"
    server.execute("DROP DATABASE d")


@dataclass
class OnCall:
    """The tools of a person on call: alerts, the command line, `curl`, the settings."""

    daemon: Daemon
    prometheus: Prometheus

    def condition(self, alert: str) -> str:
        """Returns the expression of an alert, with ranges of seconds instead of minutes."""
        (rule,) = (rule for rule in rules() if rule["alert"] == alert)
        return re.sub(r"((?:_over_time|increase)\([^\[\]]*)\[\d+m\]", r"\1[10s]", rule["expr"])

    def alerted(self, alert: str) -> None:
        until(
            lambda: self.prometheus.query(self.condition(alert)),
            f"{alert} is raised",
            timeout_s=90,
        )

    def quiet(self, alert: str) -> None:
        # A daemon that is down has no samples; this does not mean that the fault has ended.
        until(
            lambda: (
                self.prometheus.query('up{job="binlog-dispatcher"} == 1')
                and not self.prometheus.query(self.condition(alert))
            ),
            f"{alert} has ended",
            timeout_s=90,
        )

    def command(self, *words: str) -> Result:
        url = f"http://127.0.0.1:{self.daemon.port}"
        return CliRunner().invoke(app, [*words, "--url", url])

    def settings(self, **changes: Any) -> None:
        """Change the settings of the consumer `d`, and reload them."""
        self.daemon.settings["consumers"]["d"].update(changes)
        self.daemon.reload()


@pytest.fixture
def on_call(
    server: Instance, table: str, make_daemon: MakeDaemon, source: Source, tmp_path: Path
) -> Iterator[OnCall]:
    """A daemon with the consumer `d`, which begins at `earliest`, and a Prometheus that scrapes the daemon."""
    daemon = make_daemon({"d": source(server, "d", start="latest")}, state={})
    daemon.start()
    daemon.api.until_state("d", "streaming")
    with watched(tmp_path, daemon) as prometheus:
        yield OnCall(daemon, prometheus)


@contextmanager
def watched(folder: Path, *daemons: Daemon) -> Iterator[Prometheus]:
    """A Prometheus that scrapes these daemons."""
    target = {"targets": [f"127.0.0.1:{daemon.port}" for daemon in daemons]}
    configuration = {
        "global": {"scrape_interval": "300ms"},
        "scrape_configs": [{"job_name": "binlog-dispatcher", "static_configs": [target]}],
    }
    files = folder / "prometheus"
    files.mkdir()
    with running(files, free_port(), configuration) as prometheus:
        up = 'up{job="binlog-dispatcher"} == 1'
        until(lambda: len(prometheus.query(up)) == len(daemons), "the daemons are scraped")
        yield prometheus


def insert(server: Instance, count: int, size: int) -> None:
    server.execute(*[f"INSERT INTO d.t (v) VALUES (REPEAT('x', {size}))"] * count)


def test_absent_because_of_wrong_settings(on_call: OnCall) -> None:
    on_call.daemon.stop()
    on_call.alerted("BinlogDispatcherAbsent")
    file = on_call.daemon.folder / "dispatcher.yaml"
    good = file.read_text()
    file.write_text(good.replace('"databases"', '"databasse"'))
    for command in ("run", "check"):
        done = CliRunner().invoke(app, [command, "--config", str(file)])
        assert done.exit_code == 2 and "databasse" in done.output
    on_call.daemon.start()
    on_call.quiet("BinlogDispatcherAbsent")


def test_a_password_was_rotated(on_call: OnCall, server: Instance) -> None:
    user = on_call.daemon.settings["consumers"]["d"]["mysql"].split("@")[0]
    server.execute(f"ALTER USER '{user}'@'%' IDENTIFIED BY 'another secret'")
    for (number,) in server.execute(
        f"SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{user}'"
    ):
        server.execute(f"KILL {number}")
    on_call.alerted("BinlogConnectionDown")
    faults = 'binlog_dispatcher_source_connection_faults_total{kind="ACCESS_DENIED"}'
    until(lambda: on_call.prometheus.query(faults), "the kind of the fault is counted")
    on_call.settings(password="another secret")
    on_call.quiet("BinlogConnectionDown")


def test_a_copy_of_the_state_runs_elsewhere(on_call: OnCall, make_daemon: MakeDaemon) -> None:
    daemon = on_call.daemon
    other = make_daemon(daemon.settings["consumers"])
    settings = str(daemon.folder / "dispatcher.yaml")
    copied = CliRunner().invoke(app, ["state", "backup", str(other.state), "--config", settings])
    assert copied.exit_code == 0, copied.output
    other.start()
    on_call.alerted("BinlogDuplicateDaemon")
    until(
        lambda: (
            f"{socket.gethostname()} had this uuid" in (daemon.api.row("d")["last_error"] or "")
        ),
        "the message names the host of the other one",
    )
    other.stop()
    on_call.quiet("BinlogDuplicateDaemon")
    until(lambda: daemon.api.row("d")["last_error"] is None, "no fault is left")


def test_a_server_was_reset(on_call: OnCall, server: Instance) -> None:
    insert(server, 3, 10)
    Reader(on_call.daemon, "d").open().read_to(server)
    server.execute("RESET BINARY LOGS AND GTIDS")
    on_call.alerted("BinlogConsumerFailed")
    shown = on_call.command("consumers", "show", "d")
    assert "history differs" in " ".join(shown.stdout.split())
    done = on_call.command("consumers", "seek", "d", "--to", "earliest", "--yes")
    assert done.exit_code == 0, done.output
    on_call.quiet("BinlogConsumerFailed")


def test_needed_binlogs_are_purged_soon_and_then_are(on_call: OnCall, server: Instance) -> None:
    server.execute("SET GLOBAL binlog_expire_logs_seconds = 600")
    try:
        on_call.alerted("BinlogRunwayCritical")
        server.execute("SET GLOBAL binlog_expire_logs_seconds = 604800")
        on_call.quiet("BinlogRunwayCritical")
    finally:
        server.execute("SET GLOBAL binlog_expire_logs_seconds = DEFAULT")
    insert(server, 3, 10)
    on_call.daemon.stop()
    server.execute("FLUSH BINARY LOGS")
    insert(server, 3, 10)
    server.execute("FLUSH BINARY LOGS")
    server.execute(f"PURGE BINARY LOGS TO '{server.binlogs()[-1][0]}'")
    on_call.daemon.start()
    on_call.alerted("BinlogConsumerFailed")
    assert "purged" in on_call.daemon.api.row("d")["last_error"]
    assert on_call.command("consumers", "forget", "d", "--yes").exit_code == 0
    on_call.quiet("BinlogConsumerFailed")


def test_a_queue_is_full_until_its_reader_reads(on_call: OnCall, server: Instance) -> None:
    on_call.settings(max_bytes_in_binlog_queue=256 * KIB)
    insert(server, 60, 8 * KIB)
    on_call.alerted("BinlogQueueFull")
    Reader(on_call.daemon, "d").open().read_to(server)
    on_call.quiet("BinlogQueueFull")


def test_a_reader_that_dies_is_started_again(on_call: OnCall, server: Instance) -> None:
    reader = Reader(on_call.daemon, "d").open()
    body = json.dumps({"session": reader.session, "after": reader.position, "wait_ms": 60000})
    connection = http.client.HTTPConnection("127.0.0.1", on_call.daemon.port)
    connection.request("POST", "/v1/consumers/d/poll", body, {"Content-Type": "application/json"})
    until(lambda: on_call.daemon.api.row("d")["reader"] == "waiting", "the reader polls")
    with suppress(OSError):
        connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
    insert(server, 1, 10)
    on_call.alerted("BinlogReaderGone")
    row = on_call.daemon.api.row("d")
    assert row["reader_address"] and row["poll_age_seconds"] is not None
    Reader(on_call.daemon, "d").open().read_to(server)
    on_call.quiet("BinlogReaderGone")


def test_the_state_was_replaced(on_call: OnCall) -> None:
    state = on_call.daemon.state
    away = state.with_name("away.db")
    away.write_bytes(b"")
    state.rename(state.with_name("kept.db"))
    away.rename(state)
    on_call.alerted("BinlogStateStoreDown")
    status, _, text = on_call.daemon.api.request("GET", "/readyz")
    assert status == 503 and b"replaced" in text
    state.with_name("kept.db").rename(state)
    on_call.quiet("BinlogStateStoreDown")


def test_wrong_settings_are_not_reloaded(on_call: OnCall) -> None:
    settings = on_call.daemon.settings["consumers"]["d"]
    settings["databasse"] = settings.pop("databases")
    line = on_call.daemon.hang_up("settings not reloaded")
    assert "databasse" in line["error"]
    on_call.alerted("BinlogSettingsNotReloaded")
    settings["databases"] = settings.pop("databasse")
    on_call.daemon.reload()
    on_call.quiet("BinlogSettingsNotReloaded")


def test_the_space_for_large_transactions_is_used_up(on_call: OnCall, server: Instance) -> None:
    daemon = on_call.daemon
    daemon.settings["consumers"]["d"]["max_bytes_in_binlog_queue"] = 64 * KIB
    daemon.settings["state"]["max_bytes_in_spill"] = 4 << 20
    daemon.restart()
    insert(server, 1, 2 << 20)
    on_call.alerted("BinlogSpillNearlyFull")
    assert daemon.api.row("d")["spilled_bytes"] > 0
    Reader(daemon, "d").open().read_to(server)
    on_call.quiet("BinlogSpillNearlyFull")
    insert(server, 1, 8 << 20)
    until(lambda: "spill" in (daemon.api.row("d")["last_error"] or ""), "it does not fit")
    on_call.alerted("BinlogSpillFailed")
    assert not on_call.prometheus.query(on_call.condition("BinlogConsumerDetached"))
    daemon.settings["state"]["max_bytes_in_spill"] = 64 << 20
    daemon.restart()
    Reader(daemon, "d").open().read_to(server)


# -- several daemons -----------------------------------------------------------------------------------------


@pytest.fixture
def pair(make_pair: MakePair) -> Pair:
    return make_pair()


@pytest.fixture
def on_call_for_both(pair: Pair, tmp_path: Path) -> Iterator[OnCall]:
    with watched(tmp_path, pair.a, pair.b) as prometheus:
        yield OnCall(pair.a, prometheus)


def test_no_daemon_leads_while_the_server_of_the_state_is_down(
    pair: Pair, on_call_for_both: OnCall
) -> None:
    on_call = on_call_for_both
    on_call.quiet("BinlogNoLeader")
    pair.store.kill()
    on_call.alerted("BinlogNoLeader")
    for daemon in (pair.a, pair.b):
        status, _, text = daemon.api.request("GET", "/readyz")
        assert status == 503 and b"no daemon leads now; state store: " in text
    pair.store.start()
    on_call.quiet("BinlogNoLeader")


def test_a_standby_is_absent_until_it_is_started_again(
    pair: Pair, on_call_for_both: OnCall
) -> None:
    on_call = on_call_for_both
    pair.b.stop()
    on_call.alerted("BinlogStandbyAbsent")
    assert not on_call.prometheus.query(on_call.condition("BinlogDispatcherAbsent"))
    pair.b.start()
    on_call.quiet("BinlogStandbyAbsent")


def test_a_standby_differs_until_its_settings_are_those_of_the_leader(
    pair: Pair, on_call_for_both: OnCall
) -> None:
    on_call = on_call_for_both
    on_call.quiet("BinlogStandbyDiffers")
    consumers = pair.b.settings["consumers"]
    consumers["more"] = next(iter(consumers.values()))
    pair.b.reload()
    on_call.alerted("BinlogStandbyDiffers")
    assert "consumer more: the leader does not have it" in pair.b.api.text(
        "/readyz?standby&verbose"
    )
    del consumers["more"]
    pair.b.reload()
    on_call.quiet("BinlogStandbyDiffers")


def test_the_leader_changes_again_and_again(pair: Pair, on_call_for_both: OnCall) -> None:
    def seen() -> bool:
        query = f"binlog_dispatcher_leader_term == {pair.lease()[1]}"
        return len(on_call_for_both.prometheus.query(query)) == 2

    for _ in range(4):
        pair.end_the_leader()
        until(seen, "Prometheus has the term of both daemons")
    on_call_for_both.alerted("BinlogLeaderFlaps")
