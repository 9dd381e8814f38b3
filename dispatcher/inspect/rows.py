"""Rows of many events at once: the rows events of a block become one delivered binlog, which is decoded in columns.

The rows of one event are a slice of the texts rendered from a batch, so no Python runs per row. If the decoder refuses
a batch, its events are decoded again table by table, then event by event: rows that can be decoded are shown, and each
other event says why its rows are not.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dispatcher.binlog.decode import arrow_buffers
from dispatcher.binlog.decode.delivered import TableChanges, changes, row_counts
from dispatcher.binlog.decode.row_walk import ROW_BITS
from dispatcher.binlog.event.header import HEADER, HEADER_SIZE, MAGIC, TYPE_AT, FormatDescription
from dispatcher.binlog.event.mariadb_compressed import is_compressed, plain_event
from dispatcher.binlog.event.record import Record, encode_record
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.inspect.entry import InspectEntry, Table, error_text
from dispatcher.model.errors import BinlogError, ErrorKind

# Renders each row of a batch as one text; an event's rows are shown one after the other.
RenderRows = Callable[[TableChanges, Table], pa.StringArray]


def _event(kind: int, body: bytes) -> bytes:
    return HEADER.pack(0, kind, 0, HEADER_SIZE + len(body), 0, 0) + body


_FORMAT = struct.pack("<H50sIB", 4, b"8.0.0", 0, HEADER_SIZE) + bytes(41 + 5)
_HEAD = (
    MAGIC
    + _event(EventType.FORMAT_DESCRIPTION, _FORMAT)
    + encode_record(Record(0, 0, "", 0, 0, 0), checksum=False)
)
_TABLE_MAP = int(EventType.TABLE_MAP)
_PERMANENT = (ErrorKind.UNSUPPORTED_TYPE, ErrorKind.METADATA_MISSING)


class _RowsEvent(NamedTuple):
    entry: InspectEntry
    table: Table
    event: bytes


class RowReader:
    """Collects rows events (`add`) and decodes them (`flush`). Without `render` it only counts the rows."""

    def __init__(self, render: RenderRows | None, invalid_dates: InvalidDates) -> None:
        self._render = render
        self._invalid_dates = invalid_dates
        self._pending: list[_RowsEvent] = []
        self.bytes = 0  # of the events not decoded yet

    def add(
        self, entry: InspectEntry, table: Table, raw: bytes, tail: int, log: FormatDescription
    ) -> None:
        """Collect a whole event. The next `flush` sets the rows of `entry`."""
        if is_compressed(entry.kind):
            try:
                raw, tail = plain_event(raw[: len(raw) - tail], checksum=False), 0
            except BinlogError as error:
                _fail(entry, error_text(error))
                return
        body = log.with_long_table_id(raw[HEADER_SIZE : len(raw) - tail])
        self._pending.append(_RowsEvent(entry, table, _event(raw[TYPE_AT], body)))
        self.bytes += len(body)

    def flush(self) -> None:
        pending, self._pending, self.bytes = self._pending, [], 0
        self._decode(pending)

    def _decode(self, events: list[_RowsEvent]) -> None:
        decodable = []
        for event in events:
            if event.table.undecodable:
                _fail(event.entry, event.table.undecodable)
            else:
                decodable.append(event)
        if not decodable:
            return
        try:
            self._decode_batch(decodable)
        except BinlogError as error:
            if len(decodable) > 1:
                self._decode_in_parts(decodable)
                return
            entry, table, _ = decodable[0]
            if error.kind in _PERMANENT:
                table.undecodable = error_text(error)
            _fail(entry, error_text(error))

    def _decode_in_parts(self, events: list[_RowsEvent]) -> None:
        """Decode each table by itself, or each event if there is one table only."""
        by_table: dict[Table, list[_RowsEvent]] = {}
        for event in events:
            event.entry.rows, event.entry.row_count = [], 0
            by_table.setdefault(event.table, []).append(event)
        parts = by_table.values() if len(by_table) > 1 else ([event] for event in events)
        for part in parts:
            self._decode(part)

    def _decode_batch(self, events: list[_RowsEvent]) -> None:
        parts = [_HEAD]
        sources: list[
            tuple[InspectEntry, Table]
        ] = []  # by the number of the event in the log made here
        mapped: dict[int, Table] = {}
        for entry, table, event in events:
            if mapped.get(table.id) is not table:
                mapped[table.id] = table
                parts.append(_event(_TABLE_MAP, table.body))
                sources.append((entry, table))
            parts.append(event)
            sources.append((entry, table))
        data = b"".join(parts)
        if self._render is None:
            for number, count in row_counts(data).items():
                sources[number][0].row_count = count
            return
        for part in changes(data, invalid_dates=self._invalid_dates):
            assert isinstance(part, TableChanges)
            _set_rows(self._render, part, sources)


def _set_rows(
    render: RenderRows, part: TableChanges, sources: list[tuple[InspectEntry, Table]]
) -> None:
    numbers = part.batch.column("ordinal").to_numpy() >> ROW_BITS
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    events = numbers[starts].tolist()
    try:
        texts = render(part, sources[events[0]][1])
    except pa.ArrowException as error:  # such as more than 2 GiB of text
        raise BinlogError(ErrorKind.INVALID_VALUE, f"cannot be shown: {error}") from None
    bounds = [*starts.tolist(), len(numbers)]
    offsets, data = arrow_buffers.cuts_of(texts)
    ends = offsets[bounds].tolist()
    view = data.data
    for i, number in enumerate(events):
        entry = sources[number][0]
        entry.rows.append(bytes(view[ends[i] : ends[i + 1]]))
        entry.row_count += bounds[i + 1] - bounds[i]


def _fail(entry: InspectEntry, why: str) -> None:
    entry.error, entry.rows, entry.row_count = why, [], -1
