"""Runs `python -m spark_sink run` as a user does: as a process, with a real daemon and a real server."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.harness import until
from tests.mirror.harness import TIMEOUT_S, MirrorJob
from tests.servers.ports import free_port
from tests.support.terminal import INTERRUPT, Terminal, on_terminal


@pytest.mark.rotate(2, of="jobs of Spark")
def test_consumers_are_mirrored_and_one_bad_table_stops_alone(job: MirrorJob) -> None:
    execute = job.server.execute
    execute(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "CREATE TABLE copied (PRIMARY KEY (id)) AS SELECT * FROM t",
        database="shop",
    )
    execute(
        "CREATE TABLE whole (id INT PRIMARY KEY, a INT)",
        "CREATE TABLE incomplete (id INT PRIMARY KEY, a INT, b INT)",
        "INSERT INTO incomplete VALUES (1, 1, 1)",
        "SET SESSION binlog_row_image = MINIMAL",
        "UPDATE incomplete SET a = 2",
        "SET SESSION binlog_row_image = FULL",
        "INSERT INTO whole VALUES (1, 1)",
        database="other",
    )
    assert job.run("shop", "other") == 1, job.log
    assert job.differences("shop") == []
    assert [text.partition(":")[0] for text in job.differences("other")] == ["other.incomplete"]
    assert job.log.count("row image incomplete") == 1, job.log
    assert "Traceback" not in job.log
    assert "Exception" not in job.log

    job.settings = f"metrics: 127.0.0.1:{free_port()}\n"
    job.start("shop", now=False)
    with on_terminal(
        job.command("top", "--every=0.5", consumers=("shop",)), job.job_environment(), job.home
    ) as top:
        execute("INSERT INTO t VALUES (3, 3)", "DELETE FROM t WHERE id = 1", database="shop")
        job.until_equal("shop")
        watch_top(job, top)
    assert job.stop() == 0, job.log
    assert "Traceback" not in job.log
    assert "Exception" not in job.log


def watch_top(job: MirrorJob, top: Terminal) -> None:
    """Assert that the screen shows the consumer with its rates, and all tables of the target with their states."""

    def row(*words: str) -> list[str]:
        """Returns the words of the line that begins with `names`."""
        rows = (line.split() for line in top.lines())
        return next((row for row in rows if row[: len(words)] == list(words)), [])

    def is_shown() -> bool:
        assert top.process.poll() is None, top.lines()
        return bool(row("shop", "up", "up") and row("shop", "shop.t", "complete"))

    until(is_shown, "top shows the consumer and its table", timeout_s=TIMEOUT_S)
    heading = row(str(job.target))
    assert heading == [str(job.target), "4", "tables", "3", "complete", "1", "stopped"]
    assert row("q", "ends") and row("consumer", "log", "apply", "behind")
    assert row("shop", "shop.copied", "complete") and row("other", "other.whole", "complete")
    assert row("other", "other.incomplete", "stopped")[3:5] == ["2", "rows"]
    assert top.colour("stopped") == "red" and top.colour("complete") == "green"
    assert any("other.incomplete: row image incomplete" in line for line in top.lines())

    number = itertools.count(100)

    def shows_rates() -> bool:
        job.server.execute(f"INSERT INTO t VALUES ({next(number)}, 1)", database="shop")
        # The last three words of a table's line are its rows per second, and the time of a step with its unit.
        rate = row("shop", "shop.t", "complete")[-3:][0]
        return rate.isdigit() and int(rate) > 0 and "commit" in row("shop", "up", "up")

    until(shows_rates, "top shows the rates of the table's steps", timeout_s=TIMEOUT_S)
    top.type(INTERRUPT)
    assert top.process.wait(TIMEOUT_S) == 0
    assert "Traceback" not in "\n".join(top.lines())


def test_bad_input_ends_with_2_before_anything_starts(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "spark_sink", "run", "--url=nowhere", "--consumer=a"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "--url: url: not the address" in done.stderr
    assert "target: is missing" in done.stderr
    assert len(done.stderr.splitlines()) == 2
