"""The fixture `scene`: a server and a daemon that the tests of a file share."""

from __future__ import annotations

from dataclasses import dataclass

from tests.daemon.harness import PASSWORD, Daemon, Reader
from tests.servers import Instance


@dataclass
class Scene:
    """A server with the table d.t, and a daemon with the consumers `d` and `beside`, which start at the earliest."""

    server: Instance
    daemon: Daemon

    def insert(self) -> None:
        self.server.execute("INSERT INTO d.t VALUES ()")

    def reader(self) -> Reader:
        """Returns a reader of `d` that begins at the stored position."""
        return Reader(self.daemon, "d").open()

    def deliver_one(self, reader: Reader) -> None:
        """Insert a row, and assert that the reader gets it. The reader must have read everything before."""
        before = len(reader.transactions)
        self.insert()
        assert len(reader.read_to(self.server).transactions) == before + 1


def consumer_settings(server: Instance) -> dict[str, object]:
    """Returns settings of a consumer of `d`, and makes an account for it."""
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY)")
    server.add_user("scene", PASSWORD)
    return {
        "mysql": f"scene@{server.host}:{server.port}",
        "password": PASSWORD,
        "databases": ["d"],
        "start": "earliest",
    }
