"""Executes the works of a proof (`rules.tasks.proof_task`): reads a range of a table from the server, compares it with
a version of the Delta table, and rewrites rows that differ.

Only hashes of the server's rows and of the mirror's rows are compared. When a range is read for the second time, the
rows of the keys that differed in the first comparison are kept, so that a difference can be written to a file, and
corrected.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.server_facts import read_facts
from spark_sink.mirror.copy.copier import as_change
from spark_sink.mirror.copy.pace import wait_for_server, waited
from spark_sink.mirror.copy.server import CopyServer
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.rules.effects import CompareKeyRange, ReadKeyRange, RepairRows
from spark_sink.mirror.rules.events import RangeCompared, RangeRead, RowsRepaired
from spark_sink.mirror.rules.omitted import changed_masks
from spark_sink.mirror.rules.proofs import NO_TABLE
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.schema.signature import Signature
from spark_sink.mirror.tables.delta import StepSession
from spark_sink.mirror.values.policies import ApplyOptions
from spark_sink.mirror.values.settings import CopySettings
from spark_sink.mirror.verify.column_differences import signature_differences
from spark_sink.mirror.verify.hashed_rows import HashedRows
from spark_sink.mirror.verify.key_order import has_known_order
from spark_sink.mirror.verify.log_changes import MovedError
from spark_sink.mirror.verify.range_comparison import RangeComparison, ServerRange
from spark_sink.source.table_rows.chunks import (
    Chunk,
    chunk_query,
    chunk_rows,
)
from spark_sink.source.table_rows.session import RowReader, was_altered
from spark_sink.source.table_rows.source_table import SourceTable
from spark_sink.source.table_rows.table_server import (
    executed_position,
    next_bound,
    wait_until_executed,
)
from spark_sink.source.table_rows.text_rows import TextDecoder

WHOLE_ROWS_MAX = 1_000_000  # the most rows of a table that is read as one range
KEPT_BYTES_MAX = 128 << 20  # the most bytes of rows that are kept for a second comparison
_COMMIT_S = 5.0  # the longest commit that is assumed for MySQL without GTIDs


class RangeProver:
    """Executes the proofs of one consumer. Keeps the range that it has read last. Only one thread at a time may call
    `read` and `compare`."""

    def __init__(
        self,
        consumer: str,
        options: ApplyOptions,
        server: CopyServer,
        settings: CopySettings,
        binlog_log: BinlogLog,
    ) -> None:
        self._consumer, self._options = consumer, options
        self._server, self._settings, self._log = server, settings, binlog_log
        self._ended = threading.Event()
        self._held: ServerRange | None = None

    def stop(self) -> None:
        """End a work that waits for the server."""
        self._ended.set()

    # -- the server --------------------------------------------------------------------------------------------

    def read(self, work: ReadKeyRange) -> RangeRead:
        """Read a range from the server. Raises `BinlogError`."""
        wait_for_server(self._server, self._settings, 0, time.monotonic(), self._ended.is_set)
        with self._server.session() as connection:
            self._wait_until_visible(connection, work.begin)
            began = time.monotonic()
            try:
                held = self._read(connection, work)
            except BinlogError as error:
                return self._unreadable(work, error, time.monotonic() - began)
            if isinstance(held, str):
                return _skipped(work, executed_position(connection), held)
            self._held = held
            executed = executed_position(connection)
        key = _key_text(held.source)
        seconds = time.monotonic() - began
        rows = len(held.rows)
        return RangeRead(work.run, executed, key, held.chunk, rows, seconds, ranges=held.ranges)

    def _wait_until_visible(self, connection: Connection, begin: Position) -> None:
        facts = read_facts(connection)
        if facts.flavour == "mysql" and facts.gtid_mode != "ON":
            waited(self._ended.is_set, _COMMIT_S)
        else:
            timeout_s = self._settings.wait_seconds
            wait_until_executed(connection, begin, timeout_s=timeout_s, stopping=self._ended.is_set)
        if self._ended.is_set():
            raise RuntimeError("the job ends")

    def _unreadable(self, work: ReadKeyRange, error: BinlogError, seconds: float) -> RangeRead:
        if not was_altered(error):
            raise error
        with self._server.session() as other:  # the reader has closed its connection
            executed = executed_position(other)
        return RangeRead(work.run, executed, work.key, work.chunk, 0, seconds, moved=True)

    def _read(self, connection: Connection, work: ReadKeyRange) -> ServerRange | str:
        """Returns the range, or why the table cannot be proved."""
        record = work.record
        try:
            source = self._server.table(record.database, record.table)
        except BinlogError as error:
            if error.kind is not ErrorKind.UNKNOWN_TABLE:
                raise
            return _without_table(work)
        if not source.key:
            return "it has no primary key, and no unique key on NOT NULL columns"
        if masks := changed_masks(record.signature, self._options.policy(record.name)):
            return (
                f"the mask of column {masks[0]} has changed; the table is compared after its copy"
            )
        decoder = TextDecoder(source.columns, source.label, self._options.invalid_dates)
        columns = self._column_difference(record, source)
        if columns:
            return ServerRange(work, source, decoder, Chunk(None, None), columns)
        is_ordered = bool(source.key_name) and has_known_order(source, decoder.schema)
        if not is_ordered and source.rows > WHOLE_ROWS_MAX:
            return (
                f"it has about {source.rows} rows, and its key has no index, or an order that only the server knows;"
                f" such a table is compared as a whole, up to {WHOLE_ROWS_MAX} rows"
            )
        try:
            rows = min(work.rows_max, chunk_rows(source, self._settings.max_bytes_in_chunk))
            chunk = Chunk(None, None)
            if is_ordered:
                chunk = self._chunk(connection, work, source, rows)
            ranges = -(-source.rows // rows) if is_ordered else 1
            held = ServerRange(work, source, decoder, chunk, ranges=ranges)
            self._read_rows(connection, held)
        except BinlogError as error:
            raise as_change(error, source) from error
        return held

    def _column_difference(self, record: TableRecord, source: SourceTable) -> str:
        if not record.signature:
            return ""
        table_map = TableMap(0, source.database, source.table, source.columns, source.key, "")
        actual = Signature.of_table_map(table_map, self._options.invalid_dates)
        return signature_differences(actual, Signature.from_json(record.signature))

    @staticmethod
    def _chunk(connection: Connection, work: ReadKeyRange, source: SourceTable, rows: int) -> Chunk:
        if work.is_fixed:
            return work.chunk
        lower = work.chunk.lower if work.key == _key_text(source) else None
        return Chunk(lower, next_bound(connection, source, lower, rows))

    def _read_rows(self, connection: Connection, held: ServerRange) -> None:
        source, suspects = held.source, held.work.suspects.keys
        wanted = np.array(sorted(suspects), dtype=np.uint64)
        statement = chunk_query(source, held.decoder.select_list, held.chunk)
        reader = RowReader(connection, self._server.label)
        parts, left = [], KEPT_BYTES_MAX
        for batch in reader.batches(statement, held.decoder):
            part = HashedRows.of_batch(batch, source.key)
            parts.append(part)
            if len(wanted) and left >= 0:
                held.kept.append(batch.filter(pa.array(np.isin(part.keys, wanted))))
                left -= held.kept[-1].nbytes
        held.is_whole = left >= 0
        held.rows = HashedRows.joined(parts)

    # -- the mirror --------------------------------------------------------------------------------------------

    def compare(self, work: CompareKeyRange, session: StepSession) -> RangeCompared:
        """Compare the range that was read last. Raises `BinlogError`."""
        began, held = time.monotonic(), self._held
        assert held is not None
        assert held.work.run == work.read, "another range was read meanwhile"
        try:
            answer = self._comparison(work, held, session).result()
        except MovedError:
            answer = RangeCompared(work.run, True, "", 0, (), 0.0)
        return replace(answer, seconds=time.monotonic() - began)

    def repair(self, work: RepairRows, session: StepSession) -> RowsRepaired:
        """Rewrite the rows that differ in the range that was read last. Raises `BinlogError`."""
        began, held = time.monotonic(), self._held
        assert held is not None
        assert held.work.run == work.read, "another range was read meanwhile"
        compared = CompareKeyRange(work.run, work.record, work.read, work.after, work.to)
        try:
            keys = self._comparison(compared, held, session).rewrite(work.lsn)
        except MovedError:
            return RowsRepaired(work.run, True, 0, time.monotonic() - began)
        return RowsRepaired(work.run, False, keys, time.monotonic() - began)

    def _comparison(
        self, work: CompareKeyRange, held: ServerRange, session: StepSession
    ) -> RangeComparison:
        return RangeComparison(self._options, self._log, work, held, session)


def _without_table(work: ReadKeyRange) -> ServerRange:
    """Returns the range of a table that the server does not have. This is a difference. If the log contains the reason,
    such as a DROP TABLE, the result of the comparison is not used."""
    record = work.record
    source = SourceTable(record.database, record.table, (), (), (), "", "", 0, 0, False)
    decoder = TextDecoder((), source.label)
    return ServerRange(work, source, decoder, Chunk(None, None), NO_TABLE)


def _skipped(work: ReadKeyRange, executed: Position, why: str) -> RangeRead:
    return RangeRead(work.run, executed, work.key, work.chunk, 0, 0.0, why)


def _key_text(source: SourceTable) -> str:
    """Returns the key's columns, with their types and character sets, as one text. A bound is valid only for the key
    with the same text."""
    columns = ((source.columns[i], source.charsets[i]) for i in source.key)
    return ", ".join(f"{c.name} {c.type} {c.meta} {charset}" for c, charset in columns)
