"""A folder that the mirror did not make is in the place of a table's folder. Only that table waits, and its record has
a reason."""

from __future__ import annotations

import shutil

import pytest

from tests.mirror.harness import MirrorJob
from tests.mirror.lake import table_states


@pytest.mark.rotate(2, of="jobs of Spark")
@pytest.mark.timeout(900)
def test_a_copy_whose_place_is_taken_waits_alone_until_it_is_free(job: MirrorJob) -> None:
    foreign = job.target / "shop" / "x"
    foreign.mkdir(parents=True)
    (foreign / "notes.txt").write_text("of a person", "utf-8")
    execute = job.server.execute
    for table in ("x", "z"):
        execute(
            "SET sql_log_bin = 0",
            f"CREATE TABLE {table} (id INT PRIMARY KEY)",
            f"INSERT INTO {table} VALUES (1), (2)",
            database="shop",
        )
    execute("INSERT INTO x VALUES (3)", "INSERT INTO z VALUES (3)", database="shop")
    assert job.run("shop") == 1, job.log
    states = table_states(job.target, "shop")
    assert states["shop.x"]["state"] == "copying"
    assert "move or delete that folder" in states["shop.x"]["reason"]
    assert states["shop.z"]["state"] == "complete"
    (different,) = job.differences("shop")
    assert different.startswith("shop.x")
    execute("INSERT INTO x VALUES (4)", "INSERT INTO z VALUES (4)", database="shop")
    shutil.rmtree(foreign)
    assert job.run("shop") == 0, job.log
    assert job.differences("shop") == []
    assert job.standing("shop") == []
