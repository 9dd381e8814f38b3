"""Mirrored tables in the REST catalog of the Iceberg project, read by Spark 4.1 with Iceberg's own runtime."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.mirror.conftest import Mirror
from tests.spark.mirror.test_iceberg import Published
from tests.support.iceberg_programs import rest_catalog, spark_rows


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with rest_catalog(tmp_path_factory.mktemp("rest")) as address:
        yield address


@pytest.mark.deep
@pytest.mark.timeout(1200)
def test_spark_reads_what_the_mirror_publishes(mirror: Mirror, uri: str) -> None:
    published = Published(mirror, {"type": "rest", "uri": uri})
    source = mirror.source
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, small TINYINT, price DECIMAL(7,2), day DATE,"
        " moment DATETIME(6), at TIMESTAMP(3) NULL, label VARCHAR(40), v VECTOR(2))",
        "INSERT INTO t VALUES (1, -5, 12.50, '1999-12-31', '2020-02-29 23:59:59.123456',"
        " '2021-01-01 00:00:00.5', 'größer', STRING_TO_VECTOR('[1, 2]')),"
        " (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "CREATE TABLE b (id INT PRIMARY KEY)",
        "INSERT INTO a VALUES (1)",
        "INSERT INTO b VALUES (2)",
    )
    assert published.apply() == 0
    table = f"lake.{source.database}.t"
    first = {"id": 1, "small": -5, "price": 12.5, "day": "1999-12-31", "label": "größer"}
    first |= {
        "moment": "2020-02-29T23:59:59.123",
        "at": "2021-01-01T00:00:00.500Z",
        "v": [1.0, 2.0],
    }
    assert spark_rows(uri, f"SELECT * FROM {table} ORDER BY id") == [first, {"id": 2}]

    source.execute(
        "ALTER TABLE t MODIFY small INT, DROP COLUMN label, RENAME COLUMN day TO d",
        "ALTER TABLE t MODIFY id BIGINT",
        "ALTER TABLE t MODIFY d DATETIME",
        "UPDATE t SET small = 100000, v = STRING_TO_VECTOR('[3, 4]') WHERE id = 2",
        "INSERT INTO t (id, moment) VALUES (5000000000, '1969-12-31 23:59:59.999999')",
        "RENAME TABLE a TO x, b TO a, x TO b",
    )
    assert published.apply() == 0
    chosen = f"SELECT id, small, d, v FROM {table} WHERE id >= 2 ORDER BY id"
    assert spark_rows(uri, chosen) == [
        {"id": 2, "small": 100000, "v": [3.0, 4.0]},
        {"id": 5000000000},
    ]
    both = f"SELECT a.id AS a, b.id AS b FROM lake.{source.database}.a, lake.{source.database}.b"
    assert spark_rows(uri, both) == [{"a": 2, "b": 1}]
    # Bounds of times are wider than the values, so readers must not take them for the largest value.
    latest = f"SELECT CAST(max(moment) AS STRING) AS m, CAST(min(at) AS STRING) AS a FROM {table}"
    assert spark_rows(uri, latest) == [
        {"m": "2020-02-29 23:59:59.123456", "a": "2021-01-01 00:00:00.5"}
    ]
    early = f"SELECT id FROM {table} WHERE moment < TIMESTAMP_NTZ '1970-01-01 00:00:00'"
    assert spark_rows(uri, early) == [{"id": 5000000000}]
