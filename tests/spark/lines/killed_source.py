"""The source "binlog" under the name "binlog_killed": a test kills its Python workers and its executors.

A test arms a point with a file of the point's name in the folder that the variable `KILLS` names. The process that
removes the file dies, or kills the process that the point means:

    worker      a worker has passed on the first rows of a slice; the worker dies
    executor    the same; the worker's executor dies
    stored      the driver has stored a batch that Spark has not committed; the driver and all its processes die
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_sink.source.data_source import BinlogDataSource
from spark_sink.source.readers.reader_without_limits import ReaderWithoutLimits
from spark_sink.source.readers.stream_reader import BinlogStreamReader
from spark_sink.source.spark_abilities import ADMISSION_CONTROL

if TYPE_CHECKING:
    import pyarrow as pa


def passed(point: str) -> bool:
    """Returns True if the point is armed. At most one of several processes gets True."""
    try:
        Path(os.environ["KILLS"], point).unlink()
    except FileNotFoundError:
        return False
    return True


def _dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        if passed("worker"):
            os.kill(os.getpid(), signal.SIGKILL)
        if passed("executor"):
            # The worker was forked by Spark's Python daemon, which the executor has started.
            status = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="utf-8")
            os.kill(int(status.rpartition(")")[2].split()[1]), signal.SIGKILL)


class _Killed(BinlogStreamReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _dying(super().read(partition))


class _KilledWithoutLimits(ReaderWithoutLimits):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _dying(super().read(partition))


class KilledSource(BinlogDataSource):
    @classmethod
    def name(cls) -> str:
        return "binlog_killed"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        reader = _Killed if ADMISSION_CONTROL else _KilledWithoutLimits
        return reader(self._parsed, schema)
