"""Reads a range of a table as rows of a stream. Each row has its state at the range's position. Runs on the executors.

The address of a server may lead to several replicas. So the task first waits until the server to which it is connected
has executed the range's position. The server returns the rows in the state at that position or in a later state. So
after the task has read the rows, it asks the server which position the server has executed by then, and asks the daemon
for the changes between the two positions. The task omits the rows that these changes concern. Later batches deliver
these changes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from dispatcher.binlog.decode.arrow.arrow_types import DATES
from dispatcher.binlog.decode.changes.json_render import json_objects
from dispatcher.binlog.decode.changes.metadata_names import Metadata
from dispatcher.binlog.decode.selected import LayoutPlan
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.mysql.server_facts import lower_case_table_names
from spark_sink.source.data_loss import data_loss, position_text
from spark_sink.source.http.client import ConsumerClient, Session, SliceCut
from spark_sink.source.http.connections import PROCESS_POOL
from spark_sink.source.options import SourceOptions
from spark_sink.source.selection.selection import JsonSelection, TypedSelection
from spark_sink.source.snapshot.key_order import key_parts
from spark_sink.source.snapshot.partial_changes import (
    decoded_keys,
    incomplete_image,
    lacking_columns,
)
from spark_sink.source.snapshot.repeats import with_retries
from spark_sink.source.snapshot.row_range import RowRange
from spark_sink.source.snapshot.rules import snapshot_failure, unchanged
from spark_sink.source.snapshot.server import (
    LAGS,
    WAIT_EXECUTED_S,
    generated_columns,
    table_server,
)
from spark_sink.source.spark_abilities import expected_schema
from spark_sink.source.table_rows.chunks import chunk_query
from spark_sink.source.table_rows.positions import contains_executed
from spark_sink.source.table_rows.session import RowReader, was_altered
from spark_sink.source.table_rows.source_table import SourceTable, read_source_table
from spark_sink.source.table_rows.table_server import (
    TableServer,
    executed_position,
    wait_until_executed,
)
from spark_sink.source.table_rows.text_rows import TextDecoder
from spark_sink.source.worker_objects import PROCESS_OBJECTS

_ATTEMPTS = 4  # how often a range is read if the table is altered meanwhile
_WAIT_MS = 1000
# Larger than the ordinal of any change. So a row follows, in the stream's order, all changes up to its position.
ORDINAL = (1 << 63) - 1


def read_range(
    options: SourceOptions, schema: StructType, part: RowRange
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a range as batches of the stream's schema. Raises `BinlogError`."""
    expected = expected_schema(schema)
    reading = _Reading(options, expected, part)
    batches, executed = reading.rows()
    changed = _changed_keys(options, part, executed)
    for batch in batches:
        yield from reading.stream_rows(batch, changed)
    PROCESS_OBJECTS.freeze()


