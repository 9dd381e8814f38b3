"""The effects that `Mirror.step` returns, a frozen class for each kind. The caller begins them in the order of the
list.

An effect that has an answer is a *work*: a thread executes it. A work contains a number (`run`). Exactly one event with
this number answers the work, even if it fails. Works may be executed at the same time, and in any order. An *lsn* is
the number of an entry (rows of a table, or a statement) of the mirror's log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from dispatcher.model.errors import BinlogError
from dispatcher.model.position import Position
from spark_sink.mirror.rules.plan import RowRun
from spark_sink.mirror.rules.proofs import Proof, Suspects
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.table_work import DeltaChange
from spark_sink.mirror.values.names import TableName
from spark_sink.source.table_rows.chunks import Chunk


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Read entries of the consumer's log with an lsn > `after`, in whole appends (micro-batches). `before`: only
    entries with a smaller lsn, None for all; `tables`: only entries that may concern these tables, None for all.
    Answers: EntriesRead, LogLost."""

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
    """Commit the row changes `rows` to the Delta table of a record. `exact`, `snapshot`: see `table_work.ApplyRows`.
    Answer: RowsCommitted."""

    run: int
    record: TableRecord
    rows: RowRun
    exact: bool
    snapshot: tuple[Position, Position] | None


@dataclass(frozen=True, slots=True)
class MoveFolders:
    """Move the folders of the tables `moving` to the places that their records name. One statement has renamed all
    these tables. `existing`: all records; the move must not delete folders that these need. Answer: FoldersMoved."""

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
    """Copy the table's rows from the server into the copy's own folder, or continue such a copy. Answer: TableCopied,
    after the copy has ended or was stopped."""

    run: int
    record: TableRecord


@dataclass(frozen=True, slots=True)
class StopCopy:
    """Stop the copy whose work has the number `run`, before its next chunk."""

    run: int


@dataclass(frozen=True, slots=True)
class ReadKeyRange:
    """Read the rows of a range of a table from the server, and keep a short form of them for `CompareKeyRange`. First
    wait until the server has executed `begin`, a position of the log.

    `chunk`: the range. If `upper` is not fixed (`is_fixed` is False), the work finds an upper bound so that the range
    has at most `rows_max` rows. If the table's key is no longer `key`, the range begins at the table's first row.
    `suspects`: what an earlier reading of the range has found. Answer: RangeRead.
    """

    run: int
    record: TableRecord
    begin: Position
    key: str
    chunk: Chunk
    is_fixed: bool
    rows_max: int
    suspects: Suspects


@dataclass(frozen=True, slots=True)
class CompareKeyRange:
    """Compare the range that the work `read` has read with a version of the Delta table. The version contains all
    entries of the table up to the lsn `to`, and perhaps later ones. If an entry with an lsn > `after` has changed a
    row, the row is compared with the entry, not with the range. Answer: RangeCompared."""

    run: int
    record: TableRecord
    read: int
    after: int
    to: int


@dataclass(frozen=True, slots=True)
class RepairRows:
    """Rewrite the rows that two readings of a range have shown to differ, in one commit under `lsn`. The work `read`
    was the second reading. All entries of the table up to the lsn `to` are applied to it, and no entry with the lsn
    `lsn` or a larger one. If an entry with an lsn > `after` has changed a row, the new row is the row of the entry, not
    the row of the range. Answer: RowsRepaired."""

    run: int
    record: TableRecord
    read: int
    after: int
    to: int
    lsn: int


@dataclass(frozen=True, slots=True)
class WriteVersions:
    """Write the row changes `rows` into a history. `exact`: True if the key of an inserted row has no current version
    before the insert. Answer: HistoryWritten."""

    run: int
    record: TableRecord
    rows: RowRun
    exact: bool


@dataclass(frozen=True, slots=True)
class EndVersions:
    """End all current versions of a history, because the entry `lsn` has emptied or dropped its table. `at`: the commit
    time of this entry, None if it is not known. Answer: HistoryWritten."""

    run: int
    record: TableRecord
    lsn: int
    at: datetime | None


@dataclass(frozen=True, slots=True)
class CompareVersions:
    """Make the current versions of a history equal to the rows that its mirrored table had at `lsn`. `mirrored`: the
    record of the mirrored table, None if there is no such table; `at`: the commit time of the entry `lsn`, None if it
    is not known. Answer: HistoryWritten."""

    run: int
    record: TableRecord
    mirrored: TableRecord | None
    lsn: int
    at: datetime | None


@dataclass(frozen=True, slots=True)
class StoreRecords:
    """Write records, proofs and the watermark of the consumer into the control table, in one commit. The rules return
    the next `StoreRecords` only after the answer. Answers: Stored, StoreFailed."""

    run: int
    records: tuple[TableRecord, ...]
    watermark: int | None
    proofs: tuple[Proof, ...] = ()


@dataclass(frozen=True, slots=True)
class Stepped:
    """The work `run` has committed the rows of a step to a table. `rows`: the number of changed rows."""

    run: int
    record: TableRecord
    rows: int


@dataclass(frozen=True, slots=True)
class EndConsumer:
    """Stop applying this consumer. The caller still passes the answers of the running works to the rules, but the rules
    begin no further work and store no record."""

    error: BinlogError


@dataclass(frozen=True, slots=True)
class WriteNote:
    """Write a line to the program's log."""

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
    | ReadKeyRange
    | CompareKeyRange
    | RepairRows
    | WriteVersions
    | EndVersions
    | CompareVersions
    | StoreRecords
    | Stepped
    | EndConsumer
    | WriteNote
)
