"""The records of the histories of one consumer's tables: which there are, how far each is, and how it stands.

`from_lsn` of a record is what a crash must not lose: its history is at least there. The history's Delta table records
the lsn of its newest step, which may be larger; `cursor` may be larger still, behind entries that need no step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.rules.retries import backoff_s
from spark_sink.mirror.rules.table_record import LIVE, TableRecord, TableState, new_table_id
from spark_sink.mirror.tables.delta import MirroredTable
from spark_sink.mirror.tables.directory import TableDirectory
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import ApplyOptions

FAILURES_MAX = 6  # in a row, until a drain gives up
NEWEST = (1 << 62) - 1  # behind all entries


def has_rows(mirrored: TableRecord | None) -> bool:
    """True if a mirrored table has rows with which a history can begin."""
    return (
        mirrored is not None and mirrored.state is not TableState.DROPPED and bool(mirrored.folder)
    )


@dataclass(slots=True)
class _Pause:
    """After a failure that may pass. `until`: of a monotonic clock."""

    failures: int = 0
    until: float = 0.0


@dataclass
class HistoryRecords:
    """Threads may share it. `changes`: how often records were written."""

    directory: TableDirectory
    control: ControlTable
    options: ApplyOptions
    changes: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _records: dict[TableName, TableRecord] = field(default_factory=dict)
    _cursors: dict[str, int] = field(default_factory=dict)
    _pauses: dict[str, _Pause] = field(default_factory=dict)
    _wanted: dict[TableName, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for record in self.control.rows().histories.values():
            if (
                record.consumer == self.directory.consumer
                and record.state is not TableState.DROPPED
            ):
                self._records[record.name] = record

    # -- which there are -------------------------------------------------------------------------------------

    def wanted(self, name: TableName) -> bool:
        """True if the settings want a history of the table. They are asked once for each name."""
        if name not in self._wanted:
            excluded = self.options.excludes(self.directory.consumer, name)
            self._wanted[name] = self.options.policy(name).history and not excluded
        return self._wanted[name]

    def any(self) -> bool:
        """True if there is a history to follow or to begin."""
        return bool(self.followed() or self._lacking())

    def followed(self) -> list[TableRecord]:
        """The histories that the settings want."""
        with self._lock:
            return [record for name, record in self._records.items() if self.wanted(name)]

    def record(self, name: TableName) -> TableRecord:
        with self._lock:
            return self._records[name]

    def all(self) -> list[TableRecord]:
        """Also those that the settings no longer want."""
        with self._lock:
            return list(self._records.values())

    def save(self, record: TableRecord) -> TableRecord:
        with self._lock:
            self.control.write(record)
            written = self.control.rows().histories[record.table_id]
            record = replace(record, serial=written.serial, at=written.at)
            self._records[record.name] = record
            self.changes += 1
        return record

    def change(self, name: TableName, of: Callable[[TableRecord], TableRecord]) -> TableRecord:
        """Write what `of` makes of the newest record, if that is another one. Returns it."""
        with self._lock:
            changed = of(self._records[name])
            return changed if changed == self._records[name] else self.save(changed)

    def executed(self, name: TableName, lsn: int) -> None:
        """A statement was executed. If it has created or emptied the table, the table's history begins with it."""
        mirrored = self.directory.find(name, lsn + 1)
        if mirrored is None or mirrored.detail.get("exact_from") != lsn:
            return
        with self._lock:
            if self.wanted(name) and name not in self._records:
                self.save(replace(self._new(name), state=TableState.COMPLETE, from_lsn=lsn))

    def begin_new(self) -> None:
        """Make a record for each table that has rows already and no history yet."""
        for name in self._lacking():
            self.save(self._new(name))

    def _lacking(self) -> list[TableName]:
        live = [record.name for record in self.directory.records() if record.state in LIVE]
        with self._lock:
            return [name for name in live if name not in self._records and self.wanted(name)]

    def _new(self, name: TableName) -> TableRecord:
        consumer = self.directory.consumer
        return TableRecord(new_table_id(), consumer, *name, state=TableState.CREATING, history=True)

    def read_requests(self) -> None:
        """Take what a person asked for from the control table."""
        for table_id, asked in self.control.rows().histories.items():
            with self._lock:
                own = self._records.get(asked.name)
                new = asked.detail.get("asked")
                if own is None or own.table_id != table_id or new is None:
                    continue
                if own.detail.get("handled") != new["id"]:
                    own = replace(own, request=asked.request).having(asked=new)
                    self._records[own.name] = own

    def tables(self) -> Iterator[tuple[TableRecord, MirroredTable]]:
        """The histories that have a Delta table, for its maintenance."""
        for record in self.followed():
            if record.folder and record.state is TableState.COMPLETE:
                yield record, self.directory.table(record)

    def has_deletion_vectors(self, name: TableName) -> None:
        """Remember that the Delta table has them."""
        self.change(name, lambda now: now.having(deletion_vectors=True))

    @property
    def registered(self) -> RegisteredHistories:
        """The histories as a catalog sees them."""
        return RegisteredHistories(self)

    # -- how far they are ------------------------------------------------------------------------------------

    def cursor(self, record: TableRecord) -> int | None:
        """Returns the lsn up to which a history is; None if its Delta table has to be asked."""
        with self._lock:
            return self._cursors.get(record.table_id)

    def at(self, record: TableRecord, lsn: int) -> int:
        """A history has reached an entry. Returns its lsn."""
        with self._lock:
            self._cursors[record.table_id] = lsn
        return lsn

    def doubt(self, record: TableRecord) -> None:
        """Ask the Delta table again."""
        with self._lock:
            self._cursors.pop(record.table_id, None)

    def oldest_needed(self) -> int:
        """Returns the lsn behind which histories need the log. What it says holds after a crash, too."""
        needed = [NEWEST]
        for record in self._reading():
            with self._lock:
                now, cursor = self._records[record.name], self.cursor(record) or 0
                if cursor > now.from_lsn:
                    now = self.save(replace(now, from_lsn=cursor))
            needed.append(now.from_lsn)
        return min(needed)

    def oldest_cursor(self) -> int:
        """Returns the smallest lsn up to which a history is; 0 if that is not known yet."""
        return min((self.cursor(record) or 0 for record in self._reading()), default=NEWEST)

    def _reading(self) -> list[TableRecord]:
        """The histories that read the log. One whose table was dropped before it began waits for another such table."""
        return [record for record in self.followed() if not self._waits_for_table(record)]

    def _waits_for_table(self, record: TableRecord) -> bool:
        is_begun = record.state is not TableState.CREATING
        return not is_begun and not has_rows(self.directory.find(record.name, NEWEST))

    # -- how they stand --------------------------------------------------------------------------------------

    def failed(self, record: TableRecord) -> float:
        """A step has failed in a way that may pass. Returns for how many seconds the history pauses."""
        self.doubt(record)
        pause = self._pauses.setdefault(record.table_id, _Pause())
        pause.failures += 1
        wait_s = backoff_s(self.options.retry_first_s, pause.failures)
        pause.until = time.monotonic() + wait_s
        return wait_s

    def recovered(self, record: TableRecord) -> None:
        self._pauses.pop(record.table_id, None)

    def pauses(self, record: TableRecord) -> bool:
        pause = self._pauses.get(record.table_id)
        return pause is not None and time.monotonic() < pause.until

    def _is_failing(self, record: TableRecord) -> bool:
        pause = self._pauses.get(record.table_id)
        return pause is not None and pause.failures >= FAILURES_MAX

    def failing(self) -> int:
        """Returns how many histories have failed and are tried again."""
        return len(self._pauses)

    def standing(self) -> list[str]:
        """Returns the histories that are stopped or fail again and again."""
        return [
            record.label
            for record in self.followed()
            if record.state is TableState.STOPPED or self._is_failing(record)
        ]

    def at_rest(self, goal: int) -> bool:
        """True if each history has reached the lsn `goal`, or cannot."""
        return not self._lacking() and all(self._rests(r, goal) for r in self.followed())

    def _rests(self, record: TableRecord, goal: int) -> bool:
        if self._is_failing(record):
            return True
        mirrored = self.directory.find(record.name, NEWEST)
        if mirrored is not None and mirrored.state not in (*LIVE, TableState.DROPPED):
            return True  # it waits for a table that is not applied
        if record.request:
            return False
        if record.state is TableState.CREATING:
            return self._waits_for_table(record)
        return record.state is TableState.STOPPED or (self.cursor(record) or 0) >= goal


@dataclass(frozen=True, slots=True)
class RegisteredHistories:
    """The histories of one consumer as `catalog.RegisteredRecords`. Their folders do not move."""

    histories: HistoryRecords

    @property
    def changes(self) -> int:
        return self.histories.changes

    def records(self) -> list[TableRecord]:
        return self.histories.all()

    def record(self, table_id: str) -> TableRecord:
        return next(record for record in self.records() if record.table_id == table_id)

    def exclusive(self, *_: str) -> AbstractContextManager[None]:
        return nullcontext()

    def change(self, of: Callable[[TableRecord], TableRecord], *table_ids: str) -> None:
        for table_id in table_ids:
            self.histories.change(self.record(table_id).name, of)
