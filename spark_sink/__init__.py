"""The daemon's changes in Spark: the streaming source "binlog" and the job that mirrors databases
into Delta tables.

>>> import spark_sink >>> spark_sink.register(spark)  # doctest: +SKIP >>>
spark.readStream.format("binlog").option("url", url).option("consumer", "shop").load()  # doctest:
+SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("binlog")` known to a session. The executors need this package installed, too."""
    from spark_sink.source import BinlogDataSource  # noqa: PLC0415 - the package stays light

    spark.dataSource.register(BinlogDataSource)
