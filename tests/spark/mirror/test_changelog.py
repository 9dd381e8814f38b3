"""The changelog of a table with a real server's log, and the requests that it refuses."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from dispatcher.model.errors import ErrorKind, UserError
from spark_sink.mirror.changelog import ChangelogRange, json_lines, table_changes
from tests.spark.conftest import Source
from tests.spark.mirror.conftest import Mirror


@pytest.mark.rotate(4, of="tables of the mirror")
def test_each_change_is_once_in_the_changelog_with_typed_values_across_statements(
    mirror: Mirror, source: Source
) -> None:
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, big LONGTEXT)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 1, NULL), (2, 2, NULL)",
        "INSERT INTO other VALUES (1)",
        "UPDATE t SET v = 3 WHERE id = 1",
    )
    mirror.feed(appends=2)
    source.execute(
        "ALTER TABLE t MODIFY v BIGINT, ADD w DECIMAL(5,2)",
        "UPDATE t SET id = 5, w = 1.25, v = 5000000000 WHERE id = 1",
        # This statement is larger than a payload of the log, so its rows are in several entries.
        "INSERT INTO t (id, big) VALUES " + ", ".join(f"({i}, REPEAT('x', 1000000))" for i in range(6, 12)),
        "TRUNCATE t",
    )  # fmt: skip
    mirror.feed()
    table, target = f"{source.database}.t", str(mirror.target.path)
    table_changes(mirror.spark, target, table).createOrReplaceTempView("t_changes")
    rows = mirror.spark.sql(
        "SELECT lsn, position, op, transaction_end AS `end`, gtid, query, before.id AS b,"
        " struct(after.id, after.v, after.w) AS after, length(after.big) AS size"
        " FROM t_changes ORDER BY lsn, position"
    ).collect()
    found = [(r["op"], r["b"], r["after"]["id"], r["after"]["v"], r["end"]) for r in rows]
    assert found == [
        ("ddl", None, None, None, True),
        ("insert", None, 1, 1, False),
        ("insert", None, 2, 2, True),
        ("update", 1, 1, 3, True),
        ("ddl", None, None, None, True),
        ("update", 1, 5, 5_000_000_000, True),
        *(("insert", None, i, None, i == 11) for i in range(6, 12)),
        ("ddl", None, None, None, True),
    ]
    assert [r["query"].split()[0] for r in rows if r["op"] == "ddl"] == ["CREATE", "ALTER", "TRUNCATE"]  # fmt: skip
    assert str(rows[5]["after"]["w"]) == "1.25"
    inserts = rows[6:12]
    assert len({r["lsn"] for r in inserts}) > 1
    assert {r["size"] for r in inserts} == {1_000_000}
    assert len({r["gtid"] for r in inserts}) == 1


@pytest.mark.deep
def test_parts_of_a_changelog_by_entry_and_by_time(mirror: Mirror, source: Source) -> None:
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "ALTER TABLE t ADD v INT",
        "UPDATE t SET v = 1",
        "INSERT INTO t VALUES (2, 2)",
        "DELETE FROM t",
    )
    mirror.feed(appends=2)
    table, target = f"{source.database}.t", str(mirror.target.path)
    rows = table_changes(mirror.spark, target, table).orderBy("lsn", "position").collect()
    assert [r["op"] for r in rows] == ["ddl", "insert", "ddl", "update", "insert", *["delete"] * 2]
    alter = next(r["lsn"] for r in rows[1:] if r["op"] == "ddl")
    soon = datetime.now(UTC) + timedelta(minutes=1)
    part = ChangelogRange(start=alter, end=soon)
    lines = json_lines(table_changes(mirror.spark, target, table, within=part), limit=3)
    assert [json.loads(line)["op"] for line in lines] == ["ddl", "update", "insert"]
    assert table_changes(mirror.spark, target, table, within=ChangelogRange(start=soon)).isEmpty()


def test_what_the_log_does_not_have_is_a_clear_error(mirror: Mirror) -> None:
    with pytest.raises(UserError, match="there is no log of a mirror"):
        table_changes(mirror.spark, str(mirror.target.path), "shop.t")
    mirror.append = mirror.appender.claim("shop").append
    with pytest.raises(UserError) as error:
        table_changes(mirror.spark, str(mirror.target.path), "shop.t")
    assert error.value.kind is ErrorKind.UNKNOWN_TABLE
    assert "no rows of the table shop.t" in str(error.value)
    with pytest.raises(UserError, match=r"like database\.table"):
        table_changes(mirror.spark, str(mirror.target.path), "t")


@pytest.mark.parametrize("text", ["yesterday", "-5", "2026-13-01", "0001-01-01T00:00:00+14:00"])
def test_a_bound_that_is_no_number_and_no_time_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--to"):
        ChangelogRange.parse(None, text)


def test_bounds_are_numbers_of_entries_or_times_in_utc() -> None:
    parsed = ChangelogRange.parse("4294967296", "2026-11-21T12:00:00+02:00")
    assert parsed == ChangelogRange(1 << 32, datetime(2026, 11, 21, 10, tzinfo=UTC))
    assert ChangelogRange.parse(None, "2026-11-21").end == datetime(2026, 11, 21, tzinfo=UTC)
