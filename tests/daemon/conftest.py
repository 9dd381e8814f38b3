"""Fixtures: daemons that end with the test, and a replication account on each server."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.harness import PASSWORD, Daemon, Json
from tests.daemon.pair import LEASE_S, Pair
from tests.daemon.scene import Scene, consumer_settings
from tests.servers import Instance, Server
from tests.servers.plugin import ServerFactory
from tests.support.state_stores import state_section, state_settings

_numbers = itertools.count(1)

Source = Callable[..., Json]
MakeDaemon = Callable[..., Daemon]
MakePair = Callable[..., Pair]


@pytest.fixture
def make_daemon(tmp_path: Path) -> Iterator[MakeDaemon]:
    """`make_daemon({consumer: settings}, api=..., defaults=...)` returns a daemon that is not started yet. The daemon
    ends with the test."""
    with ExitStack() as stack:

        def make(consumers: Json, **sections: Any) -> Daemon:
            folder = tmp_path / f"daemon{next(_numbers)}"
            daemon = Daemon(folder, {"consumers": consumers, **sections})
            stack.callback(daemon.close)
            return daemon

        yield make


@pytest.fixture
def source() -> Iterator[Source]:
    """`source(server, "shop", ...)` creates an account, and returns the settings of a consumer that reads these
    databases with this account.

    `user=` names the account, so that a test can have several accounts; `**more` are further settings.
    """
    made: dict[tuple[int, str], tuple[Server, str]] = {}

    def settings(server: Server, *databases: str, user: str = "repl", **more: Any) -> Json:
        key = server.port, user
        if key not in made:
            # MySQL 5.6 limits user names to 16 characters.
            name = f"{user[:6]}{os.getpid() % 10**6}_{next(_numbers)}"
            server.add_user(name, PASSWORD)
            made[key] = server, name
        address = f"{made[key][1]}@{server.host}:{server.port}"
        return {"mysql": address, "password": PASSWORD, "databases": list(databases), **more}

    yield settings
    for server, name in made.values():
        if getattr(server, "process", True) is not None:
            server.execute(f"DROP USER '{name}'@'%'")


@pytest.fixture(scope="module")
def scene(
    module_server_factory: ServerFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """A server and a daemon that the tests of a file share. The server has a few rows."""
    server = module_server_factory("mysql97")
    settings = consumer_settings(server)
    consumers = {"d": settings, "beside": settings}
    daemon = Daemon(tmp_path_factory.mktemp("scene"), {"consumers": consumers})
    daemon.start()
    scene = Scene(server, daemon)
    for _ in range(5):
        scene.insert()
    yield scene
    daemon.stop()
    daemon.close()


@pytest.fixture(scope="module")
def source_server(module_server_factory: ServerFactory) -> Instance:
    return module_server_factory("mysql97")


@pytest.fixture(scope="module")
def state_server(module_server_factory: ServerFactory) -> Instance:
    return module_server_factory("mariadb118")


@pytest.fixture
def make_pair(
    make_daemon: MakeDaemon,
    source: Source,
    source_server: Instance,
    state_server: Instance,
    database_name: str,
) -> Iterator[MakePair]:
    """`make_pair(lease, mqtt=...)` returns two daemons with one state in a database. They have a consumer `d` of the
    database d, or the `consumers` that the test passes. The fixture starts them if `begun` is True. `on_source`: True
    if the state is on the server that the daemons read."""
    server = source_server
    server.execute("DROP DATABASE IF EXISTS d", "CREATE DATABASE d", "FLUSH BINARY LOGS")
    with ExitStack() as stack:

        def make(
            lease: int = LEASE_S,
            *,
            begun: bool = True,
            on_source: bool = False,
            consumers: Json | None = None,
            **sections: Any,
        ) -> Pair:
            store = server if on_source else state_server
            store.execute(f"CREATE DATABASE {database_name}")
            stack.callback(store.execute, f"DROP DATABASE {database_name}")
            state: Json = {**state_section(state_settings(store, database_name)), "lease": lease}
            consumers = consumers or {"d": source(server, "d")}
            a, b = (make_daemon(dict(consumers), state=dict(state), **sections) for _ in range(2))
            pair = Pair(a, b, store, server)
            return pair.start() if begun else pair

        yield make
