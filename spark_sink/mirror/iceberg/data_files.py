"""Describes the data files of a Delta table as data files of an Iceberg table, with their statistics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    TimestampType,
    TimestamptzType,
)

from dispatcher.model.errors import BinlogError, ErrorKind

_EPOCH = date(1970, 1, 1)
_EPOCH_TIME = datetime(1970, 1, 1)  # noqa: DTZ001 - times are compared without a zone
_MILLISECOND = timedelta(milliseconds=1)
_TRUNCATED = timedelta(microseconds=999)


def iceberg_location(uri: str) -> str:
    """Returns the URI of a file or folder as readers of Iceberg expect it. `uri` has the scheme of Hadoop's file
    system: `s3a:` is the name of Hadoop's connector, and other readers know `s3:`; `file:/x` becomes `file:///x`."""
    scheme, colon, path = uri.partition(":")
    if not colon:
        return uri
    scheme = {"s3a": "s3", "s3n": "s3"}.get(scheme, scheme)
    return f"{scheme}:{path if path.startswith('//') else f'//{path}'}"


def data_file(
    folder: str, add: Mapping[str, Any], schema: Schema, columns: Mapping[str, int]
) -> DataFile:
    """Returns the Iceberg data file for Delta's `add` action of a file below `folder`.

    `columns`: ids of the top-level columns, by the columns' names in the files. Raises `BinlogError` UNSUPPORTED_TYPE
    if a deletion vector marks rows of the file as deleted, or if the number of the file's rows is not known.
    """
    stats = json.loads(add.get("stats") or "{}")
    if add.get("deletionVector") or "numRecords" not in stats:
        what = "has deletion vectors" if add.get("deletionVector") else "has no count of its rows"
        raise BinlogError(
            ErrorKind.UNSUPPORTED_TYPE,
            f"the file {add['path']} {what}, which the mirror cannot publish as Iceberg",
            where=folder,
        )
    rows = int(stats["numRecords"])
    nulls = {columns[name]: n for name, n in _flat(stats, "nullCount").items() if name in columns}
    lowest = _bounds(schema, columns, _flat(stats, "minValues"), timedelta())
    highest = _bounds(schema, columns, _flat(stats, "maxValues"), _TRUNCATED)
    both = lowest.keys() & highest.keys()
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{folder}/{unquote(add['path'])}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows,
        file_size_in_bytes=int(add["size"]),
        value_counts=dict.fromkeys(nulls, rows),
        null_value_counts=nulls,
        lower_bounds={field: lowest[field] for field in both},
        upper_bounds={field: highest[field] for field in both},
    )
    file.spec_id = 0
    return file


def _flat(stats: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns the statistics of the columns that are not nested."""
    values = stats.get(name) or {}
    return {column: value for column, value in values.items() if not isinstance(value, dict)}


def _bounds(
    schema: Schema, columns: Mapping[str, int], values: Mapping[str, Any], truncated: timedelta
) -> dict[int, bytes]:
    """Returns the exact bounds. `truncated`: by how much a time may be larger than the bound that Delta has written."""
    bounds = {}
    for name, value in values.items():
        field = schema.find_field(columns[name]) if name in columns else None
        if field is not None and (bound := _bound(field, value, truncated)) is not None:
            bounds[field.field_id] = bound
    return bounds


def _bound(field: NestedField, value: Any, truncated: timedelta) -> bytes | None:
    """Returns a bound; None for types whose smallest and largest values Delta may have cut or rounded."""
    match field.field_type:
        case IntegerType() | LongType() as kind:
            return to_bytes(kind, int(value))
        case DateType() as kind:
            return to_bytes(kind, _days(value))
        case TimestampType() | TimestamptzType() as kind:
            return _time_bound(kind, value, truncated)
    return None


def _days(value: str) -> int:
    return (date.fromisoformat(value[:10]) - _EPOCH).days


def _time_bound(kind: PrimitiveType, value: str, truncated: timedelta) -> bytes | None:
    """Returns the bound for a time that Delta has truncated to milliseconds. Times before 1970 may have been truncated
    in the other direction, so this bound is wider by one millisecond."""
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
        moment += _MILLISECOND + truncated if truncated else -_MILLISECOND
    except (ValueError, OverflowError):
        return None
    microseconds = (moment - _EPOCH_TIME) // timedelta(microseconds=1)
    return to_bytes(kind, microseconds)
