"""DROP and CREATE of a name while the mirror copies the table that had the name."""

from __future__ import annotations

from contextlib import suppress

import pytest

from deploy.demo import delta
from tests.daemon.harness import until
from tests.mirror.harness import TIMEOUT_S, MirrorJob
from tests.mirror.lake import is_copied, table_states

ROWS = 40_000
TABLES = ("same", "other")
_FILL = (
    "INSERT INTO {} WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {})"
    " SELECT i, i {} 7, CONCAT({}, i) FROM n"
)


def fill(table: str, rows: int, operator: str, text: str) -> str:
    return _FILL.format(table, rows, operator, f"'{text}'")


def copying(job: MirrorJob) -> dict[str, str]:
    """Returns the ids of the tables whose rows the mirror reads now, some of which are in the copy already."""
    found = {}
    for row in table_states(job.target, "shop").values():
        folder = job.target / "_binlog" / "copies" / row["table_id"]
        if row["state"] != "copying" or is_copied(row):
            continue
        with suppress(delta.UnreadableDelta):  # it has no commit yet
            copied = delta.read(folder).num_rows
            assert copied < ROWS
            if copied:
                found[row["table"]] = row["table_id"]
    return found


@pytest.mark.rotate(2, of="jobs of Spark")
@pytest.mark.parametrize(
    "job", [("mysql97",), ("mariadb118",)], indirect=True, ids=["mysql97", "mariadb118"]
)
def test_a_name_is_dropped_and_created_while_its_table_is_copied(job: MirrorJob) -> None:
    execute = job.server.execute
    depth = "max_recursive_iterations" if job.server.mariadb else "cte_max_recursion_depth"
    begin = f"SET {depth} = {ROWS}"
    columns = "(id INT PRIMARY KEY, v INT, t VARCHAR(90))"
    for table in TABLES:
        execute(
            begin, "SET sql_log_bin = 0", f"CREATE TABLE {table} {columns}",
            fill(table, ROWS, "*", "old"), f"ANALYZE TABLE {table}", database="shop",
        )  # fmt: skip
    job.copy_settings = ", max_rows_per_second: 300, max_bytes_in_chunk: 64KiB"
    job.start("shop", now=False)
    # A table is copied when its first rows arrive.
    execute(*(f"UPDATE {table} SET v = -1 WHERE id = 1" for table in TABLES), database="shop")
    before = until(
        lambda: copying(job) if len(copying(job)) == 2 else None,
        "both tables are copied",
        timeout_s=TIMEOUT_S,
    )
    execute(
        begin,
        "DROP TABLE same", f"CREATE TABLE same {columns}", fill("same", 2000, "+", "new"),
        "DROP TABLE other", "CREATE TABLE other (t VARCHAR(90), id BIGINT PRIMARY KEY)",
        "INSERT INTO other VALUES ('new', 5), ('more', 3000000000)",
        "UPDATE same SET v = 0 WHERE id % 3 = 0", "DELETE FROM same WHERE id % 5 = 0",
        database="shop",
    )  # fmt: skip
    assert copying(job) == before
    job.until_complete("shop")
    job.until_equal("shop")
    execute("UPDATE same SET v = 8 WHERE id = 1", "DELETE FROM other WHERE id = 5", database="shop")
    job.until_equal("shop")
    assert job.stop() == 0, job.log
    assert delta.read(job.target / "shop" / "same").num_rows == 1600
    assert job.verify("shop").count(": equal") == 2
