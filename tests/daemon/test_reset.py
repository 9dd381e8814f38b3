"""The daemon notices a RESET of a server, even while it reads the log, and even if creation times do not show it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Daemon, Problem, Reader
from tests.servers import Instance
from tests.servers.plugin import ServerFactory

pytestmark = pytest.mark.rotate(1)
KINDS = {
    "mysql97": ("mysql97",),
    "mysql56": ("mysql56",),
    "mysql56 without GTIDs": ("mysql56", "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"),
    "mariadb118": ("mariadb118",),
}
CREATED = 1_750_000_000

GetServer = Callable[[str], Instance]


@pytest.fixture(scope="module")
def servers(module_server_factory: ServerFactory) -> GetServer:
    """A server of a kind, whose log is reset for each test."""
    made: dict[str, Instance] = {}

    def get(kind: str) -> Instance:
        if kind not in made:
            made[kind] = module_server_factory(*KINDS[kind])  # type: ignore[arg-type]
        return made[kind]

    return get


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, servers: GetServer) -> Instance:
    found = servers(request.param)
    reset(found)
    found.execute(
        "DROP DATABASE IF EXISTS d",
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(2000))",
    )
    return found


def reset(server: Instance, created: int = 0) -> None:
    """RESET the log. `created`: the creation time that the server's first file gets, in s since 1970."""
    words = "BINARY LOGS AND GTIDS" if server.kind == "mysql97" else "MASTER"
    server.execute(f"SET TIMESTAMP = {created or 'DEFAULT'}", f"RESET {words}")


def insert(server: Instance, count: int, size: int) -> None:
    """Insert rows of `size` characters, one per transaction."""
    server.execute(*[f"INSERT INTO d.t (v) VALUES (REPEAT('x', {size}))"] * count)


def begin(server: Instance, make_daemon: MakeDaemon, source: Source) -> tuple[Daemon, Reader]:
    """Start a daemon, and read everything that the server has written."""
    daemon = make_daemon({"d": source(server, "d", start="earliest")})
    daemon.start()
    return daemon, Reader(daemon, "d").open().read_to(server)


def check_differs(daemon: Daemon) -> None:
    row = daemon.api.until_state("d", "failed")
    assert "server history differs" in row["last_error"]
    assert "copy the tables afresh" in row["last_error"]


def refused(reader: Reader) -> Problem:
    """Returns the problem that polls raise."""
    try:
        while True:
            reader.step()
    except Problem as problem:
        return problem


def test_a_second_reset_within_one_second_is_noticed(
    server: Instance, make_daemon: MakeDaemon, source: Source
) -> None:
    """The new log has the old one's creation time and number of transactions, and is longer."""
    settings = source(server, "d")
    reset(server, CREATED)
    insert(server, 5, size=100)
    daemon, reader = begin(server, make_daemon, lambda *_, **more: settings | more)
    daemon.stop()
    reset(server, CREATED)
    insert(server, 9, size=131)
    assert server.binlog_position()[1] > reader.position["offset"]
    daemon.start()
    check_differs(daemon)


def test_a_reset_under_an_open_dump_is_noticed_at_the_next_rotation(
    server: Instance, make_daemon: MakeDaemon, source: Source
) -> None:
    """The dump continues with the second file of the new log. The daemon must deliver nothing of that file."""
    insert(server, 30, size=1500)
    daemon, reader = begin(server, make_daemon, source)
    read, position = len(reader.transactions), reader.position
    reset(server)
    insert(server, 50, size=10)
    server.execute("FLUSH BINARY LOGS")
    insert(server, 10, size=10)
    check_differs(daemon)
    problem = refused(reader)
    assert (problem.status, problem.kind) == (410, "HISTORY_DIFFERS")
    assert len(reader.transactions) == read
    stored = daemon.stored("d")
    assert stored["acknowledged"] == stored["covered"] == position


def test_a_reset_under_an_open_dump_is_noticed_when_a_session_is_opened(
    server: Instance, make_daemon: MakeDaemon, source: Source
) -> None:
    """The new log is shorter than the old one, so the server sends only heartbeats."""
    insert(server, 30, size=1500)
    daemon, reader = begin(server, make_daemon, source)
    reset(server)
    insert(server, 5, size=10)
    with suppress(Problem):
        reader.open()
    check_differs(daemon)


def test_rotations_are_followed_on_the_same_connection(
    server: Instance, make_daemon: MakeDaemon, source: Source
) -> None:
    """This holds even if a file is purged as soon as the server has closed it."""
    insert(server, 3, size=10)
    daemon, reader = begin(server, make_daemon, source)
    read = len(reader.transactions)
    for _ in range(3):
        server.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
        insert(server, 2, size=10)
        reader.read_to(server)
    assert len(reader.transactions) == read + 6
    server.execute("FLUSH BINARY LOGS")
    server.execute(f"PURGE BINARY LOGS TO '{server.binlog_position()[0]}'")
    insert(server, 1, size=10)
    reader.read_to(server)
    assert len(reader.transactions) == read + 7
    assert "checked anew" not in daemon.log
