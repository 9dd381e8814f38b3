"""A mirror under test: the log of a fake daemon's transactions, and an applier that brings tables forward."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from dispatcher.model.position import Position
from spark_sink.mirror.apply import Applier
from spark_sink.mirror.control import ControlTable, TableRecord
from spark_sink.mirror.log import BinlogLog
from spark_sink.mirror.policies import ApplyOptions, TablePolicy
from spark_sink.source.client import SliceCut
from spark_sink.source.data_source import RAW_SCHEMA, Slice
from spark_sink.source.options import SourceOptions
from spark_sink.source.rows import read_slice
from tests.spark.conftest import Source, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OPTIONS = SourceOptions.parse({"url": "http://127.0.0.1:1", "consumer": "none", "raw": "true"})


def raw_table(data: bytes, end: Position, *, gap: bool = False) -> pa.Table:
    """Returns what the raw source yields for delivered bytes that end at `end`."""
    part = Slice(0, 0, SliceCut(end), SliceCut(end), batch_end=end, gap=gap)
    return pa.Table.from_batches(read_slice(_OPTIONS, RAW_SCHEMA, part, data))


@dataclass
class Mirror:
    """The mirror of one consumer of the source's database."""

    spark: SparkSession
    source: Source
    target: Target
    consumer: str = "shop"
    policy: TablePolicy = field(default_factory=TablePolicy)
    fed: int = 0
    append: int = 0
    log: BinlogLog = field(init=False)
    control: ControlTable = field(init=False)

    def __post_init__(self) -> None:
        self.log = BinlogLog(self.spark, str(self.target.path))
        self.control = ControlTable(self.spark, str(self.target.path))

    def feed(self, *, appends: int = 1, gap: bool = False) -> None:
        """Append the source's new transactions to the log, in `appends` appends."""
        self.source.feed()
        daemon = self.source.daemon
        new = daemon.transactions[self.fed :]
        if not self.append:
            self.append = self.log.claim(self.consumer).append
        size = max(1, -(-len(new) // appends))
        for first in range(0, max(1, len(new)), size):
            part = new[first : first + size]
            data = b"".join(transaction.data for transaction in part)
            end = part[-1].position if part else daemon.head
            raw = raw_table(daemon.preamble + data if data else b"", end, gap=gap)
            self.append += 1
            frame = self.spark.createDataFrame(raw, RAW_SCHEMA).coalesce(1)
            self.log.append(frame, self.consumer, self.append)
        self.fed = len(daemon.transactions)

    def options(self, **changes: Any) -> ApplyOptions:
        options = ApplyOptions(str(self.target.path), [self.consumer], lambda _: self.policy)
        return replace(options, retry_first_s=0.05, **changes)

    def apply(self, **changes: Any) -> int:
        """Apply all that the log holds. Returns the exit code."""
        return Applier(self.spark, self.options(**changes)).run(threading.Event(), drain=True)

    def run(self, *, appends: int = 1) -> int:
        self.feed(appends=appends)
        return self.apply()

    def record(self, table: str) -> TableRecord:
        (record,) = (
            record
            for record in self.control.records().values()
            if record.consumer == self.consumer
            and record.name == (self.source.database, table)
            and record.state != "dropped"
        )
        return record


@pytest.fixture
def mirror(spark: SparkSession, source: Source, target: Target) -> Mirror:
    return Mirror(spark, source, target)


@pytest.fixture
def make_mirror(spark: SparkSession, source: Source, target: Target) -> Callable[..., Mirror]:
    def make(consumer: str, **fields: Any) -> Mirror:
        return Mirror(spark, source, target, consumer, **fields)

    return make
