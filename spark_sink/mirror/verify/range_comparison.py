"""Executes works of `rules.tasks.proof_task`: compares a range that was read from the server with a version of the
Delta table, writes a difference to a file, and rewrites the rows that differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import functions as F  # noqa: N812

from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.rules.effects import CompareKeyRange, ReadKeyRange
from spark_sink.mirror.rules.events import RangeCompared
from spark_sink.mirror.rules.proofs import confirmed
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.tables.delta import RewriteForm, StepSession
from spark_sink.mirror.tables.driver_commit import DriverTable
from spark_sink.mirror.tables.steps import Decoding, key_bounds
from spark_sink.mirror.tables.table_works import mirrored_table
from spark_sink.mirror.values.names import own_path, quoted
from spark_sink.mirror.values.policies import ApplyOptions, Deletes, MetadataColumn
from spark_sink.mirror.verify.column_differences import column_differences
from spark_sink.mirror.verify.hashed_rows import HashedRows, key_hashes
from spark_sink.mirror.verify.key_order import bound_values, in_range
from spark_sink.mirror.verify.log_changes import LogChanges, MovedError, TableLog
from spark_sink.mirror.verify.rewriting import has_no_null, rewriting_lines, rewritten_keys
from spark_sink.mirror.verify.row_checksums import U64
from spark_sink.mirror.verify.row_differences import cast
from spark_sink.source.schemas import spark_schema
from spark_sink.source.table_rows.chunks import Chunk
from spark_sink.source.table_rows.source_table import SourceTable
from spark_sink.source.table_rows.text_rows import TextDecoder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SUSPECTS_MAX = 100_000  # the most differing keys of a range that can be rewritten
EVIDENCE_MAX = 1_000  # the most keys in the file with a difference
DRIVER_BYTES_MAX = 16 << 20  # the driver itself reads files of at most this many bytes

_HASHES = "key long, row long"


@dataclass
class ServerRange:
    """A range that was read from the server. `ranges`: about how many ranges of this size the table has; `columns`: how
    the columns differ; `kept`: the rows of suspected keys; `is_whole`: True if `kept` contains all of these rows;
    `confirmed`: hashes of the keys that two readings have shown to differ."""

    work: ReadKeyRange
    source: SourceTable
    decoder: TextDecoder
    chunk: Chunk
    columns: str = ""
    ranges: int = 1
    rows: HashedRows = field(default_factory=lambda: HashedRows.joined(()))
    kept: list[pa.RecordBatch] = field(default_factory=list)
    is_whole: bool = True
    confirmed: U64 = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.source.key_columns)


class RangeComparison:
    """The comparison of one range."""

    def __init__(
        self,
        options: ApplyOptions,
        binlog_log: BinlogLog,
        work: CompareKeyRange,
        held: ServerRange,
        session: StepSession,
    ) -> None:
        self._work, self._held, self._session = work, held, session
        self._spark = session.spark
        self._options, self._log = options, binlog_log
        self._version = self._recorded = -1
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
            suspects = np.array(sorted(held.work.suspects.keys), dtype=np.uint64)
            held.confirmed = differing[np.isin(differing, suspects)]
            evidence = self._write(self._rows(changes, mirror, held.confirmed[:EVIDENCE_MAX]), "")
            first = first if held.is_whole else ()
        return RangeCompared(self._work.run, False, "", len(differing), first, 0.0, evidence)

    def rewrite(self, lsn: int) -> int:
        """Rewrite the rows of the keys that differ, in one commit under `lsn`. Returns the number of these keys. Raises
        `MovedError` if the table does not show exactly the entries up to `to`."""
        held, record = self._held, self._work.record
        present = self._mirror(record)
        if isinstance(present, str) or not record.folder or self._recorded >= lsn:
            raise MovedError
        wanted = held.confirmed
        expected = self._expected(self._changes(record), wanted)
        lines = rewriting_lines(
            expected, self._present(present, wanted), held.source.key, marks=self._marks(record)
        )
        if lines.num_rows:
            table = mirrored_table(self._options.target, record)
            self._session.expect(lines.nbytes, table.size_bytes(self._spark))
            frame = self._spark.createDataFrame(lines, spark_schema(lines.schema))
            bounds = key_bounds(lines, held.key) if has_no_null(lines) else ""
            table.rewrite(self._session, lsn, frame, self._form(record, bounds))
        return rewritten_keys(lines)

    def _marks(self, record: TableRecord) -> bool:
        """True if the mirror marks a row that is missing on the server as deleted, instead of deleting the row."""
        is_soft = self._options.policy(record.name).deletes is Deletes.SOFT
        return is_soft and str(MetadataColumn.DELETED) in record.metadata

    def _form(self, record: TableRecord, bounds: str) -> RewriteForm:
        """Returns how rows are rewritten. The metadata columns become NULL: they describe the transaction that wrote
        the row last, and this transaction is not known here."""
        extra = {name: F.lit(None) for name in record.metadata}
        deleted = str(MetadataColumn.DELETED)
        if deleted in extra:
            extra[deleted] = F.lit(False)
        names = self._held.decoder.schema.names
        return RewriteForm(
            self._held.key, names, extra, deleted if deleted in extra else "", bounds
        )

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
        self._version, self._recorded = driver.version, driver.recorded
        self._to = max(self._to, self._recorded)
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
        """True if the mirror marks rows as deleted, in a column that is not one of the server's columns."""
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
        """Returns the condition of the range. `is_null`: for the mirror's rows, makes the condition that a column is
        NULL: rows with NULL in the key belong to the first range."""
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
        held, table_log = self._held, self._table_log(record)
        entries = table_log.entries(self._work.after, self._to)
        return table_log.last_changes(entries, held.decoder.schema, held.key)

    def _table_log(self, record: TableRecord) -> TableLog:
        policy = self._options.policy(record.name)
        decoding = Decoding(self._options.invalid_dates, policy.all_versions, policy.rules)
        return TableLog(self._spark, self._log, record, decoding, policy)

    def _in_range(self, changes: LogChanges) -> LogChanges:
        """Returns all changed keys, but only those changed rows that are in the range."""
        condition = self._arrow_condition()
        if condition is None:
            return changes
        return LogChanges(changes.keys, changes.rows.filter(condition))

    # -- the evidence ------------------------------------------------------------------------------------------

    def _rows(
        self, changes: LogChanges, mirror: pa.Table | DataFrame, wanted: U64
    ) -> dict[str, Any]:
        """Returns the rows of the keys with the hashes `wanted`, on the server and in the mirror, and the entries
        of the log that have changed them."""
        held, table_log = self._held, self._table_log(self._work.record)
        server, present = self._expected(changes, wanted), self._present(mirror, wanted)
        return {
            "server": server.to_pylist(),
            "mirror": present.to_pylist(),
            "entries": table_log.touching(wanted, held.decoder.schema, held.key, self._to),
        }

    def _expected(self, changes: LogChanges, wanted: U64) -> pa.Table:
        """Returns the rows that the mirror has to have for the keys with the hashes `wanted`."""
        held = self._held
        kept = pa.Table.from_batches(held.kept, held.decoder.schema)
        unchanged = ~np.isin(_key_hashes(kept, held), _hashes(changes.keys))
        server = _of_keys(kept.filter(pa.array(unchanged)), held, wanted)
        return pa.concat_tables([server, _of_keys(changes.rows, held, wanted)])

    def _present(self, mirror: pa.Table | DataFrame, wanted: U64) -> pa.Table:
        """Returns the rows that the mirror has for the keys with the hashes `wanted`."""
        held = self._held
        if isinstance(mirror, pa.Table):
            return _of_keys(mirror, held, wanted)
        chosen = partial(_choose, held.decoder.schema, held.source.key, wanted.tolist())
        found = mirror.mapInArrow(chosen, mirror.schema).toArrow()
        batches = found.combine_chunks().to_batches()
        return pa.Table.from_batches(
            [cast(batch, held.decoder.schema) for batch in batches], held.decoder.schema
        )

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


def _key_hashes(rows: pa.Table, held: ServerRange) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return _hashes(rows.select(list(held.key)))


def _of_keys(
    rows: pa.Table, held: ServerRange, keys: np.ndarray[Any, np.dtype[np.uint64]]
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
