"""The daemon with a real receiver of its webhook: which requests it gets; a bad receiver does not delay the daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Daemon, Reader, load, until
from tests.daemon.watch import probed
from tests.servers import Server
from tests.support.certificates import make_certificate
from tests.support.webhook_receiver import WebhookReceiver, is_signed, new_secret

SECRET, NEW_SECRET = new_secret("a"), new_secret("b")
UP = "binlog_dispatcher_webhook_up"


def webhook(receiver: WebhookReceiver, **more: Any) -> dict[str, Any]:
    return {"url": receiver.url, "secret": SECRET, **more}


def until_accepted(receiver: WebhookReceiver, kind: str) -> None:
    until(lambda: kind in receiver.kinds, f"the event {kind}")


def metric(daemon: Daemon, line: str) -> bool:
    return f"{line}\n" in daemon.api.text("/metrics")


def test_each_event_comes_once_in_order_when_the_receiver_accepts_again(
    mysql97: Server, make_daemon: MakeDaemon, source: Source
) -> None:
    receiver = WebhookReceiver(status=500)
    daemon = make_daemon({"a": source(mysql97, "w")}, webhook=webhook(receiver))
    daemon.start()
    daemon.api.until_state("a", "streaming")
    until(lambda: "webhook not delivered" in daemon.log, "the log says that the receiver is down")
    assert "check webhook.url, the firewall, and that the receiver is running" in daemon.log
    assert metric(daemon, f"{UP} 0.0")
    with receiver.running():
        until(lambda: len(receiver.attempts) >= 2, "refused")
        assert {one.body["event"] for one in receiver.attempts} == {"started"}
        assert len({one.id for one in receiver.attempts}) == 1
        receiver.status = 204
        daemon.reload()  # the daemon tries at once
        until_accepted(receiver, "reloaded")
        until(lambda: metric(daemon, f"{UP} 1.0"), "the receiver is up")
        for text in ("the receiver answers 500", "webhook delivered"):
            until(lambda text=text: text in daemon.log, text)  # type: ignore[misc]
        daemon.stop()
        assert receiver.kinds == ["started", "attached", "connected", "reloaded", "stopped"]
    assert len({one.id for one in receiver.accepted}) == len(receiver.accepted)
    assert all(is_signed(SECRET, one.headers, one.raw) for one in receiver.attempts)
    attached = receiver.accepted[1].body
    assert attached["consumer"] == "a" and attached["daemon"]
    assert "hook?for" not in daemon.log  # the path of the url may contain a token


def test_a_reload_applies_a_new_secret_other_events_and_the_end_of_the_webhook(
    mysql97: Server, make_daemon: MakeDaemon, source: Source, tmp_path: Path
) -> None:
    receiver, file = WebhookReceiver(), tmp_path / "secret"
    file.write_text(f"{SECRET}\n", encoding="utf-8")
    settings = {"url": receiver.url, "secret_file": str(file)}
    daemon = make_daemon({"a": source(mysql97, "w")}, webhook=settings)
    with receiver.running():
        daemon.start()
        until_accepted(receiver, "connected")
        assert is_signed(SECRET, receiver.accepted[-1].headers, receiver.accepted[-1].raw)
        file.write_text(NEW_SECRET, encoding="utf-8")
        daemon.reload()
        until_accepted(receiver, "reloaded")
        last = receiver.accepted[-1]
        assert is_signed(NEW_SECRET, last.headers, last.raw)
        daemon.settings["webhook"]["events"] = ["reload_failed", "gap"]
        daemon.reload()
        daemon.settings["webhook"]["events"] = ["reload_faild"]
        line = daemon.hang_up("settings not reloaded")
        assert "there is no event 'reload_faild'; did you mean 'reload_failed'?" in line["error"]
        until_accepted(receiver, "reload_failed")
        assert receiver.kinds.count("reloaded") == 1
        receiver.status = 410
        daemon.hang_up("settings not reloaded")
        given_up = 'binlog_dispatcher_webhook_dropped_total{reason="given_up"} 1.0'
        until(lambda: metric(daemon, given_up), "the event is given up")
        until(lambda: '"webhook event given up"' in daemon.log, "the log says so")
        del daemon.settings["webhook"]
        daemon.reload()
        assert UP not in daemon.api.text("/metrics")
        daemon.stop()
    assert receiver.kinds[-1] == "reload_failed"


def test_events_that_wait_are_sent_with_the_settings_of_a_reload(
    mysql97: Server, make_daemon: MakeDaemon, source: Source
) -> None:
    hanging, receiver = WebhookReceiver(), WebhookReceiver()
    hanging.hangs.set()
    daemon = make_daemon({"a": source(mysql97, "w")}, webhook=webhook(hanging))
    with hanging.running(), receiver.running():
        daemon.start()
        daemon.api.until_state("a", "streaming")
        until(lambda: hanging.hung, "the receiver hangs")
        daemon.settings["webhook"] |= {"url": receiver.url, "secret": NEW_SECRET}
        daemon.reload()
        until_accepted(receiver, "reloaded")
        assert receiver.kinds == ["started", "attached", "connected", "reloaded"]
        assert all(is_signed(NEW_SECRET, one.headers, one.raw) for one in receiver.attempts)
        daemon.stop()


def test_a_receiver_that_hangs_delays_no_reader_and_not_the_end(
    mysql97: Server, make_daemon: MakeDaemon, source: Source
) -> None:
    receiver = WebhookReceiver()
    receiver.hangs.set()
    daemon = make_daemon(
        {"a": source(mysql97, "w")}, webhook=webhook(receiver, max_queued_events=1)
    )
    mysql97.execute("CREATE DATABASE IF NOT EXISTS w")
    with receiver.running():
        daemon.start()
        daemon.api.until_state("a", "streaming")
        until(lambda: receiver.hung, "the receiver hangs")
        with probed(daemon):
            reader = Reader(daemon, "a").open()
            with load(mysql97, "w") as writing:
                writing.until_written(50)
            reader.read_to(mysql97)
            daemon.reload()
        dropped = 'binlog_dispatcher_webhook_dropped_total{reason="queue_full"}'
        assert not metric(daemon, f"{dropped} 0.0")
        assert daemon.log.count("the receiver does not accept the events, or is too slow") == 1
        daemon.stop()
        assert "the shutdown took more than" not in daemon.log
        assert "the daemon ends, and the receiver has not accepted them" in daemon.log


def test_tls_with_an_authority_of_its_own(
    mysql97: Server, make_daemon: MakeDaemon, source: Source, tmp_path: Path
) -> None:
    make_certificate(tmp_path)
    receiver = WebhookReceiver()
    settings = webhook(receiver, url=f"https://127.0.0.1:{receiver.port}/")
    daemon = make_daemon({"a": source(mysql97, "w")}, webhook=settings)
    with receiver.running(tmp_path):
        daemon.start()
        until(lambda: "set webhook.tls.ca to the authority" in daemon.log, "it is not trusted")
        daemon.settings["webhook"]["tls"] = {"ca": str(tmp_path / "ca.pem")}
        daemon.reload()
        until_accepted(receiver, "reloaded")
        assert receiver.kinds[0] == "started"
        daemon.stop()
    assert receiver.kinds[-1] == "stopped"
