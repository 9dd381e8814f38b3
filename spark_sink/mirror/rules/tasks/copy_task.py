"""The task that copies a table, until a replay can continue. Pure.

1. S is the newest position that the rules have found in the log. An entry is rows or a statement, and has a number, the
   lsn. The table's entries after S are left in the log (`Copying`).
2. The copier waits until the server has executed S, reads the rows into the copy's folder, and then asks the server for
   its executed position, R (`Copied`).
3. The task waits until the log has passed R. Then a `ReplayTask` applies entries to the copy, from S up to the entry
   that passed R (`Replaying`). After this entry, the copy equals the server's table. The steps of the replay are
   MERGEs, because the copy may already show transactions up to R. Rows of a table without a key cannot be merged, so
   the copier reads them in one snapshot (`exact`), and the replay leaves out the transactions that the snapshot shows.

If the table's columns or its name change between S and R, the copy begins again. A RENAME or a DROP may be among the
entries before S. So before the copy begins, the task waits until the table's queue has executed the entries up to S, or
has left them in the log. Before the replay begins, the task waits in the same way for the entries up to R. The record
shows which of the three parts have ended, so after a crash at most one part is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from spark_sink.mirror.rules.effects import ClearCopy, CopyTable, ReadLog, StopCopy
from spark_sink.mirror.rules.events import (
    Answer,
    EntriesRead,
    Failure,
    FoldersMoved,
    LogLost,
    TableCopied,
)
from spark_sink.mirror.rules.mirror_state import MirrorState
from spark_sink.mirror.rules.retries import REPORTED_AFTER
from spark_sink.mirror.rules.states import Copied, Copying, Creating, Live, Replaying, State
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.tasks.folder_move import PLACE_AGAIN_S, begin_move, must_wait
from spark_sink.mirror.rules.tasks.task import Task
from spark_sink.mirror.values.entries import LogEntry, last_lsn
from spark_sink.mirror.values.names import copy_folder
from spark_sink.source.raw_entries import EntryKind
from spark_sink.source.table_rows.positions import contains_executed


class CopyTask(Task):
    def __init__(self, state: MirrorState, table_id: str) -> None:
        super().__init__(state)
        self.table_id = table_id
        self._begin: tuple[int, Position] | None = None  # S, until the record contains it
        self._cleared = False
        self._copied: State | None = None  # the state in which the rows are copied
        self._stopped = False
        self._cursor = -1  # the lsn up to which the log was searched for R
        self._found: int | None = None  # the lsn at which the log has passed R

    @property
    def record(self) -> TableRecord:
        return self.state.records[self.table_id]

    def go(self) -> None:
        record = self.record
        if self.state.is_unsaved(self.table_id):
            return
        if record.request is not None:
            # A request waits until the place of the folder is known, so a move that has begun must continue.
            if self.table_id in self.state.unsure and self._is_aside(record):
                self._place(record)
            return
        match record.state:
            case Creating():
                self._creating(record)
            case Copying():
                self._copying(record, record.state)
            case Copied():
                self._passing(record, record.state)
            case _:
                self.ended = True

    def watch(self) -> None:
        """End the task if the table no longer waits for its copy. Stop a running copy if the table now has another
        state or a request, or if the job ends."""
        record = self.record
        if self.run is None and not isinstance(record.state, Creating | Copying | Copied):
            self.ended = True
        if self.run is not None and self._copied is not None and not self._stopped:
            is_same = record.state == self._copied and record.request is None
            if not is_same or self.state.stopping:
                self._stopped = True
                self.state.effects.append(StopCopy(self.run))

    # -- S -----------------------------------------------------------------------------------------------------

    def _creating(self, record: TableRecord) -> None:
        if self._is_aside(record):
            self._place(record)
            return
        if self._begin is not None and self._begin[0] < record.from_lsn:
            self._begin = None  # the table was changed meanwhile
        if self._begin is None:
            end = self.state.end
            if end is None or end.position is None:
                self._tell(_no_position(record))
                return
            if last_lsn(end.append) < self.state.read_to:
                # Entries after this end are lost. A replay from this end would stop the table at the lost entries.
                self._tell(_no_end(record))
                return
            self._begin = last_lsn(end.append), end.position
        if not self._cleared:
            self._clear()
            return
        lsn, position = self._begin
        if self.state.dealt_with(record.name) < lsn or self.state.is_busy(self.table_id):
            return
        begun = replace(record, state=Copying(position), from_lsn=lsn)
        begun = replace(begun, epoch=position.epoch, server=position.server)
        self.state.save(begun, why="its copy begins")
        self._begin, self._cleared, self._cursor, self._found = None, False, -1, None

    def _is_aside(self, record: TableRecord) -> bool:
        """True if the table's rows are in the folder that the new copy needs."""
        return record.move is not None and record.move.source == copy_folder(self.table_id)

    def _place(self, record: TableRecord) -> None:
        """Move an earlier copy, which contains the table's rows, to the table's place, because the new copy needs the
        folder in which the earlier copy is."""

        def moved(answer: FoldersMoved) -> None:
            if answer.refused:
                self.not_before = self.state.now + PLACE_AGAIN_S

        if not (self.state.is_busy(self.table_id) or must_wait(self.state, [record])):
            begin_move(self, [record], moved)

    def _clear(self) -> None:
        def cleared(_: Answer) -> None:
            self._cleared = True
            self.state.doubt(self.table_id)  # forget the facts about an earlier copy

        self.begin([], lambda run: ClearCopy(run, self.table_id), cleared)

    # -- R -----------------------------------------------------------------------------------------------------

    def _copying(self, record: TableRecord, copying: Copying) -> None:
        self._copied, self._stopped = copying, False

        def copied(answer: Answer) -> None:
            assert isinstance(answer, TableCopied)
            self.failures, self._copied = 0, None
            now = self.record
            if not answer.complete or now.state != copying:
                return  # the copy was stopped, or has to begin again because of a statement
            after = Copied(copying.begin, answer.executed, answer.exact)
            columns = replace(now, signature=answer.signature, generated=answer.generated)
            self.state.save(replace(columns, state=after), why="its rows are copied")

        self.begin([], lambda run: CopyTable(run, record), copied)

    def _passing(self, record: TableRecord, copied: Copied) -> None:
        if self._cursor < 0:
            self._cursor = record.from_lsn
            try:
                if contains_executed(copied.begin, copied.executed):
                    self._passed(record, copied, record.from_lsn)
                    return
            except BinlogError as fault:
                self._tell(fault)
                return
        if self._found is not None:
            self._passed(record, copied, self._found)
        elif self._cursor < self.state.read_to:
            self._look(copied)
        elif self.state.draining and self.state.append_seen >= self.state.newest:
            self._tell(_too_short(record))

    def _look(self, copied: Copied) -> None:
        """Search the log for the first END entry whose position contains R."""

        def read(answer: Answer) -> None:
            if isinstance(answer, LogLost):
                self._cursor = last_lsn(answer.last)
                return
            assert isinstance(answer, EntriesRead)
            try:
                self._found = _first_behind(answer.entries, copied.executed)
            except BinlogError as fault:
                self._tell(fault)
                return
            last = answer.entries[-1].lsn if answer.entries else self.state.read_to
            self._cursor = max(self._cursor, last)

        self.begin([], lambda run: ReadLog(run, self._cursor, None, ()), read)

    def _passed(self, record: TableRecord, copied: Copied, lsn: int) -> None:
        self._found = lsn
        if self.state.dealt_with(record.name) < lsn or self.state.is_busy(self.table_id):
            return
        goal = Live(exact_from=record.from_lsn) if copied.exact else Live()
        replaying = Replaying(copied.begin, copied.executed, copied.exact, lsn, goal)
        self.state.save(replace(record, state=replaying), why="the log has passed its rows")
        self.ended = True

    # -- failures ----------------------------------------------------------------------------------------------

    def failed(self, failure: Failure) -> None:
        self._copied, self._cleared = None, False
        wait_s = self.pause(failure)
        record = self.record
        self.state.note_retry(failure, wait_s, record.label)
        if failure.fault is not None or self.failures == REPORTED_AFTER:
            self._report(failure.text)

    def _tell(self, fault: BinlogError) -> None:
        """Report why the copy cannot continue now, and try again after a pause."""
        self.failed(Failure(str(fault), fault))

    def _report(self, text: str) -> None:
        record, reason = self.record, f"tried again: {text}"
        if record.reason != reason and isinstance(record.state, Creating | Copying | Copied):
            self.state.save(replace(record, reason=reason))


