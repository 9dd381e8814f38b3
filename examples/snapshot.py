"""Keep a Parquet log of a table: first the rows that exist, then every change. Prints the table's present rows.

    export MYSQL_PASSWORD=secret
    python examples/snapshot.py http://127.0.0.1:8085 shop shop.orders reader@127.0.0.1:3306 folder

Needs binlog-dispatcher[spark], and a consumer of its own in the daemon's settings. Run it again to read what has
changed meanwhile: it goes on at its checkpoint, also if it was killed. If the daemon has tokens, set DISPATCHER_TOKEN.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f


def read_changes(spark: SparkSession, options: dict[str, str], folder: Path) -> None:
    """Append the rows of the snapshot, or the changes since the last run, to the log."""
    stream = spark.readStream.format("binlog").options(**options).load()
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(folder / "log"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def present_rows(log: DataFrame) -> DataFrame:
    """Return the table's rows: of each key the newest image, unless the row was deleted."""
    order = f.struct("epoch", "seq", "ordinal")
    deleted = log.where("before IS NOT NULL").select("seq", "ordinal", "epoch", "key")
    states = log.where("after IS NOT NULL").select(
        "seq", "ordinal", "epoch", f.col("new_key").alias("key"), "after"
    )
    both = states.unionByName(deleted, allowMissingColumns=True)
    # An UPDATE has both images: of one change, the image after it is the newer one.
    newest = Window.partitionBy("key").orderBy(order.desc(), f.col("after").isNull())
    return (
        both.withColumn("n", f.row_number().over(newest))
        .where("n = 1 AND after IS NOT NULL")
        .select("after.*")
    )


def main(url: str, consumer: str, table: str, mysql: str, folder: Path) -> None:
    options = {
        "url": url,
        "consumer": consumer,
        "table": table,
        "startingOffsets": "snapshot",
        "mysql": mysql,
        "mysqlPasswordVariable": "MYSQL_PASSWORD",
        "metadata": "key",
    }
    if token := os.environ.get("DISPATCHER_TOKEN"):
        options["token"] = token
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    spark = builder.getOrCreate()
    read_changes(spark, options, folder)
    log = spark.read.parquet(str(folder / "log"))
    # `key` is the key before an update: the new key is in `after`.
    names = log.schema["key"].dataType.fieldNames()  # type: ignore[attr-defined]
    log = log.withColumn("new_key", f.struct(*(f.col(f"after.{name}") for name in names)))
    present_rows(log).show()


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    main(*sys.argv[1:5], Path(sys.argv[5]))
