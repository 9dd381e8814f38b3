"""The last change of each key in entries of the mirror's log, for a comparison of rows that were read between two
positions of the log."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from dispatcher.binlog.decode import delivered
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.rules.plan import RowRun, route
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.schema.statements import effects_of
from spark_sink.mirror.tables import keyed
from spark_sink.mirror.tables.steps import Decoding, RowLayout
from spark_sink.mirror.values.entries import LogEntry
from spark_sink.mirror.values.names import TableName
from spark_sink.source.raw_entries import EntryKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BYTES_MAX = 64 << 20  # payloads of so many bytes are decoded for one range


class MovedError(Exception):
    """The table was changed by more than rows, or by too many rows, since the range was read."""


@dataclass(frozen=True, slots=True)
class LogChanges:
    """`keys`: the key of each changed row; `rows`: the rows that exist after the changes, with the columns of the
    server's table; both in Arrow."""

    keys: pa.Table
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class TableLog:
    """The log's entries of one table. `omitted`: names of columns that the mirrored table leaves out."""

    spark: SparkSession
    log: BinlogLog
    record: TableRecord
    decoding: Decoding
    omitted: Collection[str]

    def entries(self, after: int, to: int) -> list[LogEntry]:
        """Returns the entries with rows behind the lsn `after`, up to the lsn `to`. Raises `MovedError` if a statement
        among the entries concerns the table, and `LostFileError`."""
        name, found, cursor = self.record.name, list[LogEntry](), after
        consumer = self.record.consumer
        while entries := self.log.entries(consumer, cursor, before=to + 1, tables=[name]):
            cursor = entries[-1].lsn
            for entry in entries:
                if entry.kind is EntryKind.ROWS:
                    found.append(entry)
                elif any(named == name for named, _ in _items(entry, name)):
                    raise MovedError
        if sum(entry.payload_bytes for entry in found) > BYTES_MAX:
            raise MovedError
        return found

    def last_changes(
        self, entries: Sequence[LogEntry], schema: pa.Schema, key: Sequence[str]
    ) -> LogChanges:
        """Returns the last change of each key. `schema`, `key`: columns and key of the server's table. Raises
        `MovedError` if the entries have other columns or another key, and the `BinlogError` of a step."""
        key_schema = pa.schema([schema.field(name) for name in key])
        if not entries:
            return LogChanges(key_schema.empty_table(), schema.empty_table())
        run = RowRun(tuple(entries))
        layout = RowLayout.of(run, self.decoding.invalid_dates, self.omitted)
        names = [field.name for field in layout.row]
        is_other = len({(entry.epoch, entry.layout) for entry in entries}) > 1
        if is_other or set(names) != set(schema.names) or set(layout.key) != set(key):
            raise MovedError
        form = keyed.event_form(layout.changes, layout.key)
        events = keyed.last_events(self._decoded(entries), form)
        written = events.filter(pc.invert(events.column("deleted")))
        keys, rows = events.column("key"), written.column("row")
        return LogChanges(_columns(keys, key_schema), _columns(rows, schema))

    def _decoded(self, entries: Sequence[LogEntry]) -> Iterator[pa.RecordBatch]:
        for payload in self._payloads(entries):
            yield from delivered.decode_table(
                payload,
                invalid_dates=self.decoding.invalid_dates,
                all_versions=self.decoding.all_versions,
            )

    def _payloads(self, entries: Sequence[LogEntry]) -> list[bytes]:
        large = [entry.lsn for entry in entries if entry.payload is None]
        consumer = self.record.consumer
        read = self.log.local_payloads(consumer, large) if large else {}
        if read is None:
            rows = self.log.payloads(self.spark, consumer, large).collect()
            read = {row.lsn: bytes(row.payload) for row in rows}
        return [e.payload if e.payload is not None else read[e.lsn] for e in entries]


def _items(entry: LogEntry, name: TableName) -> Sequence[tuple[TableName, object]]:
    return route(entry, effects_of, lambda: [name], lambda _: False)


def _columns(structs: pa.ChunkedArray, schema: pa.Schema) -> pa.Table:
    columns = [pc.struct_field(structs, field.name).cast(field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)
