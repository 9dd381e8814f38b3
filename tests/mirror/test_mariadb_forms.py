"""What only MariaDB logs, from the server through the daemon into Delta tables."""

from __future__ import annotations

import pymysql
import pytest

from deploy.demo import delta
from tests.mirror.harness import MirrorJob


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
