"""`run --until-copied` copies a database that was there before, ends, and prints commands that read its tables.
`run --copy` does the same with a table that the mirror lacks, and goes on mirroring."""

from __future__ import annotations

import shlex
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import PASSWORD, until
from tests.mirror.harness import COPY_GRANTS, COPY_USER, TIMEOUT_S, MirrorJob
from tests.servers.plugin import ServerFactory

pytestmark = [pytest.mark.spark, pytest.mark.deep, pytest.mark.timeout(900)]

READERS = Path(__file__).parents[2] / ".cache/readers/bin"
TABLES, ROWS = 3, 500


@pytest.fixture
def job(
    server_factory: ServerFactory,
    make_daemon: MakeDaemon,
    source: Source,
    tmp_path: Path,
) -> MirrorJob:
    server = server_factory("mysql97")
    server.execute("CREATE DATABASE shop")
    server.add_user(COPY_USER, PASSWORD, *COPY_GRANTS)
    rows = ", ".join(f"({n}, 'row {n}')" for n in range(ROWS))
    for number in range(TABLES):
        table = f"shop.t{number}"
        server.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v TEXT)",
            f"INSERT INTO {table} VALUES {rows}",
        )
    # The server's log has no transaction, neither before the job nor while it copies.
    server.execute("RESET BINARY LOGS AND GTIDS")
    daemon = make_daemon({"shop": source(server, "shop", start="latest")})
    daemon.start()
    daemon.api.until_state("shop", "streaming")
    (tmp_path / "kills").mkdir()
    return MirrorJob(server, daemon, tmp_path, tmp_path / "kills", ExitStack())


def test_the_printed_commands_read_what_was_copied(job: MirrorJob) -> None:
    job.options = ("--until-copied",)
    with job.stack:
        assert job.start("shop", now=False).wait(TIMEOUT_S) == 0, job.log
        assert job.differences("shop") == []
        assert "WARNING retry" not in job.log  # no copy was asked for before it could begin
        lines = job.log.splitlines()
        assert any(line.endswith(f"copying {TABLES} tables") for line in lines), job.log
        (summary,) = (line for line in lines if "tables are complete: " in line)
        assert f"{TABLES} tables are complete: {TABLES * ROWS} rows, " in summary
        assert summary.endswith(f", in {job.target}")
        printed = [
            line.strip().partition(": python -c ") for line in lines if ": python -c" in line
        ]
        assert [name.partition(" ")[0] for name, *_ in printed] == ["DuckDB", "polars", "Spark"]
        for name, _, code in printed:
            python = sys.executable if name == "Spark" else READERS / "python"
            done = subprocess.run(
                [python, "-c", *shlex.split(code)],
                capture_output=True, text=True, check=False, timeout=300,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert "row 7" in done.stdout
        the_job_goes_on_behind_its_copies(job)


def the_job_goes_on_behind_its_copies(job: MirrorJob) -> None:
    """A table that the server's log lacks is copied, then a new row is mirrored, and the job ends at SIGTERM."""
    job.server.execute(
        "SET SESSION sql_log_bin = OFF",
        "CREATE TABLE shop.late (id INT PRIMARY KEY, v TEXT)",
        "INSERT INTO shop.late SELECT * FROM shop.t0",
    )
    job.options = ("--copy",)
    process = job.start("shop", now=False)

    def is_copied() -> bool:
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"the job has ended with {process.wait(0.5)}: {job.log}")
        return f"1 tables are complete: {ROWS} rows, " in job.log and "    Spark: " in job.log

    until(is_copied, "the summary of the copies", timeout_s=TIMEOUT_S)
    assert f"copying 1 tables; {TABLES} tables are complete" in job.log
    job.server.execute(f"INSERT INTO shop.late VALUES ({ROWS}, 'behind the summary')")
    job.until_equal("shop")
    assert job.stop() == 0, job.log
    assert not {"ERROR", "Traceback"} & set(job.log.split()), job.log
