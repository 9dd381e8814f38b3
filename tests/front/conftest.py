"""Fixtures: a daemon with a front, whose consumer reads one of a server's databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.daemon.conftest import MakeDaemon, Source, make_daemon, source
from tests.front.fronted import Fronted, until_greets
from tests.servers.plugin import ServerFactory
from tests.servers.ports import free_port

__all__ = ["make_daemon", "source"]


@pytest.fixture
def fronted(
    server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source
) -> Iterator[Fronted]:
    """A MySQL server, and a daemon that reads this server and serves a front. The consumer `shop` reads the database
    `shop`, not `other`."""
    server = server_factory("mysql97")
    for database in ("shop", "other"):
        server.execute(f"CREATE DATABASE {database}")
        server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(100))")
    front = free_port()
    daemon = make_daemon(
        {"shop": source(server, "shop", start="earliest")},
        front={"listen": f"127.0.0.1:{front}"},
    )
    daemon.start()
    daemon.api.until_state("shop", "streaming")
    until_greets(front)
    with closing(Fronted(server, daemon, front)) as fronted:
        yield fronted
