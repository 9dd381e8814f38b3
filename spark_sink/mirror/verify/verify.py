"""Compares each table of the mirror with the server's table at one position, without writing on the server.

1. `snapshot_at` begins a consistent snapshot on the server and determines its position R. On MySQL, the executed set
   and the end of the binlog must not change while the snapshot begins. MariaDB itself reports the position of the
   snapshot.
2. `_version_at` waits for a version of the Delta table that contains all changes of the table up to R and no change
   after R. The mirror's log shows which entries lie before R. If a step of the mirror has applied changes from before
   and after R together, there is no such version, and `verify` begins another snapshot. If there is no such version
   until the deadline, the verdict is `moving`.
3. `column_differences` compares the columns of snapshot and version: names, types and order.
4. `row_checksums` assigns the rows of both to buckets by their keys, and compares the checksums of the buckets.
   `row_differences` compares the rows of buckets that differ.

`verify` reports a difference only after it has found a difference at two positions, because a snapshot may show a
transaction shortly before MySQL adds the transaction to the executed set.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa

from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.model.printable import printable
from spark_sink.mirror.copy.server import CopyServer
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.lake.delta_log import delta_version
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.omitted import changed_masks
from spark_sink.mirror.rules.plan import route
from spark_sink.mirror.rules.states import TableState
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.schema.statements import effects_of
from spark_sink.mirror.tables.delta import MirroredTable
from spark_sink.mirror.tables.table_works import mirrored_table
from spark_sink.mirror.values.entries import LogEntry, append_of, first_lsn
from spark_sink.mirror.values.names import TableName, quoted
from spark_sink.mirror.verify.column_differences import column_differences
from spark_sink.mirror.verify.row_checksums import Buckets
from spark_sink.mirror.verify.row_differences import (
    BUCKETS,
    different_keys,
    mirror_buckets,
    mirror_rows,
    server_rows,
)
from spark_sink.source.raw_entries import EntryKind
from spark_sink.source.schemas import spark_schema
from spark_sink.source.table_rows.positions import contains_executed, has_same_seqs
from spark_sink.source.table_rows.session import RowReader
from spark_sink.source.table_rows.table_server import snapshot_at, with_gtids
from spark_sink.source.table_rows.text_rows import TextDecoder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DIFFERENT_BUCKETS_MAX = 16
_POLL_S = 0.3
# Errors of one table, after which the comparison continues with the other tables. For example, the server may now have
# a view or a sequence with the table's name.
_OF_ONE_TABLE = (
    ErrorKind.UNKNOWN_TABLE, ErrorKind.UNSUPPORTED_CHANGE, ErrorKind.UNSUPPORTED_TYPE,
)  # fmt: skip


class Verdict(StrEnum):
    EQUAL = "equal"
    DIFFERENT = "different"
    MOVING = "moving"  # until the deadline, the mirror had no version at the position of a snapshot
    NOT_COMPARED = "not compared"


@dataclass(frozen=True, slots=True)
class TableDifference:
    """The result of the comparison of a table. `position`: the position at which both tables were read; `keys`: the
    first keys whose rows differ, each with a description of the difference; `reason`: why the verdict is not EQUAL."""

    label: str
    verdict: Verdict
    server_rows: int = 0
    mirror_rows: int = 0
    position: Position | None = None
    keys: tuple[tuple[str, str], ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        text = f"{self.label}: {self.verdict.value}, {self.server_rows} rows"
        if self.mirror_rows != self.server_rows:
            text += f" on the server, {self.mirror_rows} in the mirror"
        if self.position is not None:
            text += f", at {self.position.file}:{self.position.offset}"
        if self.reason:
            text += f"; {self.reason}"
        lines = [text, *(f"    {key}: {difference}" for key, difference in self.keys)]
        return "\n".join(map(printable, lines))  # each of these is one line


def uncounted(_label: str, _rows: int) -> AbstractContextManager[Callable[[int], None]]:
    """Shows no progress: the default of `VerifyWatch.counting`."""
    return nullcontext(lambda _: None)


@dataclass(frozen=True, slots=True)
class VerifyWatch:
    """Functions that `verify` calls while it compares tables.

    `verify` calls `report` with the result of each table. It calls `counting` with a table's name and the server's
    estimate of the table's rows, once for each position at which it compares the table. `counting` returns a context
    manager, which yields a function; `verify` calls this function with the number of rows that it has read since the
    last call. `verify` calls `published` for each table
    that equals the server's; `published` compares an Iceberg table with the mirrored table, and returns "" or a text
    that describes the difference.
    """

    report: Callable[[TableDifference], None] = lambda _: None
    counting: Callable[[str, int], AbstractContextManager[Callable[[int], None]]] = uncounted
    published: Callable[[TableRecord], str] = lambda _: ""


class _Moving(Exception):
    """The mirror has no version at the position of the snapshot."""


def verify(
    spark: SparkSession,
    server: CopyServer,
    target: str,
    tables: Sequence[tuple[str, str]] | None = None,
    *,
    wait_s: float = 120.0,
    invalid_dates: InvalidDates = InvalidDates.NULL,
    watch: VerifyWatch | None = None,
) -> list[TableDifference]:
    """Compare the named tables with the server, or all tables of the mirror if `tables` is None. `wait_s`: the time
    limit for each table.

    Raises `BinlogError` if the server cannot be read.
    """
    watch = watch or VerifyWatch()
    control = ControlTable(spark, target)
    verifier = _Verifier(spark, server, target, control, invalid_dates, watch.counting)
    records = compared_records(control.records().values())
    differences: list[TableDifference] = []
    for name in tables if tables is not None else sorted(records):
        record = records.get(name)
        if record is None:
            reason = "the mirror has no such table"
            difference = TableDifference(".".join(name), Verdict.NOT_COMPARED, reason=reason)
        else:
            difference = verifier.table(record, wait_s)
            if difference.verdict is Verdict.EQUAL and (reason := watch.published(record)):
                difference = replace(difference, verdict=Verdict.DIFFERENT, reason=reason)
        watch.report(difference)
        differences.append(difference)
    return differences


def compared_records(records: Iterable[TableRecord]) -> dict[TableName, TableRecord]:
    """Returns the records of the tables to compare, by name, without dropped tables. If several records have the same
    name, prefers records in the state `complete`, and of these the newest."""

    def precedence(record: TableRecord) -> tuple[bool, int]:
        return record.word is TableState.COMPLETE, record.serial

    existing = (record for record in records if not record.is_dropped)
    return {record.name: record for record in sorted(existing, key=precedence)}


class _Verifier:
    def __init__(
        self,
        spark: SparkSession,
        server: CopyServer,
        target: str,
        control: ControlTable,
        invalid_dates: InvalidDates,
        counting: Callable[[str, int], AbstractContextManager[Callable[[int], None]]],
    ) -> None:
        self._spark, self._server, self._control = spark, server, control
        self._counting = counting
        self._target, self._invalid_dates = target.rstrip("/"), invalid_dates
        self._log = BinlogLog(spark, target)

    def table(self, record: TableRecord, wait_s: float) -> TableDifference:
        if record.word is not TableState.COMPLETE:
            reason = f"its state is {record.word}" + (record.reason and f": {record.reason}")
            return TableDifference(record.label, Verdict.NOT_COMPARED, reason=reason)
        if masks := changed_masks(record.signature, self._server.policy(record.name)):
            reason = remedies.of_changed_masks(record.label, masks)
            return TableDifference(record.label, Verdict.NOT_COMPARED, reason=reason)
        deadline = time.monotonic() + wait_s
        before: TableDifference | None = None
        while True:
            try:
                difference = self._at_one_position(record, deadline)
            except _Moving as moving:
                if time.monotonic() > deadline:
                    return TableDifference(record.label, Verdict.MOVING, reason=str(moving))
                continue
            except BinlogError as error:
                if error.kind not in _OF_ONE_TABLE:
                    raise
                reason = f"{error.what}; {error.remedy}" if error.remedy else error.what
                if error.kind is ErrorKind.UNKNOWN_TABLE:
                    reason = f"the server has no such table: {error.what}"
                return TableDifference(record.label, Verdict.NOT_COMPARED, reason=reason)
            if difference.verdict is Verdict.EQUAL or (
                before is not None and (_same(before, difference) or time.monotonic() > deadline)
            ):
                return difference
            before = difference

    def _at_one_position(self, record: TableRecord, deadline: float) -> TableDifference:
        applied = self._applied(record)
        with snapshot_at(self._server, deadline) as (connection, position):
            source = self._server.table(record.database, record.table)
            decoder = TextDecoder(source.columns, source.label, self._invalid_dates)
            statement = f"SELECT {decoder.select_list} FROM {source.from_clause}"

            def rows() -> Iterator[pa.RecordBatch]:
                return RowReader(connection, self._server.label).batches(statement, decoder)

            with self._counting(source.label, source.rows) as count:
                version = self._version_at(
                    record, applied, position, lambda: with_gtids(connection, position), deadline
                )
                mirror = self._frame(record, decoder, version)
                if isinstance(mirror, str):
                    return TableDifference(
                        record.label, Verdict.DIFFERENT, position=position, reason=mirror
                    )
                ours, theirs = Buckets.empty(BUCKETS), mirror_buckets(mirror, source, decoder)
                for batch in rows():
                    ours.add(batch, source.key)
                    count(batch.num_rows)
                different = ours.different(theirs)
                keys: tuple[tuple[str, str], ...] = ()
                if len(different):
                    wanted = different[:_DIFFERENT_BUCKETS_MAX]
                    keys = different_keys(
                        server_rows(rows(), source.key, wanted),
                        mirror_rows(mirror, source, decoder, wanted),
                    )
        verdict = Verdict.DIFFERENT if len(different) else Verdict.EQUAL
        return TableDifference(record.label, verdict, ours.rows, theirs.rows, position, keys)

    # -- the mirror at a position ----------------------------------------------------------------------------

    def _table(self, record: TableRecord) -> MirroredTable:
        return mirrored_table(self._target, record)

    def _applied(self, record: TableRecord) -> int:
        return max(
            record.from_lsn, self._table(record).version(self._spark) if record.folder else -1
        )

    def _version_at(
        self,
        record: TableRecord,
        applied: int,
        position: Position,
        with_own_gtids: Callable[[], Position],
        deadline: float,
    ) -> int:
        """Wait until the mirror has a version of the table at `position`. Returns the Delta version; -1 if the table
        has no folder yet.

        `with_own_gtids`: see `_TableEntries`. `applied`: the lsn (number of an entry: rows or a statement of the log)
        up to which the table was applied before the snapshot. Raises `_Moving` if the mirror has applied changes from
        after the position.
        """
        entries = _TableEntries(self._log, record, applied, position, with_own_gtids)
        entries.read_to_position(deadline)
        while True:
            now = self._control.records().get(record.table_id)
            if now is None or now.word is not TableState.COMPLETE:
                raise _Moving("the table's state changed")
            if now.folder != record.folder or now.move is not None:
                raise _Moving("the table's folder changed")
            if not now.folder:
                return -1
            version = delta_version(self._spark, self._table(now).path)
            lsn = self._applied(now)
            if delta_version(self._spark, self._table(now).path) == version:
                watermark = max(lsn, self._control.applied(record.consumer))
                if entries.beyond(lsn):
                    raise _Moving("a step of the mirror went beyond the snapshot's position")
                if watermark >= entries.last_before:
                    return version
            if time.monotonic() > deadline:
                raise _Moving("the mirror has not applied what the log holds")
            time.sleep(_POLL_S)

    def _frame(self, record: TableRecord, decoder: TextDecoder, version: int) -> DataFrame | str:
        """Returns the mirror's rows with the server's columns; if the columns differ, how they differ."""
        schema = spark_schema(decoder.schema)
        if version < 0:
            return self._spark.createDataFrame([], schema)
        reader = self._spark.read.format("delta").option("versionAsOf", version)
        frame = reader.load(self._table(record).path)
        if "_deleted" in frame.columns and "_deleted" not in schema.fieldNames():
            frame = frame.where("NOT coalesce(`_deleted`, false)")
        if differences := column_differences(schema, frame.schema):
            # An empty table without a signature gets the columns of the next rows that are applied.
            if record.signature or not frame.isEmpty():
                return differences
            return self._spark.createDataFrame([], schema)
        return frame.select(*(quoted(name) for name in schema.fieldNames()))


def _same(before: TableDifference, now: TableDifference) -> bool:
    return (before.keys, before.reason) == (now.keys, now.reason)


class _TableEntries:
    """The log's entries of one table after the entry `applied`, divided into those up to a position and those beyond
    it.

    `with_gtids`: returns the position with its GTIDs; the position of a MariaDB snapshot lacks them.

    `read_to_position` begins with the first entry of the append that contains the entry `applied`, because only the END
    entry of an append has a position. If `applied` is itself an END entry, as after a copy, the log has no later
    position before the server's next transaction.
    """

    def __init__(
        self,
        binlog_log: BinlogLog,
        record: TableRecord,
        applied: int,
        position: Position,
        with_gtids: Callable[[], Position],
    ) -> None:
        self._with_gtids = with_gtids
        self._log, self._record, self._position = binlog_log, record, position
        self._cursor = max(0, first_lsn(append_of(applied)) - 1)
        self._passed = False
        self._append: list[LogEntry] = []  # entries of the append that is being read
        self.last_before = applied
        self._first_beyond: int | None = None

    def read_to_position(self, deadline: float) -> None:
        """Read the log until an append ends at or beyond the position. Raises `_Moving` at the deadline."""
        while not self._passed:
            if not self._read() and time.monotonic() > deadline:
                raise _Moving("the log has not reached the server's position")
            if not self._passed:
                time.sleep(_POLL_S)

    def beyond(self, lsn: int) -> bool:
        """True if a Delta table to which the log is applied up to `lsn` contains changes from after the compared
        position."""
        while self._first_beyond is None and self._cursor < lsn and self._read():
            pass
        return self._first_beyond is not None and self._first_beyond <= lsn

    def _read(self) -> bool:
        entries = self._log.entries(self._record.consumer, self._cursor, tables=[self._record.name])
        for entry in entries:
            self._cursor = entry.lsn
            if entry.kind is EntryKind.ROWS or self._is_statement(entry):
                self._append.append(entry)
            elif entry.kind is EntryKind.END and entry.position is not None:
                self._end(entry.position)
        return bool(entries)

    def _is_statement(self, entry: LogEntry) -> bool:
        """True if the entry is a statement that concerns the table. Such a statement may change columns or remove
        rows."""
        name = self._record.name
        items = route(entry, effects_of, lambda: [name], lambda _: False)
        return entry.kind is EntryKind.STATEMENT and any(named == name for named, _ in items)

    def _end(self, end: Position) -> None:
        if end.server != self._position.server and not self._position.gtid:
            self._position = self._with_gtids()
        reached = not self._passed and contains_executed(end, self._position)
        for entry in self._append:
            if self._passed or (reached and not self._is_before(entry, end)):
                self._first_beyond = self._first_beyond or entry.lsn
            else:
                self.last_before = max(self.last_before, entry.lsn)
        self._append = []
        self._passed = self._passed or reached

    def _is_before(self, entry: LogEntry, end: Position) -> bool:
        """True if the entry lies before the position. `end` is the end of the entry's append, which is at or beyond the
        position. Raises `_Moving` if the entry contains changes from before and after the position."""
        ours = self._position
        if not has_same_seqs(end, ours):
            if contains_executed(ours, end):
                return True
            raise _Moving("an append of the log holds changes from before and after the position")
        if entry.first_seq <= ours.seq < entry.last_seq:
            raise _Moving("an entry of the log holds changes from before and after the position")
        return entry.last_seq <= ours.seq
