"""The effects that `Mirror.step` returns, a frozen class for each kind. The caller executes them in the order of the
list.

A work has a number (`run`). Exactly one event with this number answers it, even if the work fails. Works with different
numbers may be executed at the same time, and in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from dispatcher.model.errors import BinlogError
from dispatcher.model.position import Position
from spark_sink.mirror.rules.plan import RowRun
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.table_work import DeltaChange
from spark_sink.mirror.values.names import TableName


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Read entries of the consumer's log behind the lsn `after`, in whole appends. `before`: only entries with a
    smaller lsn, None for all; `tables`: only entries that may concern these tables, None for all. Answers: EntriesRead,
    LogLost."""

    run: int
    after: int
    before: int | None = None
    tables: tuple[TableName, ...] | None = None


@dataclass(frozen=True, slots=True)
class AskTable:
    """Read what the Delta table in `folder` records; `rows`: True to read also whether the table is empty. Answer:
    TableAsked."""

    run: int
    table_id: str
    folder: str
    rows: bool


@dataclass(frozen=True, slots=True)
class ChangeTable:
    """Change the Delta table of a record. Answer: TableChanged."""

    run: int
    record: TableRecord
    change: DeltaChange


@dataclass(frozen=True, slots=True)
class CommitRows:
    """Commit the row changes `rows` to the Delta table of a record. Answer: RowsCommitted. See
    `table_work.ApplyRows`."""

    run: int
    record: TableRecord
    rows: RowRun
    exact: bool
    snapshot: tuple[Position, Position] | None


@dataclass(frozen=True, slots=True)
class MoveFolders:
    """Move the folders of the tables `moving`, which one statement concerns, to the places that their records name.
    `existing`: all records; the move must not delete their folders. Answer: FoldersMoved."""

    run: int
    moving: tuple[TableRecord, ...]
    existing: tuple[TableRecord, ...]


@dataclass(frozen=True, slots=True)
class ClearCopy:
    """Delete the files that an earlier copy of the table has left. Answer: CopyCleared."""

    run: int
    table_id: str


@dataclass(frozen=True, slots=True)
class CopyTable:
    """Copy the table's rows into a folder of the copy, or continue the copy. Answer: TableCopied, when the copy has
    ended or was stopped."""

    run: int
    record: TableRecord


@dataclass(frozen=True, slots=True)
class StopCopy:
    """Stop the copy whose work has the number `run`, before its next chunk."""

    run: int


@dataclass(frozen=True, slots=True)
class WriteVersions:
    """Write the row changes `rows` into a history. `exact`: True if an inserted row cannot have a current version.
    Answer: HistoryWritten."""

    run: int
    record: TableRecord
    rows: RowRun
    exact: bool


@dataclass(frozen=True, slots=True)
class EndVersions:
    """End all current versions of a history, after its table was emptied or dropped. Answer: HistoryWritten."""

    run: int
    record: TableRecord
    lsn: int
    at: datetime | None


@dataclass(frozen=True, slots=True)
class CompareVersions:
    """Make the current versions of a history equal to the rows that its table had at `lsn`; `at`: the time of `lsn`,
    None if it is not known. Answer: HistoryWritten."""

    run: int
    record: TableRecord
    mirrored: TableRecord | None
    lsn: int
    at: datetime | None


@dataclass(frozen=True, slots=True)
class StoreRecords:
    """Write records and the watermark of the consumer into the control table, in one commit. The rules return the next
    `StoreRecords` only after the answer. Answer: Stored."""

    run: int
    records: tuple[TableRecord, ...]
    watermark: int | None


@dataclass(frozen=True, slots=True)
class Stepped:
    """A step was applied to a table. `rows`: 0 for a statement."""

    run: int
    record: TableRecord
    rows: int


@dataclass(frozen=True, slots=True)
class EndConsumer:
    """Stop applying this consumer. Works that are running are still answered, but the answers change nothing."""

    error: BinlogError


@dataclass(frozen=True, slots=True)
class WriteNote:
    """Write a line to the log."""

    level: str
    event: str
    fields: Mapping[str, object]


Effect = (
    ReadLog
    | AskTable
    | ChangeTable
    | CommitRows
    | MoveFolders
    | ClearCopy
    | CopyTable
    | StopCopy
    | WriteVersions
    | EndVersions
    | CompareVersions
    | StoreRecords
    | Stepped
    | EndConsumer
    | WriteNote
)
