"""The history of MySQL's table shop.orders, and the table's current rows."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

KEY = "id"


@dp.table
def order_changes() -> DataFrame:
    """One row for each new image of a row, and one for each row that was removed. Rows are only appended."""
    spark = SparkSession.active()
    changes = (
        spark.readStream.format("binlog")
        .option("url", spark.conf.get("spark.binlog.url"))
        .option("consumer", "shop")
        .option("table", "shop.orders")
        .load()
    )
    op, before, after = F.col("op"), F.col("before"), F.col("after")
    # A row whose key was changed no longer exists under its old key.
    gone = (op == "delete") | (before[KEY] != after[KEY])
    images = F.array_compact(
        F.array(
            F.when(gone, F.struct(before.alias("image"), F.lit(True).alias("_deleted"))),
            F.when(op != "delete", F.struct(after.alias("image"), F.lit(False).alias("_deleted"))),
        )
    )
    sequence = F.struct("epoch", "seq", "ordinal").alias("_sequence")
    return changes.select(sequence, F.inline(images)).select("_sequence", "_deleted", "image.*")


@dp.materialized_view
def orders() -> DataFrame:
    """The newest image of each row that still exists: equal to shop.orders."""
    history = SparkSession.active().read.table("order_changes")
    newest = history.groupBy(KEY).agg(F.max_by(F.struct("*"), "_sequence").alias("newest"))
    return newest.where("NOT newest._deleted").selectExpr("newest.* EXCEPT (_sequence, _deleted)")
