"""A mirror under test: the log of a fake daemon's transactions, and an applier that brings tables forward."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from dispatcher.binlog.decode import delivered
from spark_sink.mirror.apply import Applier
from spark_sink.mirror.control import ControlTable, TableRecord
from spark_sink.mirror.log import BinlogLog
from spark_sink.mirror.policies import ApplyOptions, TablePolicy
from tests.spark.conftest import Source, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RAW = (
    "entry bigint, kind string, database string, table string, layout string, epoch bigint, first_seq bigint,"
    " last_seq bigint, rows bigint, inserts bigint, updates bigint, deletes bigint, table_map binary, payload binary,"
    " query string, sql_mode bigint, file string, pos bigint, committed_at timestamp, position string, gap boolean"
)
_NAMES = [column.split()[0] for column in RAW.split(", ")]


def raw_rows(data: bytes, end: str, *, gap: bool = False) -> list[dict[str, Any]]:
    """Returns the rows of the raw source for delivered bytes, with an END entry."""
    rows: list[dict[str, Any]] = []
    for item in delivered.split_by_table(data) if data else ():
        row = dict.fromkeys(_NAMES) | {"entry": len(rows), "epoch": item.epoch}
        if isinstance(item, delivered.Ddl):
            names: tuple[str, ...] = ("database", "query", "sql_mode", "file", "pos")
            row |= {"kind": "statement", "first_seq": item.seq, "last_seq": item.seq}
        else:
            names = tuple(name for name in item.__slots__ if name in row)
            ops: Counter[str] = Counter()
            for batch in delivered.decode_table(item.payload):
                ops.update(batch.column("op").to_pylist())
            row |= {"kind": "rows"} | {f"{op}s": ops[op] for op in ("insert", "update", "delete")}
        rows.append(row | {name: getattr(item, name) for name in names})
    rows.append(
        dict.fromkeys(_NAMES) | {"entry": len(rows), "kind": "end", "position": end, "gap": gap}
    )
    return rows


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
            rows = raw_rows(daemon.preamble + data if data else b"", end.to_json(), gap=gap)
            values = [tuple(row[name] for name in _NAMES) for row in rows]
            self.append += 1
            frame = self.spark.createDataFrame(values, RAW).coalesce(1)
            self.log.append(frame, self.consumer, self.append)
        self.fed = len(daemon.transactions)

    def options(self, **changes: Any) -> ApplyOptions:
        options = ApplyOptions(str(self.target.path), [self.consumer], lambda _: self.policy)
        return replace(options, watermark_s=0.0, poll_s=0.02, retry_first_s=0.05, **changes)

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
