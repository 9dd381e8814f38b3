"""Runs a query in Spark with Iceberg's runtime: `python -m tests.support.iceberg_reader URI JAR QUERY`.

URI is the address of a REST catalog, which the query calls `lake`. Prints the rows as a JSON list in the last line;
times are text in UTC.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from tests.support.java import QUICK_SPARK


def main(uri: str, jar: str, query: str) -> None:
    builder = SparkSession.builder.master("local[2]")
    settings = dict(setting.split("=", 1) for setting in QUICK_SPARK) | {
        "spark.jars": jar,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": uri,
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    rows = [json.loads(str(text)) for text in spark.sql(query).toJSON().collect()]
    spark.stop()
    print(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
