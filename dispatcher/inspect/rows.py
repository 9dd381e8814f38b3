"""Rows of many events at once: a block's rows events become one delivered binlog, which is decoded in columns.

One event's rows are a slice of the texts made from a batch, so no Python runs per row. What the decoder refuses is
tried again event by event: the rows that can be shown are, and each of the other events says why its rows are not.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from dispatcher.binlog.decode import arrow_buffers
from dispatcher.binlog.decode.delivered import TableChanges, changes, row_counts
from dispatcher.binlog.decode.row_walk import ROW_BITS
from dispatcher.binlog.event.header import HEADER, MAGIC, FormatDescription
from dispatcher.binlog.event.mariadb_compressed import is_compressed, plain_event
from dispatcher.binlog.event.record import Record, encode_record
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.inspect.entry import InspectEntry
from dispatcher.inspect.tables import Table
from dispatcher.model.errors import BinlogError, ErrorKind

# Texts of a batch's rows, one a row; their bytes are put one after the other.
RenderRows = Callable[[TableChanges, Table], pa.StringArray]

_SIZES = bytes(41)


def _event(kind: int, body: bytes) -> bytes:
    return HEADER.pack(0, kind, 0, 19 + len(body), 0, 0) + body


_FORMAT = struct.pack("<H50sIB", 4, b"8.0.0", 0, 19) + _SIZES + bytes(5)
_HEAD = (
    MAGIC
    + _event(EventType.FORMAT_DESCRIPTION, _FORMAT)
    + encode_record(Record(0, 0, "", 0, 0, 0), checksum=False)
)
_TABLE_MAP = int(EventType.TABLE_MAP)
_PERMANENT = (ErrorKind.UNSUPPORTED_TYPE, ErrorKind.METADATA_MISSING)


class RowReader:
    """Collects rows events (`add`) and decodes them (`flush`); without `render` it counts them alone."""

    def __init__(self, render: RenderRows | None, invalid_dates: InvalidDates) -> None:
        self._render = render
        self._invalid_dates = invalid_dates
        self._waiting: list[tuple[InspectEntry, Table, bytes]] = []
        self.bytes = 0

    def add(
        self, entry: InspectEntry, table: Table, raw: bytes, tail: int, log: FormatDescription
    ) -> None:
        """`raw`: the whole event. Its rows stand in `entry` after the next `flush`."""
        if is_compressed(entry.kind):
            try:
                raw, tail = plain_event(raw[: len(raw) - tail], checksum=False), 0
            except BinlogError as error:
                _fail([entry], f"{error.kind}: {error.what}")
                return
        kind, body = raw[4], raw[19 : len(raw) - tail]
        if log.short_table_ids:
            body = body[:4] + b"\0\0" + body[4:]
        self._waiting.append((entry, table, _event(kind, body)))
        self.bytes += len(body)

    def flush(self) -> None:
        waiting, self._waiting, self.bytes = self._waiting, [], 0
        good = []
        for item in waiting:
            if item[1].undecodable:
                _fail([item[0]], item[1].undecodable)
            else:
                good.append(item)
        if good:
            self._decode(good)

    def _decode(self, items: list[tuple[InspectEntry, Table, bytes]]) -> None:
        try:
            self._run(items)
        except BinlogError as error:
            if len(items) == 1:
                why = f"{error.kind}: {error.what}"
                if error.kind in _PERMANENT:
                    items[0][1].undecodable = why
                _fail([items[0][0]], why)
                return
            by_table: dict[Table, list[tuple[InspectEntry, Table, bytes]]] = {}
            for item in items:
                by_table.setdefault(item[1], []).append(item)
            # Apart by table first: one that cannot be decoded leaves the others in columns.
            parts = by_table.values() if len(by_table) > 1 else ([item] for item in items)
            for part in parts:
                for item in part:
                    item[0].rows, item[0].row_count = [], 0
                if table_error := part[0][1].undecodable:
                    _fail([item[0] for item in part], table_error)
                else:
                    self._decode(list(part))

    def _run(self, items: list[tuple[InspectEntry, Table, bytes]]) -> None:
        parts, owners = [_HEAD], []
        mapped: dict[int, Table] = {}
        for entry, table, event in items:
            if mapped.get(table.id) is not table:
                mapped[table.id] = table
                parts.append(_event(_TABLE_MAP, table.body))
                owners.append((entry, table))
            parts.append(event)
            owners.append((entry, table))
        data = b"".join(parts)
        if self._render is None:
            for number, count in row_counts(data).items():
                owners[number][0].row_count = count
            return
        for part in changes(data, invalid_dates=self._invalid_dates):
            assert isinstance(part, TableChanges)
            self._hand_out(self._render, part, owners)

    def _hand_out(
        self, render: RenderRows, part: TableChanges, owners: list[tuple[InspectEntry, Table]]
    ) -> None:
        numbers = part.batch.column("ordinal").to_numpy() >> ROW_BITS
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        events = numbers[starts].tolist()
        try:
            texts = render(part, owners[events[0]][1])
        except pa.ArrowException as error:  # more than 2 GiB of text, for one
            raise BinlogError(ErrorKind.INVALID_VALUE, f"cannot be shown: {error}") from None
        bounds = [*starts.tolist(), len(numbers)]
        offsets, data = arrow_buffers.cuts_of(texts)
        cuts = offsets[bounds].tolist()
        view = data.data
        for i, number in enumerate(events):
            entry = owners[number][0]
            entry.rows.append(bytes(view[cuts[i] : cuts[i + 1]]))
            entry.row_count += bounds[i + 1] - bounds[i]


def _fail(entries: list[InspectEntry], why: str) -> None:
    for entry in entries:
        entry.error, entry.rows, entry.row_count = why, [], -1
