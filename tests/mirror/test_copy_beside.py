"""The command `copy` with a pattern runs while a job finds the same tables."""

from __future__ import annotations

import subprocess
from collections import Counter

import pytest

from tests.daemon.harness import until
from tests.mirror.harness import TIMEOUT_S, MirrorJob
from tests.mirror.lake import control_rows

TABLES = 24


@pytest.mark.deep
def test_each_table_has_one_record_and_is_copied(job: MirrorJob) -> None:
    names = [f"t{n}" for n in range(TABLES)]
    job.server.execute(
        "SET sql_log_bin = 0",
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY)" for name in names),
        *(f"INSERT INTO {name} VALUES (1)" for name in names),
        database="shop",
    )
    job.start("shop", now=False)
    # While the job starts, the command starts Spark, asks the server, and then writes its requests.
    command = subprocess.Popen(
        job.command("copy", "shop.*", consumers=("shop",)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=job.job_environment(),
        cwd=job.home,
    )
    until(job.target.exists, "the job runs", timeout_s=TIMEOUT_S)
    for value in range(2, 2 + TABLES):  # so that the job finds new tables while the command runs
        job.server.execute(f"INSERT INTO t{value - 2} VALUES ({value})", database="shop")
        command.poll()
    printed, _ = command.communicate(timeout=TIMEOUT_S)
    assert printed.decode().splitlines() == [f"shop.{name}: copy" for name in sorted(names)]

    def one_record_each() -> bool:
        rows = [row for row in control_rows(job.target) if row["kind"] == "table"]
        newest = {row["table_id"]: row for row in rows}.values()
        live = Counter(row["table"] for row in newest if row["state"] != "dropped")
        assert set(live.values()) <= {1}
        return set(live) == set(names)

    until(one_record_each, "each table has a record", timeout_s=TIMEOUT_S)
    job.until_complete("shop")
    job.until_equal("shop")
    assert one_record_each()
    assert job.stop() == 0, job.log
