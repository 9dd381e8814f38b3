"""Flat rows and the option `ops` in a real Spark, with transactions from a real server's log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from tests.spark.conftest import Source, to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.rotate(3, of="flat rows")


def column(name: str, mysql_type: str) -> dict[str, Any]:
    charset = "utf8mb4" if "char" in mysql_type else None
    return {"name": name, "mysql_type": mysql_type, "nullable": True, "charset": charset}


@pytest.fixture
def table(source: Source) -> str:
    """Creates a table whose rows were inserted, changed, given another key, and deleted, and a second table."""
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20), at DATETIME(6))",
        "CREATE TABLE u (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 'é', '2026-11-26 08:00:00.5'), (2, NULL, NULL), (3, '', NULL)",
        "INSERT INTO u VALUES (1), (2), (3)",
        "UPDATE t SET name = 'x' WHERE id < 3",
        "UPDATE t SET id = 9 WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        "DELETE FROM u",
    )
    source.feed()
    columns = [column("id", "int"), column("name", "varchar(20)"), column("at", "datetime(6)")]
    name = f"{source.database}.t"
    source.daemon.tables[name] = {
        "database": source.database,
        "table": "t",
        "columns": columns,
        "key": ["id"],
    }
    return name


@pytest.fixture
def batch(spark: SparkSession, source: Source) -> Callable[..., DataFrame]:
    def load(**options: str) -> DataFrame:
        given = {"url": source.daemon.url, "consumer": "shop", "retryTimeoutSeconds": "5"}
        return spark.read.format("binlog").options(**(given | options)).load()

    return load


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def flattened(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a nested row in the form that it has with `flat` and the prefix `_`."""
    kept = "before" if row["op"] == "delete" else "after"
    own: dict[str, Any] = {
        f"_{name}": row[name] for name in row if not name.startswith(("before", "after"))
    }
    image: dict[str, Any] = row[kept]
    return own | {"_absent": row[f"{kept}_absent"]} | image


def streamed(
    spark: SparkSession, source: Source, checkpoint: Path, **options: str
) -> list[dict[str, Any]]:
    given = {"url": source.daemon.url, "consumer": "shop", "retryTimeoutSeconds": "5"} | options
    found: list[dict[str, Any]] = []
    frame = spark.readStream.format("binlog").options(**given).load()
    to_end(frame, checkpoint, lambda rows, _: found.extend(rows_of(rows)))
    return found


def test_a_stream_and_a_batch_have_the_nested_rows_made_flat(
    spark: SparkSession, source: Source, batch: Callable[..., DataFrame], table: str, tmp_path: Path
) -> None:
    nested = rows_of(batch(table=table, metadata="key, changed"))
    assert [row["op"] for row in nested] == [*["insert"] * 3, *["update"] * 3, "delete"]
    flat = {"table": table, "flat": "after", "flatPrefix": "_", "metadata": "key, changed"}
    wanted = [flattened(row) for row in nested]
    assert rows_of(batch(**flat)) == wanted
    assert wanted[5]["id"] == 9 and wanted[5]["_key"] == {"id": 1} and wanted[6]["name"] == "x"
    assert streamed(spark, source, tmp_path / "c", **flat) == wanted
    # Rows with a new column stop the stream. After a restart, the stream continues at its checkpoint, with the new
    # column.
    source.execute("ALTER TABLE t ADD COLUMN extra INT", "INSERT INTO t VALUES (4, 'n', NULL, 7)")
    source.feed()
    with pytest.raises(StreamingQueryException, match="column 'extra' is not in the stream"):
        streamed(spark, source, tmp_path / "c", **flat)
    source.daemon.tables[table]["columns"] += [column("extra", "int")]
    (row,) = streamed(spark, source, tmp_path / "c", **flat)
    assert (row["_op"], row["id"], row["extra"]) == ("insert", 4, 7)


def test_a_stream_goes_on_past_rows_of_other_kinds(
    spark: SparkSession, source: Source, table: str, tmp_path: Path
) -> None:
    inserts = {"table": table, "flat": "after", "ops": "insert", "select": "seq, op, id"}
    rows = streamed(spark, source, tmp_path / "c", **inserts)
    assert [(row["op"], row["id"]) for row in rows] == [("insert", id_) for id_ in (1, 2, 3)]
    source.execute("UPDATE t SET name = 'y'")
    source.feed()
    assert streamed(spark, source, tmp_path / "c", **inserts) == []
    source.execute("INSERT INTO t VALUES (5, NULL, NULL)")
    source.feed()
    acknowledged = source.daemon.transactions[-2].position
    assert [row["id"] for row in streamed(spark, source, tmp_path / "c", **inserts)] == [5]
    assert source.daemon.acknowledged == acknowledged, "the rows of other kinds, too"


def test_a_column_with_the_name_of_one_of_the_stream_s_own(
    source: Source, batch: Callable[..., DataFrame], table: str
) -> None:
    source.daemon.tables[table]["columns"] += [column("OP", "int")]
    with pytest.raises(AnalysisException) as caught:
        assert not batch(table=table, flat="after").schema
    assert f"the same names: 'OP' of {table}" in str(caught.value)
    assert "flatPrefix" in str(caught.value)
    names = batch(table=table, flat="after", flatPrefix="__").columns
    assert names[-4:] == ["id", "name", "at", "OP"] and "__op" in names
