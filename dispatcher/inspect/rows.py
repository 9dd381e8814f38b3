"""Decodes the rows events of a block together, table by table, so that no Python code runs per row.

If the decoder fails for the events of a table, each event is decoded alone. The output then shows the rows of the
events that can be decoded. For the other events, it shows the error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.event.header import HEADER_SIZE, TABLE_HEAD_SIZE, TYPE_AT, FormatDescription
from dispatcher.binlog.event.mariadb_compressed import is_compressed, plain_event
from dispatcher.binlog.event.types import type_name
from dispatcher.binlog.kernel.bytes import U8
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.inspect.entry import InspectEntry, Table, error_text
from dispatcher.inspect.row_text import RowsEvents
from dispatcher.model.errors import BinlogError, ErrorKind

# A function that returns for each rows event the number of its rows and their text. Raises `BinlogError`.
RenderRows = Callable[[RowsEvents], list[tuple[int, bytes]]]

_PERMANENT = (ErrorKind.UNSUPPORTED_TYPE, ErrorKind.METADATA_MISSING)


class _RowsEvent(NamedTuple):
    """`event`: the header and the body without a checksum. Only the type in the header is used."""

    entry: InspectEntry
    table: Table
    event: bytes


class RowsRenderer:
    """Collects rows events (`add`) and renders them (`flush`)."""

    def __init__(self, render: RenderRows) -> None:
        self._render = render
        self._pending: list[_RowsEvent] = []
        self.bytes = 0  # the size of the events that are not decoded yet

    def add(
        self, entry: InspectEntry, table: Table, raw: bytes, tail: int, log: FormatDescription
    ) -> None:
        """Collect a rows event. The next `flush` sets the rows of `entry`."""
        if is_compressed(entry.kind):
            try:
                raw, tail = plain_event(raw[: len(raw) - tail], checksum=False), 0
            except BinlogError as error:
                _fail(entry, error_text(error))
                return
        body = log.with_long_table_id(raw[HEADER_SIZE : len(raw) - tail])
        if len(body) < TABLE_HEAD_SIZE:
            what = f"{type_name(entry.kind)} is cut short"
            _fail(entry, error_text(BinlogError(ErrorKind.MALFORMED_EVENT, what)))
            return
        self._pending.append(_RowsEvent(entry, table, raw[:HEADER_SIZE] + body))
        self.bytes += len(body)

    def flush(self) -> None:
        pending, self._pending, self.bytes = self._pending, [], 0
        by_table: dict[Table, list[_RowsEvent]] = {}
        for event in pending:
            by_table.setdefault(event.table, []).append(event)
        for table, events in by_table.items():
            self._decode(table, events)

    def _decode(self, table: Table, events: list[_RowsEvent]) -> None:
        if table.undecodable:
            for event in events:
                _fail(event.entry, table.undecodable)
            return
        try:
            rendered = self._render(_joined(table, events))
        except BinlogError as error:
            if len(events) > 1:
                for event in events:
                    self._decode(table, [event])
                return
            if error.kind in _PERMANENT:
                table.undecodable = error_text(error)
            _fail(events[0].entry, error_text(error))
            return
        for event, (count, text) in zip(events, rendered, strict=True):
            event.entry.row_count = count
            event.entry.rows = [text]


def counted(events: RowsEvents) -> list[tuple[int, bytes]]:
    """Returns for each event the number of its rows and an empty text. Raises `BinlogError`."""
    from dispatcher.binlog.decode.changes.row_batches import row_counts_of  # noqa: PLC0415 - Arrow
    from dispatcher.inspect.values import index_of  # noqa: PLC0415

    index = index_of(events.buf, events.events)
    counts = row_counts_of(index, events.events, TableMap.parse(events.table.body))
    return [(count, b"") for count in counts.tolist()]


def _joined(table: Table, events: list[_RowsEvent]) -> RowsEvents:
    lines = np.zeros((len(events), row_walk.EVENT_FIELDS), np.int64)
    lines[:, row_walk.END] = np.cumsum([len(event.event) for event in events])
    lines[1:, row_walk.OFFSET] = lines[:-1, row_walk.END]
    lines[:, row_walk.TYPE] = [event.event[TYPE_AT] for event in events]
    data: U8 = np.frombuffer(b"".join(event.event for event in events), dtype=np.uint8)
    return RowsEvents(table, data, lines)


def _fail(entry: InspectEntry, why: str) -> None:
    entry.error, entry.rows, entry.row_count = why, [], -1
