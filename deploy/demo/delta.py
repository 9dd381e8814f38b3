"""Reads the rows of a Delta table from its log without Spark, so that the check does not depend on the code under test.

The module reads all commits of the log from the first one on: the table consists of the files that were added and not
removed. In the files, a column has the name that the schema's metadata gives it ("column mapping"), so a renamed column
is found in older files, too. A table that requires unsupported reader features is refused, and so is a log without its
first commits.

Source: the Delta transaction log protocol (PROTOCOL.md of delta-io/delta), "Actions", "Column Mapping" and "Reader
Requirements".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

# timestampNtz is a column type that Parquet supports, too. This module casts values of types that were widened.
_FEATURES = frozenset({"timestampNtz", "columnMapping", "typeWidening", "typeWidening-preview"})
_PHYSICAL_NAME = "delta.columnMapping.physicalName"
_READER_FEATURES_VERSION = 3
# Types to which a column may have been widened; older files have the earlier type.
_WIDE = {
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp": pa.timestamp(
        "us", "UTC"
    ),  # Arrow reads INT96, which executors write, without a zone
}


class UnreadableDelta(Exception):
    """The table cannot be read; the text says why."""


def exists(folder: Path) -> bool:
    return (folder / "_delta_log").is_dir()


def read(folder: Path) -> pa.Table:
    """All rows. Timestamps are in UTC, with or without a time zone. Raises UnreadableDelta."""
    files: dict[str, dict[str, Any]] = {}
    columns: dict[str, tuple[str, pa.DataType | None]] = {}
    for action in _actions(folder):
        if "metaData" in action:
            fields = json.loads(action["metaData"]["schemaString"])["fields"]
            columns = {
                field["name"]: (
                    field.get("metadata", {}).get(_PHYSICAL_NAME, field["name"]),
                    _wide_type(field["type"]),
                )
                for field in fields
            }
            if action["metaData"]["partitionColumns"]:
                raise UnreadableDelta(f"{folder} is partitioned")
        elif "protocol" in action:
            _check(folder, action["protocol"])
        elif "add" in action:
            if action["add"].get("deletionVector"):
                raise UnreadableDelta(f"{folder} has deletion vectors")
            files[action["add"]["path"]] = action["add"]
        elif "remove" in action:
            files.pop(action["remove"]["path"], None)
    parts = [_part(folder / unquote(path), columns) for path in files]
    if not parts:
        return pa.table({name: pa.nulls(0) for name in columns})
    return pa.concat_tables(parts, promote_options="permissive")


def _actions(folder: Path) -> list[dict[str, Any]]:
    commits = sorted((folder / "_delta_log").glob("[0-9]*.json"))
    numbers = [int(commit.name.split(".")[0]) for commit in commits]
    if numbers != list(range(len(numbers))) or not numbers:
        raise UnreadableDelta(
            f"the log of {folder} does not contain all commits from 0 on: {numbers}"
        )
    lines = (line for commit in commits for line in commit.read_text("utf-8").splitlines())
    # A commit does not remove and add the same path, so the order of its actions does not matter.
    return [json.loads(line) for line in lines if line]


def _check(folder: Path, protocol: dict[str, Any]) -> None:
    version = protocol["minReaderVersion"]
    features = set(protocol.get("readerFeatures") or ())
    if 1 < version < _READER_FEATURES_VERSION or not features <= _FEATURES:
        raise UnreadableDelta(
            f"{folder} requires reader version {version} with {sorted(features)}; supported: {sorted(_FEATURES)}"
        )


def _wide_type(spark_type: Any) -> pa.DataType | None:
    """The Arrow type to which values of older files are cast; None if the type cannot have been widened."""
    if not isinstance(spark_type, str):
        return None
    if spark_type.startswith("decimal("):
        precision, scale = map(int, spark_type[len("decimal(") : -1].split(","))
        return pa.decimal128(precision, scale)
    return _WIDE.get(spark_type)


def _part(file: Path, columns: dict[str, tuple[str, pa.DataType | None]]) -> pa.Table:
    """The rows of one file. `columns`: for each column by name, its name in the files and its type after widening. A
    column that was added after the file was written is NULL."""
    with pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as source:
        data = source.read()
    arrays = {}
    for name, (stored, wide) in columns.items():
        if stored not in data.column_names:
            arrays[name] = pa.chunked_array([pa.nulls(data.num_rows, wide or pa.null())])
            continue
        column = data.column(stored)
        arrays[name] = column if wide is None else _cast(column, wide)
    return pa.table(arrays)


def _cast(column: pa.ChunkedArray, wide: pa.DataType) -> pa.ChunkedArray:
    if column.type == wide:
        return column
    if pa.types.is_decimal(wide) and pa.types.is_integer(column.type):
        # Arrow requires a decimal type that has room for every value of the integer type.
        column = column.cast(pa.decimal128(min(38, 19 + wide.scale), wide.scale))
    return column.cast(wide)
