"""RENAME TABLE between mirrored names and names that the settings exclude."""

from __future__ import annotations

import pytest

from spark_sink.mirror.rules.states import TableState
from spark_sink.mirror.rules.table_record import Wish
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import TablePolicy, UnknownTables
from tests.spark.conftest import Source, Target, assert_equal
from tests.spark.mirror.conftest import Mirror


def left_out(_consumer: str, name: TableName) -> bool:
    return name[1].startswith("_")


@pytest.mark.deep
def test_a_table_leaves_the_mirror_by_a_rename_and_comes_back(
    mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE u (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE _gho (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1)",
        "INSERT INTO u VALUES (1, 1)",
        "INSERT INTO _gho VALUES (1, 1), (2, 2)",
        "RENAME TABLE t TO _away",
        "INSERT INTO _away VALUES (3, 3)",
    )
    mirror.feed(appends=2)
    assert mirror.apply(excludes=left_out) == 0
    states = {r.table: (r.word, r.reason) for r in mirror.control.records().values()}
    assert states["t"] == (
        TableState.DROPPED,
        "renamed to a name that the settings leave out",
    )
    assert states.keys() == {"t", "u"}
    assert target.rows(source, "t") == []

    source.execute(
        "RENAME TABLE _away TO t, u TO _old, _gho TO u",
        "INSERT INTO t VALUES (4, 4)",
        "INSERT INTO u VALUES (4, 4)",
    )
    mirror.feed(appends=2)
    assert mirror.apply(excludes=left_out) == 1
    for name in ("t", "u"):
        record = mirror.record(name)
        assert record.word is TableState.STOPPED
        assert f"copy {source.database}.{name}" in record.reason
        assert target.rows(source, name) == []
        mirror.ask(name, Wish.PARTIAL)
    # Entries that are read again after a kill change nothing.
    mirror.read_again()
    assert mirror.apply(excludes=left_out) == 0
    assert {mirror.record(name).word for name in ("t", "u")} == {TableState.PARTIAL}
    for name in ("t", "u"):
        assert [row["id"] for row in target.rows(source, name)] == [4]

    mirror.policy = TablePolicy(unknown=UnknownTables.PARTIAL)
    source.execute("RENAME TABLE u TO kept", "INSERT INTO kept VALUES (5, 5)", "TRUNCATE t")
    mirror.feed()
    assert mirror.apply(excludes=left_out) == 0
    assert sorted(row["id"] for row in target.rows(source, "kept")) == [4, 5]
    assert mirror.record("t").word is TableState.COMPLETE
    assert_equal(source, target, "t")
