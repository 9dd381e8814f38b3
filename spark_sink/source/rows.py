"""Delivered bytes as the Arrow batches that Spark gets: raw, JSON or typed. Runs on the executors.

Spark checks the schema of a task's first batch only, and would misread a later batch that differs. So every batch is
checked here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.table_map.column_definition import defined_columns
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.entries import EntryKind, entry_number
from spark_sink.source.options import SourceOptions
from spark_sink.source.single_row import single_row
from spark_sink.source.slices import Slice
from spark_sink.source.table_filter import TableFilter
from spark_sink.source.touched import TouchedObjects

# Bytes of row changes that are decoded at a time: values take several times as much, beside the delivered bytes.
DECODED_BYTES = 1 << 20

_TABLES = pa.list_(pa.struct([("database", pa.string()), ("table", pa.string())]))


def spark_schema(schema: pa.Schema) -> StructType:
    """Returns the Spark schema whose Arrow form is `schema`. Timestamps without a zone stay without one."""
    return StructType(
        [
            StructField(
                field.name, from_arrow_type(field.type, prefer_timestamp_ntz=True), field.nullable
            )
            for field in schema
        ]
    )


def stream_schema(options: SourceOptions, definition: Mapping[str, Any] | None) -> pa.Schema:
    """Returns the schema of decoded changes. `before` and `after` are JSON text if the options name no table."""
    if definition is not None:
        label = ".".join(options.table or ())
        columns = defined_columns(definition)
        return delivered.change_schema(columns, label, options.invalid_dates)
    schema = delivered.change_schema([])
    for name in ("before", "after"):
        schema = schema.set(schema.get_field_index(name), pa.field(name, pa.string()))
    return schema.append(pa.field("tables", _TABLES))


def read_slice(
    options: SourceOptions, schema: StructType, part: Slice, data: bytes | memoryview
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of one slice, in the form that the options select."""
    expected = to_arrow_schema(schema, timezone="UTC")
    if options.raw:
        return _raw(expected, part, data)
    if options.table is not None:
        return _typed(expected, options.table, data, options.invalid_dates)
    return _json(expected, data, options)


def _raw(expected: pa.Schema, part: Slice, data: bytes | memoryview) -> Iterator[pa.RecordBatch]:
    # One batch per entry: Arrow's 32-bit offsets bound the bytes of a column of a batch.
    for row in raw_rows(part, data):
        if row["kind"] == EntryKind.STATEMENT:
            default_database = row["database"]
            touched = TouchedObjects.of(row["query"], default_database, row["sql_mode"])
            row |= touched.columns() | {"default_database": default_database}  # noqa: PLW2901
        yield single_row(expected, row)


def raw_rows(part: Slice, data: bytes | memoryview) -> Iterator[dict[str, Any]]:
    """Yields the rows of a raw slice, as the mirror's log keeps them: values by the names of `RAW_SCHEMA`, without what
    a statement touches; its `database` is the session's default one. `committed_at` is in µs since 1970 or a datetime.
    """
    index = 0
    for item in delivered.split_by_table(data) if data else ():
        row = _statement_row(item) if isinstance(item, delivered.Ddl) else _rows_row(item)
        row["entry"] = entry_number(part.number, index)
        yield row
        index += 1
    if part.batch_end is not None:
        row = {"entry": entry_number(part.number, index), "kind": EntryKind.END, "rows": 0}
        row |= {"epoch": part.batch_end.epoch, "gap": part.gap}
        row |= dict.fromkeys(("first_seq", "last_seq"), part.batch_end.seq)
        row["position"] = part.batch_end.to_json()
        yield row


def _statement_row(ddl: delivered.Ddl) -> dict[str, Any]:
    names = ("epoch", "database", "query", "sql_mode", "file", "pos", "committed_at")
    row = {name: getattr(ddl, name) for name in names}
    return row | {"kind": EntryKind.STATEMENT, "first_seq": ddl.seq, "last_seq": ddl.seq, "rows": 0}


def _rows_row(part: delivered.TableSlice) -> dict[str, Any]:
    return {name: getattr(part, name) for name in part.__slots__} | {"kind": EntryKind.ROWS}


def _json(
    expected: pa.Schema, data: bytes | memoryview, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    # A raw source, which the mirror reads, does not load it.
    from dispatcher.binlog.decode.json_render import json_text  # noqa: PLC0415

    table_filter = None if options.tables is None else TableFilter(options.tables)
    for item in delivered.split_by_table(data, max_payload_bytes=DECODED_BYTES):
        if isinstance(item, delivered.Ddl):
            touched = TouchedObjects.of(item.query, item.database, item.sql_mode)
            if table_filter is None or table_filter.selects_statement(touched):
                yield single_row(expected, _ddl_row(item, touched))
        elif table_filter is None or table_filter.selects_table(item.database, item.table):
            for batch in delivered.decode_table(item.payload, invalid_dates=options.invalid_dates):
                rows = _with_nulls(json_text(batch), expected)
                yield _checked(rows, expected, item.database, item.table)


def _with_nulls(batch: pa.RecordBatch, expected: pa.Schema) -> pa.RecordBatch:
    """Append the columns that only statements have."""
    for field in list(expected)[batch.num_columns :]:
        batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
    return batch


def _ddl_row(ddl: delivered.Ddl, touched: TouchedObjects) -> dict[str, Any]:
    names = ("epoch", "seq", "ordinal", "gtid", "file", "pos", "committed_at")
    row: dict[str, Any] = {name: getattr(ddl, name) for name in names}
    # What it takes to parse the statement: its quotes depend on sql_mode.
    after = {"query": ddl.query, "sql_mode": ddl.sql_mode, "default_database": ddl.database}
    row |= {"op": "ddl", "after": json.dumps(after, ensure_ascii=False)}
    return row | touched.columns()


def _typed(
    expected: pa.Schema,
    table: tuple[str, str],
    data: bytes | memoryview,
    invalid_dates: InvalidDates,
) -> Iterator[pa.RecordBatch]:
    for item in delivered.split_by_table(data, max_payload_bytes=DECODED_BYTES):
        if isinstance(item, delivered.TableSlice) and (item.database, item.table) == table:
            for batch in delivered.decode_table(item.payload, invalid_dates=invalid_dates):
                yield _checked(batch, expected, *table)


def _checked(
    batch: pa.RecordBatch, expected: pa.Schema, database: str, table: str
) -> pa.RecordBatch:
    if batch.schema.equals(expected):
        return batch
    raise BinlogError(
        ErrorKind.UNSUPPORTED_CHANGE,
        f"rows of {database}.{table} are {_columns(batch.schema)}, but the stream was started with"
        f" {_columns(expected)}",
        where=f"seq {batch.column('seq')[0].as_py()}" if batch.num_rows else "",
        remedy="restart the query, so that it reads the table's current columns; to read rows from before the"
        " change, use a stream without the option table",
    )


def _columns(schema: pa.Schema) -> str:
    kind = schema.field("after").type
    if not pa.types.is_struct(kind):
        return str(kind)
    return "(" + ", ".join(f"{field.name} {field.type}" for field in kind) + ")"
