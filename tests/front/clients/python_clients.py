"""python-mysql-replication and asyncmy as clients, each a program in `programs/`.

What a user needs, against a server and against the front alike:

* `blocking=True` and a `server_id` of its own; the libraries register no replica by default;
* python-mysql-replication opens a second connection for names of columns, only where the log has no full metadata. To
  read by GTID: `auto_position`; for MariaDB also `is_mariadb=True`. To read by file: `is_mariadb=False`, because with
  True the library ignores the offset. It cannot parse MariaDB's statements, so `only_events` must leave out QueryEvent;
* asyncmy asks INFORMATION_SCHEMA for the columns of each table when it first occurs, so it names the columns that the
  table has now, and it silently leaves out rows of a table that is gone. At a server it needs `only_schemas`, if it may
  not see the other tables; at the front nothing. It does not know MariaDB's GTIDs: there it reads by file.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.front.clients.installs import PROGRAMS, python_with
from tests.front.clients.lines import read_json
from tests.front.clients.readings import Collector, Endpoint, Reading, Start, Until


@dataclass
class ProgramClient:
    """A client whose program prints lines of JSON. It stores the place after the last complete transaction."""

    folder: Path
    command: list[str]
    server_id: int
    name: str
    more: dict[str, Any] = field(default_factory=dict)
    stored: Start = field(default_factory=lambda: Start(""))
    _runs: int = 0

    def begin(self, _at: Endpoint, start: Start) -> None:
        self.stored = start

    def read(self, at: Endpoint, until: Until) -> Reading:
        self._runs += 1
        collector = Collector(until, self.stored, at.mariadb)
        given = {
            "host": at.host,
            "port": at.port,
            "user": at.user,
            "password": at.password,
            "tls": at.tls,
            "mariadb": at.mariadb,
            "server_id": self.server_id,
            "file": self.stored.file,
            "offset": self.stored.offset,
            "gtids": self.stored.gtids,
            **self.more,
        }
        read_json(self.command, self.folder / str(self._runs), given, collector)
        self.stored = collector.place
        return collector.reading


def python_mysql_replication(folder: Path) -> ProgramClient:
    command = [sys.executable, str(PROGRAMS / "replication_reader.py")]
    return ProgramClient(folder, command, 7002, "python-mysql-replication")


def asyncmy(folder: Path) -> ProgramClient:
    python = python_with("asyncmy==0.2.18", "cryptography")
    command = [python, str(PROGRAMS / "asyncmy_reader.py")]
    return ProgramClient(folder, command, 7003, "asyncmy")
