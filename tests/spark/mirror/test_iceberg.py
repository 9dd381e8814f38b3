"""Mirrored tables as Iceberg tables, in a catalog of pyiceberg with SQLite, read by pyiceberg and by its own catalog's
metadata: after each apply, the rows of each Iceberg table equal the server's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException

from spark_sink.mirror.iceberg.catalog import VERSION, IcebergCatalog
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.runtime.catalog import published_difference
from spark_sink.mirror.values.catalog_names import CatalogTemplate
from spark_sink.mirror.values.policies import IcebergOptions, MetadataColumn, TablePolicy
from tests.spark.mirror.conftest import Mirror

TEMPLATE = CatalogTemplate.parse("{database}.{table}")


@dataclass
class Published:
    """A mirror that publishes its tables in an Iceberg catalog."""

    mirror: Mirror
    properties: dict[str, str]

    @property
    def catalog(self) -> Catalog:
        """A catalog that knows nothing of what the mirror has done in this process."""
        return load_catalog("lake", **self.properties)

    @property
    def options(self) -> IcebergOptions:
        return IcebergOptions("lake", self.properties, interval_s=3600.0)

    def opened(self, **changes: Any) -> IcebergCatalog:
        """Returns the catalog as another job opens it."""
        spark, target = self.mirror.spark, str(self.mirror.target.path)
        options = replace(self.options, **changes)
        return IcebergCatalog(spark, options, FileSystem(spark).qualified(target))

    def apply(self) -> int:
        self.mirror.feed()
        return self.mirror.apply(catalog=TEMPLATE, iceberg=self.options)

    def rows(self, table: str, **scan: Any) -> list[dict[str, Any]]:
        """Returns the rows that a reader of the catalog gets; times without a zone are in UTC, as MySQL's."""
        name = f"{self.mirror.source.database}.{table}"
        rows = self.catalog.load_table(name).scan(**scan).to_arrow().to_pylist()
        return [{column: _plain(value) for column, value in row.items()} for row in rows]

    def assert_equal(self, *tables: str) -> None:
        """Apply the server's changes. Then the catalog has exactly these tables, with the server's rows."""
        assert self.apply() == 0
        database = self.mirror.source.database
        assert sorted(name[-1] for name in self.catalog.list_tables(database)) == sorted(tables)
        for table in tables:
            wanted = self.mirror.source.rows(table)
            found = self.rows(table)
            assert _sorted(found) == _sorted(wanted), table

    def versions(self, table: str) -> list[int]:
        """Returns the versions of the Delta table that the table's snapshots show."""
        name = f"{self.mirror.source.database}.{table}"
        snapshots = self.catalog.load_table(name).snapshots()
        return [int(s.summary.additional_properties[VERSION]) for s in snapshots if s.summary]


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row["id"]))


@pytest.fixture
def make_published(mirror: Mirror, tmp_path: Path) -> Callable[[], Published]:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": "file:///"}
    return partial(Published, mirror, properties)


def test_rows_and_columns_follow_the_server(make_published: Callable[[], Published]) -> None:
    published = make_published()
    source = published.mirror.source
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, small TINYINT, price DECIMAL(7,2), day DATE,"
        " moment DATETIME(6), at TIMESTAMP(3) NULL, label VARCHAR(40), data BLOB, ratio DOUBLE)",
        "INSERT INTO t VALUES (1, -5, 12.50, '1999-12-31', '2020-02-29 23:59:59.123456',"
        " '2021-01-01 00:00:00.5', 'größer', x'00ff', 0.25), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
        "CREATE TABLE no_rows (id INT PRIMARY KEY)",
        "CREATE TABLE `order-lines` (id INT PRIMARY KEY)",
    )
    published.assert_equal("t")
    source.execute(
        "UPDATE t SET small = 7, moment = '1969-12-31 23:59:59.9999' WHERE id = 2",
        "INSERT INTO t (id, price) VALUES (3, -0.01)",
        "DELETE FROM t WHERE id = 1",
    )
    published.assert_equal("t")
    # Iceberg can follow the first two by metadata; the last two are rewrites, which Delta alone would avoid.
    source.execute(
        "ALTER TABLE t MODIFY small INT",
        "ALTER TABLE t MODIFY id BIGINT, ADD COLUMN added INT FIRST, DROP COLUMN label, RENAME COLUMN day TO d",
        "ALTER TABLE t MODIFY small DOUBLE",
        "ALTER TABLE t MODIFY d DATETIME",
        "INSERT INTO t (id, small, d) VALUES (5000000000, 0.5, '2000-01-01 10:00:00')",
        "ALTER TABLE t ADD COLUMN label INT DEFAULT 9",
    )
    published.assert_equal("t")
    assert published.rows("t", row_filter="id = 5000000000")[0]["small"] == 0.5
    assert published.rows("t", row_filter="id = 3")[0]["label"] == 9


