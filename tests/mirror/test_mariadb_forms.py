"""What only MariaDB logs, from the server through the daemon into Delta tables."""

from __future__ import annotations

import re

import pymysql
import pytest

from deploy.demo import delta
from tests.mirror.harness import MirrorJob
from tests.mirror.lake import table_states


def rows(job: MirrorJob, table: str) -> list[tuple[object, ...]]:
    found = delta.read(job.target / "shop" / table).to_pylist()
    return sorted(tuple(row.values()) for row in found)


@pytest.mark.rotate(2, of="jobs of Spark")
@pytest.mark.parametrize(
    "job",
    [
        ("mariadb118", "--binlog-alter-two-phase=ON"),
        ("mariadb1011", "--binlog-alter-two-phase=ON"),
    ],
    indirect=True,
    ids=["mariadb118", "mariadb1011"],
)
def test_an_alter_in_two_transactions_is_applied_once_if_it_succeeds(job: MirrorJob) -> None:
    execute = job.server.execute
    execute(
        "CREATE TABLE tp (id INT PRIMARY KEY, a INT, b INT, e INT)",
        "INSERT INTO tp VALUES (1, 10, 20, 5), (2, 11, 21, 5)",
        database="shop",
    )
    with pytest.raises(pymysql.err.IntegrityError):
        execute("ALTER TABLE tp RENAME TO tpz, ADD UNIQUE (e)", database="shop")
    execute(
        "ALTER TABLE tp CHANGE a b INT, CHANGE b a INT AFTER id",
        "INSERT INTO tp VALUES (3, 1, 2, 3)",
        "CREATE INDEX i ON tp (b)",
        "ALTER TABLE tp ADD COLUMN f INT DEFAULT 7",
        "CREATE TABLE other_name (id INT PRIMARY KEY)",
        "INSERT INTO other_name VALUES (1)",
        "ALTER TABLE other_name RENAME TO renamed, ADD COLUMN g INT DEFAULT 3",
        database="shop",
    )
    assert job.run("shop") == 0, job.log
    assert job.standing("shop") == []
    assert job.differences("shop") == []
    assert job.leftovers("shop") == []


SEQUENCE_COLUMNS = (
    "next_not_cached_value BIGINT NOT NULL, minimum_value BIGINT NOT NULL, maximum_value BIGINT NOT NULL,"
    " start_value BIGINT NOT NULL, increment BIGINT NOT NULL, cache_size BIGINT UNSIGNED NOT NULL,"
    " cycle_option TINYINT UNSIGNED NOT NULL, cycle_count BIGINT NOT NULL"
)


@pytest.mark.rotate(2, of="jobs of Spark")
@pytest.mark.parametrize(
    "job", [("mariadb118",), ("mariadb1011",)], indirect=True, ids=lambda p: p[0]
)
def test_sequences_are_left_out_and_tables_with_their_columns_are_not(job: MirrorJob) -> None:
    execute = job.server.execute
    execute(
        "CREATE SEQUENCE s CACHE 2",
        "CREATE TABLE t (id INT PRIMARY KEY, v BIGINT)",
        "INSERT INTO t VALUES (1, NEXTVAL(s)), (2, NEXTVAL(s)), (3, NEXTVAL(s))",
        "SELECT NEXTVAL(s)",
        "SELECT SETVAL(s, 50)",
        "ALTER SEQUENCE s RESTART 100",
        "CREATE TABLE replaced (id INT PRIMARY KEY)",
        "INSERT INTO replaced VALUES (1), (2)",
        f"CREATE TABLE lookalike ({SEQUENCE_COLUMNS}) ENGINE=Aria",
        "INSERT INTO lookalike VALUES (1, 1, 1, 1, 1, 1, 1, 1), (2, 1, 1, 1, 1, 1, 1, 1)",
        "CREATE TABLE saved AS SELECT * FROM s",
        database="shop",
    )
    assert job.run("shop") == 0, job.log
    assert set(table_states(job.target, "shop")) == {
        f"shop.{n}" for n in ("t", "replaced", "lookalike", "saved")
    }
    assert job.standing("shop") == []
    execute(
        "CREATE OR REPLACE SEQUENCE replaced",
        "SELECT NEXTVAL(replaced), NEXTVAL(s)",
        "CREATE OR REPLACE SEQUENCE other",
        "SELECT NEXTVAL(other)",
        "RENAME TABLE s TO s2",
        "SELECT NEXTVAL(s2)",
        "DROP SEQUENCE other",
        "CREATE TABLE liked LIKE s2",
        "SELECT NEXTVAL(liked)",
        "INSERT INTO lookalike VALUES (3, 1, 1, 1, 1, 1, 1, 1)",
        "INSERT INTO t VALUES (4, 4)",
        database="shop",
    )
    assert job.run("shop") == 0, job.log
    assert set(table_states(job.target, "shop")) == {
        f"shop.{n}" for n in ("t", "lookalike", "saved", "liked")
    }
    assert not (job.target / "shop" / "liked").exists()
    assert job.standing("shop") == []
    assert len(rows(job, "lookalike")) == 3
    assert len(rows(job, "t")) == 4
    found = job.verify("shop", exit_code=1)
    assert "shop.liked: not compared, 0 rows; shop.liked is a sequence" in found
    assert "shop.lookalike: equal" in found
    assert not re.search(r"shop\.(s|s2|other|replaced):", found)


