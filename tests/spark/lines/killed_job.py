"""A stream in processes that a test kills: `python -m ... OPTIONS FOLDER`. Its executors are processes of their own.

The sink stores each batch once, as a file of Arrow rows in FOLDER/batches, which gets its final name when it is
complete. If Spark repeats a batch, its rows must equal the stored rows. OPTIONS: the options of the source, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tests.spark.lines.killed_source import KilledSource, passed
from tests.support.java import QUICK_SPARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.python.authenticate.socketTimeout": "300s",  # on a busy machine, workers start slowly
}


def main(options: dict[str, str], folder: Path) -> None:
    batches = folder / "batches"
    batches.mkdir(exist_ok=True)
    builder = SparkSession.builder.master("local-cluster[2,1,512]")
    conf = _CONF | {
        f"spark.executorEnv.{name}": os.environ[name] for name in ("KILLS", "PYTHONPATH")
    }
    for name, value in (conf | dict(setting.split("=", 1) for setting in QUICK_SPARK)).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(KilledSource)

    def keep(rows: DataFrame, number: int) -> None:
        path = batches / f"{number:08}.arrow"
        table = rows.toArrow().sort_by(
            [(name, "ascending") for name in ("epoch", "seq", "ordinal")]
        )
        if path.exists():
            stored = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
            assert table.to_pylist() == stored.to_pylist(), f"batch {number} has other rows now"
            return
        part = path.with_suffix(".part")
        with pa.OSFile(str(part), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        part.replace(path)
        if passed("stored"):
            os.killpg(os.getpgrp(), signal.SIGKILL)

    stream: Any = spark.readStream.format(KilledSource.name()).options(**options).load()
    writer = stream.writeStream.foreachBatch(keep).trigger(processingTime="0 seconds")
    writer.option("checkpointLocation", str(folder / "c")).start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]))
