"""`python -m spark_sink` as a user runs it: a process of its own, the real daemon, a real server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deploy.demo import delta
from spark_sink.mirror.names import folder_name
from tests.daemon.conftest import MakeDaemon, Source, make_daemon, source
from tests.daemon.harness import Daemon, until
from tests.servers import Server
from tests.servers.plugin import ServerFactory
from tests.spark.conftest import comparable, killing, mysql_rows
from tests.support.java import QUICK_SPARK

__all__ = ["make_daemon", "source"]  # fixtures of the daemon's own tests

TIMEOUT_S = 150.0
# On a busy machine these tests take several times longer, mostly to start Java.
pytestmark = pytest.mark.timeout(600)


@dataclass
class Mirroring:
    """A server with two databases, the daemon, and a job that a test starts one or more times."""

    server: Server
    daemon: Daemon
    home: Path
    kills: Path
    stack: ExitStack
    logs: list[Path] = field(default_factory=list)

    def start(self, *consumers: str, now: bool = True) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "spark_sink", f"--url=http://127.0.0.1:{self.daemon.port}"]
        command += [f"--consumer={name}" for name in consumers]
        command += [f"--target={self.home / 'target'}", f"--checkpoint={self.home / 'checkpoint'}"]
        command += [f"--conf={setting}" for setting in QUICK_SPARK]
        command += ["--available-now"] if now else ["--trigger-interval=1 second"]
        self.logs.append(self.home / f"job{len(self.logs)}.log")
        with self.logs[-1].open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | killing(self.kills),
                cwd=self.home,
                start_new_session=True,
            )
        self.stack.callback(_end, process)
        return process

    def run(self, *consumers: str) -> int:
        """Runs to the server's newest position; returns the exit code."""
        return self.start(*consumers).wait(TIMEOUT_S)

    @property
    def log(self) -> str:
        """The log of the last job, without Java's own notes about its options."""
        lines = self.logs[-1].read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(line for line in lines if not line.startswith(("NOTE:", "WARNING: Using")))

    def table(self, database: str, name: str) -> Path:
        return self.home / "target" / folder_name(database) / folder_name(name)

    def mirrored(self, database: str, name: str) -> dict[Any, dict[str, Any]]:
        return comparable(delta.read(self.table(database, name)).to_pylist())

    def equal(self, database: str, *tables: str) -> bool:
        for name in tables:
            if not delta.exists(self.table(database, name)):
                return False
            expected = comparable(mysql_rows(self.server, database, f"SELECT * FROM `{name}`"))
            if self.mirrored(database, name) != expected:
                return False
        return True

    def commits(self, database: str, *tables: str) -> list[int]:
        return [
            len(list((self.table(database, name) / "_delta_log").glob("*.json"))) for name in tables
        ]


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # it has ended, with all that it started
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def mirroring(
    server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source, tmp_path: Path
) -> Iterator[Mirroring]:
    server = server_factory("mysql97")
    server.execute("CREATE DATABASE shop", "CREATE DATABASE bad")
    daemon = make_daemon({"shop": source(server, "shop"), "bad": source(server, "bad")})
    daemon.start()
    for consumer in ("shop", "bad"):
        daemon.api.until_state(consumer, "streaming")
    (tmp_path / "kills").mkdir()
    with ExitStack() as stack:
        yield Mirroring(server, daemon, tmp_path, tmp_path / "kills", stack)


@pytest.mark.kills
@pytest.mark.spark
def test_the_driver_killed_between_the_last_merge_and_the_commit_log(mirroring: Mirroring) -> None:
    tables = ("orders", "stock")
    shop = ("shop", *tables)
    execute = mirroring.server.execute
    execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, n INT, price DECIMAL(8,2))",
        "CREATE TABLE stock (id INT PRIMARY KEY, n INT)",
        database="shop",
    )
    changes = [
        "INSERT INTO orders VALUES (0, 0, 1.5), (1, 0, NULL), (2, 9, 9.5)",
        "INSERT INTO stock VALUES (0, 0)",
        "UPDATE orders, stock SET orders.n = orders.n + 1, stock.n = stock.n + 1",
        "DELETE FROM orders WHERE id = 2",
        "TRUNCATE stock",
        "INSERT INTO stock VALUES (100, 100), (101, 101)",
    ]
    execute(*changes, database="shop")
    armed = mirroring.kills / "merged"
    armed.touch()
    assert mirroring.run("shop") == -signal.SIGKILL, mirroring.log
    assert not armed.exists()
    assert mirroring.equal(*shop)
    assert mirroring.commits(*shop) == [1, 3]
    # The batch comes again and changes nothing; what is new comes in a batch of its own.
    execute("INSERT INTO stock VALUES (7, 7)", database="shop")
    mirroring.daemon.restart(kill=True)
    assert mirroring.run("shop") == 0, mirroring.log
    assert mirroring.equal(*shop)
    assert mirroring.commits(*shop) == [1, 4]


@pytest.mark.spark
def test_several_consumers_one_fails_and_a_clean_stop(mirroring: Mirroring) -> None:
    execute = mirroring.server.execute
    execute(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "CREATE TABLE copied (PRIMARY KEY (id)) AS SELECT * FROM t",
        database="shop",
    )
    execute("CREATE TABLE heap (id INT)", "INSERT INTO heap VALUES (1)", database="bad")
    assert mirroring.run("bad", "shop") == 1
    assert mirroring.equal("shop", "t", "copied")
    assert mirroring.log.count("has no primary key") == 1, mirroring.log
    assert "bad: table change that the mirror cannot apply: table bad.heap has no" in mirroring.log
    assert "Traceback" not in mirroring.log
    assert "Exception" not in mirroring.log

    running = mirroring.start("shop", now=False)
    execute("INSERT INTO t VALUES (2)", database="shop")
    until(lambda: mirroring.equal("shop", "t"), "the row is mirrored", timeout_s=TIMEOUT_S)
    running.send_signal(signal.SIGTERM)
    assert running.wait(TIMEOUT_S) == 0, mirroring.log
    assert "Traceback" not in mirroring.log
    assert "Exception" not in mirroring.log


def test_bad_input_ends_with_2_before_anything_starts(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "spark_sink", "--url=nowhere", "--consumer=a"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "--url: not the address" in done.stderr
    assert "--target: is missing; --checkpoint: is missing" in done.stderr
    assert len(done.stderr.splitlines()) == 1
