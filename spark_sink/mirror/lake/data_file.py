"""Reads and writes the data files of a mirrored Delta table without Spark, on the driver and in the workers of a copy.

For each column, the table's schema contains the column's name and id in the files, and the types that the column had
before (Delta protocol, "Column Mapping", "Type Widening"). The statistics of a file have the form of the protocol's
"Per-file Statistics".

The functions work on Arrow columns, and on Parquet files in memory or in a local folder.
"""

from __future__ import annotations

import json
import re
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dispatcher.model.errors import BinlogError, ErrorKind

_TYPES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_ID, _PHYSICAL_NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"
# The keys of a field's metadata that this module knows. Any other key, such as a default or an invariant, is a rule
# that only Delta's own writer implements. If a field is not nested, its metadata has no ids of nested fields.
_NESTED_IDS = "delta.columnMapping.nested.ids"
_FIELD_METADATA = {_ID, _PHYSICAL_NAME, _NESTED_IDS, "delta.typeChanges", "comment"}
# Keys in the footer of a file with dates of the Julian calendar (Spark's ParquetFileFormat).
_LEGACY = {b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"}
_SPARK_VERSION = "org.apache.spark.version"
_INDEXED_COLUMNS = 32  # Delta's default of delta.dataSkippingNumIndexedCols
_STATS_CHARS = 32  # Delta truncates longer texts
FILE_BYTES_MAX = 128 << 20  # bytes of rows in memory; the file has a tenth to a third of this size


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column of the table. `physical_name`: its name in the files; `field_id`: its id in the files, -1 if it has
    none."""

    name: str
    kind: pa.DataType
    physical_name: str
    field_id: int


def stored_columns(fields: Sequence[Mapping[str, Any]]) -> tuple[StoredColumn, ...] | None:
    """Returns the columns for a Delta schema's fields, in their order; None if a field is nested, or if its metadata
    has a rule for its values."""
    columns = []
    for field in fields:
        kind = _arrow_type(field["type"])
        metadata = field["metadata"]
        if kind is None or not set(metadata) <= _FIELD_METADATA:
            return None
        physical_name = metadata.get(_PHYSICAL_NAME, field["name"])
        columns.append(StoredColumn(field["name"], kind, physical_name, metadata.get(_ID, -1)))
    return tuple(columns)


def _arrow_type(name: object) -> pa.DataType | None:
    if not isinstance(name, str):
        return None
    if match := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(match[1]), int(match[2]))
    return _TYPES.get(name)


def fits_into(kind: pa.DataType, wider: pa.DataType) -> bool:
    """True if the type `wider` can represent each value of the type `kind`."""
    is_integer, is_decimal = pa.types.is_integer, pa.types.is_decimal
    if is_integer(kind) and is_integer(wider):
        return bool(kind.bit_width <= wider.bit_width)
    if is_decimal(kind) and is_decimal(wider):
        digits = kind.precision - kind.scale
        return bool(digits <= wider.precision - wider.scale and kind.scale <= wider.scale)
    widened = {(pa.float32(), pa.float64()), (pa.date32(), pa.timestamp("us"))}
    return kind == wider or (kind, wider) in widened


def read_rows(path: str, columns: Sequence[StoredColumn], bytes_max: int) -> pa.Table | None:
    """Returns all rows of a file, with the names and types that the columns have now; None if the file contains dates
    of the Julian calendar, or has more than `bytes_max` bytes when decompressed. A column that the file does not
    contain is NULL."""
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        if _LEGACY & set(file.metadata.metadata or ()):
            return None
        groups = range(file.metadata.num_row_groups)
        if sum(file.metadata.row_group(i).total_byte_size for i in groups) > bytes_max:
            return None
        stored = file.read()
    arrays = []
    for column in columns:
        at = stored.schema.get_field_index(column.physical_name)
        if at < 0:
            arrays.append(pa.nulls(stored.num_rows, column.kind))
        else:
            arrays.append(stored.column(at).cast(column.kind))
    return pa.table(arrays, names=[column.name for column in columns])


def as_stored(rows: pa.Table, columns: Sequence[StoredColumn]) -> pa.Table | None:
    """Returns the rows with the table's `columns`; a column that `rows` lacks is NULL. Returns None if the table lacks
    a column of `rows`, or if a column's type in `rows` does not fit into its type in the table."""
    given = {
        name.lower(): values for name, values in zip(rows.column_names, rows.columns, strict=True)
    }
    arrays = []
    for column in columns:
        values = given.pop(column.name.lower(), None)
        if values is None:
            values = pa.chunked_array([pa.nulls(rows.num_rows, column.kind)])
        elif not fits_into(values.type, column.kind):
            return None
        arrays.append(values.cast(column.kind))
    return None if given else pa.table(arrays, names=[column.name for column in columns])


def write_files(
    folder: str,
    batches: Iterable[pa.RecordBatch],
    columns: Sequence[StoredColumn],
    spark_version: str,
    bytes_max: int = FILE_BYTES_MAX,
) -> Iterator[dict[str, Any]]:
    """Write rows into new files of a local folder. The rows of one file take at most about `bytes_max` bytes in memory.
    Yields the `add` action of each file. Raises `ValueError` for rows for which `as_stored` returns None."""
    for rows in _tables(batches, bytes_max):
        stored = as_stored(rows, columns)
        if stored is None:
            raise ValueError(f"rows with the columns {rows.schema} do not fit into {columns}")
        content = parquet_file(stored, columns, spark_version)
        name = new_name()
        with Path(folder, name).open("xb") as file:
            file.write(content)
        yield add_action(name, len(content), statistics(stored, columns))


def _tables(batches: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if held and size + batch.nbytes > bytes_max:
            yield pa.Table.from_batches(held)
            held, size = [], 0
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
    if held:
        yield pa.Table.from_batches(held)


def require_folder(folder: str) -> None:
    """Raises `BinlogError` SETTINGS if this host does not have `folder`. All hosts must share the target's folders."""
    if not Path(folder).is_dir():
        raise BinlogError(
            ErrorKind.SETTINGS,
            f"an executor does not have the folder {folder}",
            where=socket.gethostname(),
            remedy="mount the target's folder at this path on the hosts of all executors, or give the mirror a target"
            " on a file system that all of them reach",
        )


def new_name() -> str:
    """Returns a name that no other data file has."""
    return f"part-00000-{uuid.uuid4()}.parquet"


def add_action(name: str, size: int, stats: str) -> dict[str, Any]:
    """Returns Delta's `add` action for a new file of a table without partitions. `size` in bytes."""
    return {
        "path": name,
        "partitionValues": {},
        "size": size,
        "modificationTime": int(time.time() * 1000),
        "dataChange": True,
        "stats": stats,
    }


def parquet_file(rows: pa.Table, columns: Sequence[StoredColumn], spark_version: str) -> bytes:
    """Returns the content of a Parquet file with the rows. The file has the columns `columns`, in this order."""
    # If a file does not name the version of Spark that wrote it, Spark does not know the calendar of the file's dates,
    # and refuses dates before 1900.
    schema = pa.schema(
        [
            pa.field(
                column.physical_name,
                column.kind,
                metadata={"PARQUET:field_id": str(column.field_id)}
                if column.field_id >= 0
                else None,
            )
            for column in columns
        ],
        metadata={_SPARK_VERSION: spark_version},
    )
    sink = pa.BufferOutputStream()
    stored = pa.table([rows.column(column.name) for column in columns], schema=schema)
    pq.write_table(stored, sink, compression="zstd", store_schema=False)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def statistics(rows: pa.Table, columns: Sequence[StoredColumn]) -> str:
    """Returns the statistics of a file with these rows, in JSON. They have no smallest and largest value for a column
    if these would not bound the column's values exactly."""
    smallest: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in columns[:_INDEXED_COLUMNS]:
        values = rows.column(column.name)
        nulls[column.physical_name] = values.null_count
        bounds = _bounds(values)
        if bounds is not None:
            smallest[column.physical_name], largest[column.physical_name] = bounds
    known = {"minValues": smallest, "maxValues": largest, "nullCount": nulls}
    return json.dumps({"numRecords": rows.num_rows} | known, ensure_ascii=False)


def _bounds(values: pa.ChunkedArray) -> tuple[object, object] | None:
    kind = values.type
    if values.null_count == len(values) or not _has_bounds(values):
        return None
    low, high = (value.as_py() for value in pc.min_max(values).values())
    if pa.types.is_timestamp(kind):
        return _milliseconds(low), _milliseconds(high)
    if pa.types.is_date(kind):
        return low.isoformat(), high.isoformat()
    return low, high


def _has_bounds(values: pa.ChunkedArray) -> bool:
    kind = values.type
    if pa.types.is_string(kind):
        return int(pc.max(pc.utf8_length(values)).as_py()) <= _STATS_CHARS
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _milliseconds(moment: datetime) -> str:
    """Returns a time as Delta writes it, truncated to milliseconds. Readers of the statistics add one millisecond to a
    largest value (DataSkippingReader)."""
    text = f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}"
    return f"{text}Z" if moment.tzinfo else text


def may_hold(stats: Mapping[str, Any], physical_name: str, low: object, high: object) -> bool:
    """False if a file's statistics (numbers as `int` or `Decimal`) show that a column has no value from `low` to
    `high`, otherwise True. `low` and `high` have one of the types that `keyed.key_range` returns."""
    smallest = _value(stats.get("minValues", {}).get(physical_name), low)
    largest = _value(stats.get("maxValues", {}).get(physical_name), high)
    if smallest is None or largest is None:
        return True
    return bool(smallest <= high and largest >= low)


def _value(stored: Any, like: object) -> Any:
    if isinstance(like, date) and isinstance(stored, str):
        return date.fromisoformat(stored[:10])
    return stored if isinstance(stored, int | Decimal) else None


def without_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Returns the rows whose key columns equal no row of `keys`. `keys` has only the key columns."""
    names = keys.column_names
    if len(names) == 1:
        has_key = pc.is_in(rows.column(names[0]), value_set=keys.column(0).combine_chunks())
        return rows.filter(pc.invert(has_key))
    numbered = rows.select(names).append_column("row", pa.array(np.arange(rows.num_rows)))
    numbered = numbered.rename_columns([*(f"k{i}" for i in range(len(names))), "row"])
    named = [f"k{i}" for i in range(len(names))]
    matched = numbered.join(keys.rename_columns(named), named, join_type="left semi")
    kept = np.ones(rows.num_rows, bool)
    kept[matched.column("row").to_numpy()] = False
    return rows.filter(pa.array(kept))
