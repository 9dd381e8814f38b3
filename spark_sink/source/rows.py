"""Converts delivered bytes to the Arrow batches that Spark gets: raw, JSON or typed. Runs on the executors.

Spark checks only the schema of a task's first batch. It would misread a later batch with another schema, so this module
checks every batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.changes.metadata_names import Metadata
from dispatcher.binlog.decode.changes.ops import Op
from dispatcher.binlog.decode.selected import (
    SelectedDdl,
    SelectedRows,
    Selection,
    selected_changes,
)
from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.source.options import SourceOptions
from spark_sink.source.raw_entries import (
    EntryKind,
    end_row,
    entry_number,
    statement_columns,
    statement_of,
)
from spark_sink.source.selection.selection import JsonSelection, TypedSelection
from spark_sink.source.selection.touched import TouchedObjects
from spark_sink.source.single_row import single_row
from spark_sink.source.slices import Slice
from spark_sink.source.snapshot.partial_changes import BegunTables, changes_of_read_rows
from spark_sink.source.spark_abilities import expected_schema

# How many bytes of row changes are decoded at a time. The decoded values need several times as much memory.
DECODED_BYTES = 1 << 20


def read_slice(
    options: SourceOptions, schema: StructType, part: Slice, data: bytes | memoryview
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of one slice, in the form that the options select."""
    expected = expected_schema(schema)
    if options.raw:
        return _raw(expected, part, data)
    if options.table is not None:
        return _typed(expected, part, data, options)
    return _json(expected, part, data, options)


def selection_of(options: SourceOptions, schema: StructType) -> Selection:
    """Returns the selection of a stream that is not raw."""
    expected = expected_schema(schema)
    if options.table is not None:
        return TypedSelection(options, expected)
    return JsonSelection(options, expected)


def _raw(expected: pa.Schema, part: Slice, data: bytes | memoryview) -> Iterator[pa.RecordBatch]:
    # One batch per entry, because Arrow's 32-bit offsets limit the bytes of a column in a batch.
    for row in raw_rows(part, data):
        if row["kind"] == EntryKind.STATEMENT:
            default_database = row["database"]
            touched = TouchedObjects.of(statement_of(row))
            row |= touched.columns() | {"default_database": default_database}  # noqa: PLW2901
        yield single_row(expected, row)


def raw_rows(part: Slice, data: bytes | memoryview) -> Iterator[dict[str, Any]]:
    """Yields the rows of a raw slice in the form of the mirror's log: dictionaries whose keys are the column names of
    `RAW_SCHEMA`, except the columns for the objects that a statement touches. The `database` of a statement is the
    default database of the statement's session. `committed_at` is in µs since 1970 or a datetime.
    """
    index = 0
    for item in delivered.split_by_table(data) if data else ():
        row = _statement_row(item) if isinstance(item, delivered.Ddl) else _rows_row(item)
        row["entry"] = entry_number(part.number, index)
        yield row
        index += 1
    if part.batch_end is not None:
        yield end_row(part.batch_end, entry_number(part.number, index), gap=part.gap)


def _statement_row(ddl: delivered.Ddl) -> dict[str, Any]:
    row: dict[str, Any] = {n: getattr(ddl, n) for n in ("epoch", "file", "pos", "committed_at")}
    row |= statement_columns(ddl.statement)
    return row | {"kind": EntryKind.STATEMENT, "first_seq": ddl.seq, "last_seq": ddl.seq, "rows": 0}


def _rows_row(part: delivered.TableSlice) -> dict[str, Any]:
    return {name: getattr(part, name) for name in part.__slots__} | {"kind": EntryKind.ROWS}


def _json(
    expected: pa.Schema, part: Slice, data: bytes | memoryview, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    # Not loaded for a raw source, which the mirror reads.
    from dispatcher.binlog.decode.changes.json_render import json_objects, json_text  # noqa: PLC0415

    images = _images(expected)
    for item in _selected(JsonSelection(options, expected), part, data, options):
        if isinstance(item, SelectedDdl):
            yield single_row(expected, _ddl_row(item))
            continue
        metadata = dict(item.metadata)
        if Metadata.KEY in metadata:
            metadata[Metadata.KEY] = json_objects(metadata[Metadata.KEY], {})
        columns = _by_name(json_text(item.batch, images), metadata)
        yield _checked(_columns(columns, item.batch.num_rows, expected), expected, item)


def _typed(
    expected: pa.Schema, part: Slice, data: bytes | memoryview, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    selection = TypedSelection(options, expected)
    for item in _selected(selection, part, data, options):
        assert isinstance(item, SelectedRows)
        layout, batch, metadata = item.table_map.layout, item.batch, dict(item.metadata)
        if Metadata.KEY in metadata:
            metadata[Metadata.KEY] = selection.keys[layout].image(metadata[Metadata.KEY])
        columns = _by_name(batch, metadata, options.flat_prefix)
        projection = selection.projections[layout]
        if options.flat:
            image = projection.image(batch.column("row"))
            columns |= {field.name: image.field(i) for i, field in enumerate(image.type)}
        else:
            columns |= {name: projection.image(columns[name]) for name in _images(expected)}
        yield _checked(_columns(columns, batch.num_rows, expected), expected, item)


def _selected(
    selection: Selection, part: Slice, data: bytes | memoryview, options: SourceOptions
) -> Iterator[SelectedRows | SelectedDdl]:
    state = part.snapshot
    changes = selected_changes(
        data,
        selection if state is None else BegunTables(selection, options, state),
        options.metadata,
        cut=part.cut,
        invalid_dates=options.invalid_dates,
        batch_bytes=DECODED_BYTES,
    )
    return changes if state is None else changes_of_read_rows(changes, data, state)


def _images(expected: pa.Schema) -> list[str]:
    return [name for name in ("before", "after") if name in expected.names]


def _by_name(
    batch: pa.RecordBatch, metadata: Mapping[Metadata, pa.Array], prefix: str = ""
) -> dict[str, pa.Array]:
    """Returns the columns of a batch and of its metadata. The keys are the columns' names in the stream."""
    columns = [*zip(batch.schema.names, batch.columns, strict=True), *metadata.items()]
    return {prefix + name: array for name, array in columns}


def _columns(columns: Mapping[str, pa.Array], n: int, expected: pa.Schema) -> pa.RecordBatch:
    """Returns a batch with the columns of `expected`. A column that is missing in `columns` is null."""
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(n, field.type)
        for field in expected
    ]
    fields = [pa.field(f.name, a.type, f.nullable) for f, a in zip(expected, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _ddl_row(item: SelectedDdl) -> dict[str, Any]:
    ddl = item.ddl
    names = ("epoch", "seq", "ordinal", "gtid", "file", "pos", "committed_at")
    row: dict[str, Any] = {name: getattr(ddl, name) for name in names}
    # What a program needs to parse the statement: the meaning of quotes depends on sql_mode.
    statement = ddl.statement
    after = {"query": statement.text, "sql_mode": statement.facts.sql_mode}
    after |= {"default_database": statement.database}
    row |= {"op": Op.DDL.value, "after": json.dumps(after, ensure_ascii=False), **item.metadata}
    return row | TouchedObjects.of(statement).columns()


def _checked(batch: pa.RecordBatch, expected: pa.Schema, rows: SelectedRows) -> pa.RecordBatch:
    if batch.schema.equals(expected):
        return batch
    raise BinlogError(
        ErrorKind.INTERNAL,
        f"rows of {rows.table_map.label} are {batch.schema}, but the stream has {expected}",
        where=f"seq {rows.batch.column('seq')[0].as_py()}",
    )
