"""Only the daemon's user may read what the daemon writes, and the daemon warns of secrets that others can read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.harness import Daemon, until
from tests.support.event_encoder import LogWriter

TOKEN = "a-token-in-the-settings"


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """A daemon that was started with umask 0 and reads a folder. Its settings hold a token, and every user may read
    them."""
    with tempfile.TemporaryDirectory(prefix="private-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "logs").mkdir()
        log = LogWriter()
        log.begin()
        log.commit()
        for file in log.files:
            (folder / "logs" / file.name).write_bytes(file.raw)
        daemon = Daemon(
            folder,
            {
                "consumers": {"a": {"files": {"path": "logs"}, "databases": ["shop"]}},
                "api": {"tokens": [{"token": TOKEN, "consumers": "all"}]},
                "state": {"path": str(folder / "state" / "state.db")},
            },
        )
        daemon.within = ("sh", "-c", 'umask 000; exec "$@"', "sh")
        daemon.start()
        yield daemon
        daemon.close()


def test_only_the_daemons_user_may_read_its_files(daemon: Daemon) -> None:
    newest = daemon.folder / "state" / "state.db.newest"
    until(newest.exists, "the first position is stored")
    paths = [daemon.folder / "state", *(daemon.folder / "state").rglob("*")]
    modes = {path.name: path.stat().st_mode & 0o777 for path in paths}
    assert modes == {
        "state": 0o700,
        "state.db": 0o600,
        "state.db-shm": 0o600,
        "state.db-wal": 0o600,
        "state.db.lock": 0o600,
        "state.db.newest": 0o600,
        "state.db.spill": 0o700,
    }


def test_run_warns_of_settings_with_a_secret_that_every_user_can_read(daemon: Daemon) -> None:
    config = daemon.folder / "dispatcher.yaml"
    assert "every user of this machine can read the secret in this file; make" in daemon.log
    assert f"chmod 600 {config}" in daemon.log and TOKEN not in daemon.log
