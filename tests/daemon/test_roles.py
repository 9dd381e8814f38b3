"""What the page, the commands, systemd and MQTT show of two daemons with one state."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from playwright.sync_api import expect

from tests.cli.program import call
from tests.daemon.conftest import MakePair
from tests.daemon.harness import until
from tests.daemon.pair import NEVER_S, until_leads, until_stands_by
from tests.support.broker import Broker
from tests.support.browser import chromium


def test_the_page_tells_the_role_and_links_to_the_leader(make_pair: MakePair) -> None:
    pair = make_pair(NEVER_S)
    until_stands_by(pair.b, pair.a)
    with chromium() as browser:
        page = browser.new_page()
        page.goto(pair.b.url)
        role = page.locator("[data-role]")
        expect(role).to_have_text(f"standby, {pair.a.url} leads, term 1")
        expect(role.locator("a")).to_have_attribute("href", pair.a.url)
        expect(page.locator("main")).to_contain_text("This daemon stands by")
        pair.a.stop()
        expect(role).to_have_text("leader, term 2")
        expect(page.locator("[data-kind=leading]")).to_contain_text("leading")


def test_the_command_binlogs_names_the_leader(make_pair: MakePair) -> None:
    pair = make_pair(NEVER_S)
    until_stands_by(pair.b, pair.a)
    done = call("binlogs", "--url", pair.a.url)
    assert (done.returncode, done.stderr) == (0, f"{pair.a.url} leads, term 1\n")
    refused = call("binlogs", "--url", pair.b.url)
    assert refused.returncode == 1
    assert "not the leader" in refused.stderr and pair.a.url in refused.stderr


def test_a_service_manager_is_told_the_role(make_pair: MakePair, tmp_path: Path) -> None:
    pair = make_pair(NEVER_S, begun=False)
    said: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)

        def told(message: str) -> bool:
            try:
                while True:
                    said.append(manager.recv(4096).decode())
            except BlockingIOError:
                return any(one.startswith(message) for one in said)

        pair.b.environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        pair.start()
        assert told("READY=1")
        until(lambda: told(f"STATUS=standby: {pair.a.url} leads, term 1"), "b stands by")
        pair.a.stop()
        until(lambda: told("STATUS=leader, term 2; 1 consumer: 1 streaming"), "b leads")


def test_mqtt_tells_the_role_and_only_the_leader_has_statuses(
    make_pair: MakePair, tmp_path: Path
) -> None:
    broker = Broker(tmp_path)
    broker.start()
    try:
        pair = make_pair(NEVER_S, begun=False)
        for name, daemon in (("a", pair.a), ("b", pair.b)):
            daemon.settings["mqtt"] = {"url": broker.url, "name": name, "status_seconds": 1}
        with broker.subscriber() as subscriber:
            pair.start()

            def role(name: str) -> tuple[str, str] | None:
                last = subscriber.last(f"/{name}/role")
                return None if last is None else (last.body["role"], last.body["leader"])

            def statuses(name: str) -> bool:
                last = subscriber.last(f"/{name}/consumers/d/status")
                return last is not None and bool(last.text)

            until(lambda: role("a") == ("leader", pair.a.url), "a says that it leads")
            until(lambda: role("b") == ("standby", pair.a.url), "b says who leads")
            until(lambda: statuses("a"), "a has a status of the consumer")
            assert not statuses("b")
            pair.a.stop()
            until_leads(pair.b)
            until(lambda: role("b") == ("leader", pair.b.url), "b says that it leads")
            until(lambda: statuses("b"), "b has a status of the consumer")
            until(lambda: not statuses("a"), "the status of a is cleared")
            assert subscriber.of("/b/events/leading")
    finally:
        broker.kill()


def test_the_log_tells_who_leads(make_pair: MakePair) -> None:
    pair = make_pair(NEVER_S)
    until_stands_by(pair.b, pair.a)
    lines = [json.loads(line) for line in pair.b.log.splitlines() if line[:1] == "{"]
    (line,) = [line for line in lines if line["event"] == "standby"]
    assert (line["leader"], line["term"]) == (pair.a.url, 1)
