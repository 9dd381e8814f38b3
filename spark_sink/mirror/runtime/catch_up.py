"""Tables that are brought forward aside, until they are where the log is: after a stop was resolved, and after a copy.

While a table is stopped or copied, its entries are left in the log (`TableDirectory.skipped`). A catch-up reads them
again, for this table alone, and executes them with a `Processor` of its own. When nothing is left that was skipped, the
table is live again, in the same moment.

The record says what a crash must not lose: `goal` of `detail` is the state that the table has afterwards, and every
step is known by the lsn that the Delta table records. So a catch-up that was interrupted is begun again.

A statement that settles the table, DROP or TRUNCATE, is applied as it comes, which ends a catch-up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import _GeneratorContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dispatcher.model.errors import BinlogError
from spark_sink.log_lines import log_event
from spark_sink.mirror.log.files import LostFileError
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.plan import (
    RenameBarrier,
    RowRun,
    StatementItem,
    Work,
    next_work,
    route,
)
from spark_sink.mirror.rules.queues import ENTRIES_MAX
from spark_sink.mirror.rules.records import name_at, to_be_replayed
from spark_sink.mirror.rules.requests import after_request, is_copied
from spark_sink.mirror.rules.table_record import LIVE, MOVED_FROM, TableRecord, TableState
from spark_sink.mirror.rules.transitions import copied_again, faulted, in_copy, without_entries
from spark_sink.mirror.runtime.processor import Processor
from spark_sink.mirror.schema.statements import AlterTable, RenameTables, effects_of
from spark_sink.mirror.tables.delta import StepSession
from spark_sink.mirror.tables.directory import TableDirectory
from spark_sink.mirror.values.entries import last_lsn
from spark_sink.mirror.values.faults import fault_of, in_one_line
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import ApplyOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_sink.mirror.log.binlog_log import BinlogLog
    from spark_sink.mirror.runtime.copy_track import CopyTrack
    from spark_sink.mirror.runtime.folder_mover import FolderMover

log = logging.getLogger("spark_sink.mirror")

FAILURES_MAX = 8
BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 60.0
AGAIN_S = 60.0  # after a catch-up that has failed


class TableAside(TableDirectory):
    """A directory of one table that is not live, as if it were: its state is the goal, and `save` keeps the real one.

    `folder`: where the table lies meanwhile, "" for its own folder.
    """

    def __init__(self, parent: TableDirectory, table_id: str, folder: str = "") -> None:
        self._parent, self._table_id, self._folder = parent, table_id, folder
        super().__init__(parent.consumer, parent.control, parent.full_path)
        # The records are the parent's, and so are the locks of those who write them.
        self._locks, self._writing = parent._locks, parent._writing  # noqa: SLF001

    def _mine(self) -> TableRecord:
        record = self._parent.record(self._table_id)
        goal = TableState(record.detail.get("goal", record.state))
        if not self._folder:
            return replace(record, state=goal)
        return replace(record, state=goal, folder=self._folder).having(**{MOVED_FROM: None})

    def read(self) -> list[TableRecord]:
        return []  # the parent reads requests

    def records(self) -> list[TableRecord]:
        return [self._mine()]

    def find(self, name: TableName, lsn: int) -> TableRecord | None:
        record = self._mine()
        return record if name_at(record, lsn) == name else None

    def save(self, *records: TableRecord) -> None:
        with self._holding(self._writing, self._table_id):
            self._save_real(records)

    def _save_real(self, records: Iterable[TableRecord]) -> None:
        for record in records:
            real = self._parent.record(self._table_id)
            kept = record
            if self._folder:
                kept = replace(record, folder=real.folder)
                kept = kept.having(**{MOVED_FROM: real.detail.get(MOVED_FROM)})
            if record.state in LIVE:
                kept = replace(kept, state=real.state, reason=real.reason)
                kept = kept.having(goal=str(record.state))
            else:  # it cannot go on
                kept = kept.having(goal=None)
            self._parent.save(kept)
            self.layout_unchecked(record)

    def record(self, table_id: str) -> TableRecord:
        assert table_id == self._table_id
        return self._mine()

    def exclusive(self, *table_ids: str) -> _GeneratorContextManager[None]:
        return self._parent.exclusive(*table_ids)

    def skipped(self, record: TableRecord, lsn: int) -> bool:  # noqa: ARG002 - of the base
        return False  # its entries are applied, now


class CatchUps:
    """The catch-ups of one consumer, which `CatchUpRuns` starts. `draining`: the log does not go on, so none of them
    waits for it."""

    def __init__(
        self,
        spark: SparkSession,
        directory: TableDirectory,
        binlog_log: BinlogLog,
        options: ApplyOptions,
        mover: FolderMover,
        copies: CopyTrack | None,
    ) -> None:
        """`copies`: how tables are copied; None if this application cannot copy."""
        self._spark = spark
        self._directory, self._log, self._options = directory, binlog_log, options
        self._mover, self._copies = mover, copies
        self.draining = False
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._active: set[str] = set()  # brought forward, or copied
        self._answering: set[str] = set()
        self._given_up: dict[str, float] = {}  # until when

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """End after the steps that run; nothing waits any more."""
        self._stop.set()

    def forget_failures(self, table_ids: Iterable[str]) -> None:
        """Try these tables again at once: somebody has asked for something about them."""
        with self._lock:
            for table_id in table_ids:
                self._given_up.pop(table_id, None)

    def requests(self) -> list[str]:
        """Returns the tables whose requests are to be answered now: something is asked for, and no thread answers.

        Catch-ups of these tables may run: they notice what the answer makes of the record.
        """
        found = []
        for record in self._directory.records():
            with self._lock:
                new = record.request and record.table_id not in self._answering
                if new and not self._waits_after_failure(record.table_id):
                    self._answering.add(record.table_id)
                    found.append(record.table_id)
        return found

    def replays(self) -> list[str]:
        """Returns the tables that have to be brought to where the log is, but for copies; they are to be run now."""
        waiting = (r for r in self._directory.records() if "goal" in r.detail and not is_copied(r))
        return [record.table_id for record in waiting if self._begin(record.table_id)]

    def next_copy(self) -> str | None:
        """Returns the table whose copy is to be made now: of those that wait, the one that has waited longest."""
        if self._copies is None:
            return None
        waiting = [r for r in self._directory.records() if is_copied(r) and not r.request]
        waiting.sort(key=lambda record: record.serial)
        return next((r.table_id for r in waiting if self._begin(r.table_id)), None)

    def _begin(self, table_id: str) -> bool:
        """True if a catch-up of the table can be started, and now counts as running."""
        with self._lock:
            if table_id in self._active or self._waits_after_failure(table_id):
                return False
            self._active.add(table_id)
            return True

    def _waits_after_failure(self, table_id: str) -> bool:
        if self._given_up.get(table_id, 0.0) > time.monotonic():
            return True
        self._given_up.pop(table_id, None)
        return False

    def _waits(self, record: TableRecord) -> bool:
        return self._copies is not None if is_copied(record) else "goal" in record.detail

    def busy(self) -> bool:
        """True if a catch-up runs, or has to be started."""
        waiting = {r.table_id for r in self._directory.records() if r.request or self._waits(r)}
        with self._lock:
            return bool(self._active | self._answering or waiting - self._given_up.keys())

    def answer(self, table_id: str) -> None:
        """Do what was asked for about a table: write what the request makes of its record."""
        self._tried(table_id, self._answering, lambda: self._asked(table_id))

    def run(self, table_id: str) -> None:
        """Bring a table to where the log is. Failures are tried again later."""
        self._tried(table_id, self._active, lambda: self._run(StepSession(self._spark), table_id))

    def copy(self, table_id: str) -> None:
        """Copy a table, and bring it to where the log is. Failures are tried again later."""

        def copied() -> None:
            assert self._copies is not None
            session = StepSession(self._spark)
            self._copies.run(session, table_id, self)
            self._run(session, table_id)

        self._tried(table_id, self._active, copied)

    def _tried(self, table_id: str, running: set[str], work: Callable[[], None]) -> None:
        failed = True
        try:
            work()
            failed = False
        except Exception as error:
            fault = fault_of(error)
            text = str(fault) if fault is not None else in_one_line(error)
            self._report(table_id, text)
            log.debug("the whole error", exc_info=error)
        finally:
            with self._lock:
                running.discard(table_id)
                if failed:
                    self._given_up[table_id] = time.monotonic() + AGAIN_S

    def _run(self, session: StepSession, table_id: str) -> None:
        record = self._directory.record(table_id)
        if MOVED_FROM in record.detail and not is_copied(record):
            self._move(table_id)
        if to_be_replayed(self._directory.record(table_id)):
            self.replay(session, table_id)

    def _move(self, table_id: str) -> None:
        """Bring the table's folder to its place. Raises `BinlogError` if that is taken."""
        with self._directory.exclusive(table_id):
            refused = self._mover.finish_moves(table_id)
            if table_id in refused:
                raise refused[table_id]
            self._directory.doubt(self._directory.record(table_id))

    def _report(self, table_id: str, text: str) -> None:
        """Log a failure, and write it into the record."""
        record = self._directory.record(table_id)
        log.warning("%s: %s: tried again in %d s: %s", record.consumer, record.label, AGAIN_S, text)
        try:
            self._directory.change(
                lambda now: replace(now, reason=f"tried again: {text}"), table_id
            )
        except Exception as error:  # noqa: BLE001 - the log has the failure
            log.warning("%s: %s: %s", record.consumer, record.label, in_one_line(error))

    # -- requests --------------------------------------------------------------------------------------------

    def _asked(self, table_id: str) -> None:
        record = self._directory.record(table_id)
        log.info("%s: %s: %s was asked for", record.consumer, record.label, record.request)
        with self._directory.exclusive(table_id):
            self._directory.change(after_request, table_id)

    # -- replay ----------------------------------------------------------------------------------------------

    def replay(self, session: StepSession, table_id: str, folder: str = "", to: int = -1) -> bool:
        """Execute what was skipped. Returns True if the table is live, or with `to` has reached that lsn.

        `folder`: where the table lies, if not in its own folder. Ends early if the table is stopped or settled.
        """
        aside = TableAside(self._directory, table_id, folder)
        processor = Processor(aside, self._log, self._options)
        cursor = aside.applied(session.spark, aside.record(table_id))
        while not self.stopping:
            record = self._directory.record(table_id)
            if "goal" not in record.detail:
                return False  # a statement has settled the table
            if to < 0 and not to_be_replayed(record):
                return False  # a statement has renamed the table, and its place is taken
            if to >= 0 and cursor >= to:
                return True
            if to < 0 and self._directory.go_live(table_id, cursor):
                log.info("%s: %s: live again", record.consumer, record.label)
                return True
            goal = max(to, self._directory.skipped_to(record))
            cursor = self._next(session, processor, table_id, cursor, goal)
            if cursor < 0:
                return False
        return False

    def _next(
        self, session: StepSession, processor: Processor, table_id: str, cursor: int, goal: int
    ) -> int:
        """Execute the next entries up to `goal`. Returns the lsn up to which the table is applied; -1 if it stopped."""
        record = self._directory.record(table_id)
        former = [(database, table) for _, database, table in record.detail.get("names", ())]
        names = list(dict.fromkeys([*former, record.name]))
        try:
            entries = self._log.entries(record.consumer, cursor, before=goal + 1, tables=names)
        except LostFileError as lost:
            text, last = remedies.of_fault(lost, record.label), last_lsn(lost.last)
            self._stand(table_id, lambda now: without_entries(now, text, cursor, last))
            return -1
        items = [
            item
            for entry in entries
            for name, item in route(entry, effects_of, lambda: names, lambda _: False)
            if name == name_at(record, entry.lsn)
        ]
        alone = False
        while items and not self.stopping:
            work, count = next_work(
                items, self._options.step_bytes_max, 1 if alone else ENTRIES_MAX
            )
            if self._copy_ends(table_id, work):
                return -1
            fault = self._execute(session, processor, table_id, work)
            if fault is not None and isinstance(work, RowRun) and len(work.entries) > 1:
                alone = True
                continue
            if fault is not None:
                self._stand(table_id, partial(faulted, fault=fault, lsn=work.lsn))
                return -1
            del items[:count]
            cursor = work.lsn
        if items:
            return cursor
        return entries[-1].lsn if entries else goal

    def _copy_ends(self, table_id: str, work: Work) -> bool:
        """True if a statement has changed the table's columns during its copy, which begins again."""
        if not isinstance(work, StatementItem | RenameBarrier):
            return False
        changes = [e for e in work.effects if isinstance(e, AlterTable)]
        with self._directory.exclusive(table_id):
            record = self._directory.record(table_id)
            if not in_copy(record, work.lsn) or not any(
                e.clauses or e.copy_reason for e in changes
            ):
                return False
            self._directory.update((record, copied_again(record)))
        return True

    def _execute(
        self, session: StepSession, processor: Processor, table_id: str, work: Work
    ) -> BinlogError | None:
        """Execute one step. Returns the fault of the table's data that prevents it."""
        failures = 0
        while True:
            try:
                with self._directory.exclusive(table_id):
                    record = self._directory.record(table_id)
                    if "goal" in record.detail:
                        processor.execute(session, name_at(record, work.lsn), _of_table(work))
                return None
            except Exception as error:
                if (fault := fault_of(error)) is not None:
                    return fault
                failures += 1
                if failures > FAILURES_MAX or self.stopping:
                    raise
                wait_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2**failures)
                log.warning("a step is tried again in %.1f s: %s", wait_s, in_one_line(error))
                if self._stop.wait(wait_s):
                    raise

    def _stand(self, table_id: str, standing: Callable[[TableRecord], TableRecord]) -> None:
        """Stop the table, as the record that `standing` makes of its newest one."""
        with self._directory.exclusive(table_id):
            record = self._directory.record(table_id)
            if "goal" not in record.detail:
                return  # a statement has settled the table
            stands = standing(record).having(goal=None)
            self._directory.update((record, stands))
        said = {"consumer": record.consumer, "table": record.label, "state": "stopped"}
        said |= {"lsn": stands.detail["failed"], "reason": stands.reason}
        log_event(log, "table", said, logging.WARNING)


def _of_table(work: Work) -> Work:
    """A RENAME has been executed as it came; what is left of it is what the statement did beside."""
    if isinstance(work, RenameBarrier):
        rest = tuple(effect for effect in work.effects if not isinstance(effect, RenameTables))
        return StatementItem(work.entry, rest)
    return work
