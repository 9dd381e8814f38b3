"""Commits of the driver equal commits of Spark: rows, statistics, recorded versions, conflicts."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta.tables import DeltaTable

from spark_sink.mirror.lake.delta_commit import DeltaTransaction, write_file
from spark_sink.mirror.lake.table_features import COLUMN_MAPPING, TYPE_WIDENING, require
from spark_sink.mirror.tables.delta import MirroredTable, StepSession
from spark_sink.mirror.tables.driver_commit import JOINED_FROM_FILES, DriverTable
from spark_sink.mirror.values.faults import is_conflict
from spark_sink.source.schemas import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.rotate(2, of="commits of the driver")

EARLY = datetime(1000, 1, 1, 1, 2, 3, 456_789, UTC)
_ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("price", pa.decimal128(20, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("v", pa.int32()),
    ]
)


def rows(ids: range, v: int) -> pa.Table:
    price, day = Decimal("12.25"), date(1000, 1, 1)
    lines = [
        dict(zip(_ARROW.names, (i, f"ä{i % 2}", price, day, EARLY, v), strict=True)) for i in ids
    ]
    return pa.Table.from_pylist(lines, schema=_ARROW)


def keys(ids: range) -> pa.Table:
    return rows(ids, 0).select(["id", "part"])


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> MirroredTable:
    table = MirroredTable("one", str(tmp_path / "t"), "shop.t")
    table.create(spark, spark_schema(_ARROW))
    return table


def values(spark: SparkSession, table: MirroredTable, where: str = "true") -> dict[int, int]:
    return {row["id"]: row["v"] for row in table.frame(spark).where(where).collect()}


def files(spark: SparkSession, table: MirroredTable) -> list[dict[str, Any]]:
    found = DeltaTransaction(spark, table.path).files(100)
    assert found is not None
    return found


def test_rows_are_appended_replaced_and_deleted(spark: SparkSession, table: MirroredTable) -> None:
    assert DriverTable(spark, table).append(1, rows(range(4), 1))
    assert DriverTable(spark, table).append(2, rows(range(100, 104), 2))
    row = table.frame(spark).where("id = 3").first()
    assert row is not None
    assert (row["part"], row["price"], row["day"]) == ("ä1", Decimal("12.25"), date(1000, 1, 1))
    assert len(values(spark, table, "at = '1000-01-01 01:02:03.456789Z'")) == 8

    of_rows = {
        row[0]: row[1] for row in table.frame(spark).select("id", "_metadata.file_name").collect()
    }
    assert DriverTable(spark, table).replace(3, keys(range(2, 6)), rows(range(2, 4), 3))
    assert values(spark, table, "id < 100") == {0: 1, 1: 1, 2: 3, 3: 3}
    names = [file["path"] for file in files(spark, table)]
    assert (of_rows[0] in names, of_rows[100] in names) == (False, True)
    # If the table already records a version, `replace` does not commit the version again.
    assert DriverTable(spark, table).replace(3, keys(range(200)), rows(range(1), 9))
    assert len(values(spark, table)) == 8
    assert DriverTable(spark, table).replace(4, keys(range(103)), rows(range(0), 0))
    assert values(spark, table) == {103: 2}
    assert table.version(spark) == 4
    history = DeltaTable.forPath(spark, table.path).history(1).first()
    assert history is not None
    assert (history["operation"], history["operationParameters"]["replaceUsingCols"]) == (
        "WRITE",
        "(id, part)",
    )


def test_files_that_spark_wrote_and_columns_that_changed_since(
    spark: SparkSession, table: MirroredTable
) -> None:
    frame = spark.createDataFrame(rows(range(4), 1), spark_schema(_ARROW))
    table.append(1, frame.coalesce(1))
    require(spark, table.path, TYPE_WIDENING | COLUMN_MAPPING)
    spark.sql(f"ALTER TABLE {table.sql_name} ALTER COLUMN v TYPE BIGINT")
    spark.sql(f"ALTER TABLE {table.sql_name} ADD COLUMNS (added STRING)")
    spark.sql(f"ALTER TABLE {table.sql_name} RENAME COLUMN day TO renamed")
    changed = rows(range(2), 0).rename_columns(["ID", "part", "price", "renamed", "at", "v"])
    changed = changed.set_column(5, "v", pa.array([1 << 40] * 2, pa.int64()))
    assert DriverTable(spark, table).replace(2, keys(range(2)), changed)
    assert values(spark, table) == {0: 1 << 40, 1: 1 << 40, 2: 1, 3: 1}
    found = {tuple(row) for row in table.frame(spark).select("renamed", "at", "added").collect()}
    assert len(found) == 1
    # The driver does not commit rows that do not fit the table. Spark then tries to, and its error contains the reason.
    assert not DriverTable(spark, table).append(3, rows(range(9, 10), 0))
    narrow = table.frame(spark).schema.names
    wide = rows(range(9, 10), 0).rename_columns([n for n in narrow if n != "added"])
    assert not DriverTable(spark, table).append(
        3, wide.set_column(0, "id", wide.column(0).cast(pa.string()))
    )


def test_a_file_without_statistics_may_hold_each_key(
    spark: SparkSession, table: MirroredTable
) -> None:
    """Another program may have written it."""
    content = io.BytesIO()
    pq.write_table(rows(range(4), 1), content)
    add = write_file(spark, table.path, content.getvalue(), "{}")
    del add["stats"]
    DeltaTransaction(spark, table.path).commit([add])
    assert DriverTable(spark, table).replace(1, keys(range(2, 4)), rows(range(2, 3), 3))
    assert values(spark, table) == {0: 1, 1: 1, 2: 3}


def test_many_small_files_are_joined(spark: SparkSession, table: MirroredTable) -> None:
    for number in range(JOINED_FROM_FILES):
        first = number * 10
        assert DriverTable(spark, table).append(number + 1, rows(range(first, first + 2), 1))
    assert len(files(spark, table)) == JOINED_FROM_FILES
    assert DriverTable(spark, table).replace(50, keys(range(1)), rows(range(1), 5))
    assert len(files(spark, table)) == 1
    found = values(spark, table)
    assert (len(found), found[0], found[1]) == (2 * JOINED_FROM_FILES, 5, 1)


def test_a_file_that_another_writer_removed_is_a_conflict(
    spark: SparkSession, table: MirroredTable
) -> None:
    assert DriverTable(spark, table).append(1, rows(range(4), 1))
    behind = DriverTable(spark, table)
    DeltaTable.forPath(spark, table.path).update("id = 3", {"v": "7"})
    with pytest.raises(Exception, match=r"(?i)concurrent") as raised:
        behind.replace(2, keys(range(1)), rows(range(1), 2))
    assert is_conflict(raised.value)
    assert DriverTable(spark, table).replace(2, keys(range(1)), rows(range(1), 2))
    assert values(spark, table) == {0: 2, 1: 1, 2: 1, 3: 7}


@pytest.mark.deep
def test_replacing_rows_with_deletion_vectors_or_a_feed_is_left_to_spark(
    spark: SparkSession, table: MirroredTable
) -> None:
    assert DriverTable(spark, table).append(1, rows(range(4), 1))
    session = StepSession(spark)
    set_property = f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES"
    spark.sql(f"{set_property} ('delta.enableDeletionVectors' = 'true')")
    with session.recording(table.app_id, 2):
        DeltaTable.forPath(session.spark, table.path).delete("id = 3")
    assert files(spark, table)[0]["deletionVector"]
    assert not DriverTable(spark, table).replace(3, keys(range(1)), rows(range(1), 2))
    assert DriverTable(spark, table).append(3, rows(range(9, 10), 1))
    spark.sql(f"{set_property} ('delta.enableChangeDataFeed' = 'true')")
    assert not DriverTable(spark, table).replace(4, keys(range(1)), rows(range(1), 2))
    assert DriverTable(spark, table).append(4, rows(range(8, 9), 1))
    assert sorted(values(spark, table)) == [0, 1, 2, 8, 9]
