"""The applier with a real server's log: each table equals MySQL's table, independent of other tables, and no step is
applied twice."""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_sink.mirror.adopt_command import adopt_tables
from spark_sink.mirror.rules.states import TableState
from spark_sink.mirror.rules.table_record import Wish
from spark_sink.mirror.spark_facts import SparkFacts
from spark_sink.mirror.table_lines import table_lines
from spark_sink.mirror.tables.delta import StepSession
from spark_sink.mirror.values.policies import (
    Deletes,
    MetadataColumn,
    TablePolicy,
    UnfollowedChange,
    UnknownTables,
)
from tests.spark.conftest import Source, Target, assert_equal
from tests.spark.mirror.conftest import Mirror, without_watermark

pytestmark = pytest.mark.rotate(1, of="steps of the mirror")

ALL_TYPES = """
CREATE TABLE types (
  id BIGINT UNSIGNED PRIMARY KEY, t TINYINT, ut TINYINT UNSIGNED, s SMALLINT, us SMALLINT UNSIGNED,
  m MEDIUMINT, um MEDIUMINT UNSIGNED, i INT, ui INT UNSIGNED, b BIGINT, d DECIMAL(38,10), d2 DECIMAL(5,0),
  f FLOAT, g DOUBLE, c CHAR(5), v VARCHAR(300), x TEXT, bi BINARY(4), vb VARBINARY(20), bl BLOB, da DATE,
  dt DATETIME, dt6 DATETIME(6), ts TIMESTAMP NULL, ts3 TIMESTAMP(3) NULL, e ENUM('small', 'grün')
) CHARACTER SET utf8mb4
"""