def _first_behind(entries: Sequence[LogEntry], executed: Position) -> int | None:
    """Returns the lsn of the first END entry whose position contains `executed`; None if there is none."""
    for entry in entries:
        position = entry.position if entry.kind is EntryKind.END else None
        if position is not None and contains_executed(position, executed):
            return entry.lsn
    return None


def _waits_for_log(record: TableRecord, obstacle: str, begins: str) -> BinlogError:
    """Returns the error for a copy that cannot begin, because the log contains no position for S yet. `obstacle` and
    `begins` are parts of the message and of the remedy."""
    return BinlogError(
        ErrorKind.RANGE_UNAVAILABLE,
        f"table {record.label} cannot be copied {obstacle}",
        where=f"consumer {record.consumer}",
        remedy=f"start the log stage; the copy begins when the log {begins}",
    )


def _no_position(record: TableRecord) -> BinlogError:
    return _waits_for_log(record, "before the log has a first position", "has its first entry")


def _no_end(record: TableRecord) -> BinlogError:
    return _waits_for_log(record, "while the newest entries of the log are lost", "goes on")


def _too_short(record: TableRecord) -> BinlogError:
    return BinlogError(
        ErrorKind.RANGE_UNAVAILABLE,
        "the log ends before the position at which the rows were copied",
        where=f"table {record.label}",
        remedy="run the job again: it goes on with this copy",
    )
