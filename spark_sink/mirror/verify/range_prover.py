"""Executes the works of a proof (`rules.tasks.proof_task`): reads a range of a table from the server, and compares it
with a version of the Delta table.

Of the server's rows, and of the mirror's, only hashes are compared. When a range is read for the second time, the rows
whose keys differed at the first time are kept, so that a difference can be written into a file.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import functions as F  # noqa: N812

from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.server_facts import read_facts
from spark_sink.mirror.copy.copier import as_change
from spark_sink.mirror.copy.pace import wait_for_server, waited
from spark_sink.mirror.copy.server import CopyServer
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.rules.effects import CompareKeyRange, ReadKeyRange
from spark_sink.mirror.rules.events import RangeCompared, RangeRead
from spark_sink.mirror.rules.proofs import confirmed
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.schema.signature import Signature
from spark_sink.mirror.tables.delta import StepSession
from spark_sink.mirror.tables.driver_commit import DriverTable
from spark_sink.mirror.tables.steps import Decoding
from spark_sink.mirror.tables.table_works import mirrored_table
from spark_sink.mirror.values.names import own_path, quoted
from spark_sink.mirror.values.policies import ApplyOptions, MetadataColumn
from spark_sink.mirror.values.settings import CopySettings
from spark_sink.mirror.verify.column_differences import column_differences, signature_differences
from spark_sink.mirror.verify.hashed_rows import HashedRows, key_hashes
from spark_sink.mirror.verify.key_order import bound_values, has_known_order, in_range
from spark_sink.mirror.verify.log_changes import (
    LogChanges,
    MovedError,
    TableLog,
)
from spark_sink.mirror.verify.row_differences import cast
from spark_sink.source.schemas import spark_schema
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

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WHOLE_ROWS_MAX = 1_000_000  # rows of a table that is read as one range
SUSPECTS_MAX = 1_000
DRIVER_BYTES_MAX = 16 << 20  # files of so many bytes are read by the driver itself
_COMMIT_S = 5.0  # how long a commit takes at most on MySQL without GTIDs, which does not tell

_HASHES = "key long, row long"


@dataclass
class _HeldRange:
    """A range that was read. `columns`: how the columns differ; `kept`: the rows of suspected keys."""

    work: ReadKeyRange
    source: SourceTable
    decoder: TextDecoder
    chunk: Chunk
    columns: str = ""
    rows: HashedRows = field(default_factory=lambda: HashedRows.joined(()))
    kept: list[pa.RecordBatch] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.source.key_columns)


class RangeProver:
    """Executes the proofs of one consumer. It holds the range that it has read last. One thread at a time calls `read`
    and `compare`."""

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
        self._held: _HeldRange | None = None

    def stop(self) -> None:
        """Let a work that waits for the server end."""
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
        return RangeRead(work.run, executed, key, held.chunk, len(held.rows), seconds)

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

    def _read(self, connection: Connection, work: ReadKeyRange) -> _HeldRange | str:
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
        decoder = TextDecoder(source.columns, source.label, self._options.invalid_dates)
        columns = self._column_difference(record, source)
        if columns:
            return _HeldRange(work, source, decoder, Chunk(None, None), columns)
        is_ordered = bool(source.key_name) and has_known_order(source, decoder.schema)
        if not is_ordered and source.rows > WHOLE_ROWS_MAX:
            return (
                f"it has about {source.rows} rows, and its key has no index, or an order that only the server knows;"
                f" such a table is compared as a whole, up to {WHOLE_ROWS_MAX} rows"
            )
        try:
            chunk = self._chunk(connection, work, source) if is_ordered else Chunk(None, None)
            held = _HeldRange(work, source, decoder, chunk)
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

    def _chunk(self, connection: Connection, work: ReadKeyRange, source: SourceTable) -> Chunk:
        if work.is_fixed:
            return work.chunk
        lower = work.chunk.lower if work.key == _key_text(source) else None
        rows = min(work.rows_max, chunk_rows(source, self._settings.max_bytes_in_chunk))
        return Chunk(lower, next_bound(connection, source, lower, rows))

    def _read_rows(self, connection: Connection, held: _HeldRange) -> None:
        source, suspects = held.source, held.work.suspects.keys
        wanted = np.array(sorted(suspects), dtype=np.uint64)
        statement = chunk_query(source, held.decoder.select_list, held.chunk)
        reader = RowReader(connection, self._server.label)
        parts = []
        for batch in reader.batches(statement, held.decoder):
            part = HashedRows.of_batch(batch, source.key)
            parts.append(part)
            if len(wanted):
                held.kept.append(batch.filter(pa.array(np.isin(part.keys, wanted))))
        held.rows = HashedRows.joined(parts)

    # -- the mirror --------------------------------------------------------------------------------------------

    def compare(self, work: CompareKeyRange, session: StepSession) -> RangeCompared:
        """Compare the range that was read last. Raises `BinlogError`."""
        began, held = time.monotonic(), self._held
        assert held is not None
        assert held.work.run == work.read, "another range was read meanwhile"
        try:
            answer = _Comparison(self, work, held, session).result()
        except MovedError:
            answer = RangeCompared(work.run, True, "", 0, (), 0.0)
        return replace(answer, seconds=time.monotonic() - began)

    @property
    def options(self) -> ApplyOptions:
        return self._options

    @property
    def binlog_log(self) -> BinlogLog:
        return self._log


def _without_table(work: ReadKeyRange) -> _HeldRange:
    """Returns the range of a table that the server does not have. It differs, unless the log has the reason, such as a
    DROP TABLE, in which case the result is not used."""
    record = work.record
    source = SourceTable(record.database, record.table, (), (), (), "", "", 0, 0, False)
    decoder = TextDecoder((), source.label)
    return _HeldRange(work, source, decoder, Chunk(None, None), "the server has no such table")


def _skipped(work: ReadKeyRange, executed: Position, why: str) -> RangeRead:
    return RangeRead(work.run, executed, work.key, work.chunk, 0, 0.0, why)


def _key_text(source: SourceTable) -> str:
    """Returns the key's columns, with their types and character sets, as one text. Bounds belong to such a key."""
    columns = ((source.columns[i], source.charsets[i]) for i in source.key)
    return ", ".join(f"{c.name} {c.type} {c.meta} {charset}" for c, charset in columns)


