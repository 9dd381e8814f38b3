"""Daemons with a front, one for each server."""

from __future__ import annotations

from pathlib import Path

from tests.daemon.harness import Daemon
from tests.front.clients.judging import DATABASES, PASSWORD, USER
from tests.front.clients.readings import Endpoint
from tests.servers import Server
from tests.servers.ports import free_port

TOKEN = "the token of the shop"


class Fronts:
    """`folder`: for the daemons. Their consumer `shop` reads the first database of the history."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[int, tuple[Daemon, Endpoint]] = {}

    def of(self, server: Server) -> Endpoint:
        if server.port not in self._made:
            self._made[server.port] = self._make(server)
        return self._made[server.port][1]

    def _make(self, server: Server) -> tuple[Daemon, Endpoint]:
        port = free_port()
        consumer = {
            "mysql": f"{USER}@{server.host}:{server.port}",
            "password": PASSWORD,
            "databases": [DATABASES[0]],
        }
        daemon = Daemon(
            self._folder / str(server.port),
            {
                "consumers": {"shop": consumer},
                "api": {"tokens": [{"token": TOKEN, "consumers": ["shop"]}]},
                "front": {"listen": f"127.0.0.1:{port}"},
            },
        )
        daemon.token = TOKEN
        daemon.start()
        return daemon, Endpoint("127.0.0.1", port, "shop", TOKEN, server.mariadb)

    def close(self) -> None:
        for daemon, _ in self._made.values():
            daemon.close()
