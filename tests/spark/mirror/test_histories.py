"""History tables on a real server's log: each version of each row, across statements, copies of names, and replays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_sink.mirror.request_commands import request_resolution
from spark_sink.mirror.rules.states import TableState
from spark_sink.mirror.rules.table_record import Wish
from spark_sink.mirror.values.entries import last_lsn
from spark_sink.mirror.values.policies import TablePolicy
from tests.spark.conftest import Source, Target, assert_equal, comparable
from tests.spark.facts import both_lines
from tests.spark.mirror.conftest import Mirror

HISTORY = TablePolicy(history=True)


def versions(target: Target, source: Source, table: str = "t") -> list[dict[str, Any]]:
    """The versions in their order. Their times are those of the log's entries."""
    found = target.rows(source, f"{table}__history")
    for row in found:
        assert row["is_current"] == (row["valid_to_lsn"] is None) == (row["valid_to"] is None)
        if not row["is_current"]:
            assert row["valid_from"] <= row["valid_to"]
            end = row["valid_to_lsn"], row["valid_to_position"]
            assert (row["valid_from_lsn"], row["valid_from_position"]) < end
    return sorted(
        found, key=lambda row: (row["valid_from_lsn"], row["valid_from_position"], row["id"])
    )


def require_current(target: Target, source: Source, *names: str, table: str = "t") -> None:
    """Assert that the current versions equal the rows of the server's table."""
    now = [{n: v[n] for n in names} for v in versions(target, source, table) if v["is_current"]]
    assert comparable(now) == comparable(source.rows(table))


CHANGES = (
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
    "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    "BEGIN",
    "UPDATE t SET v = 'c' WHERE id = 1",
    "UPDATE t SET v = 'd' WHERE id = 1",
    "COMMIT",
    "UPDATE t SET id = 3 WHERE id = 2",
    "DELETE FROM t WHERE id = 1",
)


@pytest.mark.rotate(4, of="tables of the mirror")
def test_every_version_of_a_batch_is_in_the_history(
    mirror: Mirror, source: Source, target: Target
) -> None:
    mirror.policy = HISTORY
    source.execute(*CHANGES)
    assert mirror.run() == 0
    require_current(target, source, "id", "v")
    found = versions(target, source)
    assert [(v["id"], v["v"], v["is_current"]) for v in found] == [
        (1, "a", False),
        (2, "b", False),
        (1, "c", False),
        (1, "d", False),
        (3, "b", True),
    ]
    assert found[2]["valid_from"] == found[2]["valid_to"]  # begun and ended in one transaction


@pytest.mark.deep
def test_versions_go_on_across_statements_and_what_is_read_again_changes_nothing(
    mirror: Mirror, source: Source, target: Target
) -> None:
    mirror.policy = HISTORY
    source.execute(
        *CHANGES,
        "ALTER TABLE t ADD w INT NOT NULL DEFAULT 7, ADD INDEX (v)",
        "INSERT INTO t VALUES (1, 'e', 8)",
    )
    mirror.feed(appends=3)
    assert mirror.apply() == 0
    require_current(target, source, "id", "v", "w")
    found = versions(target, source)
    assert [(v["id"], v["v"], v["w"], v["is_current"]) for v in found] == [
        (1, "a", None, False),
        (2, "b", None, False),
        (1, "c", None, False),
        (1, "d", None, False),
        (3, "b", None, False),
        (3, "b", 7, True),
        (1, "e", 8, True),
    ]
    for before, after in ((0, 2), (2, 3), (1, 4), (4, 5)):
        ends = [found[before][f"valid_to{part}"] for part in ("", "_lsn", "_position")]
        assert ends == [found[after][f"valid_from{part}"] for part in ("", "_lsn", "_position")]
    # Entries that are read again change nothing.
    commits = target.versions(source, "t__history")
    (history,) = mirror.control.rows().histories.values()
    mirror.control.write([history])
    mirror.read_again()
    assert mirror.apply() == 0
    assert target.versions(source, "t__history") == commits
    assert versions(target, source) == found
    source.execute("TRUNCATE t", "INSERT INTO t VALUES (9, 'f', 9)")
    assert mirror.run() == 0
    require_current(target, source, "id", "v", "w")
    assert len(versions(target, source)) == len(found) + 1