class _Reading:
    """Reads one range."""

    def __init__(self, options: SourceOptions, expected: pa.Schema, part: RowRange) -> None:
        self._options, self._expected, self._part = options, expected, part
        self._selection: JsonSelection | TypedSelection
        self._source: SourceTable
        self._layout: TableMap
        self._plan: LayoutPlan

    def rows(self) -> tuple[list[pa.RecordBatch], Position]:
        """Returns the rows, with the columns of the stream and the key, and a position. The position covers everything
        that the server had executed when the last row was read. Reads the rows again after a lost connection."""
        server = self._server()
        return with_retries(lambda: self._rows(server), self._options.address.retry_timeout_s)

    def _server(self) -> TableServer:
        assert self._options.snapshot is not None
        return table_server(self._options.snapshot)

    def _rows(self, server: TableServer) -> tuple[list[pa.RecordBatch], Position]:
        position = self._part.position
        for attempt in range(_ATTEMPTS):
            with server.session() as connection:
                # The driver has waited, too, but perhaps for another replica.
                wait_until_executed(connection, position, timeout_s=WAIT_EXECUTED_S, remedy=LAGS)
                lower_case = lower_case_table_names(connection)
                self._look_at(read_source_table(connection, *self._part.table), lower_case)
                decoder = TextDecoder(
                    self._source.columns, self._source.label, self._options.invalid_dates
                )
                reader = RowReader(connection, server.label)
                select = decoder.select_list
                try:
                    limit = f"SELECT {select} FROM {self._source.from_clause} LIMIT 0"
                    columns = reader.result_columns(limit, decoder)
                    query = chunk_query(self._source, select, self._part.chunk)
                    return list(reader.batches(query, decoder, columns)), executed_position(
                        connection
                    )
                except BinlogError as error:
                    if attempt == _ATTEMPTS - 1 or not was_altered(error):
                        raise
        raise AssertionError("unreachable")

    def _look_at(self, source: SourceTable, lower_case_table_names: int) -> None:
        """Choose the columns to read from the table. `lower_case_table_names`: the server's setting."""
        if key_parts(source.key_columns) != self._part.key:
            raise snapshot_failure(self._part.table, "its key was changed while its rows were read")
        options = self._options
        layout = TableMap(
            0, *self._part.table, source.columns, source.key, "snapshot",
            lower_case_table_names=lower_case_table_names,
        )  # fmt: skip
        typed = options.table is not None
        kind = TypedSelection if typed else JsonSelection
        self._selection = kind(options, self._expected)
        plan = self._selection.layout_plan(layout)
        if plan is None:
            raise snapshot_failure(self._part.table, "the options no longer select it")
        needed = sorted({*plan.columns, *plan.key, *source.key})
        self._layout, self._plan = layout, plan
        self._source = source.of_columns(needed)

    def stream_rows(
        self, batch: pa.RecordBatch, changed: Mapping[Any, frozenset[str]]
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows that have not changed since the position, with the schema of the stream. `changed`: for the
        key of each changed row, the names of the columns that its changes lack."""
        if changed:
            keys = self._keys(batch)
            self._require_whole_images(changed, keys)
            kept = unchanged(keys, frozenset(changed))
            batch = batch.filter(pa.array(kept, pa.bool_()))
        if batch.num_rows:
            yield self._stream_batch(batch)

    def _require_whole_images(
        self, changed: Mapping[Any, frozenset[str]], keys: list[tuple[Any, ...]]
    ) -> None:
        """Raise `BinlogError` if the stream would never get some columns of a row: the stream omits the row because it
        has changed, and the change lacks these columns. Generated columns do not count, because MariaDB leaves them out
        of complete images, too."""
        lacking = set().union(*(changed.get(key, ()) for key in keys))
        selected = [self._layout.columns[i].name for i in self._plan.columns]
        if lacking.isdisjoint(selected):
            return
        with self._server().session() as connection:
            lacking -= generated_columns(connection, self._part.table)
        if lost := [name for name in selected if name in lacking]:
            raise incomplete_image(self._part.table, lost)

    def _keys(self, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
        columns = [batch.column(i) for i in self._source.key]
        for column, values in zip(self._source.key_columns, columns, strict=True):
            dates = column.type in DATES and self._options.invalid_dates is not InvalidDates.TEXT
            if dates and values.null_count:
                raise BinlogError(
                    ErrorKind.INVALID_VALUE,
                    f"table {self._source.label}: its key column {column.name!r} has an invalid date, such as"
                    " '0000-00-00', so rows cannot be told apart",
                    remedy="correct the date on the server, or begin the query again with invalidDates=text",
                )
        return list(zip(*(values.to_pylist() for values in columns), strict=True))

    def _stream_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        n, part, position = batch.num_rows, self._part, self._part.position
        values: dict[str, pa.Array] = {
            "epoch": pa.repeat(pa.scalar(position.epoch, pa.int64()), n),
            "seq": pa.repeat(pa.scalar(position.seq, pa.int64()), n),
            "ordinal": pa.repeat(pa.scalar(ORDINAL, pa.int64()), n),
            "file": pa.repeat(pa.scalar(position.file, pa.string()), n),
            "pos": pa.repeat(pa.scalar(position.offset, pa.int64()), n),
            "database": pa.repeat(pa.scalar(part.table[0], pa.string()), n),
            "table": pa.repeat(pa.scalar(part.table[1], pa.string()), n),
            "op": pa.repeat(pa.scalar("read", pa.string()), n),
        }
        image = self._image(batch, self._plan.columns)
        selection, layout = self._selection, self._layout.layout
        if isinstance(selection, TypedSelection):
            values["after"] = selection.projections[layout].image(image)
        elif "after" in self._expected.names:
            values["after"] = json_objects(image, {})
        if Metadata.KEY in self._options.metadata:
            key = self._image(batch, self._plan.key)
            if isinstance(selection, TypedSelection):
                values["key"] = selection.keys[layout].image(key)
            else:
                values["key"] = json_objects(key, {})
        return pa.RecordBatch.from_arrays(
            [values.get(f.name, pa.nulls(n, f.type)) for f in self._expected],
            schema=self._expected,
        )

    def _image(self, batch: pa.RecordBatch, columns: tuple[int, ...]) -> pa.StructArray:
        """Returns the columns with the indices `columns` as an array of structs."""
        names = [self._layout.columns[i].name for i in columns]
        arrays = [batch.column(name) for name in names]
        fields = [batch.schema.field(name) for name in names]
        if not fields:
            return pa.array([{}] * batch.num_rows, pa.struct([]))
        return pa.StructArray.from_arrays(arrays, fields=fields)


# -- the changes since the position ------------------------------------------------------------------------------


def _changed_keys(
    options: SourceOptions, part: RowRange, executed: Position
) -> dict[Any, frozenset[str]]:
    """Returns the keys in all images of the changes after the range's position, up to a position that covers
    `executed`. For each key: the names of the columns whose values are not in the changes."""
    client = ConsumerClient(
        options.address, options.consumer, first=part.address, pool=PROCESS_POOL
    )
    try:
        data = _changes_since(client, options, part.position, executed)
    finally:
        client.close()
    keys: dict[Any, frozenset[str]] = {}
    nothing: frozenset[str] = frozenset()
    dates = options.invalid_dates
    for batch, before, after in decoded_keys(data, part.table, part.key, dates):
        for key in before:
            keys.setdefault(key, nothing)
        for key, lost in zip(after, lacking_columns(batch), strict=True):
            keys[key] = keys.get(key, nothing) | lost
    keys.pop(None, None)
    return keys


def _changes_since(
    client: ConsumerClient, options: SourceOptions, position: Position, executed: Position
) -> memoryview:
    deadline = time.monotonic() + options.address.retry_timeout_s
    # A read-only session acknowledges nothing. Its head is the position that is the server's newest when the session is
    # opened.
    while not contains_executed(
        (session := client.open_session(None, read_only=True)).head, executed
    ):
        _require_time(deadline, options, session.head, executed)
        time.sleep(_WAIT_MS / 1000)
    at = position
    while at.order < session.head.order:
        polled = client.poll(session.number, at, max_bytes=None, wait_ms=_WAIT_MS, markers=True)
        if polled.gap:
            raise data_loss(options.consumer, at, polled.end)
        if polled.end == at:
            _require_time(deadline, options, at, session.head)
        at = polled.end
    if at == position:
        return memoryview(b"")
    return _delivered(client, options, session, position, at)


def _delivered(
    client: ConsumerClient, options: SourceOptions, session: Session, start: Position, end: Position
) -> memoryview:
    delivered = client.binlog(session.number, SliceCut(start), SliceCut(end))
    if delivered.gap:
        raise data_loss(options.consumer, start, end)
    return delivered.data


def _require_time(deadline: float, options: SourceOptions, at: Position, end: Position) -> None:
    if time.monotonic() > deadline:
        raise BinlogError(
            ErrorKind.RANGE_UNAVAILABLE,
            f"the daemon has read up to {position_text(at)} and gets no further, but the rows that were read show"
            f" changes up to {end.file}:{end.offset}",
            where=f"consumer {options.consumer}",
            remedy="start the query again: the rows are then read at a later position; if this happens again, lower"
            " maxBytesPerTrigger, or raise the consumer's max_bytes_in_binlog_queue",
        )
