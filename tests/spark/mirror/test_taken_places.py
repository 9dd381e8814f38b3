"""Delta tables with other rows in the place of a table: the Delta table of a dropped table is replaced."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructType, TimestampNTZType

from spark_sink.mirror.rules.effects import MoveFolders
from spark_sink.mirror.rules.states import TableState
from spark_sink.mirror.rules.table_record import Move, TableRecord
from spark_sink.mirror.runtime.busy_folders import BusyFolders
from spark_sink.mirror.runtime.folder_mover import FolderMover
from spark_sink.mirror.tables.delta import FEED_PROPERTY, MirroredTable
from spark_sink.mirror.values.names import aside_folder, copy_folder
from tests.spark.conftest import Source, Target, assert_equal
from tests.spark.mirror.conftest import Mirror


def test_a_table_without_rows_gets_the_name_of_a_dropped_one(
    mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1)",
        "ALTER TABLE t RENAME COLUMN v TO w, MODIFY id BIGINT",
        "INSERT INTO t VALUES (2, 2)",
    )
    assert mirror.run(appends=1) == 0
    source.execute(
        "DROP TABLE t",
        "CREATE TABLE fresh (id BIGINT PRIMARY KEY, w VARCHAR(9), at DATETIME(3))",
        "RENAME TABLE fresh TO t",
        "INSERT INTO t VALUES (5, 'five', '2026-01-02 03:04:05.678')",
    )
    assert mirror.run(appends=1) == 0
    assert_equal(source, target, "t")
    assert mirror.record("t").word is TableState.COMPLETE
    source.execute("RENAME TABLE t TO moved", "CREATE TABLE t (id INT PRIMARY KEY)")
    source.execute("INSERT INTO t VALUES (6)", "DELETE FROM moved")
    assert mirror.run(appends=1) == 0
    assert_equal(source, target, "t", "moved")


def test_a_copy_replaces_a_table_whose_log_is_damaged(spark: SparkSession, tmp_path: Path) -> None:
    columns = StructType().add("id", LongType())
    record = TableRecord("t", "shop", "shop", "t", folder="shop/t", move=Move(copy_folder("t")))
    for folder, rows in (("shop/t", [(1,)]), (copy_folder("t"), [(2,)])):
        table = MirroredTable("t", str(tmp_path / folder), "shop.t")
        table.create(spark, columns)
        table.append(7, spark.createDataFrame(rows, columns))
    mover = FolderMover(spark, str(tmp_path), lambda _: "", BusyFolders())
    log = tmp_path / "shop" / "t" / "_delta_log"
    made, written = sorted(log.glob("*.json"))
    for checksum in list(log.glob("*.crc")):  # hidden files, too
        checksum.unlink()
    written.write_text("{")
    metadata = made.read_bytes()
    made.write_text("[")  # now the folder does not show to which table it belongs
    (fault,) = mover.move(MoveFolders(1, (record,), (record,))).refused.values()
    assert "cannot be read" in str(fault) and "move or delete the folder" in fault.remedy
    made.write_bytes(metadata)
    assert not mover.move(MoveFolders(2, (record,), (record,))).refused
    assert MirroredTable("t", str(tmp_path / "shop" / "t"), "shop.t").frame(spark).collect() == [
        (2,)
    ]


def test_a_new_table_deletes_the_folder_that_a_dropped_one_has_left_aside(
    mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    assert mirror.run(appends=1) == 0
    left = target.path / aside_folder(mirror.record("t").table_id)
    MirroredTable("", str(left), "shop.t").create(target.spark, StructType().add("id", LongType()))
    source.execute("INSERT INTO t VALUES (1)")
    assert mirror.run(appends=1) == 0
    assert_equal(source, target, "t")
    assert not left.exists()


def test_a_table_that_is_taken_over_has_no_rows_and_keeps_the_versions_that_were_recorded(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "shop" / "t")
    columns = StructType().add("id", LongType()).add("v", StringType())
    former = MirroredTable("former", path, "shop.t")
    former.create(spark, columns)
    former.append(7, spark.createDataFrame([(1, "one")], columns))
    wider = StructType().add("id", StringType()).add("at", TimestampNTZType())
    former.take_over(spark, wider)
    assert (former.columns(spark), former.is_empty(spark)) == (wider, True)
    assert (former.owner(spark), former.version(spark)) == ("former", 7)

    other = MirroredTable("other", path, "shop.t")
    for _ in range(2):  # as after a crash
        other.take_over(spark, columns, feed=True)
    assert (other.owner(spark), other.version(spark)) == ("other", -1)
    assert (other.columns(spark), other.is_empty(spark)) == (columns, True)
    feed = spark.sql(f"SHOW TBLPROPERTIES {other.sql_name} ('{FEED_PROPERTY}')").head()
    assert feed is not None and feed["value"] == "true"
    other.append(3, spark.createDataFrame([(2, "two")], columns))
    assert [tuple(row) for row in other.frame(spark).collect()] == [(2, "two")]
