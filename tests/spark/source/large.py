"""One large transaction on a real server, and a real daemon that delivers it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.daemon.harness import PASSWORD, Daemon
from tests.servers import Server

MIB = 1 << 20
TEXT_BYTES = 64 * 78  # the size of a row's text; each row has another text


@contextmanager
def daemon_of(server: Server, database: str, folder: Path, queue: str) -> Iterator[Daemon]:
    """A daemon whose consumer `shop` reads `database`, beginning at the server's present position."""
    user = f"large{os.getpid() % 10**6}"
    server.add_user(user, PASSWORD)
    consumer = {
        "mysql": f"{user}@{server.host}:{server.port}",
        "password": PASSWORD,
        "databases": [database],
        "max_bytes_in_binlog_queue": queue,
    }
    daemon = Daemon(folder, {"consumers": {"shop": consumer}})
    try:
        daemon.start()
        daemon.api.until_state("shop", "streaming")
        yield daemon
    finally:
        daemon.close()
        server.execute(f"DROP USER '{user}'@'%'")


def create(server: Server, database: str, engine: str = "InnoDB") -> None:
    server.execute(
        f"CREATE TABLE t (id INT PRIMARY KEY, n INT, b TEXT CHARACTER SET ascii) ENGINE={engine}",
        "CREATE TABLE u (id INT PRIMARY KEY, n INT)",
        "INSERT INTO t VALUES (-1, 0, 'before')",
        "INSERT INTO u VALUES (5, 0), (6, 0), (7, 0)",
        database=database,
    )


def insert(rows: int) -> str:
    """Returns a statement that inserts `rows` rows (at most 100,000) of 5 kB into `t`."""
    digits = " UNION ALL ".join(f"SELECT {n} AS n" for n in range(10))
    number = "a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n"
    tables = ", ".join(f"({digits}) {name}" for name in "abcde")
    text = f"REPEAT(SHA2({number}, 256), {TEXT_BYTES // 64})"
    return f"INSERT INTO t SELECT {number}, 0, {text} FROM {tables} WHERE {number} < {rows}"
