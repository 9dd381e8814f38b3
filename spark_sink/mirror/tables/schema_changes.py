"""Changes the columns of a Delta table: names, order, new and dropped columns, types.

Each change is one Delta commit. The commit also records a version: the lsn, which is the number of the statement in the
log. So an interrupted change has no effect, and a repeated change is skipped. If Delta allows it, the commit changes
metadata only. This is so if columns are renamed, moved or dropped, if the added columns are NULL, and if types are
widened. Otherwise, for instance for an added column with a value, or a type that Delta does not widen, the commit
rewrites all rows.
"""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType

from spark_sink.mirror.lake import delta_commit, delta_log, table_features
from spark_sink.mirror.lake.table_features import COLUMN_MAPPING, TYPE_WIDENING
from spark_sink.mirror.schema.fills import FillValue
from spark_sink.mirror.schema.signature import ColumnSource, SchemaChange
from spark_sink.mirror.values.iceberg_types import promotes
from spark_sink.mirror.values.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


def execute(
    spark: SparkSession,
    path: str,
    app_id: str,
    version: int,
    change: SchemaChange,
    *,
    iceberg: bool = False,
) -> str:
    """Apply `change` to the Delta table at `path`, in one commit that records `version` for `app_id`. If the table
    lacks a feature that the change needs, a separate earlier commit switches the feature on.

    Columns of the Delta table that the change does not name stay in the table, after the others. Nothing happens if
    `app_id` has recorded the version or a newer one. If nothing has to be changed, a commit still records the version.

    `iceberg`: True if Iceberg's readers have to read the table's files. Then the commit changes a type without a
    rewrite only if Iceberg, too, knows this change of types.

    Returns "", or why existing rows cannot follow (`SchemaChange.unless`); then nothing was changed.
    """
    if delta_log.txn_version(spark, path, app_id) >= version:
        return ""
    if reason := _refused(spark, path, change):
        return reason
    if _needs_rewrite(spark, change, iceberg=iceberg):
        _rewrite(spark, path, app_id, version, change)
        return ""
    table_features.require(spark, path, _needed(change, delta_log.schema_fields(spark, path)))
    fields = _fields(change, delta_log.schema_fields(spark, path))
    delta_commit.commit_schema(spark, path, app_id, version, fields)
    return ""


def _needed(change: SchemaChange, fields: list[dict[str, Any]]) -> dict[str, str]:
    """Returns the properties that the table needs for a change of metadata only."""
    after = _fields(change, fields)
    properties = table_features.for_columns((field["name"], field["type"]) for field in after)
    sources = [column.source for column in change.columns]
    sources += [before for before, _ in _staying(change, [field["name"] for field in fields])]
    by_name = {field["name"].lower(): field for field in fields}
    stay = [
        (by_name[source.lower()], field)
        for source, field in zip(sources, after, strict=True)
        if source is not None
    ]
    if len(stay) < len(fields) or any(one["name"] != other["name"] for one, other in stay):
        properties |= COLUMN_MAPPING
    if any(one["type"] != other["type"] for one, other in stay):
        properties |= TYPE_WIDENING
    return properties


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
    names = ((column.name, column.spark_type) for column in change.columns)
    table_features.require(spark, path, table_features.for_columns(names))
    frame = spark.read.format("delta").load(path)
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
