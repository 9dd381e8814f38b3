"""zongji (its maintained fork @powersync/mysql-zongji) as a client: `programs/zongji_reader.js`.

What a user needs, against a server and against the front alike:

* a `serverId` of its own; `rotate` and `tablemap` in `includeEvents`; it reads by file only;
* `ssl: {...}` in the account, if the listener demands TLS;
* it asks INFORMATION_SCHEMA for the columns of each table, and ends with an error if the table is gone. So at a server
  `includeSchema` has to name the tables that it may read. The front sends only rows of the consumer's tables, so at the
  front `includeSchema` must leave out only the consumer's tables that are gone.

The original zongji logs in by mysql_native_password only, which MySQL 9.7 does not have.
"""

from __future__ import annotations

from pathlib import Path

from tests.front.clients.history import RENAMED, TABLES
from tests.front.clients.installs import PROGRAMS, node_modules
from tests.front.clients.python_clients import ProgramClient

PACKAGE = "@powersync/mysql-zongji"
VERSION = "0.6.2"


def zongji(folder: Path, *databases: str) -> ProgramClient:
    """A client that reads those tables of the history that exist at its end."""
    modules = node_modules(f"{PACKAGE}@{VERSION}")
    command = ["node", str(PROGRAMS / "zongji_reader.js"), str(modules / PACKAGE)]
    tables = {database: [name for name in TABLES if name != RENAMED] for database in databases}
    return ProgramClient(folder, command, 7006, "zongji", {"tables": tables})
