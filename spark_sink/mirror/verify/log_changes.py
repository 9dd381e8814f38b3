"""Finds the last change of each key in the mirror's log, to compare rows that were read between two of its
positions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dispatcher.binlog.decode import delivered
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import Position
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.rules.plan import RowRun, route
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.schema.statements import effects_of
from spark_sink.mirror.tables import keyed
from spark_sink.mirror.tables.steps import Decoding, RowLayout
from spark_sink.mirror.values.entries import LogEntry, append_of, first_lsn
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import TablePolicy
from spark_sink.mirror.verify.hashed_rows import key_hashes
from spark_sink.mirror.verify.row_checksums import U64
from spark_sink.source.raw_entries import EntryKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BYTES_MAX = 64 << 20  # for one range, at most this many bytes of payloads are decoded
APPENDS_MAX = 1_000  # how many appends are searched for the entries of a difference


class MovedError(Exception):
    """Since the range was read, the table was changed by something other than row changes, or by too many row
    changes."""


@dataclass(frozen=True, slots=True)
class LogChanges:
    """`keys`: the key of each changed row; `rows`: the rows that exist after the changes, with the columns of the
    server's table; both in Arrow."""

    keys: pa.Table
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class TableLog:
    """The log's entries of one table. `policy`: the policy of the mirrored table."""

    spark: SparkSession
    log: BinlogLog
    record: TableRecord
    decoding: Decoding
    policy: TablePolicy

    def entries(self, after: int, to: int) -> list[LogEntry]:
        """Returns the entries with rows after the lsn `after`, up to the lsn `to`. Raises `MovedError` if a statement
        in this part of the log concerns the table, and `LostFileError`."""
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
        layout = RowLayout.of(run, self.decoding.invalid_dates, self.policy)
        names = [field.name for field in layout.row]
        is_other = len({(entry.epoch, entry.layout) for entry in entries}) > 1
        if is_other or set(names) != set(schema.names) or set(layout.key) != set(key):
            raise MovedError
        form = keyed.event_form(layout.changes, layout.key)
        events = keyed.last_events(self._decoded(entries), form)
        written = events.filter(pc.invert(events.column("deleted")))
        keys, rows = events.column("key"), written.column("row")
        return LogChanges(_columns(keys, key_schema), _columns(rows, schema))

    def touching(
        self, wanted: U64, schema: pa.Schema, key: Sequence[str], to: int
    ) -> list[dict[str, Any]]:
        """Returns the entries, up to the lsn `to`, that have changed a key with one of the hashes `wanted`. Searches
        only the table's newest entries: at most `BYTES_MAX` bytes, in at most `APPENDS_MAX` appends. `schema`, `key`:
        columns and key of the server's table. Leaves out entries that have another key, or that cannot be read."""
        key_schema = pa.schema([schema.field(name) for name in key])
        entries, ends = self._newest(to)
        found = []
        for entry in entries:
            with suppress(BinlogError, pa.ArrowInvalid):
                keys = self._changed_keys(entry, key_schema)
                hashes = key_hashes([c.combine_chunks() for c in keys.columns], keys.num_rows)
                if np.isin(hashes, wanted).any():
                    found.append(_place(entry, ends.get(entry.append)))
        return found

    def _newest(self, to: int) -> tuple[Sequence[LogEntry], Mapping[int, Position]]:
        """Returns the table's newest entries with rows, and, by the number of the append, the positions at which
        appends end."""
        name, consumer, held = self.record.name, self.record.consumer, deque[LogEntry]()
        ends: dict[int, Position] = {}
        cursor = first_lsn(max(0, append_of(to) - APPENDS_MAX)) - 1
        bytes_held = 0
        while entries := self.log.entries(consumer, cursor, before=to + 1, tables=[name]):
            cursor = entries[-1].lsn
            for entry in entries:
                if entry.kind is EntryKind.ROWS:
                    held.append(entry)
                    bytes_held += entry.payload_bytes
                elif entry.position is not None:
                    ends[entry.append] = entry.position
                while bytes_held > BYTES_MAX:
                    bytes_held -= held.popleft().payload_bytes
        return held, ends

    def _changed_keys(self, entry: LogEntry, key_schema: pa.Schema) -> pa.Table:
        layout = RowLayout.of(RowRun((entry,)), self.decoding.invalid_dates, self.policy)
        if set(layout.key) != set(key_schema.names):
            return key_schema.empty_table()
        form = keyed.event_form(layout.changes, layout.key)
        events = keyed.last_events(self._decoded([entry]), form)
        return _columns(events.column("key"), key_schema)

    def _decoded(self, entries: Sequence[LogEntry]) -> Iterator[pa.RecordBatch]:
        for payload in self._payloads(entries):
            yield from delivered.decode_table(
                payload,
                invalid_dates=self.decoding.invalid_dates,
                all_versions=self.decoding.all_versions,
                ruled=self.decoding.rules.table_map,
            )

    def _payloads(self, entries: Sequence[LogEntry]) -> list[bytes]:
        large = [entry.lsn for entry in entries if entry.payload is None]
        consumer = self.record.consumer
        read = self.log.local_payloads(consumer, large) if large else {}
        if read is None:
            rows = self.log.payloads(self.spark, consumer, large).collect()
            read = {row.lsn: bytes(row.payload) for row in rows}
        return [e.payload if e.payload is not None else read[e.lsn] for e in entries]


def _place(entry: LogEntry, end: Position | None) -> dict[str, Any]:
    """Returns the place of an entry. `end`: the position in the server's log at which the entry's append ends, None if
    it is not known."""
    return {
        "lsn": entry.lsn,
        "before": None if end is None else f"{end.file}:{end.offset}",
        "first_seq": entry.first_seq,
        "last_seq": entry.last_seq,
        "committed_at": None if entry.committed_at is None else entry.committed_at.isoformat(),
        "rows": entry.rows,
    }


def _items(entry: LogEntry, name: TableName) -> Sequence[tuple[TableName, object]]:
    return route(entry, effects_of, lambda: [name], lambda _: False)


def _columns(structs: pa.ChunkedArray, schema: pa.Schema) -> pa.Table:
    columns = [pc.struct_field(structs, field.name).cast(field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)
