"""Rows with -0.0 and 0.0, which a server takes for one key and stores as two values."""

from __future__ import annotations

from typing import Any

import pytest

from spark_sink.mirror.values.policies import Deletes, TablePolicy
from tests.spark.conftest import Source, Target
from tests.spark.mirror.conftest import Mirror

pytestmark = pytest.mark.rotate(1, of="rows of the mirror")

TABLES = (
    "CREATE TABLE doubles (k DOUBLE PRIMARY KEY, v INT)",
    "CREATE TABLE floats (id INT, k FLOAT, v INT, PRIMARY KEY (id, k))",
    "CREATE TABLE heap (k DOUBLE, v FLOAT, n INT)",
)


def signed(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in rows)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("appends", [1, 9])
def test_both_zeros_are_one_key(
    mirror: Mirror, source: Source, target: Target, appends: int, soft: bool
) -> None:
    deletes = Deletes.SOFT if soft else Deletes.HARD
    mirror.policy = TablePolicy(deletes=deletes, history=not soft)
    source.execute(
        *TABLES[:2],
        "INSERT INTO doubles VALUES (0.0, 1), (1.5, 1)",
        "INSERT INTO floats VALUES (1, 0.0, 1), (2, -0e0, 1)",
        "UPDATE doubles SET k = -0e0 WHERE k = 0",
        "UPDATE floats SET k = -k",
    )
    names = ("doubles", "floats")

    def require_equal() -> None:
        for name in names:
            wanted = signed(source.rows(name))
            rows = [r for r in target.rows(source, name) if not r.pop("_deleted", False)]
            assert signed(rows) == wanted
            if not soft:
                versions = target.rows(source, f"{name}__history")
                current = [{n: r[n] for n in rows[0]} for r in versions if r["is_current"]]
                assert signed(current) == wanted

    assert mirror.run(appends=appends) == 0
    assert "-0.0" in "".join(signed(source.rows("doubles")))
    require_equal()
    source.execute(
        "UPDATE doubles SET v = 2",
        "UPDATE floats SET v = 2",
        "DELETE FROM doubles WHERE k = 0",
        "INSERT INTO doubles VALUES (0.0, 3)",
        "UPDATE doubles SET k = -k WHERE k = 0",
        "REPLACE INTO doubles VALUES (0.0, 4)",
        "DELETE FROM floats WHERE id = 1",
    )
    assert mirror.run(appends=appends) == 0
    require_equal()


def test_rows_without_a_key_keep_their_sign(mirror: Mirror, source: Source, target: Target) -> None:
    source.execute(
        "SET sql_generate_invisible_primary_key = 0",
        TABLES[2],
        "INSERT INTO heap VALUES (0.0, -0e0, 1), (0.0, 0.0, 1), (NULL, -0e0, 1)",
    )
    assert mirror.run() == 0
    assert signed(target.rows(source, "heap")) == signed(source.rows("heap"))
    source.execute(
        "UPDATE heap SET k = -k WHERE n = 1",
        "INSERT INTO heap VALUES (-0e0, -0e0, 1), (-0e0, 0.0, 2)",
        "UPDATE heap SET v = -v WHERE k IS NULL",
    )
    assert mirror.run() == 0
    assert signed(target.rows(source, "heap")) == signed(source.rows("heap"))
    source.execute("DELETE FROM heap WHERE n = 1 LIMIT 2")
    assert mirror.run() == 0
    assert signed(target.rows(source, "heap")) == signed(source.rows("heap"))
