"""pytest fixtures for real servers.

`mysql97`, `mysql56`, `mariadb1011`, `mariadb118`: one server of the kind per test process. The tests of the process
share it, so each test uses only databases of its own (`new_database`). `any_server` runs a test on all four kinds. A
test that stops, kills, resets or configures a server gets its own server from `server_factory`; `module_server_factory`
gives one that the tests of a file share.

Tests fail if their server is not available. A developer may skip them with `--skip-missing-servers`; under CI that
option is refused.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NoReturn, Protocol

import pytest

from tests.servers.installs import KINDS, Kind, reported
from tests.servers.server import Instance, Server, external_server, new_instance
from tests.servers.tools import ServerUnavailable

_SKIP_OPTION = "--skip-missing-servers"
_database_numbers = itertools.count(1)


class ServerFactory(Protocol):
    """Starts a throw-away server that lives until the test ends."""

    def __call__(self, kind: Kind, *options: str) -> Instance: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        _SKIP_OPTION,
        action="store_true",
        help="skip tests whose MySQL or MariaDB server cannot be had on this machine",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(_SKIP_OPTION) and os.environ.get("CI"):
        raise pytest.UsageError(f"{_SKIP_OPTION} is refused where CI is set")


def pytest_report_header() -> list[str]:
    return [reported(kind) for kind in KINDS]


def _missing(config: pytest.Config, failure: ServerUnavailable) -> NoReturn:
    if config.getoption(_SKIP_OPTION):
        pytest.skip(str(failure))
    pytest.fail(str(failure), pytrace=False)


@pytest.fixture(scope="session")
def _shared_servers(pytestconfig: pytest.Config) -> Iterator[Callable[[Kind], Server]]:
    """Starts the shared server of a kind when it is first used."""
    started: dict[Kind, Server] = {}
    with ExitStack() as stack:

        def shared(kind: Kind) -> Server:
            if kind not in started:
                try:
                    given = external_server(kind)
                    if given is None:
                        given = instance = stack.enter_context(new_instance(kind))
                        instance.start()
                except ServerUnavailable as failure:
                    _missing(pytestconfig, failure)
                else:
                    started[kind] = given
            return started[kind]

        yield shared


@pytest.fixture(scope="session")
def mysql97(_shared_servers: Callable[[Kind], Server]) -> Server:
    return _shared_servers("mysql97")


@pytest.fixture(scope="session")
def mysql56(_shared_servers: Callable[[Kind], Server]) -> Server:
    return _shared_servers("mysql56")


@pytest.fixture(scope="session")
def mariadb1011(_shared_servers: Callable[[Kind], Server]) -> Server:
    return _shared_servers("mariadb1011")


@pytest.fixture(scope="session")
def mariadb118(_shared_servers: Callable[[Kind], Server]) -> Server:
    return _shared_servers("mariadb118")


@pytest.fixture(scope="session", params=KINDS)
def any_server(request: pytest.FixtureRequest, _shared_servers: Callable[[Kind], Server]) -> Server:
    return _shared_servers(request.param)


@contextmanager
def _factory(config: pytest.Config) -> Iterator[ServerFactory]:
    with ExitStack() as stack:

        def start(kind: Kind, *options: str) -> Instance:
            try:
                instance = stack.enter_context(new_instance(kind, *options))
                instance.start()
            except ServerUnavailable as failure:
                _missing(config, failure)
            return instance

        yield start


@pytest.fixture
def server_factory(pytestconfig: pytest.Config) -> Iterator[ServerFactory]:
    with _factory(pytestconfig) as start:
        yield start


@pytest.fixture(scope="module")
def module_server_factory(pytestconfig: pytest.Config) -> Iterator[ServerFactory]:
    """Starts servers that the tests of a file use one after the other. They run until the file's last test ends."""
    with _factory(pytestconfig) as start:
        yield start


@pytest.fixture
def database_name() -> str:
    """A database name that no other test uses, on any worker."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    return f"t_{worker}_{os.getpid()}_{next(_database_numbers)}"


@pytest.fixture
def new_database(database_name: str) -> Iterator[Callable[[Server], str]]:
    """Returns a function that creates a new database on a server with each call. They are dropped when the test
    ends."""
    made: list[tuple[Server, str]] = []

    def create(server: Server) -> str:
        name = f"{database_name}_{len(made) + 1}"
        server.execute(f"CREATE DATABASE `{name}`")
        made.append((server, name))
        return name

    yield create
    for server, name in made:
        server.execute(f"DROP DATABASE IF EXISTS `{name}`")