def test_names_follow_renames_swaps_and_drops(make_published: Callable[[], Published]) -> None:
    published = make_published()
    source = published.mirror.source
    source.execute(
        *(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)"
            for name in ("a", "b", "moved", "gone")
        ),
        "CREATE TABLE c (id INT PRIMARY KEY, other VARCHAR(9))",
        *(f"INSERT INTO {name} VALUES (1, 1)" for name in ("a", "b", "c", "moved", "gone")),
        "INSERT INTO b VALUES (2, 2)",
    )
    published.assert_equal("a", "b", "c", "gone", "moved")
    source.execute(
        "RENAME TABLE a TO x, b TO a, x TO b",  # tables with the same columns
        "RENAME TABLE a TO x, c TO a, x TO c",  # tables with other columns
        "RENAME TABLE moved TO here",
        "DROP TABLE gone",
        "INSERT INTO a VALUES (7, 'seven')",
        "INSERT INTO here VALUES (7, 7)",
    )
    published.assert_equal("a", "b", "c", "here")
    source.execute(
        "DROP TABLE b", "CREATE TABLE b (id INT PRIMARY KEY, w DATE)", "TRUNCATE TABLE a"
    )
    source.execute("INSERT INTO b VALUES (5, '2020-01-01')")
    published.assert_equal("a", "b", "c", "here")
    # The metadata files of tables that have no name any more are deleted.
    folder = Path(published.mirror.target.path) / "_binlog" / "iceberg"
    assert len(list(folder.iterdir())) == 4


def test_a_job_that_finds_the_newest_version_commits_nothing(
    make_published: Callable[[], Published],
) -> None:
    published = make_published()
    source = published.mirror.source
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    published.assert_equal("t")
    first = published.versions("t")
    published.assert_equal("t")
    assert published.versions("t") == first
    source.execute("INSERT INTO t VALUES (2)")
    published.assert_equal("t")
    assert published.versions("t") == [*first, published.mirror.target.versions(source, "t") - 1]


def test_arrays_metadata_columns_and_histories(make_published: Callable[[], Published]) -> None:
    published = make_published()
    published.mirror.policy = TablePolicy(metadata=(MetadataColumn.SEQ,), history=True)
    source = published.mirror.source
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VECTOR(2), place POINT)",
        "INSERT INTO t VALUES (1, STRING_TO_VECTOR('[1, 2]'), POINT(1, 2)), (2, NULL, NULL)",
        "UPDATE t SET v = STRING_TO_VECTOR('[3, 4]') WHERE id = 2",
    )
    assert published.apply() == 0
    source.execute(
        "ALTER TABLE t ADD COLUMN w VECTOR(3)",
        "UPDATE t SET w = STRING_TO_VECTOR('[0.5, 0, 0]') WHERE id = 1",
    )
    assert published.apply() == 0
    rows = _sorted(published.rows("t"))
    assert [(row["v"], row["w"]) for row in rows] == [([1, 2], [0.5, 0, 0]), ([3, 4], None)]
    assert rows[0]["place"]["srid"] == 0
    assert all(row["_seq"] > 0 for row in rows)
    versions = published.rows("t__history")
    assert len(versions) == 4
    assert sum(row["is_current"] for row in versions) == 2


