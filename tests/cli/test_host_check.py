"""`check` on a machine where a daemon runs, where the disk is small, and where a certificate has expired."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from dispatcher.access.listening import certificate_warning
from dispatcher.cli.host_check import examine_host
from dispatcher.settings.load import load_settings
from tests.cli.program import PASSWORD, call, consumer, write
from tests.cli.running import daemon
from tests.servers.ports import free_port
from tests.servers.server import Server
from tests.support.certificates import make_certificate
from tests.support.webhook_receiver import new_secret


def test_beside_a_running_daemon(mysql97: Server, tmp_path: Path) -> None:
    mysql97.add_user("cli_host", PASSWORD)
    port = free_port()
    shop = ("shop", consumer(mysql97, "cli_host", "'*'"))
    file = write(tmp_path, shop, port=port)
    other = write(tmp_path, shop, port=port, state="{path: other.db}", name="other.yaml")
    with daemon(file, port) as running:
        running.until(bool)
        pid = (tmp_path / "state.db.lock").read_text().split("\n")[0]
        of_state, of_address = call("check", "--config", file), call("check", "--config", other)
        assert running.stop() == 0
    mysql97.execute("DROP USER 'cli_host'@'%'")
    assert of_state.returncode == of_address.returncode == 0
    assert f"warning: a daemon runs already (pid {pid}), so check" in of_state.stderr
    assert f"warning: a daemon runs already on 127.0.0.1:{port}, so check" in of_address.stderr


def test_check_leaves_nothing_behind(tmp_path: Path) -> None:
    file = write(tmp_path, ("a", consumer(3306, "a")), state="{path: new/folder/state.db}")
    before = sorted(tmp_path.rglob("*"))
    assert examine_host(load_settings([file])).errors == []
    assert sorted(tmp_path.rglob("*")) == before


def test_a_disk_that_is_smaller_than_the_limit(tmp_path: Path) -> None:
    state = "{path: state.db, max_bytes_in_spill: 1000TiB}"
    found = examine_host(load_settings([write(tmp_path, ("a", consumer(3306, "a")), state=state)]))
    (warning,) = found.warnings
    assert found.errors == [] and warning.startswith(
        "state.max_bytes_in_spill: 1000.0 TiB, but the file system of "
    )


def test_a_certificate_is_valid_by_this_machines_clock(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    cert, now = tmp_path / "ca.pem", datetime.now(UTC)
    assert certificate_warning(cert, "api.tls") == ""
    late = certificate_warning(cert, "api.tls", now + timedelta(days=30))
    early = certificate_warning(cert, "front.tls", now - timedelta(days=30))
    assert late.startswith(f"api.tls.cert: the certificate {cert} expired on ")
    assert early.startswith(f"front.tls.cert: the certificate {cert} begins to be valid on ")
    assert all("the clock of this machine says" in text for text in (late, early))


def test_an_authority_of_the_webhook_that_cannot_be_used(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    file = write(tmp_path, ("a", consumer(3306, "a")), state="{path: new/state.db}")
    text = file.read_text(encoding="utf-8")
    section = f"url: 'https://h/', secret: {new_secret('a')}, tls: {{ca: %s}}"
    file.write_text(f"{text}\nwebhook: {{{section % 'ca.pem'}}}\n", encoding="utf-8")
    assert examine_host(load_settings([file])).errors == []
    file.write_text(f"{text}\nwebhook: {{{section % 'key.pem'}}}\n", encoding="utf-8")
    (error,) = examine_host(load_settings([file])).errors
    assert "webhook.tls.ca: " in error
    assert error.endswith("set webhook.tls.ca to the PEM file of an authority")
