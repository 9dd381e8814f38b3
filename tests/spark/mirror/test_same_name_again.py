"""DROP and CREATE of one name while no job applies the log."""

from __future__ import annotations

import pytest

from tests.spark.conftest import Source, Target, assert_equal
from tests.spark.mirror.conftest import Mirror

pytestmark = pytest.mark.rotate(4, of="tables of the mirror")


def test_a_name_that_is_dropped_and_created_while_the_mirror_is_down(
    mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)"
    )
    assert mirror.run() == 0
    source.execute(
        "UPDATE t SET v = 3 WHERE id = 1",
        "DROP TABLE t",
        "CREATE TABLE t (v VARCHAR(9), id BIGINT PRIMARY KEY)",
        "INSERT INTO t VALUES ('gone', 7)",
        "DROP TABLE t",
        "CREATE TABLE t (id BIGINT PRIMARY KEY, w VARCHAR(9))",
        "INSERT INTO t VALUES (2, 'new'), (5, 'five')",
    )
    assert mirror.run(appends=3) == 0
    assert_equal(source, target, "t")
