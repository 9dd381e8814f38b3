"""The mirror's metrics in Prometheus text format, with the prefix `binlog_mirror_` and base units.

Each scrape reads the progress of the applier, so metrics cost nothing between scrapes. A series about a copy, a stop or
the steps of a table has the table's name as a label. A series about a copy exists only while the copy runs, a series
about a stop only while the table is stopped. At most `TABLES_MAX` tables have series about stops, and likewise about
steps and about waiting entries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from spark_sink.mirror.copy.progress import CopyProgress
from spark_sink.mirror.rules.states import TableState
from spark_sink.mirror.runtime.progress import TABLES_MAX, ConsumerProgress
from spark_sink.mirror.values.names import table_label

PREFIX = "binlog_mirror_"


Progress = Callable[[], Iterable[ConsumerProgress]]
LogStages = Callable[[], Iterable[tuple[str, bool]]]
_TABLE_COUNTERS = (
    ("steps", 'Steps of the table; table="": steps of all others, if there are more than 200.', ()),
    ("rows", "Changes of rows that were applied to the table.", ()),
    (
        "phase_seconds",
        "Time of the table's steps: read the log, plan, write files, commit.",
        ("phase",),
    ),
)
_GAUGES: tuple[tuple[str, str, Callable[[ConsumerProgress], float]], ...] = (
    ("read_lsn", "Newest entry of the log that the applier has read.", lambda p: p.read_lsn),
    ("applied_lsn", "The lsn up to which entries are applied, or kept for a stopped table.", lambda p: p.applied_lsn),
    ("logged_seq", "Newest transaction that the applier has found in the log.", lambda p: p.logged_seq),
    ("applied_seq", "Newest transaction that is applied, with all before it.", lambda p: p.applied_seq),
    ("logged_timestamp_seconds", "When the newest transaction in the log was committed; 0: not known.",
     lambda p: p.logged_at),
    ("applied_timestamp_seconds", "When the newest applied transaction was committed; 0: not known.",
     lambda p: p.applied_at),
    ("lag_seconds", "Age of the newest applied transaction while later ones wait in the log; 0: none wait.",
     ConsumerProgress.lag_s),
    ("waiting_entries", "Entries of the log that wait for their tables' steps.", lambda p: p.waiting),
    ("failing_tables", "Tables and histories whose steps have failed and are tried again.", lambda p: p.failing),
)  # fmt: skip
_COUNTERS: tuple[tuple[str, str, Callable[[ConsumerProgress], float]], ...] = (
    ("applied_rows", "Changes of rows that were applied.", lambda p: p.rows),
    ("steps", "Steps of tables that were applied.", lambda p: p.steps),
    ("failures", "Steps that failed, each attempt counted.", lambda p: p.failures),
    (
        "proof_rows",
        "Rows that were read from the server to compare them with the mirror.",
        lambda p: p.proof_rows,
    ),
    (
        "repaired_rows",
        "Keys whose rows differed from the server's and were rewritten.",
        lambda p: p.repaired_rows,
    ),
)
_COPY_GAUGES: tuple[tuple[str, str, Callable[[CopyProgress], float | None]], ...] = (
    ("copy_rows", "Rows that the copy of the table has.", lambda c: c.rows),
    ("copy_rows_estimated", "Rows of the table by the server's statistics.", lambda c: c.rows_estimated),
    ("copy_bytes", "Bytes of rows that were received.", lambda c: c.bytes),
    ("copy_chunks", "Key ranges that are copied.", lambda c: c.chunks),
    ("copy_remaining_seconds", "Time that the copy still takes by its speed so far; absent: not known.",
     lambda c: c.rest_s),
)  # fmt: skip


class MirrorCollector(Collector):
    """Reads the progress at each scrape."""

    def __init__(self, progress: Progress, log_stages: LogStages = tuple) -> None:
        """`log_stages`: returns each consumer whose log this application writes, with True if its log stage works."""
        self._progress, self._log_stages = progress, log_stages

    def collect(self) -> Iterator[Metric]:
        rows = list(self._progress())
        yield self._stages(rows)
        for name, meaning, read in _GAUGES:
            gauge = GaugeMetricFamily(PREFIX + name, meaning, labels=["consumer"])
            for row in rows:
                gauge.add_metric([row.consumer], read(row))
            yield gauge
        for name, meaning, read in _COUNTERS:
            counter = CounterMetricFamily(PREFIX + name, meaning, labels=["consumer"])
            for row in rows:
                counter.add_metric([row.consumer], read(row))
            yield counter
        yield from _of_tables(rows)
        yield from _of_histories(rows)
        yield from _of_proofs(rows)
        for name, meaning, of_copy in _COPY_GAUGES:
            gauge = GaugeMetricFamily(PREFIX + name, meaning, labels=["consumer", "table"])
            for row in rows:
                for copy in row.copies:
                    if (value := of_copy(copy)) is not None:
                        gauge.add_metric([row.consumer, copy.label], value)
            yield gauge

    def _stages(self, rows: Iterable[ConsumerProgress]) -> Metric:
        meaning = "1 while the stage (log, apply) works, 0 while it has failed or waits to be tried again."
        up = GaugeMetricFamily(PREFIX + "stage_up", meaning, labels=["consumer", "stage"])
        for consumer, works in self._log_stages():
            up.add_metric([consumer, "log"], works)
        for row in rows:
            up.add_metric([row.consumer, "apply"], not row.failed)
        return up


def _of_tables(rows: Sequence[ConsumerProgress]) -> Iterator[Metric]:
    states = GaugeMetricFamily(PREFIX + "tables", "Tables by state.", labels=["consumer", "state"])
    stopped = GaugeMetricFamily(
        PREFIX + "stopped_timestamp_seconds",
        "When the table or history was stopped; absent: it is not stopped.",
        labels=["consumer", "table"],
    )
    for row in rows:
        for state in TableState:
            states.add_metric([row.consumer, state.value], row.tables.get(state, 0))
        for table in sorted(row.stopped)[:TABLES_MAX]:
            stopped.add_metric([row.consumer, table], row.stopped[table])
    yield states
    yield stopped
    waiting = GaugeMetricFamily(
        PREFIX + "table_waiting_entries",
        "Entries of the log that wait for a step of the table (only the 200 tables with the most entries); reason:"
        " failing (the step has failed), interval (seconds_between_steps), rename (a RENAME waits for another table),"
        " step (the step runs, or is one of the next).",
        labels=["consumer", "table", "reason"],
    )
    for row in rows:
        for waits in row.waiting_tables:
            labels = [row.consumer, table_label(waits.name), waits.reason.value]
            waiting.add_metric(labels, waits.entries)
    yield waiting
    steps, changes, seconds = (
        CounterMetricFamily(f"{PREFIX}table_{name}", meaning, labels=["consumer", "table", *more])
        for name, meaning, more in _TABLE_COUNTERS
    )
    invalid = CounterMetricFamily(
        PREFIX + "invalid_values",
        'Values that are invalid for their column and became NULL (on_invalid); table="": of all others, if there are'
        " more than 200.",
        labels=["consumer", "table"],
    )
    for row in rows:
        for table, values in row.invalid.items():
            invalid.add_metric([row.consumer, table], values)
    yield invalid
    for row in rows:
        for table, counted in row.stepped.items():
            steps.add_metric([row.consumer, table], counted.steps)
            changes.add_metric([row.consumer, table], counted.rows)
            for phase, spent in counted.seconds.items():
                seconds.add_metric([row.consumer, table, phase.value], spent)
    yield from (steps, changes, seconds)


def _of_histories(rows: Sequence[ConsumerProgress]) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        PREFIX + "histories", "History tables by state.", labels=["consumer", "state"]
    )
    reached = GaugeMetricFamily(
        PREFIX + "histories_lsn",
        "Entry up to which all histories have read the log; absent: no table has a history.",
        labels=["consumer"],
    )
    for row in rows:
        for state in (TableState.CREATING, TableState.COMPLETE, TableState.STOPPED):
            states.add_metric([row.consumer, state.value], row.histories.get(state, 0))
        if row.histories_lsn is not None:
            reached.add_metric([row.consumer], row.histories_lsn)
    yield from (states, reached)


def _of_proofs(rows: Sequence[ConsumerProgress]) -> Iterator[Metric]:
    age = GaugeMetricFamily(
        PREFIX + "proof_age_seconds",
        "Time since the last comparison of the whole table with the server that found no difference began (the 200"
        " tables with the oldest one); absent: there was none.",
        labels=["consumer", "table"],
    )
    differing = GaugeMetricFamily(
        PREFIX + "differing_tables",
        "Complete tables that differ from the server's tables.",
        labels=["consumer"],
    )
    unproved = GaugeMetricFamily(
        PREFIX + "unproved_tables",
        "Complete tables that were not wholly compared with the server yet.",
        labels=["consumer"],
    )
    for row in rows:
        if row.proved is None:
            continue
        for table, since in row.proved.since.items():
            age.add_metric([row.consumer, table], max(0.0, time.time() - since))
        differing.add_metric([row.consumer], row.proved.differing)
        unproved.add_metric([row.consumer], row.proved.unproved)
    yield from (age, differing, unproved)


def no_progress() -> list[ConsumerProgress]:
    """The progress of an application without the apply stage."""
    return []
