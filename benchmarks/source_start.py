"""The first batch of a fresh Spark session: the time from `load` to the end of the first stream, and the processor
time.

For comparison, the *floor* is a Python data source that does nothing, with one slice of one small batch. Its time is
the time of Spark's own start: the processes that read the schema, plan the batches and run the task, the JVM's
compilation, and the checkpoint.

`python -m benchmarks.source_start floor` or `... binlog OPTIONS`, where OPTIONS is JSON, prints JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import spark_sink
from benchmarks.processes import DescendantsMeter, cpu_seconds_of_process
from benchmarks.spark import jvm_pid, read_stream, spark_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

ROWS = 1001  # rows of the floor; the source "binlog" has as many


class FloorSource(DataSource):
    """One batch of rows."""

    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> str:
        return "id long, name string"

    def streamReader(self, schema: Any) -> FloorReader:  # noqa: ARG002, N802
        return FloorReader()


class FloorReader(DataSourceStreamReader):
    """One slice."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"at": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        return {"at": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:  # noqa: ARG002
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        import pyarrow as pa  # noqa: PLC0415 - as a source does on the executors

        names = pa.array([f"row {number}" for number in range(ROWS)])
        numbers = pa.array(range(ROWS), pa.int64())
        yield pa.RecordBatch.from_arrays([numbers, names], names=["id", "name"])


def first_batch(source: str, options: Mapping[str, str]) -> dict[str, float]:
    """Returns the seconds to the end of the stream, and the processor seconds of the JVM and Spark's Python
    processes."""
    with (
        tempfile.TemporaryDirectory(prefix="bd-bench-") as home,
        spark_session(Path(home)) as spark,
        DescendantsMeter(jvm_pid()) as python,
    ):
        if source == FloorSource.name():
            spark.dataSource.register(FloorSource)
        else:
            spark_sink.register(spark)
        before = _processor_s(python)
        began = time.monotonic()
        reports = read_stream(spark, source, options)
        took_s = time.monotonic() - began
        return {
            "seconds": took_s,
            "rows": sum(report.numInputRows for report in reports),
            "cpu_s": _processor_s(python) - before,
        }


def _processor_s(python: DescendantsMeter) -> float:
    return cpu_seconds_of_process(jvm_pid(), ended_children=False) + python.cpu_s()


if __name__ == "__main__":
    given = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    print(json.dumps(first_batch(sys.argv[1], given)))
