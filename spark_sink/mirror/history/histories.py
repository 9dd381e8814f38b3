"""Brings the history tables of one consumer forward: each is a reader of the log of its own.

Rows come from the log, entry by entry, so every version is there, at the history's own pace. What a statement made of
the rows is not worked out a second time: the mirrored table did that, and its Delta table still has the rows as they
were behind the statement (`mirrored_rows`), which are compared with the current versions. So a history stays behind its
mirrored table, and goes on at a statement when the table has passed it. The same comparison begins the history of a
table that has rows, and goes on behind a copy or a RENAME; rows that are equal keep their version.

The alternative, a second commit in each step of the mirrored table, would let a history that fails stop the table, and
would need rules of its own for every statement.

Exactly once: a step records its lsn in its Delta commit, as the mirror's steps do. `from_lsn` of the record is behind
entries that need no commit. A history belongs to a name, `database.table`, whatever table has it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from dispatcher.model.errors import BinlogError
from spark_sink.mirror.history.history_records import NEWEST, HistoryRecords, has_rows
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.plan import LostItem, RowRun, StatementItem, Work, next_work, route
from spark_sink.mirror.rules.queues import ENTRIES_MAX
from spark_sink.mirror.rules.records import name_at
from spark_sink.mirror.rules.table_record import LIVE, TableRecord, TableState, handled
from spark_sink.mirror.schema.statements import (
    AlterTable,
    CreateTable,
    DropTable,
    TruncateTable,
    effects_of,
)
from spark_sink.mirror.tables.delta import StepSession
from spark_sink.mirror.values.entries import append_of, first_lsn
from spark_sink.mirror.values.faults import fault_of, in_one_line
from spark_sink.mirror.values.names import TableName

if TYPE_CHECKING:
    from spark_sink.mirror.log.binlog_log import BinlogLog

log = logging.getLogger("spark_sink.mirror")

STEP_BYTES_MAX = 4 << 20  # of the log, in one step: the driver decodes them
_AS_IT_IS = (
    "as_it_is"  # in the record of a history that begins with the rows that the table has now
)
MOMENT_APPENDS = 64  # that are searched for the time of a copy


class HistorySteps(Protocol):
    """What is done to the Delta tables of histories; each step is committed once under its lsn."""

    def recorded(self, session: StepSession, record: TableRecord) -> int:
        """Returns the lsn of the newest step of a history, -1 if there is none."""

    def rows(self, session: StepSession, record: TableRecord, run: RowRun, *, exact: bool) -> None:
        """Apply the changes of a run. `exact`: an inserted row has no current version."""

    def end_all(self, session: StepSession, record: TableRecord, lsn: int, at: datetime) -> None:
        """End all current versions: the table was emptied or dropped."""

    def compare(self, session: StepSession, record: TableRecord, lsn: int, at: datetime) -> None:
        """Make the current versions the rows that the mirrored table had at `lsn`; none, if there was no table."""


@dataclass
class Histories:
    """Of one consumer. One thread at a time calls `advance`.

    `dealt_with`: the lsn up to which all entries of a name are applied to its mirrored table, or left in the log.
    """

    records: HistoryRecords
    steps: HistorySteps
    binlog_log: BinlogLog
    dealt_with: Callable[[TableName], int]
    stopping: bool = False

    def __post_init__(self) -> None:
        self._directory = self.records.directory

    def advance(self, session: StepSession) -> bool:
        """Bring every history to where its mirrored table is. Returns True if one has gone on."""
        progress = False
        try:
            self.records.begin_new()
        except Exception as error:  # noqa: BLE001 - such as a control table that cannot be written: tried again
            log.warning("histories: %s", in_one_line(error))
        for record in self.records.followed():
            if not self.stopping and not self.records.pauses(record):
                progress |= self._guarded(session, record)
        return progress

    def _guarded(self, session: StepSession, record: TableRecord) -> bool:
        try:
            progress = self._advance(session, record)
        except Exception as error:  # noqa: BLE001 - every kind of it is handled
            fault = fault_of(error)
            return self._failed(record, error) if fault is None else self._stand(record, fault)
        self.records.recovered(record)
        return progress

    def _failed(self, record: TableRecord, error: Exception) -> bool:
        """Try the history again later."""
        wait_s = self.records.failed(record)
        log.warning("%s: tried again in %.1f s: %s", record.label, wait_s, in_one_line(error))
        log.debug("%s: the whole error", record.label, exc_info=error)
        return False

    def _stand(self, record: TableRecord, fault: BinlogError) -> bool:
        """Stop the history. Returns False if that cannot be written."""
        text = str(fault)
        if remedies.MIRROR not in text:
            text = f"{text}; {remedies.of_history(record.label)}"
        log.warning("%s: %s: stopped: %s", record.consumer, record.label, text)
        try:
            self.records.change(
                record.name, lambda now: replace(now, state=TableState.STOPPED, reason=text)
            )
        except Exception as error:  # noqa: BLE001 - such as a control table that cannot be written
            return self._failed(record, error)
        return True

    def _advance(self, session: StepSession, record: TableRecord) -> bool:
        name = record.name
        to = self.dealt_with(name)
        # Read after `to`: a table that is live now has applied all up to there.
        mirrored = self._directory.find(name, NEWEST)
        if mirrored is not None and mirrored.state not in (*LIVE, TableState.DROPPED):
            return False
        if record.request:
            self.records.doubt(record)
            record = self.records.change(name, _begun_anew)
        if record.state is TableState.STOPPED:
            return False
        if record.state is TableState.CREATING:
            return self._begin(session, record, mirrored)
        cursor = self._cursor(session, record)
        if cursor >= to:
            return False
        if self._is_lost(cursor):
            if not self._begin(session, record, mirrored):
                self._compare(session, record, to, None)
            return True
        self._follow(session, record, cursor, to, _copied_at(mirrored, name))
        return True

    def _begin(
        self, session: StepSession, record: TableRecord, mirrored: TableRecord | None
    ) -> bool:
        """Make the table's rows the current versions, and follow the log from there."""
        if mirrored is None or not has_rows(mirrored):
            return False
        # The rows as they were when the table became live, if all changes since then are in the log.
        begun = mirrored.from_lsn
        if (
            record.detail.get(_AS_IT_IS)
            or self._is_lost(begun)
            or begun < self._cursor(session, record)
        ):
            begun = self._directory.applied(session.spark, mirrored)
        self._compare(session, record, begun, None)
        self.records.change(
            record.name,
            lambda now: replace(now, state=TableState.COMPLETE, reason="").having(
                **{_AS_IT_IS: None}
            ),
        )
        return True

    def _is_lost(self, cursor: int) -> bool:
        """True if the log no longer has all entries behind `cursor`."""
        first = self.binlog_log.first_lsn_held(self._directory.consumer)
        return first is not None and append_of(first) > append_of(cursor) + 1

    def _follow(
        self, session: StepSession, record: TableRecord, cursor: int, to: int, copied: int
    ) -> None:
        """Apply the entries behind `cursor` up to `to`. `copied`: the entry as of which the table was copied."""
        name = record.name
        if cursor < copied:
            to = min(to, copied)
        entries = self.binlog_log.entries(record.consumer, cursor, before=to + 1, tables=[name])
        items = [
            item
            for entry in entries
            for named, item in route(entry, effects_of, lambda: [name], lambda _: False)
            if named == name
        ]
        while items and not self.stopping:
            work, count = next_work(items, STEP_BYTES_MAX, ENTRIES_MAX)
            cursor = self._execute(session, self.records.record(name), work, copied)
            self.records.at(record, cursor)
            del items[:count]
            items = [item for item in items if item.lsn > cursor]
        if items:
            return
        reached = entries[-1].lsn if entries else to
        if cursor < copied <= reached:
            self._compare(session, self.records.record(name), copied, None)
        self.records.at(record, max(cursor, reached))

    def _execute(self, session: StepSession, record: TableRecord, work: Work, copied: int) -> int:
        """Apply one step. Returns the lsn up to which the history is."""
        if isinstance(work, RowRun):
            if (rest := work.after(self._cursor(session, record))) is not None:
                mirrored = self._directory.find(record.name, rest.lsn)
                is_complete = mirrored is not None and mirrored.state is TableState.COMPLETE
                exact = is_complete and rest.entries[0].lsn > copied
                self.steps.rows(session, record, rest, exact=exact)
            return work.lsn
        assert not isinstance(work, LostItem), "a lost file of the log stops a history"
        effects = work.effects if isinstance(work, StatementItem) else None
        if effects is not None and not any(map(_changes_rows, effects)):
            return work.lsn
        at = work.entry.committed_at
        if effects is not None and all(
            isinstance(e, DropTable | TruncateTable | CreateTable) for e in effects
        ):
            self.steps.end_all(session, record, work.lsn, at or datetime.now(UTC))
            return work.lsn
        lsn = max(work.lsn, copied)
        self._compare(session, record, lsn, at if lsn == work.lsn else None)
        return lsn

    def _compare(
        self, session: StepSession, record: TableRecord, lsn: int, at: datetime | None
    ) -> None:
        """Make the current versions the rows that the table had at `lsn`. `at`: when that was, None if not known."""
        self.steps.compare(session, record, lsn, at or self._moment(record.consumer, lsn))
        self.records.at(record, lsn)
        self.records.change(record.name, lambda now: replace(now, from_lsn=lsn))
        log.info("%s: %s: compared with the table at lsn %d", record.consumer, record.label, lsn)

    def _moment(self, consumer: str, lsn: int) -> datetime:
        """When the newest of the transactions before `lsn` was committed; now, if that is long ago."""
        after = max(0, first_lsn(append_of(lsn) - MOMENT_APPENDS)) - 1
        entries = self.binlog_log.entries(
            consumer, after, appends_max=MOMENT_APPENDS + 1, before=lsn + 1
        )
        times = [entry.committed_at for entry in entries if entry.committed_at is not None]
        return max(times, default=datetime.now(UTC))

    def _cursor(self, session: StepSession, record: TableRecord) -> int:
        """Returns the lsn up to which a history is. Its Delta table is asked once."""
        if (known := self.records.cursor(record)) is not None:
            return known
        return self.records.at(record, max(self.steps.recorded(session, record), record.from_lsn))


def _begun_anew(record: TableRecord) -> TableRecord:
    reason = "the table's rows are read again"
    anew = replace(handled(record), state=TableState.CREATING, reason=reason)
    # Not as the rows were once: what lies between may be what the history has stopped at.
    return anew.having(**{_AS_IT_IS: True})


def _copied_at(mirrored: TableRecord | None, name: TableName) -> int:
    """Returns the entry as of which a table was copied under the name that it has; -1 if it was not."""
    copied = -1 if mirrored is None else int(mirrored.detail.get("copied_at", -1))
    return copied if mirrored is None or name_at(mirrored, copied + 1) == name else -1


def _changes_rows(effect: object) -> bool:
    match effect:
        case AlterTable():
            return bool(effect.clauses or effect.copy_reason)
        case CreateTable():
            return effect.replaces or not effect.if_not_exists
    return True
