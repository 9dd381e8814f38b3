"""Compares whole rows in Spark by the bits of their values, for tables without a key and for histories.

Spark treats -0.0 and 0.0 as one value, and may write one for the other when it groups rows. A server stores and logs
both. So floating-point numbers are compared as text: Spark's text of such a number shows the sign, and no other number
has the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, StructType

from spark_sink.mirror.values.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def equal_rows(columns: StructType, one: str, other: str) -> str:
    """Returns the condition under which two rows are equal, in Spark SQL. `one`, `other`: the aliases of the rows, such
    as `t` or `e.row`."""
    pairs = zip(_compared(columns, one), _compared(columns, other), strict=True)
    return " AND ".join(f"{left} <=> {right}" for left, right in pairs) or "true"


def grouped(rows: DataFrame, columns: StructType, row: str, results: Sequence[Column]) -> DataFrame:
    """Returns one row for each group of equal rows: `row`, and `results`, which are aggregates. `row`: the name of the
    column of `rows` that contains the row."""
    keys = [F.expr(value).alias(f"k{i}") for i, value in enumerate(_compared(columns, row))]
    name = row.rpartition(".")[2]
    groups = rows.groupBy(*keys).agg(F.first(row).alias(name), *results)
    return groups.drop(*(f"k{i}" for i in range(len(keys))))


def _compared(columns: StructType, row: str) -> list[str]:
    values = [(f"{row}.{quoted(column.name)}", column.dataType) for column in columns]
    return [f"CAST({value} AS STRING)" if _is_floating(kind) else value for value, kind in values]


def _is_floating(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):  # a VECTOR
        return _is_floating(kind.elementType)
    return isinstance(kind, FloatType | DoubleType)
