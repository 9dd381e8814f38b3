"""A table whose columns come and go among columns that `omit_columns` leaves out, without a copy."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.demo import delta
from tests.mirror.harness import MirrorJob
from tests.mirror.lake import table_states

SETTINGS = "tables: {shop.t: {omit_columns: [later, Blob2], on_alter: stop}}\n"
# Each statement is followed by rows, so that the columns of the log's rows are compared with those of the mirror.
ALTERS = (
    "ADD later BLOB FIRST",
    "ADD x INT DEFAULT 7 AFTER later, ADD y VARCHAR(10)",
    "MODIFY later MEDIUMBLOB AFTER y",
    "MODIFY a INT AFTER later",
    "CHANGE later BLOB2 BLOB FIRST, ADD later INT AFTER id",
    "DROP blob2",
    "CHANGE x blob2 BIGINT, ADD z INT NOT NULL DEFAULT 5 FIRST",
    "DROP later, DROP Blob2, ADD later TEXT FIRST, ADD b2 INT AFTER later",
)


def rows(job: MirrorJob) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = delta.read(job.target / "shop" / "t").to_pylist()
    return sorted(found, key=lambda row: int(row["id"]))


@pytest.mark.rotate(2, of="jobs of Spark")
@pytest.mark.parametrize(
    "job", [("mysql97",), ("mariadb118",)], indirect=True, ids=["mysql97", "mariadb118"]
)
def test_statements_on_omitted_columns_are_followed(job: MirrorJob) -> None:
    """Some statements and rows are logged with the names of columns in each TABLE_MAP, others without."""
    execute = job.server.execute
    job.settings = SETTINGS
    execute(
        "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a INT)",
        "INSERT INTO t (a) VALUES (1), (2)",
        database="shop",
    )
    assert job.run("shop") == 0, job.log
    for n, clauses in enumerate(ALTERS):
        for metadata in ("MINIMAL", "FULL") if n % 2 else ("FULL", "MINIMAL"):
            execute(f"SET GLOBAL binlog_row_metadata = {metadata}")
            execute(
                "INSERT INTO t (a) VALUES (10)",
                "UPDATE t SET a = a + 1 WHERE id % 3 = 0",
                database="shop",
            )
        execute(f"ALTER TABLE t {clauses}", database="shop")
        execute("INSERT INTO t (a) VALUES (20)", "DELETE FROM t WHERE id % 7 = 0", database="shop")
    assert job.run("shop") == 0, job.log
    state = table_states(job.target, "shop")["shop.t"]
    assert (state["state"], state["reason"]) == ("complete", "")
    query = "SELECT z, b2, id, y, a FROM t ORDER BY id"
    names = ("z", "b2", "id", "y", "a")
    expected = [dict(zip(names, row, strict=True)) for row in execute(query, database="shop")]
    assert rows(job) == expected
    assert len(expected) > 20
    assert job.verify("shop").count(": equal") == 1
