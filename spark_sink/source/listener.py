"""A listener that reports on the streams of the source "binlog": as Prometheus metrics, and in one log line per batch.

    listener = BinlogListener()
    spark.streams.addListener(listener)
    server = serve_metrics("127.0.0.1", 9465, StreamCollector(listener))     # of spark_sink.metrics_server

The listener reads only Spark's reports, so it works for any query of the session. With Spark Connect, the listener runs
in the client. It ignores queries that do not read the source "binlog".
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.sql.streaming.listener import StreamingQueryListener

from spark_sink.log_lines import log_event
from spark_sink.source.stream_progress import BatchReport, batch_reports

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger("spark_sink.streams")

STREAM_PREFIX = "binlog_stream_"
# Returns the number of rows of a query's batch, for queries whose rows Spark does not count; None if this number is not
# known.
BatchRows = Callable[[str, int], int | None]


@dataclass(slots=True)
class StreamTotals:
    """What a query has read from one consumer since the listener was added. `ended_at`: when the query's last batch
    ended, in seconds since 1970; `phases`: seconds by Spark's name of the phase."""

    last: BatchReport
    ended_at: float
    batches: int = 0
    transactions: int = 0
    bytes: int = 0
    rows: int = 0
    seconds: float = 0.0
    phases: Counter[str] = field(default_factory=Counter)

    def add(self, report: BatchReport, at: float) -> None:
        self.last, self.ended_at = report, at
        self.batches += 1
        self.transactions += report.transactions or 0
        self.bytes += report.bytes or 0
        self.rows += report.rows
        self.seconds += report.seconds
        self.phases.update(report.phases)


class BinlogListener(StreamingQueryListener):
    """Collects totals from Spark's events. `StreamCollector(listener)` makes metrics of the totals. Threads may share a
    listener."""

    def __init__(
        self,
        rows: BatchRows | None = None,
        logger: logging.Logger = log,
        level: int = logging.INFO,
    ) -> None:
        """`rows` is for queries whose rows Spark does not count, such as the mirror's queries, which read slices;
        `level`: of the lines for batches that have transactions."""
        self._rows, self._logger, self._level = rows, logger, level
        self._lock = threading.Lock()
        self._totals: dict[tuple[str, str], StreamTotals] = {}
        self._active: dict[str, bool] = {}
        self._runs: dict[str, str] = {}  # by query: its newest run
        self._queries: dict[str, str] = {}  # by run: the query's name

    def totals(self) -> dict[tuple[str, str], StreamTotals]:
        """Returns the totals of each pair of query and consumer."""
        with self._lock:
            return {
                key: replace(value, phases=Counter(value.phases))
                for key, value in self._totals.items()
            }

    def active(self) -> dict[str, bool]:
        """Returns the queries that have read a batch; True for a query that is running, False for a query that has
        failed."""
        with self._lock:
            read = {query for query, _ in self._totals}
            return {query: active for query, active in self._active.items() if query in read}

    # -- Spark's events --------------------------------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        with self._lock:
            self._running(event.name or str(event.id), str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = json.loads(event.progress.json)
        for report in batch_reports(progress):
            self._add(self._with_rows(report), str(progress["runId"]))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Forget a query that was stopped. A query that has failed stays, as inactive, until it is started again."""
        with self._lock:
            query = self._queries.pop(str(event.runId), "")
            if self._runs.get(query) != str(event.runId):
                return  # a newer run of the query began before this event arrived
            if event.exception:
                self._active[query] = False
                return
            del self._runs[query], self._active[query]
            for key in [key for key in self._totals if key[0] == query]:
                del self._totals[key]

    def _running(self, query: str, run: str) -> None:
        self._runs[query], self._queries[run] = run, query
        self._active[query] = True

    def _with_rows(self, report: BatchReport) -> BatchReport:
        rows = self._rows(report.query, report.batch) if self._rows else None
        return report if rows is None else replace(report, rows=rows)

    def _add(self, report: BatchReport, run: str) -> None:
        now = time.time()
        with self._lock:
            if run not in self._queries:  # the listener was added after the query's start
                self._running(report.query, run)
            known = [consumer for query, consumer in self._totals if query == report.query]
            if not report.consumer and len(known) == 1:
                report = replace(report, consumer=known[0])
            key = report.query, report.consumer
            total = self._totals.get(key) or self._totals.pop((report.query, ""), None)
            self._totals[key] = total or StreamTotals(report, now)
            self._totals[key].add(report, now)
        level = logging.DEBUG if report.transactions == 0 else self._level
        log_event(self._logger, "batch", report.fields(), level)


_GAUGES: tuple[tuple[str, str, Callable[[StreamTotals], float | None]], ...] = (
    ("lag_transactions", "Transactions of the server's log after the newest batch, as of its planning; absent without"
     " MySQL's GTIDs.", lambda t: t.last.lag.transactions),
    ("lag_bytes", "Bytes of the server's log after the newest batch, as of its planning; absent: not known.",
     lambda t: t.last.lag.bytes),
    ("lag_seconds", "Age of the first transaction after the newest batch, as of its planning; 0: there was none.",
     lambda t: t.last.lag.seconds),
    ("last_batch_timestamp_seconds", "When the newest batch ended.", lambda t: t.ended_at),
    ("last_batch_seconds", "How long the newest batch took.", lambda t: t.last.seconds),
)  # fmt: skip
_COUNTERS: tuple[tuple[str, str, Callable[[StreamTotals], float]], ...] = (
    ("batches", "Batches.", lambda t: t.batches),
    ("transactions", "Transactions of the batches.", lambda t: t.transactions),
    ("rows", "Rows of the batches.", lambda t: t.rows),
    ("bytes", "Bytes of delivered binlog of the batches.", lambda t: t.bytes),
    ("batch_seconds", "Time that the batches took.", lambda t: t.seconds),
)


class StreamCollector(Collector):
    """The metrics of the streams that a listener has seen."""

    def __init__(self, listener: BinlogListener) -> None:
        self._listener = listener

    def collect(self) -> Iterator[Metric]:
        totals = self._listener.totals()
        labels = ["query", "consumer"]
        up = GaugeMetricFamily(
            STREAM_PREFIX + "up", "1 while the query runs, 0 after it has failed.", labels=["query"]
        )
        for query, active in self._listener.active().items():
            up.add_metric([query], active)
        yield up
        for name, meaning, gauge_of in _GAUGES:
            gauge = GaugeMetricFamily(STREAM_PREFIX + name, meaning, labels=labels)
            for key, total in totals.items():
                if (value := gauge_of(total)) is not None:
                    gauge.add_metric(key, value)
            yield gauge
        for name, meaning, count_of in _COUNTERS:
            counter = CounterMetricFamily(STREAM_PREFIX + name, meaning, labels=labels)
            for key, total in totals.items():
                counter.add_metric(key, count_of(total))
            yield counter
        phases = CounterMetricFamily(
            STREAM_PREFIX + "phase_seconds",
            "Time of the batches by Spark's phases: latestOffset, getBatch, queryPlanning, walCommit, addBatch,"
            " commitOffsets.",
            labels=[*labels, "phase"],
        )
        for key, total in totals.items():
            for phase, seconds in sorted(total.phases.items()):
                phases.add_metric([*key, phase], seconds)
        yield phases
