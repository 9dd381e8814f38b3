"""What happens to a step that fails, by the kind of the failure.

* A fault of the table's data: the step's entries are tried one by one; at the one that fails the table stops, alone.
* A conflict with another writer of the Delta table: the step is tried again at once, a few times.
* Anything else: it is tried again with backoff, and the table's record says with which error.
"""

from __future__ import annotations

import logging
import threading
import time

from dispatcher.model.errors import BinlogError
from spark_sink.mirror.rules.plan import RenameBarrier, RowRun
from spark_sink.mirror.rules.queues import QueuedStep, TableQueues
from spark_sink.mirror.rules.retries import FAILING, backoff_s, with_failure, without_failure
from spark_sink.mirror.rules.table_record import LIVE
from spark_sink.mirror.rules.transitions import faulted
from spark_sink.mirror.runtime.processor import Processor
from spark_sink.mirror.tables.directory import TableDirectory
from spark_sink.mirror.values.faults import fault_of, in_one_line, is_conflict
from spark_sink.mirror.values.names import TableName, table_label

log = logging.getLogger("spark_sink.mirror")

CONFLICTS_MAX = 8
REPORTED_AFTER = 3  # failures of a step in a row, until its record says so


class StepFailures:
    """Of one consumer. Threads may share it; the queues are used under `lock`, and so are the counts.

    A table's record says that its steps fail: `failing` of `detail`, with the reason that it had before. When a step is
    applied again, `tell_recovered` takes that back. It may be called again and again while the control table cannot be
    written.
    """

    def __init__(
        self,
        directory: TableDirectory,
        processor: Processor,
        queues: TableQueues,
        lock: threading.Lock,
        retry_first_s: float,
    ) -> None:
        self._directory, self._processor = directory, processor
        self._queues, self._lock = queues, lock
        self._retry_first_s = retry_first_s
        self._counts: dict[TableName, int] = {}
        # Ids of tables whose records say that their steps fail, also those of an earlier run; and of these, the ones
        # that fail no longer.
        self._told = {r.table_id for r in directory.records() if FAILING in r.detail}
        self._recovered: set[str] = set()

    def failed(self, step: QueuedStep, error: Exception) -> None:
        """Decide how the tables of a step go on."""
        name = step.names[0]
        with self._lock:
            count = self._counts[name] = self._counts.get(name, 0) + 1
        fault = fault_of(error)
        if fault is not None and isinstance(step.work, RowRun) and len(step.work.entries) > 1:
            with self._lock:
                self._queues.again(step, time.monotonic(), alone=True)
            return
        if fault is not None and not isinstance(step.work, RenameBarrier):
            self._quarantine(step, fault)
            return
        if count == REPORTED_AFTER:
            self._report(name, step.work.lsn, in_one_line(error))
        self.again(step, error)

    def again(self, step: QueuedStep, error: Exception) -> None:
        """Try a step again: at once after a conflict with another writer, else with backoff."""
        name = step.names[0]
        with self._lock:
            count = self._counts.get(name, 1)
        conflict = is_conflict(error) and count <= CONFLICTS_MAX
        first_s = self._retry_first_s
        wait_s = first_s * count if conflict else backoff_s(first_s, count)
        consumer, text = self._directory.consumer, in_one_line(error)
        log.warning("%s: %s: tried again in %.1f s: %s", consumer, table_label(name), wait_s, text)
        log.debug("%s: the whole error", consumer, exc_info=error)
        with self._lock:
            self._queues.again(step, time.monotonic() + wait_s)

    def recovered(self, step: QueuedStep) -> None:
        """A step was applied. Writes nothing, so it cannot fail."""
        with self._lock:
            for name in step.names:
                self._counts.pop(name, None)
                record = self._directory.find(name, step.work.lsn) if self._told else None
                if record is not None and record.table_id in self._told:
                    self._recovered.add(record.table_id)

    def tell_recovered(self) -> None:
        """Write into the records of tables that fail no longer that they do not."""
        with self._lock:
            recovered = set(self._recovered)
        if not recovered:
            return
        self._directory.change(without_failure, *recovered)
        with self._lock:
            self._recovered -= recovered
            self._told -= recovered

    def untold(self) -> bool:
        """True if `tell_recovered` has something to write."""
        with self._lock:
            return bool(self._recovered)

    def names(self) -> list[TableName]:
        """Returns the tables whose steps fail."""
        with self._lock:
            return list(self._counts)

    def lasting(self) -> bool:
        """True if a step fails again and again."""
        with self._lock:
            return any(count >= REPORTED_AFTER * 2 for count in self._counts.values())

    def _report(self, name: TableName, lsn: int, text: str) -> None:
        """Write into the table's record that its steps fail."""
        record = self._directory.find(name, lsn)
        if record is None or record.state not in LIVE:
            return
        with self._lock:
            self._told.add(record.table_id)
        self._directory.change(lambda now: with_failure(now, lsn, text), record.table_id)

    def _quarantine(self, step: QueuedStep, fault: BinlogError) -> None:
        """Stop the tables of a step alone."""
        for name in step.names:
            record = self._directory.find(name, step.work.lsn)
            with self._lock:
                self._counts.pop(name, None)
            if record is None or record.state not in LIVE:
                continue
            standing = faulted(without_failure(record), fault, step.work.lsn)
            self._processor.write(record, standing, f"at lsn {step.work.lsn}")
            self._directory.skipped(standing, step.work.lsn)
        with self._lock:
            self._queues.done(step)
