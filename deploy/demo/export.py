"""Delta tables as Arrow files, read by a Spark of its own: `python -m deploy.demo.export JSON`.

JSON: {"tables": {name: folder of the Delta table}, "into": folder, "when": file}. Starting Spark takes longest, so it is
started ahead, and the tables are read when the file `when` appears. One file NAME.arrow per table; a table that does not
exist in Delta (no row of it ever came) gives none.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

POLL_S = 0.05


def main(text: str) -> int:
    import pyarrow as pa  # noqa: PLC0415
    from delta.tables import DeltaTable  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from spark_sink.jars import delta_settings  # noqa: PLC0415

    order = json.loads(text)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("binlog-dispatcher demo: comparison").master("local[2]")
    settings = delta_settings() | {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        when, parent = Path(order["when"]), os.getppid()
        while not when.exists():
            if os.getppid() != parent:
                return 1
            time.sleep(POLL_S)
        for name, folder in order["tables"].items():
            if not DeltaTable.isDeltaTable(spark, folder):
                continue
            table = spark.read.format("delta").load(folder).toArrow()
            with (
                pa.OSFile(f"{order['into']}/{name}.arrow", "wb") as sink,
                pa.ipc.new_file(sink, table.schema) as writer,
            ):
                writer.write_table(table)
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
