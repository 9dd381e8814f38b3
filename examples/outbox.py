"""Publishes the events of an outbox table; docs/outbox.md explains it.

    python examples/outbox.py http://127.0.0.1:8085 outbox shop.outbox /data/events

This program writes JSON files, one folder for each batch and topic. The function `publish` has the line for Kafka.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession


def events(spark: SparkSession, url: str, consumer: str, table: str) -> DataFrame:
    """Returns the rows of the outbox table that were inserted."""
    options = {"url": url, "consumer": consumer, "table": table, "flat": "after", "ops": "insert"}
    own = "epoch, seq, ordinal"  # their order is the order of the commits
    columns = "id, aggregatetype, aggregateid, type, payload"
    return spark.readStream.format("binlog").options(**options, select=f"{own}, {columns}").load()


def messages(rows: DataFrame) -> DataFrame:
    """Returns events in the columns of Spark's Kafka sink. Messages with one key are in one partition, in order."""
    ordered = rows.repartition("aggregateid").sortWithinPartitions("epoch", "seq", "ordinal")
    return ordered.selectExpr(
        "concat('outbox.event.', aggregatetype) AS topic",
        "aggregateid AS key",
        "payload AS value",
        "array(named_struct('key', 'id', 'value', encode(id, 'UTF-8')),"
        " named_struct('key', 'type', 'value', encode(type, 'UTF-8'))) AS headers",
    )


def publish(target: str) -> Callable[[DataFrame, int], None]:
    """Returns the function for `foreachBatch`."""

    def publish_batch(batch: DataFrame, number: int) -> None:
        # For Kafka: messages(batch).write.format("kafka").option("kafka.bootstrap.servers", ...)
        #            .option("includeHeaders", "true").save()
        # A batch that Spark repeats after a crash replaces its own folder.
        folder = f"{target}/batch={number}"
        messages(batch).write.partitionBy("topic").mode("overwrite").json(folder)

    return publish_batch


def main(url: str, consumer: str, table: str, target: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    query = (
        events(spark, url, consumer, table)
        .writeStream.foreachBatch(publish(target))
        .option("checkpointLocation", f"{target}/_checkpoint")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
