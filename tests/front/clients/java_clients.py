"""Debezium's fork of mysql-binlog-connector-java, and Canal's parser, as clients: programs in Java.

What a user of the connector (`programs/ConnectorReader.java`) needs, against a server and against the front alike:

* a `serverId` of its own, and `setGtidSet` (for MariaDB a list like 0-1-5) to read by GTID;
* `setSSLMode(REQUIRED)`, if the listener demands TLS. Without TLS it gets the server's RSA key by itself;
* `setKeepAlive(false)`, or a listener that knows that the client goes on by itself after an error.

What a user of Canal (`programs/CanalReader.java`, canal.parse 1.1.7) needs:

* MySQL: it cannot parse the statements of MariaDB 11.8, whose collations it does not know;
* a `slaveId` of its own; `gtidMode` for GTIDs;
* no TLS: this version has none, so it can use a listener on loopback only, or a tunnel;
* an event filter: it asks SHOW CREATE TABLE for each table that passes the filter, and stops at a table that is gone.
  At a server the filter has to name the tables; the front sends no rows of others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.front.clients.history import RENAMED, TABLES
from tests.front.clients.installs import java_program
from tests.front.clients.lines import collect, running, take_json
from tests.front.clients.readings import Collector, Endpoint, Reading, Start, Until

CANAL = "com.alibaba.otter:canal.parse:1.1.7"
CONNECTOR = "io.debezium:mysql-binlog-connector-java:0.41.0"


def properties(settings: dict[str, object]) -> str:
    """Returns the text of a properties file."""
    escaped = {
        name: str(value).replace("\\", "\\\\").replace("\n", "\\n")
        for name, value in settings.items()
    }
    return "".join(f"{name}={value}\n" for name, value in escaped.items())


@dataclass
class JavaClient:
    """A client whose program gets properties, and prints lines of JSON. It goes on after the last complete
    transaction."""

    folder: Path
    program: str
    packages: tuple[str, ...]
    server_id: int
    name: str
    more: dict[str, object] = field(default_factory=dict)
    stored: Start = field(default_factory=lambda: Start(""))
    _runs: int = 0

    def begin(self, _at: Endpoint, start: Start) -> None:
        self.stored = start

    def read(self, at: Endpoint, until: Until) -> Reading:
        self._runs += 1
        folder = self.folder / str(self._runs)
        collector = Collector(until, self.stored, at.mariadb)
        settings: dict[str, object] = {
            "host": at.host,
            "port": at.port,
            "user": at.user,
            "password": at.password,
            "tls": str(at.tls).lower(),
            "server_id": self.server_id,
            "file": self.stored.file,
            "offset": self.stored.offset,
            **self.more,
        }
        if self.stored.gtids is not None:
            settings["gtids"] = self.stored.gtids
        command = java_program(self.program, *self.packages)
        with running(command, folder, given=properties(settings).encode()) as program:
            collect(program, collector, take_json, folder)
        self.stored = collector.place
        return collector.reading


def java_connector(folder: Path) -> JavaClient:
    return JavaClient(folder, "ConnectorReader", (CONNECTOR,), 7004, "mysql-binlog-connector-java")


def canal(folder: Path, *databases: str) -> JavaClient:
    """A client that reads those tables of the history that exist at its end."""
    tables = "|".join(name for name in TABLES if name != RENAMED)
    more: dict[str, object] = {"tables": f"({'|'.join(databases)})\\.({tables})"}
    return JavaClient(folder, "CanalReader", (CANAL,), 7008, "Canal", more)
