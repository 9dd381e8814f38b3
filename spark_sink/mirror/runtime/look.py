"""Looks for changes of the mirror's log and of the control table (`lake.control_table`), for the rules of one consumer.
An lsn is the number of an entry of the log.

A look reads files, and may wait for a commit of the control table, so a thread of a pool executes it, and not the
thread that steps the rules.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.log_lines import log_event
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.log.files import LostFileError, log_is_shorter
from spark_sink.mirror.rules.control_rows import ControlRows
from spark_sink.mirror.rules.events import Claimed, Event, LogFailed, LogGrew, RequestsRead, Started
from spark_sink.mirror.rules.retries import LASTING_AFTER, backoff_s
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.runtime.claims import Claims
from spark_sink.mirror.runtime.works import other_owners
from spark_sink.mirror.values.entries import last_lsn
from spark_sink.mirror.values.faults import in_one_line
from spark_sink.mirror.values.policies import ApplyOptions

log = logging.getLogger("spark_sink.mirror")


@dataclass(frozen=True, slots=True)
class LookedAt:
    """The objects from which a look reads. `claims`: the claims of the job."""

    binlog_log: BinlogLog
    claims: Claims


class Look:
    """Posts an event for each change that it finds. One thread calls `first` and `ask`."""

    def __init__(
        self,
        consumer: str,
        options: ApplyOptions,
        at: LookedAt,
        start: Callable[[Callable[[], None]], None],
        post: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`start`: lets a thread of a pool execute a function; `wall_clock`: returns the time, s since 1970."""
        self._consumer, self._at, self._start, self._post = consumer, at, start, post
        self._policy, self._retry_first_s, self._clock = (
            options.policy,
            options.retry_first_s,
            clock,
        )
        self._wall_clock = wall_clock
        self._newest = 0
        self._rows: ControlRows | None = None  # the rows whose requests were posted last
        self._drain = False
        self._attempts, self._retry_at = 0, 0.0
        self._lock = threading.Lock()
        self._records: tuple[TableRecord, ...] = ()
        self._asked = self._running = False

    # -- the first look ----------------------------------------------------------------------------------------

    def first(self, rows: ControlRows, *, drain: bool) -> list[Event]:
        """Returns the events with which the rules begin. `drain`: True to apply only the entries that the log contains
        now."""
        self._drain = drain
        own = [*rows.records.values(), *rows.histories.values()]
        records = tuple(record for record in own if record.consumer == self._consumer)
        applied, owners = rows.applied.get(self._consumer, 0), other_owners(rows, self._consumer)
        end, oldest, failed = None, 0, list[Event]()
        if claimed := self._at.claims.lost(self._consumer, rows):
            failed = [Claimed(claimed)]
        else:
            try:
                self._newest = self._newest_append(applied)
                # If the log's last END entry is lost, the rules use the next END entry that they read.
                with suppress(LostFileError):
                    end = self._at.binlog_log.end(self._consumer)
                oldest = self._oldest(records)
            except BinlogError as error:
                failed = [LogFailed(error)]
        goal = (last_lsn(self._newest) if self._newest else 0) if drain else None
        proofs = tuple(p for p in rows.proofs.values() if p.consumer == self._consumer)
        log_end = (applied, end, self._newest, oldest)
        started = Started(records, owners, *log_end, goal, proofs, self._wall_clock())
        return [*failed, started, self._requests(rows)]

    def _newest_append(self, applied: int) -> int:
        """Returns the last append's number. Raises `BinlogError` if the log ends before the lsn `applied`."""
        newest = self._at.binlog_log.last_append(self._consumer)
        if applied > (last_lsn(newest) if newest else 0):
            raise log_is_shorter(self._consumer, self._at.binlog_log.path)
        return newest

    def _oldest(self, records: tuple[TableRecord, ...]) -> int:
        """Returns the smallest lsn that the log still has; 0 if there is no history. Only histories need this lsn, and
        finding it requires a list of all files of the log."""
        if not any(record.history or self._policy(record.name).history for record in records):
            return 0
        return self._at.binlog_log.first_lsn_held(self._consumer) or 0

    def _requests(self, rows: ControlRows) -> RequestsRead:
        self._rows = rows
        records = [*rows.records.values(), *rows.histories.values()]
        asked = {
            record.table_id: record.request
            for record in records
            if record.consumer == self._consumer and record.request is not None
        }
        named = {name: i for (of, name), i in rows.named.items() if of == self._consumer}
        return RequestsRead(asked, named, other_owners(rows, self._consumer))

    # -- the looks that follow ---------------------------------------------------------------------------------

    def ask(self, records: tuple[TableRecord, ...]) -> None:
        """Request a look that begins after this call. `records`: the present records of the rules."""
        with self._lock:
            self._asked, self._records = True, records
            if self._running:
                return
            self._running = True
        self._start(self._looks)

    def _looks(self) -> None:
        while self._is_asked():
            self._look()

    def _is_asked(self) -> bool:
        """Returns False if no look was requested since the last look began, or if the next look has to wait."""
        with self._lock:
            self._running = self._asked and self._clock() >= self._retry_at
            self._asked = self._asked and not self._running
            return self._running

    def _look(self) -> None:
        try:
            newest = self._at.binlog_log.last_append(self._consumer)
            if newest > self._newest:
                oldest = self._oldest(self._records)
                self._newest = newest
                self._post(LogGrew(newest, oldest))
            rows = self._at.claims.control.rows()
            if (
                rows is not self._rows
            ):  # two processes may write rows with one serial, so serials show no change
                claimed = self._at.claims.lost(self._consumer, rows)
                self._post(self._requests(rows) if claimed is None else Claimed(claimed))
        except Exception as error:  # noqa: BLE001 - every kind of it is handled
            self._failed(error)
        else:
            self._attempts = 0

    def _failed(self, error: Exception) -> None:
        """Handle the error of a look. After a `BinlogError`, the consumer is no longer applied. After any other error,
        the look is repeated after a pause; in a drain (`--available-now`), the consumer is no longer applied after
        `LASTING_AFTER` such errors in succession."""
        if isinstance(error, BinlogError):
            self._post(LogFailed(error))
            return
        self._attempts += 1
        wait_s = backoff_s(self._retry_first_s, self._attempts)
        self._retry_at = self._clock() + wait_s
        text = in_one_line(error)
        fields = {"consumer": self._consumer, "seconds": wait_s, "error": text}
        log_event(log, "retry", fields, logging.WARNING)
        log.debug("%s: the whole error", self._consumer, exc_info=error)
        if self._drain and self._attempts >= LASTING_AFTER:
            where = f"consumer {self._consumer}"
            self._post(LogFailed(BinlogError(ErrorKind.INTERNAL, text, where=where)))
