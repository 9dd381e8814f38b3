"""Changes the columns of a Delta table: names, order, new and dropped columns, types.

Each change is one Delta commit that also records a version: the lsn, the number of the statement in the log. So an
interrupted change has no effect, and a repeated change is skipped. Where Delta allows it, the commit changes metadata
only: to rename, move or drop columns, to add columns that are NULL, and to widen types. Otherwise (an added column with
a value, a type that Delta does not widen) the commit rewrites all rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, TimestampNTZType

from spark_sink.mirror.lake import delta_commit, delta_log
from spark_sink.mirror.schema.fills import FillValue
from spark_sink.mirror.schema.signature import ColumnSource, SchemaChange
from spark_sink.mirror.values.iceberg_types import promotes
from spark_sink.mirror.values.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

# With these properties, Delta can rename, drop and widen columns by metadata alone. The mirror's own tables have them.
EVOLUTION_PROPERTIES = {"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"}
# Delta enables this feature for a new table with a TIMESTAMP_NTZ column, but not when such a column is added later.
_NTZ_FEATURE = {"delta.feature.timestampNtz": "supported"}


def execute(
    spark: SparkSession,
    path: str,
    app_id: str,
    version: int,
    change: SchemaChange,
    *,
    iceberg: bool = False,
) -> str:
    """Apply `change` to the Delta table at `path`, in one commit that records `version` for `app_id`.

    Columns of the Delta table that the change does not name stay, behind the others. Nothing happens if `app_id` has
    recorded the version or a newer one. If nothing has to be changed, a commit still records the version.

    `iceberg`: True if Iceberg's readers have to read the table's files. Then only changes of types that Iceberg knows
    are made without a rewrite.

    Returns "", or why existing rows cannot follow (`SchemaChange.unless`); then nothing was changed.
    """
    if delta_log.txn_version(spark, path, app_id) >= version:
        return ""
    if reason := _refused(spark, path, change):
        return reason
    if _needs_rewrite(spark, change, iceberg=iceberg):
        _rewrite(spark, path, app_id, version, change)
        return ""
    _set_properties(spark, path, EVOLUTION_PROPERTIES)
    fields = _fields(change, delta_log.schema_fields(spark, path))
    delta_commit.commit_schema(spark, path, app_id, version, fields, _NTZ_FEATURE)
    return ""


def _refused(spark: SparkSession, path: str, change: SchemaChange) -> str:
    """Returns why some rows cannot follow the change; "" if all rows can."""
    if not change.unless:
        return ""
    frame = spark.read.format("delta").load(path)
    row = frame.agg(
        *(F.max(F.expr(item.predicate)).alias(str(i)) for i, item in enumerate(change.unless))
    ).first()
    assert row is not None
    reasons = [item.reason for item, holds in zip(change.unless, row, strict=True) if holds]
    return "; ".join(reasons)


def _needs_rewrite(spark: SparkSession, change: SchemaChange, *, iceberg: bool) -> bool:
    return any(
        column.fill is not None
        if column.source is None
        else not _same_or_wider(spark, column.spark_type_before, column.spark_type, iceberg=iceberg)
        for column in change.columns
    )


def _same_or_wider(spark: SparkSession, before: str, after: str, *, iceberg: bool) -> bool:
    if before == after:
        return True
    types = _type_json(before), _type_json(after)
    return delta_log.widens(spark, *types) and (not iceberg or promotes(*types))


def _type_json(text: str) -> str:
    return DataType.fromDDL(text).json()


def _set_properties(spark: SparkSession, path: str, wanted: Mapping[str, str]) -> None:
    """Set the properties that the table lacks, in a separate commit. A table that the mirror has not created needs this
    once."""
    properties = delta_log.table_properties(spark, path)
    missing = {k: v for k, v in wanted.items() if properties.get(k) != v}
    if missing:
        pairs = ", ".join(f"'{name}' = '{value}'" for name, value in missing.items())
        spark.sql(f"ALTER TABLE delta.{quoted(path)} SET TBLPROPERTIES ({pairs})")


def _staying(change: SchemaChange, names: list[str]) -> list[tuple[str, str]]:
    """Returns (old name, new name) of the Delta table's columns that stay although the new signature lacks them."""
    gone = {column.source.lower() for column in change.columns if column.source is not None}
    gone.update(name.lower() for name in change.dropped)
    renamed = {before.lower(): after for before, after in change.kept}
    return [(name, renamed.get(name.lower(), name)) for name in names if name.lower() not in gone]


def _fields(change: SchemaChange, fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the fields of the Delta schema after the change. A field keeps its metadata, in which Delta stores its
    name in the files."""
    by_name = {field["name"].lower(): field for field in fields}
    after = []
    for column in change.columns:
        kind = json.loads(_type_json(column.spark_type))
        if column.source is None:
            after.append({"name": column.name, "type": kind, "nullable": True, "metadata": {}})
            continue
        field = by_name[column.source.lower()]
        if column.spark_type == column.spark_type_before:
            kind = field["type"]
        after.append({**field, "name": column.name, "type": kind})
    for before, name in _staying(change, [field["name"] for field in fields]):
        after.append({**by_name[before.lower()], "name": name})
    return after


def _rewrite(
    spark: SparkSession, path: str, app_id: str, version: int, change: SchemaChange
) -> None:
    frame = spark.read.format("delta").load(path)
    had_ntz = any(isinstance(field.dataType, TimestampNTZType) for field in frame.schema)
    if not had_ntz and any(column.spark_type == "timestamp_ntz" for column in change.columns):
        _set_properties(spark, path, _NTZ_FEATURE)
    columns = [_expression(column).alias(column.name) for column in change.columns]
    staying = _staying(change, frame.columns)
    columns += [F.col(quoted(before)).alias(after) for before, after in staying]
    (
        frame.select(*columns)
        .write.format("delta")
        .mode("overwrite")
        .option("overwriteSchema", "true")
        .option("txnAppId", app_id)
        .option("txnVersion", str(version))
        .save(path)
    )


def _expression(column: ColumnSource) -> Column:
    if column.source is not None:
        value = F.col(quoted(column.source))
        same = column.spark_type == column.spark_type_before
        return value if same else value.cast(column.spark_type)
    return fill_literal(column.fill).cast(column.spark_type)


def fill_literal(value: FillValue) -> Column:
    """Returns a value as a column of Spark. Dates, times and decimals are text with a cast that does not depend on a
    time zone."""
    if isinstance(value, bytes):
        return F.lit(bytearray(value))
    if isinstance(value, date | datetime | Decimal):
        return F.lit(str(value))
    return F.lit(value)
