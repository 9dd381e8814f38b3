"""Tables with generated columns on a real server's log, when the type of a source column changes."""

from __future__ import annotations

import pytest

from spark_sink.mirror.rules.states import TableState
from spark_sink.mirror.values.policies import TablePolicy, UnfollowedChange
from tests.spark.conftest import Source, Target, assert_equal
from tests.spark.mirror.conftest import Mirror

pytestmark = pytest.mark.rotate(2, of="tables of the mirror")


@pytest.mark.parametrize("policy", list(UnfollowedChange))
def test_a_table_stops_before_its_generated_columns_are_old(
    mirror: Mirror, source: Source, target: Target, policy: UnfollowedChange
) -> None:
    mirror.policy = TablePolicy(unfollowed=policy)
    source.execute(
        "CREATE TABLE gen (id INT PRIMARY KEY, e ENUM('a','b'), n INT AS (e + 0), i INT)",
        "CREATE TABLE plain (id INT PRIMARY KEY, e ENUM('a','b'), i INT)",
        "CREATE TABLE copied LIKE plain",
        "INSERT INTO gen (id, e, i) VALUES (1, 'a', 1), (2, 'b', 2)",
        "INSERT INTO plain VALUES (1, 'a', 1)",
        "INSERT INTO copied VALUES (1, 'a', 1)",
        "ALTER TABLE gen MODIFY i BIGINT",
        "ALTER TABLE plain MODIFY i BIGINT, MODIFY e ENUM('b','a')",
        "ALTER TABLE gen MODIFY e ENUM('b','a')",
        "INSERT INTO gen (id, e, i) VALUES (3, 'b', 3)",
        "INSERT INTO plain VALUES (3, 'b', 3)",
        "ALTER TABLE copied MODIFY i BIGINT",
    )
    assert mirror.run() == 1
    stopped = mirror.record("gen")
    assert stopped.word is TableState.STOPPED
    assert "the generated column n is computed again from column e" in stopped.reason
    assert [row["n"] for row in target.rows(source, "gen")] == [1, 2]
    assert mirror.record("plain").word is TableState.COMPLETE
    assert_equal(source, target, "plain")
    unknown = mirror.record("copied")
    assert unknown.word is TableState.STOPPED
    assert "it is not known which columns are computed from it" in unknown.reason
