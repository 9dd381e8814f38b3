"""A server for a state in a database, with the durability of MySQL's defaults, and a meter that counts the server's
work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import Self

from pymysql.cursors import Cursor

from benchmarks.logs import executed_transactions
from tests.daemon.harness import Json
from tests.servers import DURABLE, Instance, start_server
from tests.servers.server import Rows
from tests.support.state_stores import state_section, state_settings

_STATEMENTS_OF_A_COUNT = 4


@contextmanager
def durable_server() -> Iterator[Instance]:
    with start_server("mysql97", *DURABLE, "--innodb-doublewrite=ON") as server:
        yield server


@dataclass(frozen=True, slots=True)
class StateDatabase:
    """A database for a state. `section`: the section `state` of a daemon's settings, with the default lease."""

    server: Instance
    name: str
    section: Json

    @classmethod
    def make(cls, server: Instance, name: str) -> Self:
        server.execute(f"CREATE DATABASE {name}")
        return cls(server, name, state_section(state_settings(server, name)))

    @contextmanager
    def meter(self) -> Iterator[Meter]:
        with self.server.connect(self.name) as connection, connection.cursor() as cursor:
            yield Meter(cursor)


@dataclass(frozen=True, slots=True)
class Work:
    """What the server has done in some seconds. `transactions`: the transactions that write; `saves`: the transactions
    that write more than the lease, as the state store counts them; `log_bytes`: the bytes that all these transactions
    have added to the server's log."""

    seconds: float
    statements: int
    transactions: int
    saves: int
    log_bytes: int

    def since(self, earlier: Work) -> Work:
        differences = (new - old for new, old in zip(astuple(self), astuple(earlier), strict=True))
        return Work(*differences)


class Meter:
    """Counts over one connection. Its own statements are not counted."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._counts = 0

    def count(self) -> Work:
        """Returns the counts at this moment. Only differences of two counts have a meaning."""
        self._counts += 1
        statements = int(self._rows("SHOW GLOBAL STATUS LIKE 'Questions'")[0][1])
        ((saves,),) = self._rows("SELECT writes FROM lease")
        log_bytes = sum(int(row[1]) for row in self._rows("SHOW BINARY LOGS"))
        return Work(
            time.monotonic(),
            statements - self._counts * _STATEMENTS_OF_A_COUNT,
            executed_transactions(self._cursor),
            int(saves),
            log_bytes,
        )

    def _rows(self, query: str) -> Rows:
        self._cursor.execute(query)
        return tuple(self._cursor.fetchall())
