"""Executes the works of one consumer, in any thread. Each work returns the event that answers it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_sink.mirror.history.history_steps import HistorySteps
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.log.files import LostFileError
from spark_sink.mirror.rules.control_rows import ControlRows
from spark_sink.mirror.rules.effects import (
    AskTable,
    ChangeTable,
    ClearCopy,
    CommitRows,
    CompareKeyRange,
    CompareVersions,
    CopyTable,
    EndVersions,
    MoveFolders,
    ReadKeyRange,
    ReadLog,
    RepairRows,
    StoreRecords,
    WriteVersions,
)
from spark_sink.mirror.rules.events import (
    CopyCleared,
    EntriesRead,
    Event,
    Failure,
    HistoryWritten,
    LogLost,
    RowsCommitted,
    Stored,
    StoreFailed,
    TableAsked,
    TableChanged,
    WorkFailed,
)
from spark_sink.mirror.runtime.busy_folders import BusyFolders
from spark_sink.mirror.runtime.copies import Copies
from spark_sink.mirror.runtime.folder_mover import FolderMover
from spark_sink.mirror.runtime.misnamed_columns import MisnamedColumns
from spark_sink.mirror.tables.delta import StepSession
from spark_sink.mirror.tables.table_works import TableWorks
from spark_sink.mirror.values.entries import first_lsn
from spark_sink.mirror.values.faults import fault_of, in_one_line, is_conflict
from spark_sink.mirror.values.names import TableName, copy_folder
from spark_sink.mirror.values.policies import ApplyOptions
from spark_sink.mirror.values.step_clock import StepPhase
from spark_sink.mirror.verify.range_prover import RangeProver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_sink.mirror.lake.control_table import ControlTable

TableWork = AskTable | ChangeTable | CommitRows
HistoryWork = WriteVersions | EndVersions | CompareVersions
ProofWork = ReadKeyRange | CompareKeyRange | RepairRows
Work = (
    ReadLog
    | StoreRecords
    | CopyTable
    | MoveFolders
    | ClearCopy
    | TableWork
    | HistoryWork
    | ProofWork
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StepTimes:
    """How long a commit of rows took, in total and by phase, in seconds. `invalid`: how many invalid values became
    NULL."""

    seconds: float
    phases: dict[StepPhase, float]
    invalid: int


@dataclass
class ConsumerWorks:
    """Executes the works of one consumer. Threads may share this object. `misnamed`: warns of columns that the
    settings name and that a table lacks; `prover`: compares ranges of tables with the
    server, None without a server; `times`: how long each commit of rows took, by the number of the work.
    `AppliedConsumer` removes the times when it counts the step."""

    spark: SparkSession
    consumer: str
    options: ApplyOptions
    control: ControlTable
    binlog_log: BinlogLog
    copies: Copies
    busy: BusyFolders
    misnamed: MisnamedColumns
    prover: RangeProver | None = None
    times: dict[int, StepTimes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._target = self.options.target.rstrip("/")
        self._files = FileSystem(self.spark)
        self._tables = TableWorks(self.consumer, self.options, self.binlog_log)
        self._mover = FolderMover(self.spark, self._target, self._other_owner, self.busy)
        self._histories = HistorySteps(self.consumer, self.options, self.binlog_log, self.control)

    def do(self, work: Work, session: StepSession) -> Event:
        """Execute a work. Returns its answer. `session`: used by this thread alone."""
        match work:
            case ReadLog():
                return self._read(work)
            case StoreRecords():
                return self._store(work)
            case CopyTable():
                copied = self.copies.copy(work)
                self.misnamed.of_signature(work.record, copied.signature)
                return copied
            case MoveFolders():
                return self._mover.move(work)
            case ClearCopy():
                self._files.delete(f"{self._target}/{copy_folder(work.table_id)}")
                return CopyCleared(work.run)
            case WriteVersions() | EndVersions() | CompareVersions():
                return self._of_history(work, session)
            case ReadKeyRange() | CompareKeyRange() | RepairRows():
                return self._of_proof(work, session)
        return self._of_table(work, session)

    def _of_table(self, work: TableWork, session: StepSession) -> Event:
        match work:
            case AskTable():
                return TableAsked(work.run, self._tables.ask(session, work))
            case ChangeTable():
                return TableChanged(work.run, self._tables.change(session, work))
        return self._commit(work, session)

    def _of_history(self, work: HistoryWork, session: StepSession) -> Event:
        match work:
            case WriteVersions():
                self._histories.write(session, work)
            case EndVersions():
                self._histories.end(session, work)
            case CompareVersions():
                self._histories.compare(session, work)
        return HistoryWritten(work.run)

    def _of_proof(self, work: ProofWork, session: StepSession) -> Event:
        assert self.prover is not None, "this job cannot prove"
        match work:
            case ReadKeyRange():
                return self.prover.read(work)
            case CompareKeyRange():
                return self.prover.compare(work, session)
        return self.prover.repair(work, session)

    def stop(self) -> None:
        """Make copies and proofs end before their next range."""
        self.copies.stop_all()
        if self.prover is not None:
            self.prover.stop()

    # -- works -------------------------------------------------------------------------------------------------

    def _read(self, work: ReadLog) -> Event:
        def entries(before: int | None) -> EntriesRead:
            log_entries = self.binlog_log.entries(
                self.consumer, work.after, before=before, tables=work.tables
            )
            return EntriesRead(work.run, tuple(log_entries))

        try:
            return entries(work.before)
        except LostFileError as lost:
            # Only the task that reads the log for all tables uses `before`, the entries before the lost ones.
            known = entries(first_lsn(lost.first)).entries if work.tables is None else ()
            return LogLost(work.run, lost, lost.first, lost.last, known)

    def _commit(self, work: CommitRows, session: StepSession) -> Event:
        began = time.monotonic()
        entry = work.rows.entries[0]
        self.misnamed.of_rows(work.record, entry.layout, entry.table_map)
        session.clock.begin()
        invalid = self._tables.commit(session, work)
        phases = session.clock.seconds()
        self.times[work.run] = StepTimes(time.monotonic() - began, phases, invalid)
        return RowsCommitted(work.run)

    def _other_owner(self, name: TableName) -> str:
        return other_owners(self.control.rows(), self.consumer).get(name, "")

    def _store(self, work: StoreRecords) -> Stored:
        applied = None if work.watermark is None else (self.consumer, work.watermark)
        return Stored(work.run, self.control.write(work.records, applied, work.proofs))


def other_owners(rows: ControlRows, consumer: str) -> dict[TableName, str]:
    """Returns the consumers other than `consumer` that have a table with a folder, by the table's name."""
    return {
        record.name: record.consumer
        for record in rows.records.values()
        if record.consumer != consumer and record.folder and not record.is_dropped
    }


def failed(work: Work, error: BaseException) -> Event:
    """Returns the answer of a work that has failed."""
    fault = fault_of(error)
    text = in_one_line(error) if fault is None else str(fault)
    failure = Failure(text, fault, is_conflict(error))
    return (
        StoreFailed(work.run, failure)
        if isinstance(work, StoreRecords)
        else WorkFailed(work.run, failure)
    )