@pytest.mark.parametrize(
    ("zone", "vectors"),
    [("UTC", False), ("Asia/Kathmandu", True), ("Pacific/Pago_Pago", True)],
)
def test_every_type_and_every_kind_of_change(
    zone: str,
    vectors: bool,
    mirror: Mirror,
    source: Source,
    target: Target,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`zone`: the time zone of the applier's sessions; `vectors`: True if the tables have deletion vectors."""

    def in_zone(self: StepSession, spark: Any, init: Any = StepSession.__init__) -> None:
        init(self, spark)
        self.spark.conf.set("spark.sql.session.timeZone", zone)

    monkeypatch.setattr(StepSession, "__init__", in_zone)
    row = (
        "(18446744073709551615, -128, 255, -32768, 65535, -8388608, 16777215, -2147483648, 4294967295,"
        " -9223372036854775808, -1234567890123456789012345678.0123456789, -99999, 1.5, 2.25, 'ä€', '', '😀',"
        " x'00ff', x'', x'ff00', '9999-12-31', '1000-01-01 00:00:00', '9999-12-31 23:59:59.999999',"
        " '1970-01-01 00:00:01', '2038-01-19 03:14:07.999', 'grün')"
    )
    nulls = ", NULL" * 25
    source.execute(
        ALL_TYPES,
        f"INSERT INTO types VALUES {row}, (1{nulls}), (2{nulls})",
        "CREATE TABLE `pair of` (a INT, `b,c` VARCHAR(10) COLLATE utf8mb4_bin, v INT, PRIMARY KEY (`b,c`, a))",
        "INSERT INTO `pair of` VALUES (1, 'x', 1), (1, 'X', 2), (2, 'x', 3)",
        "CREATE TABLE rare (id INT PRIMARY KEY, p POINT, v VECTOR(2), j JSON, k VARCHAR(9) CHARACTER SET gbk)",
        "INSERT INTO rare VALUES (1, ST_GeomFromText('POINT(1 2)', 4326), STRING_TO_VECTOR('[1,-2.5]'),"
        """ '{"a": [1, 2.50]}', '中文'), (2, NULL, NULL, NULL, NULL)""",
        "DELETE FROM types WHERE id = 2",
        "INSERT INTO types (id) VALUES (99)",
        "INSERT INTO rare (id) VALUES (99)",
        "INSERT INTO `pair of` VALUES (99, 'x', 1)",
    )
    assert mirror.run(appends=3) == 0
    if vectors:
        # If a row of a file is deleted, the file gets a deletion vector. The driver does not handle such files; Spark
        # does.
        for table, column in (("types", "id"), ("rare", "id"), ("pair of", "a")):
            name = f"delta.`{target.of(source, table)}`"
            enabled = "('delta.enableDeletionVectors' = 'true')"
            mirror.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES {enabled}")
            mirror.spark.sql(f"DELETE FROM {name} WHERE {column} = 99")
    source.execute(
        "DELETE FROM types WHERE id = 99",
        "DELETE FROM rare WHERE id = 99",
        "DELETE FROM `pair of` WHERE a = 99",
        "UPDATE types SET v = 'changed', d = 1 WHERE id = 1",
        "UPDATE types SET id = 5 WHERE id = 1",
        "INSERT INTO types (id) VALUES (1), (3)",
        "REPLACE INTO types (id, t) VALUES (3, 9)",
        "UPDATE `pair of` SET a = a + 10 ORDER BY a DESC",
        "UPDATE `pair of` SET `b,c` = 'y', v = NULL WHERE v = 2",
        "SET binlog_row_value_options = PARTIAL_JSON",
        "UPDATE rare SET j = JSON_SET(j, '$.a[0]', 7) WHERE id = 1",
    )
    assert mirror.run() == 0
    assert_equal(source, target, "types")
    one, two = sorted(target.rows(source, "rare"), key=lambda r: int(r["id"]))
    assert one["p"].asDict() == {
        "srid": 4326,
        "wkb": b"\1\1\0\0\0" + struct.pack("<dd", 2, 1),  # WKB in the order longitude, latitude
    }
    assert (one["v"], one["j"], one["k"]) == ([1.0, -2.5], '{"a": [7, 2.5]}', "中文")
    assert set(two.values()) == {2, None}
    pairs = {(r["a"], r["b,c"]): r["v"] for r in target.rows(source, "pair of")}
    assert pairs == {(r["a"], r["b,c"]): r["v"] for r in source.rows("pair of")}
    # Everything is applied, and entries that are read again change nothing.
    commits = target.versions(source, "types")
    mirror.read_again()
    assert mirror.apply() == 0
    assert target.versions(source, "types") == commits


def test_statements_between_changes_in_any_cut_and_a_replay_that_changes_nothing(
    mirror: Mirror, source: Source, target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "spark_sink.mirror")
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE gone (id INT PRIMARY KEY)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "INSERT INTO other VALUES (1)",
        "INSERT INTO gone VALUES (1)",
        "TRUNCATE t",
        "INSERT INTO t VALUES (3, 3)",
        "ALTER TABLE t ADD COLUMN w DATETIME(3), ADD INDEX (v)",
        "INSERT INTO t VALUES (4, 4, '2024-02-29 12:00:00.5')",
        "DROP TABLE gone",
        "CREATE TABLE gone (name VARCHAR(10) PRIMARY KEY, id INT, at DATETIME)",
        "INSERT INTO gone VALUES ('new', 1, '2024-02-29 12:00:00')",
        "UPDATE t SET v = v + 1",
    )
    assert mirror.run(appends=4) == 0
    assert_equal(source, target, "t", "gone", "other")
    assert [m for m in caplog.messages if m.startswith("altered") and 'columns="w added"' in m]
    commits = {name: target.versions(source, name) for name in ("t", "gone", "other")}
    mirror.read_again()
    assert mirror.apply() == 0
    assert {name: target.versions(source, name) for name in commits} == commits
    source.execute("DROP TABLE other", "DELETE FROM t")
    assert mirror.run() == 0
    assert target.rows(source, "other") == target.rows(source, "t") == []
    assert mirror.record("t").word is TableState.COMPLETE


