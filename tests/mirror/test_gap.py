"""The server purges changes that the daemon has not read. The mirror stops, or continues and says which tables lack
changes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dispatcher.cli import app
from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import PASSWORD
from tests.daemon.test_history import purge
from tests.mirror.harness import COPY_GRANTS, COPY_USER, MirrorJob
from tests.mirror.printed import commands, run_mirror_commands
from tests.servers import Instance
from tests.servers.plugin import ServerFactory

MakeJob = Callable[..., MirrorJob]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def make_job(
    server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source, tmp_path: Path
) -> Iterator[MakeJob]:
    """`make_job(copies=..., on_purged=...)` returns a job of the consumer `shop`."""
    with ExitStack() as stack:

        def make(*, copies: bool, on_purged: str) -> MirrorJob:
            server = server_factory("mysql97")
            server.execute("CREATE DATABASE shop")
            server.add_user(COPY_USER, PASSWORD, *COPY_GRANTS)
            settings = source(server, "shop", start="earliest", on_purged=on_purged)
            daemon = make_daemon({"shop": settings})
            daemon.start()
            daemon.api.until_state("shop", "streaming")
            kills = tmp_path / "kills"
            kills.mkdir()
            return MirrorJob(server, daemon, tmp_path, kills, stack, copies=copies)

        yield make


def mirror_then_purge(job: MirrorJob) -> None:
    """Mirror two tables. Then let the server purge a change of one of them while the daemon does not run."""
    job.server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT)",
        "CREATE TABLE quiet (id INT PRIMARY KEY, n INT)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "INSERT INTO quiet VALUES (1, 1)",
        database="shop",
    )
    assert job.run("shop") == 0, job.log
    assert job.differences("shop") == []
    job.daemon.stop()
    job.server.execute("UPDATE t SET n = 3 WHERE id = 1", "FLUSH BINARY LOGS", database="shop")
    assert isinstance(job.server, Instance)
    purge(job.server)
    job.daemon.start()


def tables(job: MirrorJob) -> dict[str, dict[str, Any]]:
    """Returns what `python -m spark_sink tables` shows, by table."""
    done = subprocess.run(
        job.command("tables", "--json", consumers=("shop",)),
        capture_output=True,
        text=True,
        check=True,
        cwd=job.home,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["table"]: line for line in lines}


@pytest.mark.deep
def test_a_purge_stops_the_consumer_and_its_remedy_copies_the_tables(make_job: MakeJob) -> None:
    job = make_job(copies=True, on_purged="latest")
    mirror_then_purge(job)
    job.daemon.api.until_state("shop", "streaming")
    assert job.run("shop") == 1, job.log
    (message,) = (line for line in job.log.splitlines() if " ERROR " in line)
    assert "position purged: the server has purged changes after epoch" in message
    assert "run --config" in message
    assert "--available-now --no-fail-on-data-loss" in message
    assert [text.partition(":")[0] for text in job.differences("shop")] == ["shop.t"]

    job.options = ("--no-fail-on-data-loss",)
    assert job.run("shop") == 0, job.log
    assert job.differences("shop") == []
    assert {line["state"] for line in tables(job).values()} == {"complete"}

    job.options = ()
    job.server.execute("INSERT INTO quiet VALUES (2, 2)", database="shop")
    assert job.run("shop") == 0, job.log
    assert job.differences("shop") == []


@pytest.mark.deep
def test_without_a_server_to_copy_from_tables_become_partial(make_job: MakeJob) -> None:
    job = make_job(copies=False, on_purged="fail")
    mirror_then_purge(job)
    job.daemon.api.until_state("shop", "failed")
    assert job.run("shop") == 1, job.log
    assert "binlog-dispatcher consumers seek --url " in job.log

    url = f"http://127.0.0.1:{job.daemon.port}"
    words = ["consumers", "seek", "shop", "--to", "earliest", "--url", url, "--yes"]
    moved = CliRunner().invoke(app, words)
    assert (moved.exit_code, moved.stderr) == (0, "")
    job.options = ("--no-fail-on-data-loss",)
    job.server.execute("INSERT INTO t VALUES (4, 4)", database="shop")
    assert job.run("shop") == 0, job.log
    found = tables(job)
    assert {line["state"] for line in found.values()} == {"partial"}
    for name, line in found.items():
        assert "the server had purged changes before lsn" in line["reason"]
        assert line["reason"].endswith(f" {name}")
    (difference,) = job.differences("shop")
    assert difference.startswith("shop.t: ") and "4" not in difference

    job.copies, job.options = True, ()
    job.command("copy", consumers=("shop",))  # writes the settings
    printed = [command for line in found.values() for command in commands(line["reason"])]
    run_mirror_commands(printed, job.home)
    assert job.run("shop") == 0, job.log
    assert job.differences("shop") == []
