"""A Spark session of the benchmarks, and a stream into a sink."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TIMEOUT_S = 600
POLL_S = 0.02


@contextmanager
def spark_session(home: Path) -> Iterator[SparkSession]:
    """A new session. `home`: a folder for checkpoints."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    conf: dict[str, Any] = {
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.checkpointLocation": str(home / "checkpoints"),
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.python.authenticate.socketTimeout": "120s",
    }
    session = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def jvm_pid() -> int:
    from pyspark import SparkContext  # noqa: PLC0415

    gateway: Any = SparkContext._gateway  # noqa: SLF001 - pyspark does not tell which process it started
    return int(gateway.proc.pid)


def _noop(frame: DataFrame) -> DataStreamWriter:
    return frame.writeStream.format("noop")


def read_stream(
    spark: SparkSession,
    source: str,
    options: Mapping[str, str],
    first_batch_ended: Callable[[], None] | None = None,
    sink: Callable[[DataFrame], DataStreamWriter] = _noop,
) -> list[Any]:
    """Read up to the end of the log. Returns Spark's reports of the batches with rows. `first_batch_ended` is called
    once, after the first batch."""
    frame = spark.readStream.format(source).options(**options).load()
    query = sink(frame).trigger(availableNow=True).start()
    if first_batch_ended is not None:
        deadline = time.monotonic() + TIMEOUT_S
        while not query.recentProgress and query.isActive:
            if time.monotonic() > deadline:
                raise SystemExit(f"no batch has ended after {TIMEOUT_S} s")
            time.sleep(POLL_S)
        first_batch_ended()
    if not query.awaitTermination(TIMEOUT_S):
        raise SystemExit(f"the stream has not ended after {TIMEOUT_S} s")
    return [report for report in query.recentProgress if report.numInputRows]
