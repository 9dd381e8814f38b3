"""Copies one table from a server into its staging folder, in groups of chunks, and continues a copy that was killed. A
chunk is a range of the table's key.

1. Wait until the server has executed every transaction up to S, the end of the mirror's log when the copy begins.
2. While the executors read one group, find the bounds of the next group's chunks along the key. Several chunks are read
   at a time, each by one statement without locks.
3. When all chunks are read, ask the server for R, a position that covers every transaction whose changes the chunks can
   contain.

The copy equals the server's table only after the mirror has replayed the log on it, from S to R or beyond. Before this,
different rows may show states after different transactions.

A table without a key is read in one transaction. The transaction's snapshot contains exactly the transactions up to a
known position R, and the replay from S leaves these transactions out.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from spark_sink.log_lines import log_event
from spark_sink.mirror.copy.chunk_reader import ChunkReading
from spark_sink.mirror.copy.pace import Stopping, retried, wait_for_server, waited
from spark_sink.mirror.copy.progress import CopyProgress, CopyResult, remaining_s
from spark_sink.mirror.copy.server import CopyServer
from spark_sink.mirror.copy.staged_copy import StagedCopy
from spark_sink.mirror.copy.staging import Batches, StagingTable
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.tables.delta import MirroredTable
from spark_sink.mirror.tables.quarantine import Quarantine, invalid_table, of_rows
from spark_sink.mirror.values.entries import LogEnd
from spark_sink.mirror.values.faults import becomes_null, fault_of
from spark_sink.mirror.values.names import TableName, copy_folder
from spark_sink.mirror.values.policies import InvalidValue, TablePolicy, default_policy
from spark_sink.mirror.values.settings import CopySettings
from spark_sink.source.table_rows.chunks import (
    Bound,
    Chunk,
    chunk_query,
    chunk_rows,
)
from spark_sink.source.table_rows.session import (
    ResultColumn,
    RowReader,
    changed_during_copy,
    was_altered,
)
from spark_sink.source.table_rows.source_table import SourceTable
from spark_sink.source.table_rows.table_server import (
    executed_position,
    locked_snapshot,
    next_bound,
    wait_until_executed,
)
from spark_sink.source.table_rows.text_rows import TextDecoder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

log = logging.getLogger("spark_sink.copy")

CHUNKS_PER_TASK = 2  # of a group; with two, other tasks have work while one task reads a slow chunk
_CHANGE_WAIT_S = 30.0
_LOCAL_GROUP_BYTES = 64 << 20
# The errors that a change of a table's definition causes: a column, table, database or index no longer exists, or the
# definition is another one.
_GONE = ("error 1054", "error 1146", "error 1049", "error 1176", "error 1412")


Progress = Callable[[CopyProgress], None]


class Copier:
    """Copies tables into TARGET/_binlog/copies. Threads may share it."""

    def __init__(
        self,
        spark: SparkSession,
        settings: CopySettings,
        target: str,
        invalid_dates: InvalidDates = InvalidDates.NULL,
        policy: Callable[[TableName], TablePolicy] = default_policy,
        *,
        iceberg: bool = False,
    ) -> None:
        """`policy`: returns the policy of a table; `iceberg`: True if Iceberg's readers have to read the copies. Raises
        `UserError` for settings that name no server."""
        self._spark, self._settings, self._policy = spark, settings, policy
        self._server = CopyServer.of_settings(settings, policy)
        self._quarantine = Quarantine(target)
        self._target, self._invalid_dates, self._iceberg = target, invalid_dates, iceberg

    def copy(
        self, record: TableRecord, *, begin: LogEnd, progress: Progress, stopping: Stopping
    ) -> CopyResult:
        """Copy a table, or continue its copy. `begin`: S, the end of the log when the copy was begun.

        In the result, `complete` is False if `stopping` ended the copy. Raises `BinlogError`.
        """
        if begin.position is None:
            raise BinlogError(
                ErrorKind.RANGE_UNAVAILABLE,
                f"table {record.label} cannot be copied before the log has a first position",
                where=f"consumer {record.consumer}",
                remedy="try again when the consumer's query has run",
            )
        path = f"{self._target.rstrip('/')}/{copy_folder(record.table_id)}"
        table = MirroredTable(record.table_id, path, record.label)
        copy_id = f"{record.table_id}/{begin.append}"  # see `copy_id_of`
        staging = StagingTable(self._spark.newSession(), table, copy_id, iceberg=self._iceberg)
        invalid = _InvalidValues(
            staging, record, self._policy(record.name).invalid, self._quarantine
        )
        one = _OneCopy(
            self._server, self._settings, self._invalid_dates, staging, progress, invalid
        )
        try:
            return one.run(record, begin.position, stopping)
        except BinlogError as error:
            # The log will contain the statement that altered the table. When the applier reads this statement, another
            # copy begins.
            if was_altered(error) and waited(stopping, _CHANGE_WAIT_S):
                return one.stopped(record)
            raise


@dataclass(slots=True)
class _InvalidValues:
    """What a copy does with invalid values. `count`: how many became NULL."""

    staging: StagingTable
    record: TableRecord
    policy: InvalidValue
    quarantine: Quarantine
    count: int = 0

    def found(self, values: pa.Table) -> None:
        """Count invalid values. If the policy is `QUARANTINE`, add the values to the quarantine."""
        self.count += values.num_rows
        if values.num_rows and self.policy is InvalidValue.QUARANTINE:
            staging = self.staging
            self.quarantine.add(staging.spark, self.record, values, staging.copy_id)


class _OneCopy:
    """One attempt to complete the copy of a table: it begins the copy, or continues an earlier attempt."""

    def __init__(
        self,
        server: CopyServer,
        settings: CopySettings,
        invalid_dates: InvalidDates,
        staging: StagingTable,
        progress: Progress,
        invalid: _InvalidValues,
    ) -> None:
        self._invalid = invalid
        self._server, self._settings, self._invalid_dates = server, settings, invalid_dates
        self._staging, self._progress = staging, progress
        self._source: SourceTable | None = None
        self._state = StagedCopy()

    def run(self, record: TableRecord, begin: Position, stopping: Stopping) -> CopyResult:
        with self._server.session() as connection:
            ready = wait_until_executed(
                connection, begin, timeout_s=self._settings.wait_seconds, stopping=stopping
            )
        source = self._source = self._server.table(record.database, record.table)
        if not ready:
            return self.stopped(record)
        decoder = TextDecoder(source.columns, source.label, self._invalid_dates)
        layout = _layout_of(source, decoder)
        earlier = self._staging.state()
        if earlier is not None and earlier.layout == layout and (source.key or earlier.executed):
            self._state = earlier
            log.info("%s: the copy continues after %d rows", source.label, earlier.rows)
        else:
            self._staging.create(decoder.schema)
            self._state = StagedCopy(layout=layout, rows_estimated=source.rows)
        began = time.monotonic()
        copied_before = self._state.rows
        if self._state.position is None and not source.key:
            self._copy_snapshot(source, decoder, stopping)
        elif self._state.position is None:
            self._copy_chunks(source, decoder, stopping, began, copied_before)
        return self._result(source)

    def stopped(self, record: TableRecord) -> CopyResult:
        """Returns the result of a copy that stops before its end."""
        source = self._source or SourceTable(
            record.database, record.table, (), (), (), "", "", 0, 0, False
        )
        return replace(self._result(source), complete=False)

    def _result(self, source: SourceTable) -> CopyResult:
        state, nowhere = self._state, Position("", "", "", 0, 0, 0)
        return CopyResult(
            state.rows,
            state.bytes,
            state.chunks,
            state.position or nowhere,
            source,
            self._invalid_dates,
            exact=not source.key,
            complete=state.position is not None,
            invalid_values=self._invalid.count,
        )

    # -- by ranges of the key --------------------------------------------------------------------------------

    def _copy_chunks(
        self,
        source: SourceTable,
        decoder: TextDecoder,
        stopping: Stopping,
        began: float,
        copied_before: int,
    ) -> None:
        expected = self._expected(source, decoder)
        rows = self._rows_of_chunk(source)
        with ThreadPoolExecutor(1, thread_name_prefix="copy-plan") as pool:

            def plan(lower: Bound | None) -> Future[list[Chunk]]:
                return pool.submit(self._plan, source, lower, rows)

            planned = plan(self._state.upper)
            if not self._state.chunks:
                self._progress(self._now(source, began, copied_before))
            while not stopping():
                if self._state.read_all:
                    self._finish(source)
                    return
                group = planned.result()
                if group[-1].upper is not None:
                    planned = plan(group[-1].upper)
                append = partial(self._append, source, decoder, expected, group)
                retried(append, stopping)
                self._report(source, began, copied_before)
                done = self._state.rows - copied_before
                wait_for_server(self._server, self._settings, done, began, stopping)

    def _expected(self, source: SourceTable, decoder: TextDecoder) -> tuple[ResultColumn, ...]:
        statement = f"SELECT {decoder.select_list} FROM {source.from_clause} LIMIT 0"
        with self._server.session() as connection:
            return RowReader(connection, self._server.label).result_columns(statement, decoder)

    def _rows_of_chunk(self, source: SourceTable) -> int:
        settings = self._settings
        rows = chunk_rows(source, settings.max_bytes_in_chunk)
        if settings.max_rows_per_second:
            # Limit a group to the rows that `max_rows_per_second` allows in about five seconds.
            share = 5 * settings.max_rows_per_second // (settings.parallel * CHUNKS_PER_TASK)
            rows = max(1, min(rows, share))
        return rows

    def _plan(self, source: SourceTable, lower: Bound | None, rows: int) -> list[Chunk]:
        """Returns the chunks of the next group, after the key `lower`. The last chunk of the table has no upper
        bound."""
        chunks: list[Chunk] = []
        with self._server.session() as connection:
            while len(chunks) < self._settings.parallel * CHUNKS_PER_TASK:
                try:
                    upper = next_bound(connection, source, lower, rows)
                except BinlogError as error:
                    raise as_change(error, source) from error
                chunks.append(Chunk(lower, upper))
                if upper is None:
                    break
                lower = upper
        return chunks

    def _append(
        self,
        source: SourceTable,
        decoder: TextDecoder,
        expected: tuple[ResultColumn, ...],
        group: list[Chunk],
    ) -> None:
        statements = tuple(chunk_query(source, decoder.select_list, chunk) for chunk in group)
        reading = ChunkReading(
            self._server.endpoint,
            source.label,
            source.columns,
            self._invalid_dates,
            expected,
            statements,
            tuple(column.name for column in source.key_columns),
        )
        state = replace(
            self._state,
            group=self._state.group + 1,
            upper=group[-1].upper,
            chunks=self._state.chunks + len(group),
            read_all=group[-1].upper is None,
        )
        try:
            self._commit(reading.strict(), state, source)
        except BinlogError as error:
            if not becomes_null(error, self._invalid.policy):
                raise
            self._invalid.found(self._staging.invalid_values(reading))
            self._commit(reading, state, source)

    def _commit(self, rows: ChunkReading | Batches, state: StagedCopy, source: SourceTable) -> None:
        try:
            written, size = self._staging.append(rows, state)
        except Exception as error:
            fault = fault_of(error)
            if fault is None:
                raise
            raise as_change(fault, source) from None
        self._state = replace(
            state, rows=self._state.rows + written, bytes=self._state.bytes + size
        )

    def _finish(self, source: SourceTable) -> None:
        """Ask the server for R after all rows were read, and record R."""
        with self._server.session() as connection:
            executed = executed_position(connection)
        state = replace(
            self._state, group=self._state.group + 1, upper=None, executed=executed.to_json()
        )
        self._commit((), state, source)

    # -- in one snapshot -------------------------------------------------------------------------------------

    def _copy_snapshot(self, source: SourceTable, decoder: TextDecoder, stopping: Stopping) -> None:
        """Read a table without a key on the driver. After a kill the copy begins again, because its snapshot no longer
        exists."""
        if not self._settings.lock_keyless_tables:
            raise BinlogError(
                ErrorKind.UNSUPPORTED_CHANGE,
                f"table {source.label} has no primary key and no unique key on NOT NULL columns, so it can only be"
                " copied in one snapshot, and the table must be locked when the snapshot begins",
                where=self._server.label,
                remedy="set copy.lock_keyless_tables to true, or give the table a primary key",
            )
        self._staging.create(decoder.schema)
        found: list[pa.RecordBatch] = []
        decoder = TextDecoder(
            source.columns,
            source.label,
            self._invalid_dates,
            lambda rows, cells: found.append(of_rows(rows, cells, ())),
        )
        statement = f"SELECT {decoder.select_list} FROM {source.from_clause}"
        began = time.monotonic()
        self._progress(self._now(source, began, 0))
        with locked_snapshot(self._server, source) as (connection, position):
            reader = RowReader(connection, self._server.label)
            for batches in _groups(reader.batches(statement, decoder)):
                if stopping():
                    return
                state = replace(self._state, group=self._state.group + 1, chunks=1)
                self._commit(batches, state, source)
                self._invalid.found(invalid_table(found))
                found.clear()
                self._report(source, began, 0)
        state = replace(self._state, group=self._state.group + 1, executed=position.to_json())
        self._commit((), state, source)

    # -- progress --------------------------------------------------------------------------------------------

    def _report(self, source: SourceTable, began: float, copied_before: int) -> None:
        progress = self._now(source, began, copied_before)
        log_event(log, "copy", progress.fields())
        self._progress(progress)

    def _now(self, source: SourceTable, began: float, copied_before: int) -> CopyProgress:
        state, seconds = self._state, time.monotonic() - began
        speed = (state.rows - copied_before) / seconds if seconds else 0.0
        rest = remaining_s(state.rows, source.rows, speed)
        return CopyProgress(
            source.label, state.rows, source.rows, state.bytes, state.chunks, seconds, rest
        )


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    group: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += batch.nbytes
        if size >= _LOCAL_GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _layout_of(source: SourceTable, decoder: TextDecoder) -> str:
    """Returns a hash of the columns, types and key of the table. A copy continues only if this hash is unchanged."""
    text = f"{decoder.schema} {decoder.select_list} {source.key_columns}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def as_change(error: BinlogError, source: SourceTable) -> BinlogError:
    """Returns the error for a changed definition if `error` shows that the table no longer has the columns that are
    read; otherwise `error`."""
    if any(text in error.what for text in _GONE):
        return changed_during_copy(source.label, error.where)
    return error