def test_one_table_of_many_stops_and_goes_on_in_each_way(
    mirror: Mirror, source: Source, target: Target
) -> None:
    mirror.policy = TablePolicy(unfollowed=UnfollowedChange.STOP)
    names = ("good", "partial_image", "altered", "emptied")
    source.execute(*(f"CREATE TABLE {name} (id INT PRIMARY KEY, v BIGINT)" for name in names))
    source.execute(*(f"INSERT INTO {name} VALUES (1, 1), (2, 2)" for name in names))
    source.execute(
        "SET binlog_row_image = MINIMAL",
        "UPDATE partial_image SET v = 5 WHERE id = 1",
        "UPDATE emptied SET v = 5 WHERE id = 1",
    )
    source.execute("ALTER TABLE altered ADD COLUMN w BIGINT DEFAULT (v + 1)")
    source.execute(*(f"INSERT INTO {name} (id, v) VALUES (3, 3)" for name in names))
    assert mirror.run(appends=2) == 1
    assert_equal(source, target, "good")
    for name in names[1:]:
        record = mirror.record(name)
        assert record.word is TableState.STOPPED
        assert f"resolve {source.database}.{name} --as" in record.reason
        assert len(target.rows(source, name)) <= 2
    assert "binlog_row_image=FULL" in mirror.record("emptied").reason

    source.execute("TRUNCATE emptied", "INSERT INTO emptied VALUES (7, 7)")
    source.execute("INSERT INTO altered VALUES (4, 4, 4)", "DELETE FROM partial_image WHERE id = 3")
    mirror.ask("partial_image", Wish.SKIP)
    spark = mirror.spark
    path = target.of(source, "altered")
    changed = spark.read.format("delta").load(path).selectExpr("*", "v + 1 AS w")
    changed.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path)
    mirror.ask("altered", Wish.APPLIED)
    assert mirror.run() == 0
    assert_equal(source, target, "good", "altered", "emptied")
    assert mirror.record("emptied").word is TableState.COMPLETE
    assert mirror.record("altered").word is TableState.COMPLETE
    skipped = mirror.record("partial_image")
    assert (skipped.word, skipped.request) == (TableState.PARTIAL, None)
    assert {row["id"]: row["v"] for row in target.rows(source, "partial_image")} == {1: 1, 2: 2}


def test_a_swap_of_tables_moves_their_folders_and_a_stopped_one_goes_on_under_its_new_name(
    mirror: Mirror, source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.policy = TablePolicy(unfollowed=UnfollowedChange.STOP)
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1)",
        "CREATE TABLE _t_gho (id INT PRIMARY KEY, v INT, w INT)",
        "INSERT INTO _t_gho VALUES (1, 1, 1)",
        "CREATE TABLE _t_del (id INT PRIMARY KEY)",
        "INSERT INTO _t_del VALUES (99)",
        "DROP TABLE _t_del",
        "INSERT INTO t VALUES (2, 2)",
        "INSERT INTO _t_gho VALUES (2, 2, 2)",
        "RENAME TABLE t TO _t_del, _t_gho TO t",
        "INSERT INTO t VALUES (3, 3, 3)",
        "INSERT INTO _t_del VALUES (4, 4)",
        "ALTER TABLE _t_del RENAME TO kept, ADD COLUMN x INT DEFAULT 8",
        "INSERT INTO kept VALUES (5, 5, 5)",
    )
    with without_watermark(monkeypatch):
        assert mirror.run(appends=4) == 0
    assert_equal(source, target, "t", "kept")
    assert not Path(target.of(source, "_t_gho")).exists()
    commits = [target.versions(source, name) for name in ("t", "kept")]
    assert mirror.apply() == 0
    assert [target.versions(source, name) for name in ("t", "kept")] == commits

    source.execute(
        "ALTER TABLE kept ADD COLUMN z INT DEFAULT (x + 1)",
        "INSERT INTO kept VALUES (6, 6, 6, 6)",
        "RENAME TABLE t TO swap_, kept TO t, swap_ TO kept",
        "INSERT INTO t VALUES (7, 7, 7, 7)",
        "INSERT INTO kept VALUES (8, 8, 8)",
    )
    assert mirror.run(appends=2) == 1
    assert_equal(source, target, "kept")
    stopped = mirror.record("t")
    assert (stopped.word, len(target.rows(source, "t"))) == (TableState.STOPPED, 4)
    assert f"resolve {source.database}.t --as" in stopped.reason
    assert f"{source.database}.kept" not in stopped.reason
    mirror.ask("t", Wish.SKIP)
    # The table, which the RENAME has named `t`, stops again, because the next rows have other columns.
    assert mirror.apply() == 1
    assert "other columns" in mirror.record("t").reason