@pytest.mark.deep
def test_a_history_that_begins_later_goes_on_behind_swaps_and_drops(
    mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE _gho (id INT PRIMARY KEY, v BIGINT, w INT)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "INSERT INTO _gho VALUES (1, 1, NULL), (2, 20, NULL), (3, 3, 3)",
        "UPDATE t SET v = 5 WHERE id = 2",
    )
    assert mirror.run() == 0
    # The log contains all changes since the CREATE TABLE, so the history begins there.
    mirror.policy = HISTORY
    source.execute("UPDATE t SET v = 6 WHERE id = 2")
    assert mirror.run() == 0
    require_current(target, source, "id", "v")
    assert [v["v"] for v in versions(target, source) if v["id"] == 2] == [2, 5, 6]
    # A schema change by the method of gh-ost: rows that stay equal keep their version.
    source.execute(
        "RENAME TABLE t TO _del, _gho TO t",
        "INSERT INTO t VALUES (4, 4, 4)",
        "DROP TABLE _del",
    )
    mirror.feed(appends=2)
    assert mirror.apply() == 0
    require_current(target, source, "id", "v", "w")
    found = versions(target, source)
    assert [v["is_current"] for v in found if v["id"] == 1] == [True]
    assert [v["v"] for v in found if v["id"] == 2] == [2, 5, 6, 20]
    source.execute("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    assert mirror.run() == 0
    assert not any(v["is_current"] for v in versions(target, source))
    source.execute("INSERT INTO t VALUES (1, 100)")
    assert mirror.run() == 0
    assert [v["v"] for v in versions(target, source) if v["is_current"]] == [100]


@pytest.mark.deep
def test_a_history_that_cannot_go_on_stops_alone(
    mirror: Mirror, source: Source, target: Target
) -> None:
    mirror.policy = HISTORY
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1)",
        "CREATE TABLE keyless (id INT)",
        "INSERT INTO keyless VALUES (1)",
        "CREATE TABLE clash (id INT PRIMARY KEY, Valid_To INT)",
        "INSERT INTO clash VALUES (1, 1)",
        "CREATE TABLE u (id INT PRIMARY KEY)",
        "CREATE TABLE u__history (id INT PRIMARY KEY)",
        "INSERT INTO u__history VALUES (1)",
        "INSERT INTO u VALUES (1)",
    )
    assert mirror.run() == 1
    for table in ("t", "keyless", "clash", "u", "u__history"):
        assert_equal(source, target, table)
        assert mirror.record(table).word is TableState.COMPLETE
    histories = mirror.control.rows().histories.values()
    found = {record.table: (record.word, record.reason) for record in histories}
    assert found["t"] == (TableState.COMPLETE, "")
    for table in ("keyless", "clash"):
        assert not Path(target.of(source, f"{table}__history")).exists()
    for table, reason in (
        ("keyless", "has no key"),
        ("clash", "has a column Valid_To, which is the name of a column of its history"),
        ("u", "the table of this name is mirrored"),
    ):
        assert found[table][0] is TableState.STOPPED
        assert reason in found[table][1]
        assert f"resolve {source.database}.{table}__history --as recopy" in found[table][1]
    source.execute("UPDATE t SET v = 2", "ALTER TABLE keyless ADD PRIMARY KEY (id)")
    assert mirror.run() == 1
    name = f"{source.database}.keyless__history"
    request_resolution(mirror.control, [name], Wish.RECOPY)
    assert mirror.apply() == 1
    require_current(target, source, "id", table="keyless")
    states = {line.table: line.state for line in both_lines(mirror.spark, str(target.path))}
    assert states[name] == states[f"{source.database}.t__history"] == "complete"


@pytest.mark.deep
def test_rows_of_a_copy_begin_at_its_moment_and_end_what_they_replace(
    make_mirror: Callable[..., Mirror], source: Source, target: Target
) -> None:
    mirror = make_mirror("shop", policy=HISTORY)
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
    )
    assert mirror.run() == 0
    # Set the state after a copy: the table's folder has other rows, in their state at the newest entry.
    record = mirror.record("t")
    path = target.of(source, "t")
    mirror.spark.sql(f"UPDATE delta.`{path}` SET v = 20 WHERE id = 2")
    mirror.spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 3")
    mirror.feed()
    copied_at = last_lsn(mirror.append)
    mirror.control.write([replace(record, copied_at=copied_at)])
    source.execute("UPDATE t SET v = 10 WHERE id = 1")
    assert mirror.run() == 0
    found = versions(target, source)
    assert [(v["id"], v["v"], v["is_current"]) for v in found] == [
        (1, 1, False),
        (2, 2, False),
        (3, 3, False),
        (2, 20, True),
        (1, 10, True),
    ]
    assert found[2]["valid_to_lsn"] == found[3]["valid_from_lsn"] == copied_at
