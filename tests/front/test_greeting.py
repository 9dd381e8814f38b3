"""The version in the front's greeting: always that of a server, whatever the daemon is doing."""

from __future__ import annotations

import pymysql
import pytest

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import until
from tests.front.attacker import Attacker
from tests.front.fronted import Fronted
from tests.servers.plugin import ServerFactory
from tests.servers.ports import free_port

SHUTDOWN = 1053


def test_clients_see_only_the_version_of_a_server(
    server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source
) -> None:
    """A replica of MariaDB that sees another version gives up reading by GTID. So the front admits no client before it
    knows the version, and keeps the version while no server sends its log."""
    server = server_factory("mariadb118")
    server.execute("CREATE DATABASE shop")
    (version,) = server.execute("SELECT @@version")[0]
    settings = source(server, "shop")
    server.stop()
    port = free_port()
    daemon = make_daemon({"shop": settings}, front={"listen": f"127.0.0.1:{port}"})
    daemon.start()
    fronted = Fronted(server, daemon, port)

    def refusal() -> int:
        with pytest.raises(pymysql.err.OperationalError) as refused:
            fronted.connect()
        return int(refused.value.args[0])

    def greeted() -> str:
        connection = fronted.connect()
        connection.close()
        return str(connection.get_server_info())  # type: ignore[no-untyped-call]

    assert refusal() == SHUTDOWN
    server.start()
    assert until(greeted, "the front admits a client") == version
    daemon.api.until_state("shop", "streaming")
    server.kill()
    until(lambda: daemon.api.row("shop")["last_error"], "the daemon has lost the server")
    with Attacker(port) as client:  # the front answers no question now, but it greets
        assert client.greeting[1:].startswith(f"{version}\0".encode())
    server.start()