def test_a_table_without_a_key_is_mirrored_by_counts_of_equal_rows(
    mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute(
        "SET sql_generate_invisible_primary_key = 0",
        "CREATE TABLE heap (a INT, b VARCHAR(9), c DOUBLE, d DATETIME(3))",
        "INSERT INTO heap VALUES (1, 'x', 0.5, NULL), (1, 'x', 0.5, NULL), (1, 'x', 0.5, NULL)",
        "INSERT INTO heap VALUES (NULL, NULL, NULL, NULL)",
    )

    def counted(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(row.values()) for row in rows)

    def equal() -> bool:
        return counted(target.rows(source, "heap")) == counted(source.rows("heap"))

    assert mirror.run() == 0
    assert equal()
    source.execute(
        "DELETE FROM heap WHERE a = 1 LIMIT 1",
        "UPDATE heap SET b = 'y' WHERE a = 1 LIMIT 1",
        "INSERT INTO heap VALUES (1, 'x', 0.5, NULL), (2, 'z', -0.0, '2024-01-01 00:00:00.25')",
        "INSERT INTO heap VALUES (NULL, NULL, NULL, NULL)",
        "UPDATE heap SET a = a",
    )
    assert mirror.run(appends=2) == 0
    assert equal()
    source.execute("DELETE FROM heap WHERE a IS NULL", "DELETE FROM heap WHERE b = 'z'")
    assert mirror.run() == 0
    assert equal()
    # One step of two payloads: one payload has only inserts, the other only deletes.
    source.execute("INSERT INTO heap VALUES (5, 'e', 1, NULL)", "DELETE FROM heap WHERE a = 5")
    assert mirror.run(appends=2) == 0
    assert equal()
    # The row to delete is missing in the Delta table. Because the table was complete, the applier stops it.
    path = target.of(source, "heap")
    mirror.spark.sql(f"DELETE FROM delta.`{path}` WHERE b = 'y'")
    source.execute("DELETE FROM heap WHERE b = 'y'")
    assert mirror.run() == 1
    assert "lacks 1 rows" in mirror.record("heap").reason


def test_soft_deletes_and_metadata_columns(mirror: Mirror, source: Source, target: Target) -> None:
    mirror.policy = TablePolicy(deletes=Deletes.SOFT, metadata=tuple(MetadataColumn))
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
        "DELETE FROM t WHERE id = 3",
    )
    assert mirror.run() == 0
    source.execute("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (3, 30)")
    assert mirror.run() == 0
    rows = {row["id"]: row for row in target.rows(source, "t")}
    assert {i: (row["v"], row["_deleted"]) for i, row in rows.items()} == {
        1: (1, True),
        2: (2, False),
        3: (30, False),
    }
    assert rows[1]["_seq"] < rows[3]["_seq"]
    assert rows[1]["_committed_at"] is not None
    source.execute("TRUNCATE t")
    assert mirror.run() == 0
    assert {row["_deleted"] for row in target.rows(source, "t")} == {True}


