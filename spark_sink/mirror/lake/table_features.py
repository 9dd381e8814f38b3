"""Switches on features of a Delta table that all readers of the table have to know. A feature is switched on only when
the table needs it.

A reader refuses a table that requires a feature that the reader does not know (Delta protocol, "Reader Requirements").
So a new table requires only the features that its columns need. A later change of columns switches on the features that
it needs, in a separate commit before the change. That commit changes neither rows nor columns. It cannot be undone: a
table requires its features as long as it exists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from spark_sink.mirror.lake.delta_log import table_properties, transaction_on
from spark_sink.mirror.values.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The feature for TIMESTAMP_NTZ, the type of a DATETIME. Delta switches it on if a new table has such a column, but not
# for a table that exists.
_NTZ = "timestampNtz"
NTZ_FEATURE = {f"delta.feature.{_NTZ}": "supported"}
# With column mapping, a column's name in the files is independent of its name in the table. So a column can be renamed
# or dropped without a rewrite, and can have any name. If column mapping was the only feature of a table, the table
# would have the reader version 2. Measured: delta-rs 1.6 accepts this version, and returns NULL for a renamed column.
# If a table also has a feature without a version of its own, Delta lists all features of the table, so delta-rs refuses
# the table.
COLUMN_MAPPING = {"delta.columnMapping.mode": "name", **NTZ_FEATURE}
# Files may have narrower types than the table.
TYPE_WIDENING = {"delta.enableTypeWidening": "true"}

# Without column mapping, Delta refuses columns with a space or one of ,;{}()=. Other characters have a meaning in paths
# to nested fields.
_PLAIN_NAME = re.compile(r"[\w-]+")


def for_columns(columns: Iterable[tuple[str, object]]) -> dict[str, str]:
    """Returns the properties that a table with these columns needs. `columns`: names, and types in Spark's JSON
    form."""
    properties: dict[str, str] = {}
    for name, kind in columns:
        if not _PLAIN_NAME.fullmatch(name):
            properties |= COLUMN_MAPPING
        if kind == "timestamp_ntz":
            properties |= NTZ_FEATURE
    return properties


def require(spark: SparkSession, path: str, wanted: dict[str, str]) -> None:
    """Set the properties that the Delta table at `path` lacks, in a separate commit."""
    if not wanted:
        return
    properties = table_properties(spark, path)
    if _NTZ in reader_features(spark, path):
        properties |= NTZ_FEATURE
    missing = {name: value for name, value in wanted.items() if properties.get(name) != value}
    if missing:
        pairs = ", ".join(f"'{name}' = '{value}'" for name, value in missing.items())
        spark.sql(f"ALTER TABLE delta.{quoted(path)} SET TBLPROPERTIES ({pairs})")


def reader_features(spark: SparkSession, path: str) -> tuple[str, ...]:
    """Returns, sorted, the features that the Delta table at `path` requires of its readers; () if every reader of Delta
    can read the table, or if there is no table."""
    protocol: Any = transaction_on(spark, path).protocol()
    return tuple(sorted(json.loads(protocol.json())["protocol"].get("readerFeatures", ())))
