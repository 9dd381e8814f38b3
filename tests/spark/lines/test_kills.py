"""Each change is in a stream exactly once, on each line of Spark, whichever process is killed: a Python worker, an
executor, the driver, the daemon, the server. The changes are those that mysqlbinlog prints of the server's log."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from tests.daemon.harness import PASSWORD, Daemon, until
from tests.servers import DURABLE, Instance
from tests.servers.plugin import ServerFactory
from tests.spark.conftest import NO_WORKER
from tests.spark.lines.conftest import TIMEOUT_S
from tests.spark.lines.installs import LINES, environment
from tests.spark.lines.matrix import OWN
from tests.support.java import QUICK_JAVA

ROUNDS = 2
Image = tuple[str, ...] | None
Change = tuple[str, Image, Image]


@dataclass
class Query:
    """The query `killed_job` in processes of its own, with one line of Spark. `folder`: contains its checkpoint and its
    batches."""

    folder: Path
    packages: list[Path]
    options: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    runs: int = 0
    read: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def start(self) -> None:
        more = {
            "JDK_JAVA_OPTIONS": QUICK_JAVA,
            "KILLS": str(self.folder / "kills"),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self.runs += 1
        with (self.folder / f"log{self.runs}").open("wb") as log:
            arguments = [json.dumps(self.options), str(self.folder)]
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.lines.killed_job", *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(*self.packages) | more,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return (self.folder / f"log{self.runs}").read_text(encoding="utf-8", errors="replace")

    def lives(self) -> bool:
        """True if the query runs. Starts it again if Spark has ended it because a worker started too slowly."""
        assert self.process is not None
        if self.process.poll() is None:
            return True
        assert NO_WORKER in self.log, self.log[-6000:]
        self.start()
        return False

    def kill(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def changes(self) -> list[dict[str, Any]]:
        """Returns the rows of all stored batches, in the order of the batches."""
        paths = sorted((self.folder / "batches").glob("*.arrow"))
        for path in paths:
            if path.name not in self.read:
                table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
                self.read[path.name] = table.to_pylist()
        return list(chain.from_iterable(self.read[path.name] for path in paths))

    def until_more(self, than: int) -> None:
        until(
            lambda: self.lives() and len(self.changes()) > than,
            "the query reads on",
            timeout_s=TIMEOUT_S,
        )

    def pass_point(self, point: str) -> None:
        """Arm the point, and wait until a process has passed it."""
        armed = self.folder / "kills" / point
        armed.touch()

        def is_passed() -> bool:
            assert self.process is not None
            running = self.process.poll() is None
            if not armed.exists():
                return True
            if not running:  # it has ended before the point
                self.lives()
            return False

        until(is_passed, f"{point} is passed", timeout_s=TIMEOUT_S)


@contextmanager
def changing(server: Instance) -> Iterator[threading.Event]:
    """Insert, update and delete rows of `shop`.t in small transactions until the block ends. `v` is another number in
    each statement. Yields an event that is set while the server may be used; a test that kills it clears the event
    first."""
    stopping, usable = threading.Event(), threading.Event()
    usable.set()

    def run() -> None:
        chosen = random.Random(1)
        statement = 0
        while not stopping.is_set():
            try:
                with closing(server.connect("shop")) as connection, connection.cursor() as cursor:
                    while not stopping.wait(0.01):
                        cursor.execute("BEGIN")
                        for _ in range(chosen.randint(1, 3)):
                            statement += 1
                            cursor.execute(_statement(chosen, statement))
                        cursor.execute("COMMIT")
            except (OSError, pymysql.OperationalError, pymysql.InterfaceError):
                usable.wait()  # PyMySQL does not close the sockets of connections that are refused

    thread = threading.Thread(target=run, name="changes")
    thread.start()
    try:
        yield usable
    finally:
        stopping.set()
        usable.set()
        thread.join(60)


def _statement(chosen: random.Random, number: int) -> str:
    at = chosen.randrange(1000)
    return chosen.choice(
        (
            f"INSERT INTO t (v, s) VALUES ({number}, 'one'), ({number}, 'two'), ({number}, NULL)",
            f"UPDATE t SET v = {number}, s = 'changed' WHERE id % 1000 = {at} ORDER BY id LIMIT 5",
            f"UPDATE t SET v = {number} WHERE id > {at} ORDER BY id LIMIT 2",
            f"DELETE FROM t WHERE id > {at} ORDER BY id LIMIT 1",
        )
    )


_ROW = re.compile(
    r"^### (INSERT INTO|UPDATE|DELETE FROM) `shop`\.`t`\n((?:### (?:WHERE|SET|  @).*\n)+)",
    re.MULTILINE,
)
_VALUE = re.compile(r"^###   @\d+=(.*)$", re.MULTILINE)


def printed(server: Instance) -> list[Change]:
    """Returns what the server's own tool prints of the table's changes: kind, image before and image after."""
    found: list[Change] = []
    for file, _ in server.binlogs():
        done = server.mysqlbinlog("--verbose", "--base64-output=decode-rows", file, remote=True)
        for row in _ROW.finditer(done.stdout):
            before, _, after = row[2].partition("### SET\n")
            images = [tuple(_VALUE.findall(text)) or None for text in (before, after)]
            found.append((row[1].split()[0].lower(), images[0], images[1]))
    return found


def delivered(rows: list[dict[str, Any]]) -> list[Change]:
    """Returns the rows of the stream in the form of `printed`."""

    def image(values: dict[str, Any] | None) -> Image:
        if values is None:
            return None
        text = "NULL" if values["s"] is None else f"'{values['s']}'"
        return str(values["id"]), str(values["v"]), text

    return [(row["op"], image(row["before"]), image(row["after"])) for row in rows]


@pytest.fixture
def server(server_factory: ServerFactory) -> Instance:
    server = server_factory("mysql97", *DURABLE)
    server.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.t (id INT AUTO_INCREMENT PRIMARY KEY, v BIGINT, s VARCHAR(20))",
    )
    server.add_user("killed", PASSWORD)
    return server


@pytest.fixture
def daemon(server: Instance, tmp_path: Path) -> Iterator[Daemon]:
    consumer = {
        "mysql": f"killed@{server.host}:{server.port}",
        "password": PASSWORD,
        "databases": ["shop"],
        "max_bytes_in_binlog_queue": 1 << 20,
    }
    daemon = Daemon(tmp_path / "daemon", {"consumers": {"shop": consumer}})
    try:
        daemon.start()
        daemon.api.until_state("shop", "streaming")
        yield daemon
    finally:
        daemon.close()


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.timeout(7200)  # on a busy machine; otherwise it takes three minutes
@pytest.mark.parametrize("name", [OWN.name, *LINES])
def test_each_change_is_read_once(
    name: str, server: Instance, daemon: Daemon, tmp_path: Path
) -> None:
    (tmp_path / "kills").mkdir()
    packages = [] if name == OWN.name else [LINES[name].folder()]
    options = {"url": daemon.url, "consumer": "shop", "retryTimeoutSeconds": "300"}
    query = Query(tmp_path, packages, options | {"table": "shop.t"})

    def kill(what: str, usable: threading.Event) -> None:
        if what in ("worker", "executor"):
            query.pass_point(what)
        elif what == "stored":
            query.pass_point(what)
            assert query.process is not None
            assert query.process.wait(TIMEOUT_S) == -signal.SIGKILL, query.log[-6000:]
            query.start()
        elif what == "driver":
            query.kill()
            query.start()
        elif what == "daemon":
            daemon.restart(kill=True)
        else:
            usable.clear()
            server.restart(kill=True)
            usable.set()

    try:
        with changing(server) as usable:
            query.start()
            query.until_more(0)
            for _ in range(ROUNDS):
                for what in ("worker", "daemon", "executor", "driver", "server", "stored"):
                    kill(what, usable)
                    query.until_more(len(query.changes()))
        expected = printed(server)
        until(
            lambda: query.lives() and len(query.changes()) >= len(expected),
            "the query has read everything",
            timeout_s=TIMEOUT_S,
        )
    finally:
        if query.process is not None and query.process.poll() is None:
            query.kill()
    rows = query.changes()
    assert delivered(rows) == expected
    places = [(row["epoch"], row["seq"], row["ordinal"]) for row in rows]
    assert all(one < two for one, two in pairwise(places))
    assert {row["op"] for row in rows} == {"insert", "update", "delete"}
