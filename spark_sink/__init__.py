"""The daemon's changes in Spark: the streaming source "binlog", and the job that mirrors databases into Delta tables.

spark.readStream.format("binlog").option("url", url).option("consumer", "shop").load()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register `format("binlog")` in a session that does not find this source by itself.

    Spark finds the source by itself if this package is installed, but not if the package is only on Python's path. The
    executors need the package, too.
    """
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - the package stays light

    from spark_sink.source.data_source import BinlogDataSource  # noqa: PLC0415

    try:
        spark.dataSource.register(BinlogDataSource)
    except AnalysisException as error:
        # Apache Spark 4.0 refuses the name of a source that it has found by itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
