"""A table's copy from its beginning to the moment at which it takes the table's place.

1. S is the end of the log. From here on the table's entries stay in the log (state COPYING, `from_lsn` = S).
2. The copier copies the rows into _binlog/copies/<table id>; the server has executed at least S before the first row
   is read, and R when the last one is.
3. The log is replayed on the copy from S until it has passed R: then the copy equals the server's table at that point.
   Steps are MERGEs, because rows of before R may be in the copy already. The rows of a table without a key cannot be
   merged: they are those of one snapshot (`exact`), and changes of transactions that it shows are left out.
4. The copy's folder takes the place of the table's folder, and the replay goes on there until the table is live. While
   something else is in that place, the table stays COPYING.

A change of the table's columns or of its name between S and R begins the copy again. The table's entries up to S, and
later those up to R, are executed or left in the log before the copy goes on: there may be a RENAME or a DROP among
them. Every boundary is in the record, so a crash at any point repeats at most what lies between two of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.rules.executed import contains_executed
from spark_sink.mirror.rules.renames import folder_of
from spark_sink.mirror.rules.table_record import MOVED_FROM, TableRecord, TableState
from spark_sink.mirror.runtime.progress import CopyState, ProgressCounter
from spark_sink.mirror.tables.delta import StepSession
from spark_sink.mirror.tables.directory import TableDirectory
from spark_sink.mirror.values.entries import LogEnd, last_lsn
from spark_sink.mirror.values.names import OWN_FOLDER, TableName
from spark_sink.source.raw_entries import EntryKind

if TYPE_CHECKING:
    from spark_sink.mirror.log.binlog_log import BinlogLog

log = logging.getLogger("spark_sink.mirror")

LOG_WAIT_S = 0.5


class CopiedTable(Protocol):
    """What a copy returns.

    `executed`: R; `signature`: the columns as JSON; `exact`: the rows show exactly the transactions of R, so these must
    not be applied to them; `complete`: False if it was stopped before its end.
    """

    @property
    def rows(self) -> int: ...
    @property
    def exact(self) -> bool: ...
    @property
    def complete(self) -> bool: ...
    @property
    def executed(self) -> Position: ...
    @property
    def signature(self) -> str: ...


class CopiedRows(Protocol):
    """How far a copy is, see `CopyState`."""

    @property
    def label(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def rows_estimated(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def chunks(self) -> int: ...
    @property
    def rest_s(self) -> float | None: ...


class TableCopier(Protocol):
    """Copies one table into _binlog/copies/<table id>; a copy that was interrupted goes on."""

    def copy(
        self,
        record: TableRecord,
        *,
        begin: LogEnd,
        progress: Callable[[CopiedRows], None],
        stopping: Callable[[], bool],
    ) -> CopiedTable: ...


class Replays(Protocol):
    """Executes what the log holds for a table that is copied, see `CatchUps`."""

    @property
    def stopping(self) -> bool: ...
    @property
    def draining(self) -> bool: ...

    def replay(
        self, session: StepSession, table_id: str, folder: str = "", to: int = -1
    ) -> bool: ...


def copy_folder(table_id: str) -> str:
    """Returns the folder of a table's copy, below the target."""
    return f"{OWN_FOLDER}/copies/{table_id}"


