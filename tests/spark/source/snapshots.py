"""For streams that begin with a snapshot: a server whose tables change, a daemon that reads it, and folded rows."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.daemon.harness import PASSWORD, Daemon
from tests.servers import Server
from tests.spark.conftest import mysql_rows

TOKEN = "token-of-the-snapshot"
READER_PASSWORD = "Secret-of-the-snapshot"


@dataclass
class Folded:
    """The rows of a stream, folded by key. `reads`: how often each key was read."""

    rows: dict[str, dict[Any, Any]] = field(default_factory=dict)
    reads: dict[tuple[str, Any], int] = field(default_factory=dict)
    changes: int = 0

    def add(self, table: pa.Table, key: str) -> None:
        """Add a batch. Asserts that no version of a row is older than one before it."""
        names = ("epoch", "seq", "ordinal", "table", "op", "before", "after")
        columns = [table.column(name).to_pylist() for name in names]
        for _epoch, _seq, _ordinal, of, op, before, after in sorted(
            zip(*columns, strict=True), key=lambda row: row[:3]
        ):
            rows = self.rows.setdefault(of, {})
            old: Any = json.loads(before) if before else None
            new: Any = json.loads(after) if after else None
            if old is not None and new is not None:
                new = old | new  # with FULL_NODUP, `after` has only what has changed
            if op == "read":
                assert new is not None
                self.reads[of, new[key]] = self.reads.get((of, new[key]), 0) + 1
            else:
                self.changes += 1
            if old is not None:
                rows.pop(old[key], None)
            if new is not None:
                last = rows.get(new[key])
                assert last is None or last["v"] <= new["v"], (op, last, new)
                assert last is None or op != "insert", (last, new)
                rows[new[key]] = new


@contextmanager
def served(
    server: Server, database: str, folder: Path, options: dict[str, str], queue: int = 4 << 20
) -> Iterator[dict[str, str]]:
    """A daemon whose consumer `shop` reads a database, and an account that may read rows. Yields the options of a
    query, without the password."""
    user = f"snap{os.getpid() % 10**6}{random.randrange(10**4)}"
    server.add_user(user, PASSWORD)
    reader = f"r{user}"
    monitor = "BINLOG MONITOR, SLAVE MONITOR" if server.mariadb else "REPLICATION CLIENT"
    server.execute(
        f"CREATE USER '{reader}'@'%' IDENTIFIED BY '{READER_PASSWORD}'",
        f"GRANT SELECT, {monitor}, RELOAD ON *.* TO '{reader}'@'%'",
    )
    consumer = {
        "mysql": f"{user}@{server.host}:{server.port}",
        "password": PASSWORD,
        "databases": [database],
        "max_bytes_in_binlog_queue": queue,
    }
    tokens = [{"token": TOKEN, "consumers": "all", "scopes": ["read", "acknowledge", "metrics"]}]
    settings = {"consumers": {"shop": consumer}, "api": {"tokens": tokens}}
    daemon = Daemon(folder / "daemon", settings)
    daemon.token = TOKEN
    given = {
        "url": daemon.url,
        "consumer": "shop",
        "token": TOKEN,
        "retryTimeoutSeconds": "60",
        "startingOffsets": "snapshot",
        "mysql": f"{reader}@{server.host}:{server.port}",
    } | options
    try:
        daemon.start()
        daemon.api.until_state("shop", "streaming")
        yield given
    finally:
        daemon.close()
        server.execute(f"DROP USER '{user}'@'%'", f"DROP USER '{reader}'@'%'")


@contextmanager
def changing(server: Server, database: str, table: str, rows: int, seed: int) -> Iterator[None]:
    """Insert, update, delete and move rows of a table in small transactions, until the block ends. `v` grows with each
    change of a row."""
    stopping = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        chosen = random.Random(seed)
        try:
            with closing(server.connect(database)) as connection, connection.cursor() as cursor:
                while not stopping.wait(0.004):
                    a, b = chosen.randrange(2 * rows), chosen.randrange(2 * rows)
                    cursor.execute("BEGIN")
                    cursor.execute("SELECT COALESCE(MAX(n), 0) + 1 FROM clock FOR UPDATE")
                    ((v,),) = cursor.fetchall()
                    cursor.execute(f"UPDATE clock SET n = {v}")
                    kind = chosen.random()
                    if kind < 0.3:
                        cursor.execute(
                            f"INSERT IGNORE INTO {table} (id, v, text) VALUES ({a}, {v}, 'new')"
                        )
                    elif kind < 0.5:
                        cursor.execute(f"DELETE FROM {table} WHERE id = {a}")
                    elif kind < 0.6:
                        cursor.execute(
                            f"UPDATE IGNORE {table} SET id = {b}, v = {v} WHERE id = {a}"
                        )
                    else:
                        cursor.execute(f"UPDATE {table} SET v = {v} WHERE id = {a}")
                    cursor.execute("COMMIT")
        except BaseException as error:  # noqa: BLE001 - the test reports it
            failed.append(error)

    thread = threading.Thread(target=run, name="changes")
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(60)
    assert not failed, failed


def fill(server: Server, database: str, table: str, rows: int, kind: str = "BIGINT") -> None:
    """A table with a row for each even number below 2 * `rows`."""
    server.execute(
        "CREATE TABLE IF NOT EXISTS clock (n BIGINT PRIMARY KEY)",
        "INSERT IGNORE INTO clock VALUES (1)",
        f"CREATE TABLE {table} (id {kind} PRIMARY KEY, v BIGINT NOT NULL, text VARCHAR(300))",
        f"INSERT INTO {table} VALUES (0, 0, REPEAT('x', 200))",
        database=database,
    )
    have = 1
    while have < rows:
        more = min(have, rows - have)
        server.execute(
            f"INSERT INTO {table} SELECT id + {2 * have}, 0, text FROM {table} ORDER BY id LIMIT {more}",
            database=database,
        )
        have += more
    # The size of a chunk depends on the statistics, which the server computes later, in the background.
    server.execute(f"ANALYZE LOCAL TABLE {table}", database=database)


def existing(server: Server, database: str, table: str) -> dict[Any, Any]:
    return {row["id"]: row for row in mysql_rows(server, database, f"SELECT * FROM {table}")}