class _Comparison:
    """The comparison of one range."""

    def __init__(
        self, prover: RangeProver, work: CompareKeyRange, held: _HeldRange, session: StepSession
    ) -> None:
        self._work, self._held, self._session = work, held, session
        self._spark = session.spark
        self._options, self._log = prover.options, prover.binlog_log
        self._version = -1
        self._to = work.to

    def result(self) -> RangeCompared:
        held, record = self._held, self._work.record
        mirror = held.columns or self._mirror(record)
        if isinstance(mirror, str):
            is_again = confirmed(held.work.suspects, mirror, ())
            evidence = self._write({}, mirror) if is_again else ""
            return RangeCompared(self._work.run, False, mirror, 0, (), 0.0, evidence)
        changes = self._in_range(self._changes(record))
        unchanged = held.rows.without(_hashes(changes.keys))
        expected = HashedRows.joined((unchanged, self._of_table(changes.rows)))
        differing = expected.differing(self._hashed(mirror))
        first = tuple(int(key) for key in differing[:SUSPECTS_MAX])
        evidence = ""
        if confirmed(held.work.suspects, "", first):
            evidence = self._write(self._rows(changes, mirror, first), "")
        return RangeCompared(self._work.run, False, "", len(differing), first, 0.0, evidence)

    # -- the Delta table ---------------------------------------------------------------------------------------

    def _mirror(self, record: TableRecord) -> pa.Table | DataFrame | str:
        """Returns the mirror's rows of the range with the server's columns, or a text if the columns differ. The driver
        reads few files itself, without a Spark job."""
        wanted = self._held.decoder.schema
        if not record.folder:  # the mirror has no Delta table for the table yet
            return wanted.empty_table()
        table = mirrored_table(self._options.target, record)
        driver = DriverTable(self._spark, table)
        if driver.owner != record.table_id:
            raise MovedError
        self._version, self._to = driver.version, max(self._to, driver.recorded)
        rows = driver.rows(self._bounds(), DRIVER_BYTES_MAX)
        if rows is not None:
            return self._of_driver(record, rows)
        self._session.expect(0, table.size_bytes(self._spark))
        reader = self._spark.read.format("delta").option("versionAsOf", self._version)
        frame = reader.load(table.path)
        if differences := column_differences(spark_schema(wanted), frame.schema):
            return differences
        if self._has_deleted(frame.columns):
            frame = frame.where(f"NOT coalesce({quoted(MetadataColumn.DELETED)}, false)")
        frame = frame.select(*(quoted(name) for name in wanted.names))
        types = [frame.schema[name].dataType for name in self._held.key]
        columns = [F.col(quoted(name)) for name in self._held.key]
        condition = self._condition(
            columns, lambda value, i: F.lit(value).cast(types[i]), lambda column: column.isNull()
        )
        return frame if condition is None else frame.where(condition)

    def _of_driver(self, record: TableRecord, rows: pa.Table) -> pa.Table | str:
        wanted = self._held.decoder.schema
        if differences := column_differences(spark_schema(wanted), spark_schema(rows.schema)):
            # An empty table without a signature gets the columns of the next rows that are applied.
            is_new = not (record.signature or rows.num_rows)
            return wanted.empty_table() if is_new else differences
        if self._has_deleted(rows.column_names):
            deleted = pc.fill_null(rows.column(str(MetadataColumn.DELETED)), False)
            rows = rows.filter(pc.invert(deleted))
        by_name = {name.lower(): name for name in rows.column_names}
        columns = [rows.column(by_name[f.name.lower()]).cast(f.type) for f in wanted]
        rows = pa.Table.from_arrays(columns, schema=wanted)
        condition = self._arrow_condition(lambda column: column.is_null())
        return rows if condition is None else rows.filter(condition)

    def _has_deleted(self, columns: Sequence[str]) -> bool:
        """True if the mirror marks rows as deleted, in a column that the server's table does not have."""
        deleted = str(MetadataColumn.DELETED)
        return deleted in columns and deleted not in self._held.decoder.schema.names

    def _bounds(self) -> dict[str, tuple[object, object]]:
        """Returns the smallest and the largest value of the key's first column in a range with two bounds."""
        chunk, kinds = self._held.chunk, self._kinds()
        if chunk.lower is None or chunk.upper is None or pa.types.is_binary(kinds[0]):
            return {}
        low, high = (bound_values(bound, kinds)[0] for bound in (chunk.lower, chunk.upper))
        return {self._held.key[0]: (low, high)}

    def _condition(
        self,
        columns: Sequence[Any],
        literal: Callable[[Any, int], Any],
        is_null: Callable[[Any], Any] | None = None,
    ) -> Any | None:
        """Returns the condition of the range. `is_null`: for the mirror's rows, of which those with NULL in the key
        belong to the first range."""
        chunk = self._held.chunk
        condition = in_range(chunk, columns, self._kinds(), literal)
        if condition is not None and is_null is not None and chunk.lower is None:
            for column in columns:
                condition = condition | is_null(column)
        return condition

    def _arrow_condition(self, is_null: Callable[[Any], Any] | None = None) -> Any | None:
        kinds = self._kinds()
        fields = [ds.field(name) for name in self._held.key]
        return self._condition(fields, lambda value, i: pa.scalar(value, kinds[i]), is_null)

    def _kinds(self) -> list[pa.DataType]:
        return [self._held.decoder.schema.field(name).type for name in self._held.key]

    def _hashed(self, rows: pa.Table | DataFrame) -> HashedRows:
        if isinstance(rows, pa.Table):
            return self._of_table(rows)
        hashed = partial(_hash_rows, self._held.decoder.schema, self._held.source.key)
        table = rows.mapInArrow(hashed, _HASHES).toArrow()
        keys, hashes = (table.column(name).to_numpy().view(np.uint64) for name in ("key", "row"))
        return HashedRows(keys, hashes)

    def _of_table(self, rows: pa.Table) -> HashedRows:
        batches, key = rows.combine_chunks().to_batches(), self._held.source.key
        return HashedRows.joined(HashedRows.of_batch(batch, key) for batch in batches)

    # -- the log -----------------------------------------------------------------------------------------------

    def _changes(self, record: TableRecord) -> LogChanges:
        policy, held = self._options.policy(record.name), self._held
        decoding = Decoding(self._options.invalid_dates, policy.all_versions)
        table_log = TableLog(self._spark, self._log, record, decoding, policy.omitted)
        entries = table_log.entries(self._work.after, self._to)
        return table_log.last_changes(entries, held.decoder.schema, held.key)

    def _in_range(self, changes: LogChanges) -> LogChanges:
        """Returns the changed keys, and of the changed rows those in the range."""
        condition = self._arrow_condition()
        if condition is None:
            return changes
        return LogChanges(changes.keys, changes.rows.filter(condition))

    # -- the evidence ------------------------------------------------------------------------------------------

    def _rows(
        self, changes: LogChanges, mirror: pa.Table | DataFrame, wanted: Sequence[int]
    ) -> dict[str, Any]:
        """Returns the rows of the keys with the hashes `wanted`, on the server and in the mirror."""
        held, keys = self._held, np.array(wanted, dtype=np.uint64)
        kept = pa.Table.from_batches(held.kept, held.decoder.schema)
        unchanged = ~np.isin(_key_hashes(kept, held), _hashes(changes.keys))
        server = [_of_keys(kept.filter(pa.array(unchanged)), held, keys)]
        server.append(_of_keys(changes.rows, held, keys))
        if isinstance(mirror, pa.Table):
            present = _of_keys(mirror, held, keys)
        else:
            chosen = partial(_choose, held.decoder.schema, held.source.key, list(wanted))
            present = mirror.mapInArrow(chosen, mirror.schema).toArrow()
        rows = [row for part in server for row in part.to_pylist()]
        return {"server": rows, "mirror": present.to_pylist()}

    def _write(self, rows: dict[str, Any], columns: str) -> str:
        """Write the file with the evidence. Returns its path."""
        record, held, now = self._work.record, self._held, datetime.now(UTC)
        path = own_path(
            self._options.target, "evidence", record.table_id, f"{now:%Y%m%dT%H%M%S.%f}.json"
        )
        begin = held.work.begin
        evidence = {
            "table": record.label,
            "consumer": record.consumer,
            "at": now.isoformat(),
            "delta_version": self._version,
            "log_entries_after": self._work.after,
            "log_entries_to": self._to,
            "server": begin.server,
            "position": f"{begin.file}:{begin.offset}",
            "gtid": begin.gtid,
            "columns": columns,
            "key": list(held.key),
        }
        text = json.dumps(evidence | rows, default=str, ensure_ascii=False, indent=1)
        FileSystem(self._spark).write(path, text.encode())
        return path