@pytest.mark.parametrize("with_rows", [False, True])
def test_a_truncate_marks_rows_that_have_no_metadata(
    mirror: Mirror, source: Source, target: Target, with_rows: bool
) -> None:
    """The rows of a copy, and of the time before soft deletes. `with_rows`: later rows have added the columns."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    assert mirror.run() == 0
    mirror.policy = TablePolicy(deletes=Deletes.SOFT)
    if with_rows:
        source.execute("INSERT INTO t VALUES (2, 2)")
        assert mirror.run() == 0
    source.execute("TRUNCATE t")
    assert mirror.run() == 0
    rows = {row["id"]: row["_deleted"] for row in target.rows(source, "t")}
    assert rows == ({1: True, 2: True} if with_rows else {1: True})
    source.execute("INSERT INTO t VALUES (1, 3)")
    assert mirror.run() == 0
    assert [row["v"] for row in target.rows(source, "t") if not row["_deleted"]] == [3]


def test_a_delta_table_that_no_mirror_has_made_is_not_taken_for_an_empty_one(
    mirror: Mirror, source: Source, target: Target
) -> None:
    frame = mirror.spark.createDataFrame([(7, 7)], "id INT, v INT")
    frame.write.format("delta").save(target.of(source, "t"))
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    assert mirror.run() == 1
    assert "did not make" in mirror.record("t").reason
    assert [row["id"] for row in target.rows(source, "t")] == [7]


def test_tables_that_are_older_than_the_mirror_and_a_gap(
    mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute(
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)" for name in ("old", "new", "dropped")),
        "INSERT INTO old VALUES (1, 1)",
    )
    source.feed()
    mirror.fed = len(source.daemon.transactions)
    source.execute("INSERT INTO old VALUES (2, 2)", "UPDATE old SET v = 9", "TRUNCATE new")
    source.execute("INSERT INTO new VALUES (1, 1)", "DROP TABLE dropped")
    assert mirror.run() == 1
    record = mirror.record("old")
    assert (record.word, record.folder) == (TableState.STOPPED, "")
    assert f"copy {source.database}.old" in record.reason
    assert mirror.record("new").word is TableState.COMPLETE
    mirror.ask("old", Wish.PARTIAL)
    assert mirror.apply() == 0
    assert mirror.record("old").word is TableState.PARTIAL
    assert_equal(source, target, "old", "new")
    source.execute("INSERT INTO new VALUES (2, 2)")
    mirror.feed(gap=True)
    assert mirror.apply() == 0
    assert mirror.record("new").word is TableState.PARTIAL
    assert "purged" in mirror.record("new").reason
    mirror.policy = TablePolicy(unknown=UnknownTables.PARTIAL)


def test_large_steps_are_decoded_on_the_executors(
    mirror: Mirror, source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DRIVER_BYTES_MAX", "LOCAL_BYTES_MAX"):
        monkeypatch.setattr(f"spark_sink.mirror.tables.steps.{name}", 0)
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "SET sql_generate_invisible_primary_key = 0",
        "CREATE TABLE heap (a INT)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        "INSERT INTO heap VALUES (1), (1), (2)",
    )
    assert mirror.run() == 0
    source.execute(
        "UPDATE t SET v = 'x' WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        "UPDATE t SET id = 4 WHERE id = 3",
        "INSERT INTO t VALUES (2, 'again')",
        "DELETE FROM heap WHERE a = 1 LIMIT 1",
    )
    mirror.feed(appends=3)
    assert mirror.apply() == 0
    assert_equal(source, target, "t")
    assert sorted(row["a"] for row in target.rows(source, "heap")) == [1, 2]


def test_two_consumers_of_one_table_and_a_table_that_is_adopted(
    mirror: Mirror, make_mirror: Callable[..., Mirror], source: Source, target: Target
) -> None:
    label = f"{source.database}.t"
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    assert mirror.run() == 0
    source.execute("UPDATE t SET v = 2", "INSERT INTO t VALUES (2, 2)")
    other = make_mirror("other")
    assert other.run() == 1
    assert other.record("t").word is TableState.STOPPED
    assert f"adopt {label} --consumer other" in other.record("t").reason
    assert [row["v"] for row in target.rows(source, "t")] == [1]
    (line,) = table_lines(SparkFacts(mirror.spark, str(target.path)), [label])[:1]
    assert (line.consumer, line.state, line.waiting_rows) == ("other", "stopped", 3)
    adopt_tables(mirror.spark, str(target.path), "other", [label])
    assert other.apply() == 0
    assert_equal(source, target, "t")
    source.execute("INSERT INTO t VALUES (3, 3)")
    assert other.run() == 0
    assert_equal(source, target, "t")
    assert mirror.run() == 1
    assert "from the consumer other" in mirror.record("t").reason
    assert_equal(source, target, "t")
