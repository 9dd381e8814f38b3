"""Checks the Delta table of a mirrored table before a work changes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.table_work import missing_table
from spark_sink.mirror.tables.delta import MirroredTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_table(spark: SparkSession, table: MirroredTable) -> None:
    """Raises `BinlogError` TARGET_FILES if the Delta table of `table` does not exist. May be called only if the mirror
    has already created this Delta table."""
    if not table.exists(spark):
        raise missing_table(table.path)


def require_schema(spark: SparkSession, table: MirroredTable, columns: StructType) -> None:
    """Replaces the columns of an empty Delta table by `columns`. Raises `BinlogError` UNSUPPORTED_CHANGE if a Delta
    table with rows has other columns."""
    existing = {column.name: column.dataType for column in table.columns(spark)}
    wanted = {column.name: column.dataType for column in columns}
    if existing == wanted:
        return
    if table.is_empty(spark):
        table.replace_schema(spark, columns)
        return
    differing = [
        f"{name} is {existing.get(name, 'missing')}, in the log {wanted.get(name, 'missing')}"
        for name in {**existing, **wanted}
        if existing.get(name) != wanted.get(name)
    ]
    raise BinlogError(
        ErrorKind.UNSUPPORTED_CHANGE,
        f"the Delta table of {table.label} has other columns than the log: {'; '.join(differing)}",
        where=table.path,
        remedy=remedies.of_copy_again(table.label),
    )
