"""The tables of one consumer as the applier knows them: their records, applied lsn and names at any lsn.

After a crash entries are read again from the consumer's last watermark. Meanwhile a table may have been renamed, and
another one may have its name. So a table is found by the name that it had at an entry's lsn: a record keeps its former
names (`names` of `detail`: [[until lsn, database, table], ...]) until the watermark is behind them.

A name has one record that is not dropped. Several threads make records, each for a name that it found without one, so
`save` refuses a second one.

Thread-safe. The control table is written before the memory changes. One thread at a time writes a table's record, so
that both have the same newest one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.rules.records import doubled, find_record, to_be_replayed
from spark_sink.mirror.rules.table_record import (
    LIVE,
    TableRecord,
    TableState,
    answering,
    new_table_id,
    rebased,
)
from spark_sink.mirror.tables.delta import MirroredTable
from spark_sink.mirror.values.names import TableName, table_label

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = logging.getLogger("spark_sink.mirror")


class NameTakenError(Exception):
    """Another record has got the name meanwhile, so that one counts: look again."""


class TableDirectory:
    """Of one consumer. `full_path`: the path of a record's folder; `changes`: how often records were written.

    `save` replaces a record: use it for new tables, or where no other thread can have changed the record since it was
    read; else `change` or `update`.
    """

    def __init__(
        self, consumer: str, control: ControlTable, full_path: Callable[[str], str]
    ) -> None:
        self.consumer = consumer
        self.control = control
        self.full_path = full_path
        self.changes = 0
        self._locks: dict[str, threading.RLock] = {}
        self._lock = threading.RLock()
        self._writing: dict[str, threading.RLock] = {}
        self._records: dict[str, TableRecord] = {}
        self._naming: dict[TableName, str] = {}  # names that are about to get a record
        self._versions: dict[str, int] = {}
        self._skipped: dict[str, int] = {}
        self._checked: dict[str, set[str]] = {}
        self.read()

    # -- records ---------------------------------------------------------------------------------------------

    def read(self) -> list[TableRecord]:
        """Read requests from the control table. Returns the tables whose request is new.

        The states in memory are the newest ones: only this application writes those of its consumers.
        """
        records = self.control.records()
        with self._lock:
            asked = []
            for table_id, record in records.items():
                if record.consumer != self.consumer:
                    continue
                own = self._records.setdefault(table_id, record)
                request = record.detail.get("asked")
                known = own.detail.get("asked"), own.detail.get("handled")
                if request is None or request["id"] == known[1]:
                    continue
                own = replace(own, request=record.request).having(asked=request)
                self._records[table_id] = own
                if request != known[0] or own is record:
                    asked.append(own)
        return asked + self._read_named()

    def _read_named(self) -> list[TableRecord]:
        """Take the requests for copies of names. Returns the tables whose request is new; one without a record gets
        it."""
        asked, new = [], []
        for name, request_id in self.control.named_requests(self.consumer).items():
            label = table_label(name)
            with self._lock:
                own = max(
                    (record for record in self._records.values() if record.name == name),
                    key=lambda record: (record.state is not TableState.DROPPED, record.serial),
                    default=None,
                )
                if own is not None:
                    request = {"id": request_id, "name": label}
                    if own.detail.get("asked") != request:
                        asked.append(own)
                    self._records[own.table_id] = replace(own, request="copy").having(asked=request)
                    continue
            made = TableRecord(new_table_id(), self.consumer, *name, state=TableState.CREATING)
            new.append(answering(replace(made, reason="a copy was asked for"), label, request_id))
        try:
            self.save(*new)
        except NameTakenError:
            return asked  # the record that another thread is writing is found by the next call
        return asked + new

    def records(self) -> list[TableRecord]:
        with self._lock:
            return list(self._records.values())

    def record(self, table_id: str) -> TableRecord:
        with self._lock:
            return self._records[table_id]

    def names(self) -> list[TableName]:
        """The names of all tables that are not dropped."""
        return [r.name for r in self.records() if r.state is not TableState.DROPPED]

    def find(self, name: TableName, lsn: int) -> TableRecord | None:
        with self._lock:
            return find_record(self._records.values(), name, lsn)

    def other_owner(self, name: TableName) -> TableRecord | None:
        """Returns the table of another consumer that has the name."""
        for record in self.control.records().values():
            exists = record.state is not TableState.DROPPED and record.folder
            if exists and record.name == name and record.consumer != self.consumer:
                return record
        return None

    def save(self, *records: TableRecord) -> None:
        """Write records, in one commit."""
        ids = [record.table_id for record in records]
        with self._holding(self._writing, *ids), self._taking_names(records):
            self.control.write(*records)
            written = self.control.records()
            with self._lock:
                for record in records:
                    now = written[record.table_id]
                    self._records[record.table_id] = replace(record, serial=now.serial, at=now.at)
                    self._checked.pop(record.table_id, None)
                self.changes += 1

    @contextmanager
    def _taking_names(self, records: Sequence[TableRecord]) -> Iterator[None]:
        """Raises `NameTakenError` if another record has the name of one of these, or is about to get it."""
        ids = {record.table_id for record in records}
        names = {r.name: r.table_id for r in records if r.state is not TableState.DROPPED}
        with self._lock:
            for record in self._records.values():
                live = record.state is not TableState.DROPPED and record.table_id not in ids
                if live and record.name in names:
                    raise NameTakenError(f"{record.label} has a record already")
            for name, table_id in names.items():
                if self._naming.get(name, table_id) != table_id:
                    raise NameTakenError(f"{table_label(name)} is about to get a record")
            added = [name for name in names if name not in self._naming]
            self._naming |= names
        try:
            yield
        finally:
            with self._lock:
                for name in added:
                    del self._naming[name]

    def settle_doubled(self) -> None:
        """Drop the records of names that have several."""
        if superfluous := doubled(self.records()):
            log.warning("%s: dropped records: %s", self.consumer, [r.label for r in superfluous])
            with self._lock:
                self._records |= {record.table_id: record for record in superfluous}
            self.save(*superfluous)

    def change(self, of: Callable[[TableRecord], TableRecord], *table_ids: str) -> None:
        """Write what `of` makes of the newest records of these tables, in one commit; of those that it changes."""
        concerned = [i for i in table_ids if of(record := self.record(i)) != record]
        with self._holding(self._writing, *concerned):
            newest = [self.record(table_id) for table_id in concerned]
            changed = [(record, of(record)) for record in newest]
            self.save(*(after for before, after in changed if after != before))

    def update(self, *changes: tuple[TableRecord | None, TableRecord]) -> list[TableRecord]:
        """Write what was changed of records, (before, after), into the newest ones, in one commit. Returns these.

        `before`: the record from which `after` was made, None for a new table. What other threads have changed since
        then stays.
        """
        ids = [after.table_id for _, after in changes]
        with self._holding(self._writing, *ids):
            merged = [
                after if before is None else rebased(self.record(after.table_id), before, after)
                for before, after in changes
            ]
            self.save(*merged)
            return [self.record(table_id) for table_id in ids]

    # -- what is applied -------------------------------------------------------------------------------------

    def table(self, record: TableRecord) -> MirroredTable:
        return MirroredTable(record.table_id, self.full_path(record.lies_at), record.label)

    def applied(self, spark: SparkSession, record: TableRecord) -> int:
        """Returns the lsn up to which a table is applied. Its Delta table is asked once."""
        with self._lock:
            version = self._versions.get(record.table_id)
        if version is None:
            version = self.table(record).version(spark) if record.folder else -1
            with self._lock:
                self._versions[record.table_id] = version
        return max(version, record.from_lsn)

    def committed(self, record: TableRecord, lsn: int) -> None:
        with self._lock:
            self._versions[record.table_id] = max(lsn, self._versions.get(record.table_id, -1))

    def doubt(self, record: TableRecord) -> None:
        """Ask the Delta table again: a commit of it failed, and may be there all the same."""
        with self._lock:
            self._versions.pop(record.table_id, None)

    # -- tables that are not applied as entries come -----------------------------------------------------------

    def skipped(self, record: TableRecord, lsn: int) -> bool:
        """An entry is left in the log. False if the table has become live meanwhile: then it has to be applied."""
        with self._lock:
            if self._records[record.table_id].state in LIVE:
                return False
            self._skipped[record.table_id] = max(lsn, self._skipped.get(record.table_id, 0))
            return True

    def skipped_to(self, record: TableRecord) -> int:
        with self._lock:
            return self._skipped.get(record.table_id, 0)

    def go_live(self, table_id: str, cursor: int) -> bool:
        """Make a table live that was applied up to `cursor`. False if entries behind it were left in the log, if the
        table is not in its place, or if a statement has settled it."""
        with self.exclusive(table_id), self._holding(self._writing, table_id):
            with self._lock:
                record = self._records[table_id]
                if not to_be_replayed(record) or self._skipped.get(table_id, 0) > cursor:
                    return False
                live = replace(record, state=TableState(record.detail["goal"]), from_lsn=cursor)
                live = live.having(goal=None, failed=None, was=None, lost=None)
                if live.state is TableState.COMPLETE:
                    live = replace(live, reason="")
                # From now on entries are applied; if the record is not written, the catch-up is repeated.
                self._records[table_id] = live
                self._versions.pop(table_id, None)
            self.save(live)
        return True

    @contextmanager
    def exclusive(self, *table_ids: str) -> Iterator[None]:
        """No other thread changes these tables within, other than by rows of live tables."""
        with self._holding(self._locks, *table_ids):
            yield

    @contextmanager
    def _holding(self, locks: dict[str, threading.RLock], *table_ids: str) -> Iterator[None]:
        with self._lock:
            chosen = [locks.setdefault(i, threading.RLock()) for i in sorted(set(table_ids))]
        with ExitStack() as stack:
            for lock in chosen:
                stack.enter_context(lock)
            yield

    # -- layouts -----------------------------------------------------------------------------------------------

    def layout_checked(self, record: TableRecord, layout: str) -> bool:
        """True if rows in this layout are known to fit the record's signature; remembers that they do."""
        with self._lock:
            checked = self._checked.setdefault(record.table_id, set())
            known = layout in checked
            checked.add(layout)
            return known

    def layout_unchecked(self, record: TableRecord) -> None:
        with self._lock:
            self._checked.pop(record.table_id, None)
