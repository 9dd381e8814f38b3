"""The events that the caller passes to `Mirror.step`, a frozen class for each kind. Most of them answer a work (see
`effects`), whose number is `run`. An *append* is one micro-batch of a consumer in the mirror's log; an *lsn* is the
number of an entry (rows of a table, or a statement) of an append."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from dispatcher.model.errors import BinlogError
from dispatcher.model.position import Position
from spark_sink.mirror.rules.proofs import Proof
from spark_sink.mirror.rules.table_record import Request, TableRecord
from spark_sink.mirror.rules.table_work import DeltaFacts
from spark_sink.mirror.schema.recomputed import Generated
from spark_sink.mirror.values.entries import LogEnd, LogEntry
from spark_sink.mirror.values.names import TableName
from spark_sink.source.table_rows.chunks import Chunk


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a work has failed. `fault`: a fault of the table's data or of its Delta table, so that another attempt would
    fail, too; None for any other failure; `conflict`: True if another writer of the Delta table committed first;
    `text`: the failure in one line."""

    text: str
    fault: BinlogError | None = None
    conflict: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """The job has begun to apply the consumer. The first event.

    `records`: the consumer's tables and histories; `owners`: the other consumers, by the names of their tables;
    `applied`: the consumer's watermark; `end`: the end of its log, None if the log contains no append, or if its end
    cannot be read; `newest`: number of the log's last append, 0 if the log is empty; `oldest`: the smallest lsn that
    the log still has; `goal`: the lsn up to which a job with `--available-now` applies the log (a drain), None if the
    job does not drain; `proofs`: the proofs of the consumer's tables; `at`: the time now, s since 1970.
    """

    records: tuple[TableRecord, ...]
    owners: Mapping[TableName, str]
    applied: int
    end: LogEnd | None
    newest: int
    oldest: int = 0
    goal: int | None = None
    proofs: tuple[Proof, ...] = ()
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class LogGrew:
    """The log now contains appends up to the number `newest`, and entries from the lsn `oldest` on."""

    newest: int
    oldest: int = 0


@dataclass(frozen=True, slots=True)
class LogFailed:
    """The log cannot be applied, and a retry would not help."""

    error: BinlogError


@dataclass(frozen=True, slots=True)
class EntriesRead:
    """Entries of the log, in order; () if the log contains no entry after the requested lsn yet."""

    run: int
    entries: tuple[LogEntry, ...]


@dataclass(frozen=True, slots=True)
class LogLost:
    """The work has not read all entries that it should read, because the entries of the appends `first` to `last` are
    lost. `before`: the entries of older appends, which the work has read."""

    run: int
    error: BinlogError
    first: int
    last: int
    before: tuple[LogEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class TableAsked:
    run: int
    facts: DeltaFacts


@dataclass(frozen=True, slots=True)
class TableChanged:
    """`refused`: "" if the change was made; otherwise, the reason why existing rows cannot follow the change. In this
    case the work has changed nothing."""

    run: int
    refused: str = ""


@dataclass(frozen=True, slots=True)
class RowsCommitted:
    run: int


@dataclass(frozen=True, slots=True)
class FoldersMoved:
    """`refused`: by table id, why the table's folder could not move to the place that its record names; `aside`: by
    table id, the folder in which a refused table waits. `step`: None if all other tables are in their places;
    otherwise, only in an object store, the step of the move that has ended. The next step begins when the records of
    the moving tables are stored with this step."""

    run: int
    refused: Mapping[str, BinlogError] = field(default_factory=dict)
    aside: Mapping[str, str] = field(default_factory=dict)
    step: int | None = None


@dataclass(frozen=True, slots=True)
class CopyCleared:
    run: int


@dataclass(frozen=True, slots=True)
class TableCopied:
    """`complete`: False if the copy was stopped before its end; `executed`, `exact`: see `states.Copied`; `signature`:
    the columns of the copy as JSON; `generated`: the table's generated columns."""

    run: int
    complete: bool
    executed: Position
    exact: bool
    signature: str
    generated: Generated


@dataclass(frozen=True, slots=True)
class RangeRead:
    """`executed`: a position that covers all transactions that the rows can show; `key`, `chunk`: the key's columns,
    and the range that was read; `rows`: the number of its rows; `seconds`: how long the work has read; `skipped`: why
    the table cannot be proved, "" if it can; `moved`: True if the table was altered during the read; `ranges`: about
    how many ranges of this size the table has."""

    run: int
    executed: Position
    key: str
    chunk: Chunk
    rows: int
    seconds: float
    skipped: str = ""
    moved: bool = False
    ranges: int = 1


@dataclass(frozen=True, slots=True)
class RangeCompared:
    """`moved`: True if a statement has changed the table since the range was read, so that nothing was compared;
    `columns`: how the columns differ; `keys`: how many keys have rows that differ; `differing`: hashes of the first of
    these keys; `evidence`: path of the file with the rows that differ, if an earlier reading had found the same
    difference; `seconds`: how long the comparison took."""

    run: int
    moved: bool
    columns: str
    keys: int
    differing: tuple[int, ...]
    seconds: float
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class RowsRepaired:
    """`moved`: True if nothing was written, because something else has changed the table since the second reading;
    `keys`: the number of keys whose rows were rewritten; `seconds`: how long the work took."""

    run: int
    moved: bool
    keys: int
    seconds: float


@dataclass(frozen=True, slots=True)
class HistoryWritten:
    run: int


@dataclass(frozen=True, slots=True)
class WorkFailed:
    """A work other than StoreRecords has failed. The work may have made its commit before it failed."""

    run: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class Stored:
    """`written`: the serial and the time of each stored record, by table id."""

    run: int
    written: Mapping[str, tuple[int, datetime | None]]


@dataclass(frozen=True, slots=True)
class StoreFailed:
    run: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class RequestsRead:
    """All open requests of people. `by_id`: by table id; `by_name`: the ids of requests for copies, by table name;
    `owners`: see `Started`."""

    by_id: Mapping[str, Request]
    by_name: Mapping[TableName, str]
    owners: Mapping[TableName, str]


@dataclass(frozen=True, slots=True)
class Registered:
    """The catalog has the table under the name `name`; "" if the table is not in the catalog. `refused`: why the table
    is not registered under the name that the settings ask for."""

    table_id: str
    name: str
    refused: str = ""


@dataclass(frozen=True, slots=True)
class VectorsEnabled:
    """The Delta table of a record has deletion vectors."""

    table_id: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """Another job has claimed the consumer."""

    error: BinlogError


@dataclass(frozen=True, slots=True)
class Stopping:
    """The job ends. Works that are running are still answered, and no new works begin."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed. The caller sends this event at the time `Mirror.next_wakeup` at the latest."""


Event = (
    Started
    | LogGrew
    | LogFailed
    | EntriesRead
    | LogLost
    | TableAsked
    | TableChanged
    | RowsCommitted
    | FoldersMoved
    | CopyCleared
    | TableCopied
    | RangeRead
    | RangeCompared
    | RowsRepaired
    | HistoryWritten
    | WorkFailed
    | Stored
    | StoreFailed
    | RequestsRead
    | Registered
    | VectorsEnabled
    | Claimed
    | Stopping
    | Ticked
)
Answer = (
    EntriesRead
    | LogLost
    | TableAsked
    | TableChanged
    | RowsCommitted
    | FoldersMoved
    | CopyCleared
    | TableCopied
    | RangeRead
    | RangeCompared
    | RowsRepaired
    | HistoryWritten
    | WorkFailed
)
