"""Fixtures: a job with its own server and daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.conftest import MakeDaemon, Source, make_daemon, source
from tests.mirror.harness import MirrorJob, mirror_job
from tests.servers.plugin import ServerFactory

__all__ = ["make_daemon", "source"]  # fixtures of the daemon's tests


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "job" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            # These tests spend most of their time on starting Java, and take several times longer on a busy machine.
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture
def job(
    request: pytest.FixtureRequest,
    server_factory: ServerFactory,
    make_daemon: MakeDaemon,
    source: Source,
    tmp_path: Path,
) -> Iterator[MirrorJob]:
    """A job of the consumers `shop` and `other`. Each consumer reads the database with its name. Parameter: the
    server's kind and options."""
    server = server_factory(*getattr(request, "param", ("mysql97",)))
    server.execute("CREATE DATABASE shop", "CREATE DATABASE other")
    consumers = {name: source(server, name, start="earliest") for name in ("shop", "other")}
    daemon = make_daemon(consumers)
    daemon.start()
    for consumer in consumers:
        daemon.api.until_state(consumer, "streaming")
    with mirror_job(server, daemon, tmp_path) as job:
        yield job
