"""What happens to a step that fails, by the kind of the failure.

* A fault of the table's data: the step's entries are tried one by one; at the one that fails the table stops, alone.
* A conflict with another writer of the Delta table: the step is tried again at once, a few times.
* Anything else: it is tried again with backoff, and the table's record says with which error.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace

from dispatcher.model.errors import BinlogError
from spark_sink.mirror.directory import LIVE, TableDirectory
from spark_sink.mirror.faults import fault_of, in_one_line, is_conflict
from spark_sink.mirror.names import TableName, table_label
from spark_sink.mirror.plan import RenameBarrier, RowRun
from spark_sink.mirror.processor import Processor
from spark_sink.mirror.queues import QueuedStep, TableQueues
from spark_sink.mirror.transitions import faulted

log = logging.getLogger("spark_sink.mirror")

CONFLICTS_MAX = 8
BACKOFF_MAX_S = 60.0
REPORTED_AFTER = 3  # failures of a step in a row, until its record says so


def backoff_s(first_s: float, failures: int) -> float:
    """Returns how long to wait after so many failures in a row."""
    return min(BACKOFF_MAX_S, first_s * 2.0 ** min(failures, 20))


class StepFailures:
    """Of one consumer. Threads may share it; the queues are used under `lock`."""

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

    def failed(self, step: QueuedStep, error: Exception) -> None:
        """Decide how the tables of a step go on."""
        name = step.names[0]
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
        name, count = step.names[0], self._counts.get(step.names[0], 1)
        conflict = is_conflict(error) and count <= CONFLICTS_MAX
        first_s = self._retry_first_s
        wait_s = first_s * count if conflict else backoff_s(first_s, count)
        consumer, text = self._directory.consumer, in_one_line(error)
        log.warning("%s: %s: tried again in %.1f s: %s", consumer, table_label(name), wait_s, text)
        log.debug("%s: the whole error", consumer, exc_info=error)
        with self._lock:
            self._queues.again(step, time.monotonic() + wait_s)

    def recovered(self, name: TableName) -> None:
        """A step of the table was applied."""
        if self._counts.pop(name, 0) < REPORTED_AFTER:
            return
        for record in self._directory.records():
            if record.name == name and "failing" in record.detail:
                self._directory.change(
                    lambda now: replace(now, reason="").having(failing=None), record.table_id
                )

    def names(self) -> list[TableName]:
        """Returns the tables whose steps fail."""
        return [name for name, count in self._counts.items() if count]

    def lasting(self) -> bool:
        """True if a step fails again and again."""
        return any(count >= REPORTED_AFTER * 2 for count in self._counts.values())

    def _report(self, name: TableName, lsn: int, text: str) -> None:
        """Write into the table's record that its steps fail."""
        record = self._directory.find(name, lsn)
        if record is not None and record.state in LIVE:
            self._directory.change(
                lambda now: replace(now, reason=f"tried again: {text}").having(failing=lsn),
                record.table_id,
            )

    def _quarantine(self, step: QueuedStep, fault: BinlogError) -> None:
        """Stop the tables of a step alone."""
        for name in step.names:
            record = self._directory.find(name, step.work.lsn)
            self._counts.pop(name, None)
            if record is None or record.state not in LIVE:
                continue
            standing = faulted(record, fault, step.work.lsn)
            self._processor.write(standing, f"at lsn {step.work.lsn}")
            self._directory.skipped(standing, step.work.lsn)
        with self._lock:
            self._queues.done(step)
