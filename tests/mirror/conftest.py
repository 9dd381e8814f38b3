"""Fixtures: a job with a server and a daemon of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemon.conftest import MakeDaemon, Source, make_daemon, source
from tests.daemon.harness import PASSWORD
from tests.mirror.harness import COPY_GRANTS, COPY_USER, MirrorJob
from tests.servers.plugin import ServerFactory

__all__ = ["make_daemon", "source"]  # fixtures of the daemon's own tests


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "job" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            # On a busy machine these tests take several times longer; most of that time Java starts.
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture
def job(
    request: pytest.FixtureRequest,
    server_factory: ServerFactory,
    make_daemon: MakeDaemon,
    source: Source,
    tmp_path: Path,
) -> Iterator[MirrorJob]:
    """A job of the consumers `shop` and `other`; each reads the database of its own name. Parameter: the server's kind
    and options."""
    server = server_factory(*getattr(request, "param", ("mysql97",)))
    server.execute("CREATE DATABASE shop", "CREATE DATABASE other")
    server.add_user(COPY_USER, PASSWORD, *COPY_GRANTS)
    consumers = {name: source(server, name, start="earliest") for name in ("shop", "other")}
    daemon = make_daemon(consumers)
    daemon.start()
    for consumer in consumers:
        daemon.api.until_state(consumer, "streaming")
    kills = tmp_path / "kills"
    kills.mkdir()
    with ExitStack() as stack:
        yield MirrorJob(server, daemon, tmp_path, kills, stack)