class CopyTrack:
    """Of one consumer."""

    def __init__(
        self,
        files: FileSystem,
        directory: TableDirectory,
        binlog_log: BinlogLog,
        copier: TableCopier,
        counter: ProgressCounter,
        dealt_with: Callable[[TableName], int],
    ) -> None:
        """`dealt_with`: the lsn up to which all entries of a name are executed, or left in the log."""
        self._counter, self._dealt_with = counter, dealt_with
        self._files, self._directory, self._log = files, directory, binlog_log
        self._copier = copier

    def run(self, session: StepSession, table_id: str, catch_ups: Replays) -> None:
        """Copy the table, or go on with its copy, up to the point at which it takes the table's place."""
        record = self._directory.record(table_id)
        if record.state is TableState.CREATING:
            record = self._begun(record, catch_ups)
        if record.state is not TableState.COPYING:
            return  # a statement has settled the table meanwhile
        if "goal" not in record.detail:
            copied = record if "executed" in record.detail else self._copied(record, catch_ups)
            passed = -1 if copied is None else self._passed(copied, catch_ups)
            if copied is None or passed < 0 or not self._reached(copied, passed, catch_ups):
                return
            goal = str(TableState.COMPLETE)
            advanced = self._advanced(copied, lambda now: now.having(goal=goal, passed=passed))
            if advanced is None:
                return
            record = advanced
        if "begin" not in record.detail:
            return  # what is left is to move, and to be replayed in the table's place
        passed = record.detail["passed"]
        if catch_ups.replay(session, table_id, copy_folder(table_id), passed):
            self._swap_in(record, passed)

    def _advanced(
        self, copying: TableRecord, change: Callable[[TableRecord], TableRecord]
    ) -> TableRecord | None:
        """Write how far the copy is. Returns the record; None if the copy was given up meanwhile: a statement has begun
        it again, or has settled the table."""
        with self._directory.exclusive(copying.table_id):
            now = self._directory.record(copying.table_id)
            begun = copying.state, copying.detail["begin"]
            if (now.state, now.detail.get("begin")) != begun:
                return None
            self._directory.change(change, copying.table_id)
            return self._directory.record(copying.table_id)

    def _begun(self, record: TableRecord, catch_ups: Replays) -> TableRecord:
        self._files.delete(self._directory.full_path(copy_folder(record.table_id)))
        end = self._log.end(record.consumer)
        if end is None or end.position is None:
            raise BinlogError(
                ErrorKind.RANGE_UNAVAILABLE,
                f"table {record.label} cannot be copied before the log has a first position",
                where=f"consumer {record.consumer}",
                remedy="start the log stage; the copy begins when the log has its first entry",
            )
        begin, position = last_lsn(end.append), end.position
        if not self._reached(record, begin, catch_ups):
            return record

        def begun(now: TableRecord) -> TableRecord:
            if now.state is not TableState.CREATING:
                return now
            now = replace(now, state=TableState.COPYING, from_lsn=begin)
            now = replace(now, epoch=position.epoch, server=position.server)
            now = now.having(begin=position.as_dict())
            if now.lies_at == copy_folder(now.table_id):  # a copy that had no place
                now = replace(now, folder="").having(**{MOVED_FROM: None})
            return now.having(goal=None, executed=None, passed=None, exact=None, exact_from=None)

        with self._directory.exclusive(record.table_id):
            self._directory.change(begun, record.table_id)
            return self._directory.record(record.table_id)

    def _reached(self, record: TableRecord, lsn: int, catch_ups: Replays) -> bool:
        """Wait until the entries of the table up to `lsn` are dealt with. False if stopped, or if one of them gave the
        table another state or name."""
        known = record.state, record.name
        while not catch_ups.stopping:
            dealt_with = self._dealt_with(record.name)
            now = self._directory.record(record.table_id)
            if (now.state, now.name) != known:
                return False
            if dealt_with >= lsn:
                return True
            time.sleep(LOG_WAIT_S)
        return False

    def _copied(self, record: TableRecord, catch_ups: Replays) -> TableRecord | None:
        table_id = record.table_id

        def stopping() -> bool:
            now = self._directory.record(table_id)
            begun = now.state, now.detail.get("begin")
            return catch_ups.stopping or begun != (TableState.COPYING, record.detail["begin"])

        begin = LogEnd(record.from_lsn >> 32, Position.from_dict(record.detail["begin"]))
        try:
            result = self._copier.copy(
                record, begin=begin, progress=self._progress, stopping=stopping
            )
        finally:
            self._counter.copied(record.label)
        if catch_ups.stopping or not result.complete:
            return None
        executed = result.executed.as_dict()

        def copied(now: TableRecord) -> TableRecord:
            now = replace(now, signature=result.signature)
            if result.exact:
                now = now.having(exact=True, exact_from=now.from_lsn)
            return now.having(executed=executed, rows=result.rows)

        return self._advanced(record, copied)

    def _progress(self, progress: CopiedRows) -> None:
        state = CopyState(
            progress.label,
            progress.rows,
            progress.rows_estimated,
            progress.bytes,
            progress.chunks,
            progress.rest_s,
        )
        self._counter.copying(state)

    def _passed(self, record: TableRecord, catch_ups: Replays) -> int:
        """Returns the lsn of the first END entry whose position holds R. Waits until the log has it; -1 if stopped.

        Raises `BinlogError` RANGE_UNAVAILABLE if the log does not go on.
        """
        executed = Position.from_dict(record.detail["executed"])
        cursor = record.from_lsn
        if contains_executed(Position.from_dict(record.detail["begin"]), executed):
            return cursor
        while not catch_ups.stopping:
            entries = self._log.entries(record.consumer, cursor, tables=[])
            for entry in entries:
                cursor = entry.lsn
                position = entry.position if entry.kind is EntryKind.END else None
                if position is not None and contains_executed(position, executed):
                    return cursor
            if not entries and catch_ups.draining:
                raise BinlogError(
                    ErrorKind.RANGE_UNAVAILABLE,
                    "the log ends before the position that the copied rows are of",
                    where=f"table {record.label}",
                    remedy="run the job again: it goes on with this copy",
                )
            if not entries:
                time.sleep(LOG_WAIT_S)
        return -1

    def _swap_in(self, record: TableRecord, passed: int) -> None:
        """The copy becomes the table's folder, to which `CatchUps` then moves it; what is there will be deleted."""

        def in_place(now: TableRecord) -> TableRecord:
            now = replace(now, folder=folder_of(now.name), from_lsn=passed)
            return now.having(
                **{MOVED_FROM: copy_folder(now.table_id)},
                begin=None,
                executed=None,
                exact=None,
                exact_from=passed,
                copied_at=passed,
            )

        self._advanced(record, in_place)
