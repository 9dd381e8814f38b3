"""Tables of Spark's own catalog: Delta tables, tables whose files are gone, and other tables."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from dispatcher.model.errors import BinlogError
from spark_sink.mirror.rules.events import Registered
from spark_sink.mirror.runtime.busy_folders import BusyFolders
from spark_sink.mirror.runtime.catalog import SparkCatalog, catalog_entries, same_location
from spark_sink.mirror.tables.delta import MirroredTable
from spark_sink.mirror.values.catalog_names import CatalogTemplate
from spark_sink.mirror.values.policies import ApplyOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def schema(spark: SparkSession) -> Iterator[str]:
    name = f"s{uuid.uuid4().hex}"
    yield name
    spark.sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def test_a_table_of_the_catalog_is_the_delta_table_at_its_path(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    catalog, name = SparkCatalog(spark), f"{schema}.orders"
    path = tmp_path / "a'b%5F" / "orders"
    MirroredTable("1", str(path), "t").create(spark, StructType([StructField("id", IntegerType())]))
    assert catalog.location(name) is None
    catalog.register(name, f"file:{path}")
    assert same_location(catalog.location(name) or "", str(path))
    assert spark.table(name).columns == ["id"]

    shutil.move(path, tmp_path / "elsewhere")
    assert same_location(catalog.location(name) or "", str(path))
    catalog.drop(name)
    assert catalog.location(name) is None
    assert not path.exists()

    spark.sql(f"CREATE VIEW {name} AS SELECT 1 AS id")
    assert catalog.location(name) == ""


def test_a_catalog_that_is_not_there_or_that_forgets_is_refused(spark: SparkSession) -> None:
    def post(consumer: str, event: Registered) -> None:
        raise AssertionError("nothing is registered")

    def options(template: str) -> ApplyOptions:
        return ApplyOptions("/t", ["shop"], catalog=CatalogTemplate.parse(template))

    with pytest.raises(BinlogError, match="Spark knows no catalog nowhere"):
        catalog_entries(spark, options("nowhere.{database}.{table}"), BusyFolders(), post)
    with pytest.raises(BinlogError, match="Spark's own catalog is in memory"):
        catalog_entries(spark, options("{database}.{table}"), BusyFolders(), post)