VERSIONED = (
    "CREATE TABLE h (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING",
    "CREATE TABLE named (id INT PRIMARY KEY, v INT, a TIMESTAMP(6) GENERATED ALWAYS AS ROW START,"
    " z TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (a, z)) WITH SYSTEM VERSIONING",
    "CREATE TABLE keyless (id INT, v INT, w INT WITHOUT SYSTEM VERSIONING) WITH SYSTEM VERSIONING",
    "CREATE TABLE whole (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING",
    "CREATE TABLE plain (id INT, a TIMESTAMP(6) NOT NULL, z TIMESTAMP(6) NOT NULL, PRIMARY KEY (id, z))",
)
CHANGES = (
    *(
        f"INSERT INTO {t} (id, v) VALUES (1, 10), (2, 20), (3, 30)"
        for t in ("h", "named", "keyless", "whole")
    ),
    *(f"UPDATE {t} SET v = 11 WHERE id = 1" for t in ("h", "named", "keyless", "whole")),
    *(f"DELETE FROM {t} WHERE id = 2" for t in ("h", "named", "keyless", "whole")),
    "UPDATE keyless SET w = 5 WHERE id = 3",
    "UPDATE h SET id = 7 WHERE id = 3",
    "REPLACE INTO named (id, v) VALUES (1, 12), (4, 40)",
    "INSERT INTO named (id, v) VALUES (1, 12) ON DUPLICATE KEY UPDATE v = 13",
    "INSERT INTO plain VALUES (1, '2020-01-01', '2020-01-02'), (1, '2020-01-02', '2021-01-02')",
    "UPDATE plain SET z = '2022-01-02' WHERE z = '2021-01-02'",
)


@pytest.mark.rotate(2, of="jobs of Spark")
@pytest.mark.parametrize(
    "job", [("mariadb118",), ("mariadb1011",)], indirect=True, ids=lambda p: p[0]
)
def test_versioned_tables_have_their_current_rows_or_all_versions_by_policy(job: MirrorJob) -> None:
    execute = job.server.execute
    job.settings = "tables: {shop.whole: {all_versions: true}}\n"
    execute(
        *VERSIONED,
        *CHANGES,
        "CREATE TABLE removed (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING",
        "INSERT INTO removed VALUES (1, 1), (2, 2)",
        "UPDATE removed SET v = 5 WHERE id = 1",
        database="shop",
    )
    assert job.run("shop") == 0, job.log
    assert job.standing("shop") == []
    check_versions(job, "removed")
    execute(
        *(f"UPDATE {t} SET v = v + 1" for t in ("h", "named", "keyless", "whole")),
        "DELETE HISTORY FROM h",
        "DELETE FROM h WHERE id = 7",
        "SET SESSION system_versioning_alter_history = KEEP",
        "ALTER TABLE h ADD COLUMN c INT DEFAULT 5",
        "INSERT INTO h (id, v) VALUES (9, 9)",
        "UPDATE h SET v = 10 WHERE id = 9",
        "CREATE TABLE added (id INT PRIMARY KEY, v INT)",
        "INSERT INTO added VALUES (1, 1), (2, 2)",
        "ALTER TABLE added ADD SYSTEM VERSIONING",
        "UPDATE added SET v = 5 WHERE id = 1",
        "ALTER TABLE removed DROP SYSTEM VERSIONING",
        "UPDATE removed SET v = 6 WHERE id = 1",
        database="shop",
    )
    assert job.run("shop") == 0, job.log
    assert job.standing("shop") == []
    check_versions(job, "added", "removed")
    assert job.verify("shop").count(": equal,") == 7


def check_versions(job: MirrorJob, *more: str) -> None:
    """Compare two columns of each table with what SELECT returns; for the table `whole`, with all versions."""
    for table in ("h", "named", "keyless", "plain", "whole", *more):
        second = "z" if table == "plain" else "v"
        versions = " FOR SYSTEM_TIME ALL" if table == "whole" else ""
        expected = job.server.execute(f"SELECT id, {second} FROM shop.{table}{versions}")
        found = delta.read(job.target / "shop" / table).select(["id", second]).to_pylist()
        values = [(row["id"], row[second]) for row in found]
        if table == "plain":
            values = [(n, time.replace(tzinfo=None)) for n, time in values]
        assert sorted(values) == sorted(expected), table
