"""Mirrored tables as Iceberg tables, in a catalog of pyiceberg with SQLite, through which pyiceberg reads them: after
each apply, the rows of each Iceberg table equal the server's."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql.types import (
    ArrayType,
    FloatType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)
from requests import ReadTimeout

from dispatcher.model.errors import BinlogError
from spark_sink.mirror.iceberg.catalog import (
    DELTA_ID,
    VERSION,
    IcebergCatalog,
)
from spark_sink.mirror.iceberg.schema import iceberg_schema
from spark_sink.mirror.lake.delta_commit import DeltaTransaction
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.runtime.catalog import published_difference
from spark_sink.mirror.tables.delta import MirroredTable
from spark_sink.mirror.values.catalog_names import CatalogTemplate
from spark_sink.mirror.values.policies import (
    Deletes,
    IcebergOptions,
    MetadataColumn,
    TablePolicy,
)
from tests.spark.mirror.conftest import Mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Each of these tests applies a log several times, which takes some ten seconds.
pytestmark = pytest.mark.rotate(3, of="Iceberg tables")

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


def current(table: Table) -> Snapshot:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot


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
        "CREATE TABLE old (id INT PRIMARY KEY)",
        "INSERT INTO old VALUES (1)",
    )
    assert mirror.run() == 0  # without a catalog: the files have no field ids
    mirror.source.execute("CREATE TABLE fine (id INT PRIMARY KEY)", "INSERT INTO fine VALUES (1)")
    assert published.apply() == 1
    record = mirror.record("old")
    assert "Iceberg cannot read column id: its files have no field ids" in record.refused
    assert "python -m spark_sink copy" in record.refused
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
    shown = current(table).summary
    assert shown is not None
    summary = {key: shown.additional_properties[key] or "" for key in (VERSION, DELTA_ID)}
    with table.transaction() as transaction:
        transaction.overwrite(
            pa.table({"id": pa.array([1, 5], pa.int32())}), snapshot_properties=summary
        )
    text = published_difference(mirror.spark, options)(record)
    assert "1 that this version lacks, and not 1 of its files" in text
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
    monkeypatch.setattr("spark_sink.mirror.iceberg.catalog._UNFINISHED_S", -60.0)
    for hours, expired in ((24, False), (0, True)):
        catalog = published.opened(snapshot_hours=hours)
        path = catalog.location(name)
        assert path is not None
        catalog.refresh(name, path)
        assert (len(published.versions("t")) == 1) == expired
        assert (not files <= {file.name for file in (folder / "metadata").iterdir()}) == expired
    assert published.rows("t") == [{"id": 2}]
    mirror.source.execute("INSERT INTO t VALUES (3)")
    published.assert_equal("t")


def test_a_table_that_took_the_name_is_left_alone(make_published: Callable[[], Published]) -> None:
    published = make_published()
    mirror = published.mirror
    mirror.source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    published.assert_equal("t")
    name, catalog = f"{mirror.source.database}.t", published.opened()
    path = catalog.location(name)
    assert path is not None
    published.catalog.drop_table(name)
    rows = pa.table({"other": ["of another program"]})
    published.catalog.create_table(
        name, rows.schema, location=f"file://{mirror.target.path}/x"
    ).append(rows)
    with pytest.raises(BinlogError, match="is another table now"):
        catalog.refresh(name, path)
    assert published.apply() == 1
    assert published.rows("t") == rows.to_pylist()
    assert f"drop or rename {name}" in mirror.record("t").refused


def test_marks_of_deleted_rows_have_a_name_that_readers_of_iceberg_leave_free(
    make_published: Callable[[], Published],
) -> None:
    published = make_published()
    published.mirror.policy = TablePolicy(deletes=Deletes.SOFT)
    source = published.mirror.source
    source.execute(
        "CREATE TABLE _t (id INT PRIMARY KEY)",  # the folder's name is escaped
        "INSERT INTO _t VALUES (1), (2)",
        "DELETE FROM _t WHERE id = 1",
    )
    assert published.apply() == 0
    rows = sorted((row["id"], bool(row["_deleted_"])) for row in published.rows("_t"))
    assert rows == [(1, True), (2, False)]
    options = published.mirror.options(catalog=TEMPLATE, iceberg=published.options)
    assert (
        published_difference(published.mirror.spark, options)(published.mirror.record("_t")) == ""
    )


def test_a_history_follows_changes_of_types_that_iceberg_lacks(
    make_published: Callable[[], Published],
) -> None:
    published = make_published()
    published.mirror.policy = TablePolicy(history=True)
    source = published.mirror.source
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v BIGINT)",
        "INSERT INTO t VALUES (1, -1)",
        "UPDATE t SET v = 5",
    )
    assert published.apply() == 0
    source.execute(
        "ALTER TABLE t MODIFY v BIGINT UNSIGNED", "UPDATE t SET v = 18446744073709551615"
    )
    assert published.apply() == 0
    assert [int(row["v"]) for row in published.rows("t")] == [2**64 - 1]
    assert sorted(int(row["v"]) for row in published.rows("t__history")) == [-1, 5, 2**64 - 1]


def test_a_folder_that_is_taken_over_gets_files_for_iceberg(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = MirroredTable("1", str(tmp_path / "t"), "shop.t")
    before = StructType([StructField("id", IntegerType())])
    table.create(spark, before)
    spark.createDataFrame([(1,)], before).write.format("delta").mode("append").save(table.path)
    after = StructType([StructField("v", ArrayType(FloatType())), StructField("id", LongType())])
    for _ in range(2):  # a killed job does it again
        table.take_over(spark, after, iceberg=True)
    assert table.is_for_iceberg(spark)
    spark.createDataFrame([([0.5], 7)], after).write.format("delta").mode("append").save(table.path)
    schema = iceberg_schema(DeltaTransaction(spark, table.path).metadata()["fields"])
    assert [str(field.field_type) for field in schema.fields] == ["list<float>", "long"]


def test_errors_of_a_catalog_do_not_show_its_properties(spark: SparkSession) -> None:
    secret = {"uri": "mysql://root:secret@host/db"}
    with pytest.raises(BinlogError, match="cannot be opened") as raised:
        IcebergCatalog(spark, IcebergOptions("lake", secret), "file:/lake")
    assert "secret" not in str(raised.value) + repr(raised.value.__cause__)
    assert raised.value.__suppress_context__


def test_a_catalog_that_does_not_answer_fails_and_the_job_goes_on(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("spark_sink.mirror.iceberg.rest.ANSWER_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent, caplog.at_level(logging.WARNING):
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        catalog = IcebergCatalog(
            spark, IcebergOptions("lake", {"type": "rest", "uri": uri}), "file:/lake"
        )
        with pytest.raises(ReadTimeout):
            catalog.open()
    assert "the Iceberg catalog does not answer" in caplog.text
