"""Delta's change data feed of a mirrored table contains the changes of the log, step by step."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from dispatcher.model.errors import BinlogError
from spark_sink.mirror.changelog import table_changes
from spark_sink.mirror.lake.delta_log import delta_version, newest_commit, table_properties
from spark_sink.mirror.tables.delta import FEED_PROPERTY, MergeForm, MirroredTable, StepSession
from spark_sink.mirror.tables.driver_commit import DriverTable
from spark_sink.mirror.values.policies import TablePolicy
from tests.spark.conftest import Source, Target, assert_equal
from tests.spark.mirror.conftest import Mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Line = tuple[Any, ...]
COLUMNS = StructType([StructField("id", IntegerType()), StructField("v", IntegerType())])


def feed_of(spark: SparkSession, path: str) -> list[Counter[Line]]:
    """Returns the lines of a table's feed, one counter for each commit."""
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    feed: dict[int, Counter[Line]] = {}
    for row in reader.option("startingVersion", 0).load(path).collect():
        line = row["_change_type"], row["id"], row["v"]
        feed.setdefault(row["_commit_version"], Counter())[line] += 1
    return [feed[version] for version in sorted(feed)]


@pytest.mark.rotate(4, of="tables of the mirror")
def test_the_driver_appends_and_leaves_all_else_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = MirroredTable("one", str(tmp_path / "t"), "shop.t")
    table.create(spark, COLUMNS, feed=True)
    table.feed_changes(spark)  # the feed is already enabled
    assert delta_version(spark, table.path) == 0
    rows = pa.table({"id": pa.array([1, 2], pa.int32()), "v": pa.array([1, 2], pa.int32())})
    assert DriverTable(spark, table).append(1, rows)
    assert not DriverTable(spark, table).replace(2, rows.select(["id"]), rows)
    events = "key struct<id int>, row struct<id int, v int>, deleted boolean"
    lines = [((1,), (1, 10), False), ((2,), None, True), ((3,), (3, 3), False)]
    session = StepSession(spark)
    frame = session.spark.createDataFrame(lines, events)
    table.merge(session, 2, frame, MergeForm(("id",), COLUMNS))
    assert feed_of(spark, table.path) == [
        Counter({("insert", 1, 1): 1, ("insert", 2, 2): 1}),
        Counter(
            {
                ("update_preimage", 1, 1): 1,
                ("update_postimage", 1, 10): 1,
                ("delete", 2, 2): 1,
                ("insert", 3, 3): 1,
            }
        ),
    ]


def test_a_column_of_the_feed_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = MirroredTable("one", str(tmp_path / "t"), "shop.t")
    table.create(spark, StructType([StructField("_Change_Type", StringType())]))
    with pytest.raises(BinlogError, match=r"shop\.t has a column _Change_Type"):
        table.feed_changes(spark)


def logged(row: Any) -> list[Line]:
    """Returns the lines that a change of the log makes in a feed."""
    before, after = (image and (image["id"], image["v"]) for image in (row["before"], row["after"]))
    if row["op"] == "update" and before[0] == after[0]:
        return [("update_preimage", *before), ("update_postimage", *after)]
    lines = [("delete", *before)] if before else []
    return lines + ([("insert", *after)] if after else [])


@pytest.mark.deep
def test_the_feed_equals_the_changes(mirror: Mirror, source: Source, target: Target) -> None:
    mirror.policy = TablePolicy(feed=True)
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
        "UPDATE t SET v = 20 WHERE id = 2",
        "UPDATE t SET id = 4 WHERE id = 3",
        "DELETE FROM t WHERE id = 1",
        "INSERT INTO t VALUES (5, 5)",
    )
    mirror.feed(appends=7)  # one append per transaction; the first one creates the database
    assert mirror.apply(step_bytes_max=1) == 0
    assert_equal(source, target, "t")
    path = target.of(source, "t")
    assert table_properties(mirror.spark, path)[FEED_PROPERTY] == "true"
    assert newest_commit(mirror.spark, path)["operation"] == "WRITE"  # the driver appends
    table = f"{source.database}.t"
    log: dict[int, Counter[Line]] = {}
    for row in table_changes(mirror.spark, str(target.path), table).where("op != 'ddl'").collect():
        log.setdefault(row["lsn"], Counter()).update(logged(row))
    assert feed_of(mirror.spark, path) == [log[lsn] for lsn in sorted(log)]
