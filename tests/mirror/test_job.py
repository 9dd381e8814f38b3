"""`python -m spark_sink run` as a user runs it: a process of its own, the real daemon, a real server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.mirror.harness import MirrorJob


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

    job.start("shop", now=False)
    execute("INSERT INTO t VALUES (3, 3)", "DELETE FROM t WHERE id = 1", database="shop")
    job.until_equal("shop")
    assert job.stop() == 0, job.log
    assert "Traceback" not in job.log
    assert "Exception" not in job.log


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
