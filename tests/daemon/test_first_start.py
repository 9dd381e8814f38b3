"""The first start of a version: the daemon compiles its kernels while its listener is open."""

from __future__ import annotations

import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cli.program import PASSWORD, consumer, write
from tests.cli.running import daemon
from tests.daemon.harness import until
from tests.servers.ports import free_port
from tests.servers.server import Server

pytestmark = pytest.mark.deep


def ready(url: str) -> str:

    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=10) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())
    except OSError:
        return ""


@pytest.mark.timeout(900)
def test_the_listener_answers_and_the_login_is_made_while_kernels_compile(
    mysql97: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    mysql97.add_user("first_start", PASSWORD)
    port = free_port()
    good = consumer(mysql97, "first_start", "'*'")
    stranger = consumer(mysql97, "no_such_user", "'*'")
    file = write(tmp_path, ("good", good), ("stranger", stranger), port=port)
    with daemon(file, port) as running:
        until(lambda: "compiling kernels" in ready(running.url), "it listens", timeout_s=120)
        # The server has already refused the other login.
        rows = running.until(lambda rows: rows["stranger"]["last_error"] is not None)
        assert "access denied" in rows["stranger"]["last_error"]
        assert "compiling kernels" in ready(running.url) and rows["good"]["state"] == "connecting"
        until(lambda: ready(running.url) == "ok\n", "the kernels are loaded", timeout_s=800)
        running.until(lambda rows: rows["good"]["state"] == "streaming")
        assert running.stop() == 0
    mysql97.execute("DROP USER 'first_start'@'%'")
    log = running.log.read_text()
    assert "compiling kernels, once per version and machine" in log and "kernels compiled" in log


@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGINT])
def test_a_daemon_that_compiles_ends_at_once(
    mysql97: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signal_: signal.Signals
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    port = free_port()
    mysql97.add_user("first_stop", PASSWORD)
    mysql97.execute("CREATE DATABASE IF NOT EXISTS first_stop")
    shop = ("a", consumer(mysql97, "first_stop", "shop"))
    in_database = (
        f"{{mysql: 'first_stop@127.0.0.1:{mysql97.port}/first_stop', password: {PASSWORD}}}"
    )
    mysql97.execute("GRANT ALL ON first_stop.* TO 'first_stop'@'%'")
    for state in ("{path: state.db}", in_database):
        with daemon(write(tmp_path, shop, port=port, state=state), port) as running:
            until(lambda: "compiling kernels" in ready(running.url), "it listens", timeout_s=120)
            assert running.stop(signal_) == 0
        assert "exiting immediately" not in running.log.read_text()
    mysql97.execute("DROP USER 'first_stop'@'%'", "DROP DATABASE first_stop")
