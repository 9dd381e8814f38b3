"""State stores for tests: in a file, or in a database of a real server, with a separate account."""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymysql.cursors import Cursor

from dispatcher.settings.model import StateSettings
from dispatcher.state.database import DatabaseStore
from dispatcher.state.lease import LeaseTable
from dispatcher.state.server.session import PRIVILEGES
from dispatcher.state.store import StateStore
from tests.servers.server import Rows, Server

Store = StateStore | DatabaseStore
HOLDER, ADDRESS = "this daemon", "http://a:8085"
LEASE_S = 3600.0  # the lease of a store that a test opens itself
_PASSWORD = "streng-geheim"
_numbers = itertools.count(1)
_TABLES = ("consumer", "stream", "table_version", "prepared", "prepared_part", "declaration")


def state_settings(
    server: Server, database: str, *, port: int = 0, privileges: str = ", ".join(PRIVILEGES)
) -> StateSettings:
    """Returns settings for an existing database, with a new account. `port`: the port of a proxy to the server, 0 for
    none."""
    user = f"s{os.getpid()}_{next(_numbers)}"  # at most 16 characters on MySQL 5.6
    server.add_user(user, _PASSWORD, f"{privileges} ON `{database}`.*")
    address = f"{server.host}:{port or server.port}"
    return StateSettings.model_validate(
        {"mysql": f"{user}@{address}/{database}", "password": _PASSWORD, "tls": {"mode": "disabled"},
         "lease": 3}
    )  # fmt: skip


def state_section(settings: StateSettings) -> dict[str, Any]:
    """Returns the section `state` of a daemon's settings file for this database, without a lease."""
    return {
        "mysql": str(settings.mysql),
        "password": settings.secret,
        "tls": {"mode": "disabled"},
    }


def take_lease(settings: StateSettings, holder: str = HOLDER) -> int:
    """Take the lease, even if another daemon has it. Returns the term."""
    with closing(LeaseTable(settings)) as table:
        before = table.read()
        table.release(before.holder, before.term)
        return table.campaign(holder, ADDRESS, LEASE_S).term


def leading_store(settings: StateSettings, holder: str = HOLDER) -> DatabaseStore:
    """Open the store of a daemon that has just taken the lease."""
    return DatabaseStore(settings, holder, take_lease(settings, holder))


@dataclass
class FileStores:
    """The stores that a test opens one after the other at the same path."""

    path: Path
    opened: list[Store] = field(default_factory=list)

    def open(self) -> Store:
        self.opened.append(StateStore(self.path))
        return self.opened[-1]

    def execute(self, *statements: str) -> None:
        """Execute statements on the store, as another program would."""
        with closing(sqlite3.connect(self.path)) as db:
            for statement in statements:
                db.execute(statement)
            db.commit()

    def close(self) -> None:
        for store in self.opened:
            store.close()


@dataclass
class DatabaseOf:
    """A database for the state, with a connection of root."""

    server: Server
    settings: StateSettings

    @property
    def name(self) -> str:
        assert self.settings.mysql is not None
        return self.settings.mysql.database

    def execute(self, *statements: str) -> Rows:
        return self.server.execute(*statements, database=self.name)

    def value(self, query: str) -> Any:
        """Returns the only value in the answer to a query."""
        ((value,),) = self.execute(query)
        return value

    @contextmanager
    def transaction(self) -> Iterator[Cursor]:
        connection = self.server.connect(self.name, autocommit=False)
        with closing(connection), connection.cursor() as cursor:
            yield cursor

    def await_lock_waits(self, number: int) -> None:
        """Wait until this number of the server's transactions wait for locks."""
        # A query of information_schema.innodb_trx is not suitable, because the server caches its answer for 0.1 s.
        query = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'"
        while int(self.execute(query)[0][1]) < number:
            pass

    def kill(self, connection: int) -> None:
        self.execute(f"KILL {connection}")

    def reset_lease(self, *, keep: bool = False) -> None:
        """Reset the lease to the state before the first term. `keep`: True to keep the rows of the other tables."""
        with closing(LeaseTable(self.settings)) as table:
            table.read()
        self.execute(
            "UPDATE lease SET holder = '', address = '', term = 0, writes = 0, expires = NOW(6)",
            *(f"DELETE FROM {table}" for table in _TABLES if not keep),
        )

    def drop_tables(self) -> None:
        names = [name for (name,) in self.execute("SHOW TABLES")]
        if names:
            self.execute(f"DROP TABLE {', '.join(names)}")


@dataclass
class DatabaseStores(DatabaseOf):
    """The counterpart of `FileStores` in a database. The database's tables are emptied at the end."""

    opened: list[Store] = field(default_factory=list)

    def open(self) -> Store:
        self.opened.append(leading_store(self.settings))
        return self.opened[-1]

    def close(self) -> None:
        for store in self.opened:
            store.close()
        if self.opened:
            self.execute(*(f"DELETE FROM {table}" for table in _TABLES))


Stores = FileStores | DatabaseStores


@contextmanager
def state_databases() -> Iterator[Callable[[Server], StateSettings]]:
    """Yields a function that creates one database for the state on each server, with an account. At the end, all
    databases and accounts are removed."""
    made: dict[int, tuple[Server, StateSettings]] = {}

    def settings_on(server: Server) -> StateSettings:
        if id(server) not in made:
            name = f"state_{os.getpid()}_{next(_numbers)}"
            server.execute(f"CREATE DATABASE {name}")
            made[id(server)] = server, state_settings(server, name)
        return made[id(server)][1]

    yield settings_on
    for server, settings in made.values():
        assert settings.mysql is not None
        server.execute(f"DROP DATABASE {settings.mysql.database}")
