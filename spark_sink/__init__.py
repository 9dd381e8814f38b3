"""The daemon's changes in Spark: the streaming source "binlog", and the job that mirrors databases into Delta tables.

spark.readStream.format("binlog").option("url", url).option("consumer", "shop").load()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register `format("binlog")` with a session that does not find it by itself.

    Spark finds it where this package is installed, not where it is only on the path. Executors need the package, too.
    """
    from spark_sink.source.data_source import BinlogDataSource  # noqa: PLC0415 - the package stays light

    spark.dataSource.register(BinlogDataSource)
