"""A program that waits for a mirrored table, as examples/tutorial.py does, sees its first commit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from examples.tutorial import has_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_look_before_the_first_commit_does_not_hide_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Delta caches the answer of `DeltaTable.isDeltaTable` for an hour, also the answer that there is no table."""
    table, made = tmp_path / "orders", tmp_path / "made"
    assert not has_row(spark, str(table), {"id": 1})
    log = table / "_delta_log"
    log.mkdir(parents=True)
    assert not has_row(spark, str(table), {"id": 1})
    spark.range(2).coalesce(1).write.format("delta").save(str(made))
    for file in made.glob("*.parquet"):
        file.rename(table / file.name)
    (first,) = (made / "_delta_log").glob("*.json")
    first.rename(log / first.name)
    assert has_row(spark, str(table), {"id": 1})
    assert not has_row(spark, str(table), {"id": 2})