def test_a_table_whose_files_iceberg_cannot_read_says_so(
    make_published: Callable[[], Published],
) -> None:
    published = make_published()
    mirror = published.mirror
    mirror.source.execute(
        "CREATE TABLE old (id INT PRIMARY KEY, v SMALLINT)",
        "INSERT INTO old VALUES (1, 1)",
        "ALTER TABLE old MODIFY v DOUBLE",
        "CREATE TABLE fine (id INT PRIMARY KEY)",
        "INSERT INTO fine VALUES (1)",
    )
    assert mirror.run() == 0  # without a catalog; Delta changes the type by metadata
    assert published.apply() == 1
    record = mirror.record("old")
    assert (
        "Iceberg cannot read column v: its type was changed from short to double" in record.refused
    )
    assert "copy the table again" in record.refused
    assert published.rows("fine") == [{"id": 1}]


def test_of_two_jobs_that_publish_at_the_same_time_one_fails_and_no_row_is_twice(
    make_published: Callable[[], Published], monkeypatch: pytest.MonkeyPatch
) -> None:
    published = make_published()
    mirror = published.mirror
    mirror.source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    published.assert_equal("t")
    mirror.source.execute("INSERT INTO t VALUES (2)")
    assert mirror.run() == 0  # without the catalog
    one, other = published.opened(), published.opened()
    name, path = f"{mirror.source.database}.t", one.location(f"{mirror.source.database}.t")
    assert path is not None
    read = IcebergCatalog._delta

    def meanwhile(self: IcebergCatalog, path: str) -> Any:
        if self is one:
            other.refresh(name, path)
        return read(self, path)

    monkeypatch.setattr(IcebergCatalog, "_delta", meanwhile)
    with pytest.raises(CommitFailedException):
        one.refresh(name, path)
    assert _sorted(published.rows("t")) == [{"id": 1}, {"id": 2}]
    one.refresh(name, path)
    assert _sorted(published.rows("t")) == [{"id": 1}, {"id": 2}]


def test_verify_compares_the_snapshot_with_the_version_that_it_shows(
    make_published: Callable[[], Published],
) -> None:
    published = make_published()
    mirror = published.mirror
    mirror.source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    published.assert_equal("t")
    options = mirror.options(catalog=TEMPLATE, iceberg=published.options)
    record = mirror.record("t")
    assert published_difference(mirror.spark, options)(record) == ""
    mirror.source.execute("INSERT INTO t VALUES (2)", "DELETE FROM t WHERE id = 1")
    assert mirror.run() == 0  # an older version is shown, as always between two rounds
    assert published_difference(mirror.spark, options)(record) == ""
    table = published.catalog.load_table(record.registered)
    summary = {VERSION: "1"}
    with table.transaction() as transaction:
        transaction.overwrite(
            pa.table({"id": pa.array([1, 5], pa.int32())}), snapshot_properties=summary
        )
    text = published_difference(mirror.spark, options)(record)
    assert "has 1 files that this version lacks, and lacks 1 of its files" in text
    published.catalog.drop_table(record.registered)
    assert "is not in the Iceberg catalog" in published_difference(mirror.spark, options)(record)
    assert published_difference(mirror.spark, mirror.options())(record) == ""


def test_old_snapshots_expire_and_their_metadata_files_are_deleted(
    make_published: Callable[[], Published], monkeypatch: pytest.MonkeyPatch
) -> None:
    published = make_published()
    mirror = published.mirror
    mirror.source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    published.assert_equal("t")
    mirror.source.execute("INSERT INTO t VALUES (2)", "DELETE FROM t WHERE id = 1")
    published.assert_equal("t")
    assert len(published.versions("t")) > 1
    name = f"{mirror.source.database}.t"
    (folder,) = (Path(mirror.target.path) / "_binlog" / "iceberg").iterdir()
    files = {file.name for file in (folder / "metadata").iterdir()}
    catalog = published.opened(snapshot_hours=0)
    path = catalog.location(name)
    assert path is not None
    catalog.refresh(name, path)
    assert len(published.versions("t")) == 1
    assert files <= {file.name for file in (folder / "metadata").iterdir()}  # they are too new

    monkeypatch.setattr("spark_sink.mirror.iceberg.catalog._UNFINISHED_S", -60.0)
    monkeypatch.setattr("spark_sink.mirror.iceberg.catalog.TIDY_EVERY_S", 0.0)
    catalog.refresh(name, path)
    assert not files <= {file.name for file in (folder / "metadata").iterdir()}
    assert published.rows("t") == [{"id": 2}]
    mirror.source.execute("INSERT INTO t VALUES (3)")
    published.assert_equal("t")
