"""A daemon with a front, its server, and the clients that read from both."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

import pymysql

from tests.daemon.harness import Daemon, until
from tests.front.wire.raw_client import RawClient
from tests.servers import Instance
from tests.servers.installs import installation
from tests.support import binlog_tool
from tests.support.binlog_tool import PrintedEvent

TIMEOUT_S = 60.0


def until_greets(port: int) -> None:
    """Wait until a front names its server's version in the greeting. Before, it refuses each login with error 1053."""

    def knows_version() -> bool:
        with RawClient(port) as client:
            return b"binlog-dispatcher" not in client.greeting

    until(knows_version, "the front knows the server's version")


@dataclass
class Fronted:
    """`port`: of the front. The consumer is `shop`."""

    server: Instance
    daemon: Daemon
    port: int

    def close(self) -> None:
        self.daemon.close()

    def connect(self, user: str = "shop", password: str = "") -> pymysql.connections.Connection:
        """A client of the front."""
        return pymysql.connect(host="127.0.0.1", port=self.port, user=user, password=password)

    def insert(self, database: str, first: int, count: int = 1) -> None:
        """Insert rows into the table t, each in a transaction of its own."""
        for number in range(first, first + count):
            self.server.execute(f"INSERT INTO {database}.t VALUES ({number}, 'v{number}')")

    def mysqlbinlog(self, *options: str, port: int | None = None) -> str:
        """What mysqlbinlog of the server's own version prints when it reads from the front, or from another port."""
        return tool(self.server.kind, port or self.port, "shop", *options)

    def events(self, *options: str) -> list[PrintedEvent]:
        return binlog_tool.read(self.mysqlbinlog("-vv", *options))


def tool(kind: str, port: int, user: str, *options: str, password: str = "") -> str:
    """Run mysqlbinlog as a replication client. Returns its output. Fails if the tool does."""
    command = [
        *installation(kind).mysqlbinlog,  # type: ignore[arg-type]
        "--read-from-remote-server",
        "--host=127.0.0.1",
        f"--port={port}",
        f"--user={user}",
        f"--password={password}",
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert not done.returncode, done.stderr
    return done.stdout
