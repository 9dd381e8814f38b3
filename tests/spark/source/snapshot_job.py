"""A query that begins with a snapshot, in a process that a test kills: `python -m ... OPTIONS FOLDER TRIGGER`.

The sink of the query stores each batch once, as a file of Arrow rows in FOLDER/batches. The file gets its final name
when it is complete. OPTIONS: the options of the source, as JSON; TRIGGER: `available` or `continuous`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_sink.source.data_source import BinlogDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    "spark.python.authenticate.socketTimeout": "300s",  # on a busy machine, workers start slowly
}


def main(options: dict[str, str], folder: Path, trigger: str) -> None:
    batches = folder / "batches"
    batches.mkdir(exist_ok=True)
    builder = SparkSession.builder.master("local[2]")
    for name, value in _CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(BinlogDataSource)

    def keep(rows: DataFrame, number: int) -> None:
        path = batches / f"{number:08}.arrow"
        if path.exists():
            return
        table = rows.toArrow()
        part = path.with_suffix(".part")
        with pa.OSFile(str(part), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        part.replace(path)

    stream = spark.readStream.format("binlog").options(**options).load()
    writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / "c"))
    once = trigger == "available"
    writer = (
        writer.trigger(availableNow=True) if once else writer.trigger(processingTime="0 seconds")
    )
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
