"""Reads what `tables` shows of a target, with Spark and without it, and compares the two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_sink.mirror.local_facts import LocalFacts
from spark_sink.mirror.spark_facts import SparkFacts
from spark_sink.mirror.table_lines import TableLine, table_lines
from spark_sink.mirror.values.names import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def both_lines(
    spark: SparkSession, target: str, interval_s: Callable[[TableName], float] = lambda _: 0.0
) -> list[TableLine]:
    """Returns the lines that Spark reads. Raises AssertionError if the lines that are read without Spark differ."""
    local = LocalFacts.of(target)
    assert local is not None
    ours = table_lines(local, (), interval_s)
    lines = table_lines(SparkFacts(spark, target), (), interval_s)
    assert [_steady(line) for line in ours] == [_steady(line) for line in lines]
    return lines


def _steady(line: TableLine) -> TableLine:
    """Returns a line without the values that depend on the time of the reading."""
    copied = None if line.copied is None else replace(line.copied, seconds=0, rest_s=None)
    return replace(line, lag_s=None if line.lag_s is None else 1.0, copied=copied)
