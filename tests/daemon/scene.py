"""A server and a daemon that the tests of a file share (the fixture `scene`)."""

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
        """A reader of `d`, from its stored position on."""
        return Reader(self.daemon, "d").open()

    def deliver_one(self, reader: Reader) -> None:
        """Assert that the reader, which has read everything, gets the next row."""
        before = len(reader.transactions)
        self.insert()
        assert len(reader.read_to(self.server).transactions) == before + 1


def consumer_settings(server: Instance) -> dict[str, object]:
    """Settings of a consumer of `d`, with an account made for it."""
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY)")
    server.add_user("scene", PASSWORD)
    return {
        "mysql": f"scene@{server.host}:{server.port}",
        "password": PASSWORD,
        "databases": ["d"],
        "start": "earliest",
    }