def _hashes(keys: pa.Table) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return key_hashes([column.combine_chunks() for column in keys.columns], keys.num_rows)


def _key_hashes(rows: pa.Table, held: _HeldRange) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return _hashes(rows.select(list(held.key)))


def _of_keys(
    rows: pa.Table, held: _HeldRange, keys: np.ndarray[Any, np.dtype[np.uint64]]
) -> pa.Table:
    return rows.filter(pa.array(np.isin(_key_hashes(rows, held), keys)))


def _hash_rows(
    schema: pa.Schema, key: Sequence[int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yields the hashes of rows. Runs on the executors."""
    for batch in batches:
        hashed = HashedRows.of_batch(cast(batch, schema), key)
        arrays = [pa.array(hashed.keys.view(np.int64)), pa.array(hashed.rows.view(np.int64))]
        yield pa.RecordBatch.from_arrays(arrays, names=["key", "row"])


def _choose(
    schema: pa.Schema,
    key: Sequence[int],
    wanted: Collection[int],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the keys with the hashes `wanted`. Runs on the executors."""
    hashes = np.array(sorted(wanted), dtype=np.uint64)
    for batch in batches:
        keys = HashedRows.of_batch(cast(batch, schema), key).keys
        yield batch.filter(pa.array(np.isin(keys, hashes)))
