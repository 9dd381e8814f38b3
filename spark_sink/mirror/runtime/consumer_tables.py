"""The tables of one consumer: the log is read into their queues, their steps are executed, the watermark is written.

The applier's thread reads and starts; steps run in the threads of its pool. The queues are used under a lock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.log_lines import log_event
from spark_sink.mirror.history.histories import Histories
from spark_sink.mirror.history.history_records import HistoryRecords
from spark_sink.mirror.history.history_steps import DeltaHistorySteps
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.log.files import LostFileError, log_is_shorter
from spark_sink.mirror.rules.control_rows import ControlRows
from spark_sink.mirror.rules.plan import LostItem, RenameBarrier, StatementItem, route
from spark_sink.mirror.rules.queues import QueuedStep, TableQueues
from spark_sink.mirror.rules.records import without_old_names
from spark_sink.mirror.rules.retries import backoff_s
from spark_sink.mirror.rules.table_record import LIVE, TableRecord, TableState
from spark_sink.mirror.rules.transitions import LEFT_OUT, left_out, taken_in
from spark_sink.mirror.runtime.catch_up import CatchUps
from spark_sink.mirror.runtime.copy_track import CopyTrack, TableCopier
from spark_sink.mirror.runtime.folder_mover import FolderMover
from spark_sink.mirror.runtime.pools import CatchUpRuns, Pools
from spark_sink.mirror.runtime.processor import Processor
from spark_sink.mirror.runtime.progress import ConsumerProgress, ProgressCounter
from spark_sink.mirror.runtime.rename_steps import RenameSteps
from spark_sink.mirror.runtime.step_failures import StepFailures
from spark_sink.mirror.schema.statements import effects_of
from spark_sink.mirror.tables.delta import StepSession
from spark_sink.mirror.tables.directory import TableDirectory
from spark_sink.mirror.values.entries import LogEntry, append_of, first_lsn, last_lsn
from spark_sink.mirror.values.faults import in_one_line
from spark_sink.mirror.values.names import TableName, table_label
from spark_sink.mirror.values.policies import ApplyOptions
from spark_sink.source.raw_entries import EntryKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("spark_sink.mirror")

ITEMS_MAX = 200_000  # that wait in memory before the log is read on
INLINE_BYTES_MAX = 256 << 20
ATTEMPTS_MAX = 6  # of the applier's own thread in a row, until a drain gives up
CATCH_UP_POLL_S = 1.0


class ApplierServices(Protocol):
    """What the tables of a consumer need of the applier."""

    def session(self) -> AbstractContextManager[StepSession]: ...
    def wake(self) -> None: ...


class ConsumerTables:
    """`failure`: why the consumer's entries are not applied any more."""

    def __init__(
        self,
        spark: SparkSession,
        consumer: str,
        control: ControlTable,
        options: ApplyOptions,
        services: ApplierServices,
    ) -> None:
        self._spark = spark
        self.consumer = consumer
        self.failure: BinlogError | None = None
        self._log = BinlogLog(spark.newSession(), options.target)
        self._control, self._options = control, options
        self._services = services
        self._lock = threading.Lock()
        self._queues = TableQueues(options.step_bytes_max)
        target = options.target.rstrip("/")
        self.directory = TableDirectory(consumer, control, lambda folder: f"{target}/{folder}")
        self._processor = Processor(self.directory, self._log, options)
        self._mover = FolderMover(spark, self.directory, target)
        self._excluded = partial(options.excludes, consumer)
        self._renames = RenameSteps(self.directory, self._processor, self._mover, self._excluded)
        self._failures = StepFailures(
            self.directory, self._processor, self._queues, self._lock, options.retry_first_s
        )
        self.histories = HistoryRecords(self.directory, control, options)
        history_steps = DeltaHistorySteps(self.histories, self._log)
        self.registered = (self.directory, self.histories.registered)
        self._follower = Histories(self.histories, history_steps, self._log, self._dealt_with)
        self._history_session: StepSession | None = None
        self._history_run: Future[None] | None = None
        self.counter = ProgressCounter(consumer)
        self._read_to = self._written = control.applied(consumer)
        self._written_at = time.monotonic()
        self._stopping = False
        self._running = 0
        self._append_seen = 0
        self._serial = -1
        self._attempts = 0
        self._retry_at = 0.0
        self._looked_at = 0.0
        self._steps: Executor | None = None
        self._catch_ups: CatchUps | None = None
        self._runs: CatchUpRuns | None = None

    def start(self, pools: Pools, copier: TableCopier | None, *, drain: bool) -> None:
        """Repair what a crash left; then steps may be started. `drain`: the log does not go on."""
        self._steps = pools.steps
        if self._read_to > self.log_end():
            self.fail(log_is_shorter(self.consumer, self._log.path))
            return
        # If the end is lost, so is the server, until the next one is read.
        with suppress(LostFileError):
            end = self._log.end(self.consumer)
            if end is not None and end.position is not None:
                self._processor.server = end.position.server
        self.directory.settle_doubled()
        try:
            self._mover.finish_moves()
        except BinlogError as error:
            self.fail(error)
            return
        self._follow_filter()
        for record in self.directory.records():
            if record.state not in (*LIVE, TableState.DROPPED):
                self.directory.skipped(record, self._read_to)
        copies = None
        if copier is not None:
            files = FileSystem(self._spark)
            copies = CopyTrack(
                files,
                self.directory,
                self._log,
                copier,
                self.counter,
                self._dealt_with,
            )
        self._catch_ups = CatchUps(
            self._spark, self.directory, self._log, self._options, self._mover, copies
        )
        self._catch_ups.draining = drain
        self._runs = CatchUpRuns(self._catch_ups, pools)
        self.read_requests()

    def _follow_filter(self) -> None:
        """Let the records say which tables the consumer's settings leave out now, and which they do no longer."""
        for record in self.directory.records():
            after = record
            if record.state is not TableState.DROPPED and self._excluded(record.name):
                after = left_out(record, self._read_to)
            elif LEFT_OUT in record.detail:
                situation = self._processor.situation(record.name)
                after = taken_in(record, self._read_to, situation)
            if after != record:
                self._processor.write(record, after, "include and exclude of the consumer")

    def stop(self) -> None:
        self._stopping = self._follower.stopping = True
        if self._catch_ups is not None:
            self._catch_ups.stop()

    def fail(self, error: BinlogError) -> None:
        """Stop applying this consumer, its copies and histories included. Its tables stay as they are."""
        log.error("%s: %s", self.consumer, error)
        self.give_up(error)

    def give_up(self, error: BinlogError) -> None:
        """As `fail`, for an error that is logged already."""
        self.failure = error
        self.stop()

    def attempt(self, work: Callable[[], bool], *, drain: bool) -> bool:
        """Do work of the applier's own thread. Faults that may pass are tried again with backoff, others end it.

        `drain`: give up after some failures in a row.
        """
        now = time.monotonic()
        if now < self._retry_at:
            return False
        try:
            done = work()
        except BinlogError as error:
            self.fail(error)
        except Exception as error:
            self._attempts += 1
            wait_s = backoff_s(self._options.retry_first_s, self._attempts)
            text = in_one_line(error)
            log.warning("%s: tried again in %.1f s: %s", self.consumer, wait_s, text)
            log.debug("%s: the whole error", self.consumer, exc_info=error)
            self._retry_at = now + wait_s
            if drain and self._attempts >= ATTEMPTS_MAX:
                self.fail(BinlogError(ErrorKind.INTERNAL, text, where=f"consumer {self.consumer}"))
        else:
            self._attempts = 0
            return done
        return False

    # -- reading ---------------------------------------------------------------------------------------------

    def requests_changed(self, rows: ControlRows) -> bool:
        """True if the control table has rows that were not looked at."""
        changed = rows.serial != self._serial
        self._serial = rows.serial
        return changed

    def log_end(self) -> int:
        """Returns the largest lsn that the consumer's log can hold now."""
        append = self._log.last_append(self.consumer)
        return last_lsn(append) if append else 0

    def read(self) -> bool:
        """Read the next entries into the queues. Returns True if there were any."""
        with self._lock:
            full = self._queues.items >= ITEMS_MAX or self._queues.inline_bytes >= INLINE_BYTES_MAX
        newest = self._log.last_append(self.consumer)
        if full or newest <= self._append_seen:
            return False
        try:
            entries = self._log.entries(self.consumer, self._read_to)
        except LostFileError as lost:
            return self._leave_out(lost)
        self._take(entries)
        # Appends without entries are claims.
        self._append_seen = append_of(self._read_to) if entries else newest
        return bool(entries)

    def _take(self, entries: Sequence[LogEntry]) -> None:
        """Put entries into the queues of their tables."""
        with self._lock:
            for entry in entries:
                if entry.kind is EntryKind.END and entry.position is not None:
                    self._processor.server = entry.position.server
                for name, item in route(entry, effects_of, self._known, self._excluded):
                    self._queues.add(name, item)
                self._read_to = entry.lsn
            self.counter.read(entries)

    def _leave_out(self, lost: LostFileError) -> bool:
        """Read on behind appends that cannot be read. The tables stop before them: any may have changes in them."""
        first, last = first_lsn(lost.first), last_lsn(lost.last)
        before = self._log.entries(self.consumer, self._read_to, before=first)
        if not before and last <= self._read_to:
            raise lost  # it does not tell which entries are lost
        self._take(before)
        if before:
            return True
        with self._lock:
            for name in dict.fromkeys(self._known()):
                self._queues.add(name, LostItem(first, last, lost))
            self._read_to = last
            self._append_seen = append_of(last)
        return True

    def tell_recovered(self) -> None:
        """Write into the records of tables that fail no longer that they do not."""
        self._failures.tell_recovered()

    def _dealt_with(self, name: TableName) -> int:
        """Returns the lsn up to which all entries of a name are executed, or left in the log."""
        with self._lock:
            # All entries of an append are read together.
            return self._queues.dealt_with(name, last_lsn(self._append_seen))

    def _known(self) -> list[tuple[str, str]]:
        names = [*self.directory.names(), *self._queues.names()]
        return [name for name in names if not self._excluded(name)]

    def read_requests(self) -> None:
        """Begin what was asked for about tables."""
        self.histories.read_requests()
        asked = [record.table_id for record in self.directory.read()]
        if self._catch_ups is not None:
            self._catch_ups.forget_failures(asked)
        self._start_catch_ups()

    def _start_catch_ups(self) -> None:
        if self._runs is not None and not self._stopping:
            self._runs.start()

    # -- steps -----------------------------------------------------------------------------------------------

    def start_steps(self) -> bool:
        """Start steps that can run, as many as there are threads. Returns True if one was started."""
        assert self._steps is not None
        now = time.monotonic()
        if now > self._looked_at + CATCH_UP_POLL_S:
            self._looked_at = now
            self._start_catch_ups()
        started = False
        while not self._stopping and self._running < self._options.parallel:
            with self._lock:
                step = self._queues.start(now)
                if step is None:
                    break
                self._running += 1
            started = True
            self._steps.submit(self._guarded, partial(self._run_step, step))
        return started

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            # A step's failures are handled before; this is a bug, and a table would wait for ever without a word.
            log.exception("%s: the applier has failed", self.consumer)
            self.fail(
                BinlogError(
                    ErrorKind.INTERNAL, in_one_line(error), where=f"consumer {self.consumer}"
                )
            )
        finally:
            self._services.wake()

    def _run_step(self, step: QueuedStep) -> None:
        began = time.monotonic()
        try:
            with self._services.session() as session:
                session.clock.begin()
                rows = self._execute(session, step)
                phases = session.clock.seconds()
        except Exception as error:  # noqa: BLE001 - every kind of it is handled
            try:
                self.counter.failed()
                self._failures.failed(step, error)
            except Exception as second:  # noqa: BLE001 - such as a control table that cannot be written
                self._failures.again(step, second)
        else:
            self._failures.recovered(step)
            label = table_label(step.names[0])
            self.counter.stepped(label, rows, phases)
            pause = self._options.policy(step.names[0]).interval_s if rows else 0.0
            with self._lock:
                self._queues.done(step, began + pause if pause else 0.0)
            if rows:
                said = {"consumer": self.consumer, "table": label, "rows": rows}
                said |= {"seconds": time.monotonic() - began}
                log_event(log, "step", said | {f"{name}_s": s for name, s in phases.items()})
        finally:
            with self._lock:
                self._running -= 1

    def _execute(self, session: StepSession, step: QueuedStep) -> int:
        if isinstance(step.work, RenameBarrier):
            self._renames.execute(session, step.work)
            return 0
        rows = self._processor.execute(session, step.names[0], step.work)
        if isinstance(step.work, StatementItem):
            # Before the watermark passes it: after a crash the statement comes again.
            self.histories.executed(step.names[0], step.work.lsn)
        return rows

    # -- histories -------------------------------------------------------------------------------------------

    def start_histories(self, executor: Executor) -> None:
        """Bring the histories forward in a thread of `executor`, if there are any, unless one does."""
        running = self._history_run is not None and not self._history_run.done()
        if not running and self.histories.any():
            self._history_run = executor.submit(self._guarded, self._advance_histories)

    def _advance_histories(self) -> None:
        if self._history_session is None:
            self._history_session = StepSession(self._spark)
        while self._follower.advance(self._history_session):
            self._services.wake()

    # -- progress --------------------------------------------------------------------------------------------

    def progress(self) -> ConsumerProgress:
        """Returns how far the consumer is applied."""
        with self._lock:
            watermark, waiting = self._queues.watermark(self._read_to), self._queues.items
        followed = self.histories.followed()
        now = self.counter.progress(watermark, waiting, [*self.directory.records(), *followed])
        return replace(
            now,
            failed=self.failure is not None,
            failing=len(self._failures.names()) + self.histories.failing(),
            histories_lsn=min(self.histories.oldest_cursor(), watermark) if followed else None,
        )

    def at_rest(self, goal: int) -> bool:
        """True if everything up to `goal` is applied, or stands in the record of a table, or fails again and again."""
        if self._catch_ups is not None and self._catch_ups.busy():
            return False
        if self._failures.lasting():
            return True
        if self._failures.untold():
            return False
        with self._lock:
            # All entries of an append are read together.
            applied = self._queues.watermark(last_lsn(self._append_seen)) >= goal
        return applied and self.histories.at_rest(goal)

    def standing(self) -> list[str]:
        """Returns the tables that are stopped or not copied yet, or whose steps fail."""
        live = (*LIVE, TableState.DROPPED)
        standing = [r.label for r in self.directory.records() if r.state not in live]
        standing += self.histories.standing()
        return standing + list(map(table_label, self._failures.names()))

    def lag(self, name: tuple[str, str]) -> int:
        with self._lock:
            return self._queues.lag(name)

    @property
    def applied_to(self) -> int:
        """The lsn of the watermark that was written last."""
        return self._written

    def write_watermark(self, now: float, *, last: bool) -> None:
        """Write how far everything is applied, now and then, and at the end."""
        if self.failure is not None or (
            not last and now < self._written_at + self._options.watermark_s
        ):
            return
        with self._lock:
            watermark = self._queues.watermark(self._read_to)
        self._written_at = now
        if watermark <= self._written:
            return
        self._control.set_applied(self.consumer, watermark)
        self._written = watermark
        needed = min(watermark, self.histories.oldest_cursor())

        def shorter(record: TableRecord) -> TableRecord:
            settled = record.state in (*LIVE, TableState.DROPPED)
            return without_old_names(record, needed) if settled else record

        self.directory.change(shorter, *(r.table_id for r in self.directory.records()))
