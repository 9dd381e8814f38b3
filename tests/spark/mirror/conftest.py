"""Fixture: a mirror with a log of a fake daemon's transactions, and an applier that applies the log to the tables."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from dispatcher.model.position import Position
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.log.append import LogAppender
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.rules.mirror import Mirror as RulesOfMirror
from spark_sink.mirror.rules.table_record import TableRecord, Wish
from spark_sink.mirror.runtime.apply import Applier
from spark_sink.mirror.values.policies import ApplyOptions, TablePolicy
from spark_sink.source.http.client import SliceCut
from spark_sink.source.rows import raw_rows
from spark_sink.source.slices import Slice
from tests.spark.conftest import Source, Target
from tests.support.lock_order import watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Mirror:
    """The mirror of one consumer of the source's database."""

    spark: SparkSession
    source: Source
    target: Target
    consumer: str = "shop"
    policy: TablePolicy = field(default_factory=TablePolicy)
    place: Callable[[], Position] | None = None  # returns the end of the server's log
    fed: int = 0
    append: int = 0
    appender: LogAppender = field(init=False)
    log: BinlogLog = field(init=False)
    control: ControlTable = field(init=False)

    def __post_init__(self) -> None:
        self.appender = LogAppender(self.spark, str(self.target.path))
        self.log = self.appender.log
        self.control = ControlTable(self.spark, str(self.target.path))

    def feed(self, *, appends: int = 1, gap: bool = False) -> None:
        """Append the source's new transactions to the log, in `appends` appends."""
        self.source.feed()
        daemon = self.source.daemon
        new = daemon.transactions[self.fed :]
        if not self.append:
            self.append = self.appender.claim(self.consumer).append
        size = max(1, -(-len(new) // appends))
        for first in range(0, max(1, len(new)), size):
            part = new[first : first + size]
            data = b"".join(transaction.data for transaction in part)
            end = part[-1].position if part else daemon.head
            self.append += 1
            self._append(data, end, gap=gap)
        self.fed = len(daemon.transactions)

    def _append(self, data: bytes, end: Position, *, gap: bool = False) -> None:
        """Append delivered bytes that end at a position, under the number `append`."""
        if self.place is not None:
            end = replace(self.place(), seq=end.seq, epoch=end.epoch)
        part = Slice(0, 0, SliceCut(end), SliceCut(end), batch_end=end, gap=gap)
        entries = raw_rows(part, self.source.daemon.preamble + data if data else b"")
        self.appender.append_entries(entries, self.consumer, self.append)

    def options(self, **changes: Any) -> ApplyOptions:
        options = ApplyOptions(str(self.target.path), [self.consumer], lambda _: self.policy)
        return replace(options, retry_first_s=0.05, **changes)

    def apply(self, **changes: Any) -> int:
        """Apply the whole log. Returns the exit code."""
        return Applier(self.spark, self.options(**changes)).run(threading.Event(), drain=True)

    def run(self, *, appends: int = 1) -> int:
        self.feed(appends=appends)
        return self.apply()

    def read_again(self) -> None:
        """Let the next `apply` read the whole log again, as after a crash before the first watermark."""
        self.control.write([], (self.consumer, 0))

    def ask(self, table: str, wish: Wish) -> None:
        """Make a person's request about a table."""
        self.control.request(self.record(table).table_id, wish)

    def record(self, table: str) -> TableRecord:
        (record,) = (
            record
            for record in self.control.records().values()
            if record.consumer == self.consumer
            and record.name == (self.source.database, table)
            and not record.is_dropped
        )
        return record


@contextmanager
def without_watermark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the block, the applier stores no watermark, as if it were killed before it could store one."""
    with monkeypatch.context() as patched:
        patched.setattr(RulesOfMirror, "_watermark", lambda _: None)
        yield


@pytest.fixture(autouse=True)
def locks_are_taken_in_their_order(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with watched(monkeypatch) as order:
        yield
    assert not order.broken


@pytest.fixture
def mirror(spark: SparkSession, source: Source, target: Target) -> Mirror:
    return Mirror(spark, source, target)


@pytest.fixture
def make_mirror(spark: SparkSession, source: Source, target: Target) -> Callable[..., Mirror]:
    def make(consumer: str, **fields: Any) -> Mirror:
        return Mirror(spark, source, target, consumer, **fields)

    return make
