"""examples/parquet_history.py and examples/outbox.py, in a real Spark, fed from a real server's log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from dispatcher.model.errors import UserError
from examples import outbox, parquet_history
from spark_sink.source.slice_decoder import SliceDecoder
from tests.spark.conftest import Source, to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.rotate(2, of="examples of sinks")

PAGE = (Path(__file__).parents[2] / "docs/outbox.md").read_text(encoding="utf-8")


def column(name: str, mysql_type: str) -> dict[str, Any]:
    charset = "utf8mb4" if "char" in mysql_type else None
    return {"name": name, "mysql_type": mysql_type, "nullable": True, "charset": charset}


def define(source: Source, table: str, columns: list[dict[str, Any]]) -> dict[str, str]:
    """Returns the options of a reader of the table."""
    definition = {"database": source.database, "table": table, "columns": columns, "key": ["id"]}
    name = f"{source.database}.{table}"
    source.daemon.tables[name] = definition
    return {"url": source.daemon.url, "consumer": "shop", "table": name}


class Once:
    """Calls a function of `foreachBatch`, and fails after its first call, as if the program had ended there."""

    def __init__(self, append: Callable[[DataFrame, int], None]) -> None:
        self._append, self.calls = append, 0

    def __call__(self, batch: DataFrame, number: int) -> None:
        self._append(batch, number)
        self.calls += 1
        if self.calls == 1:
            raise RuntimeError("ended before Spark's commit")


def test_each_change_is_in_the_parquet_files_once(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, price DECIMAL(10,2), at TIMESTAMP(6))")
    for n in range(8):
        source.execute(f"INSERT INTO t VALUES ({n}, {n}.50, '2026-11-26 08:00:00.{n:06}')")
    source.execute("UPDATE t SET id = id + 100 WHERE id < 3", "DELETE FROM t WHERE id > 5")
    source.feed()
    columns = [
        column("id", "int"),
        column("price", "decimal(10,2)"),
        column("at", "timestamp(6)"),
    ]
    options = define(source, "t", columns) | {"flat": "after", "flatPrefix": "_"}
    target, checkpoint = tmp_path / "history", tmp_path / "checkpoint"
    slices = (
        spark.readStream.format("binlog")
        .options(url=source.daemon.url, consumer="shop", raw="slices")
        .options(maxBytesPerTrigger="2000", maxBytesPerPartition="500")
        .load()
    )
    once = Once(parquet_history.append(SliceDecoder(**options), target))
    with pytest.raises(StreamingQueryException, match="ended before Spark's commit"):
        to_end(slices, checkpoint, once)
    (first,) = target.glob("batch=*")
    (target / "_staging").mkdir()
    (target / "_staging" / "left").write_text("by a program that was killed")
    to_end(slices, checkpoint, once)
    source.execute("INSERT INTO t VALUES (50, NULL, NULL)")
    source.feed()
    to_end(slices, checkpoint, once)

    folders = sorted(path.name for path in target.iterdir())
    assert len(folders) > 2 and folders[0] == first.name
    assert all(re.fullmatch(r"batch=1_\d{12}_\d{12}", name) for name in folders)
    written = spark.read.parquet(str(target)).drop("batch")
    source.daemon.acknowledged = source.daemon.base
    wanted = spark.read.format("binlog").options(**options).load()
    assert written.dtypes == wanted.dtypes
    order = ("_epoch", "_seq", "_ordinal")
    rows = written.orderBy(*order).collect()
    assert rows == wanted.orderBy(*order).collect()
    assert len(rows) == 8 + 3 + 5 + 1


def test_a_slice_that_holds_no_row_of_the_table_makes_no_file(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    source.execute("INSERT INTO u VALUES (1)")
    source.feed()
    decoder = SliceDecoder(**define(source, "t", [column("id", "int")]), flat="after")
    slices = spark.readStream.format("binlog").options(url=source.daemon.url, consumer="shop")
    append = parquet_history.append(decoder, tmp_path / "history")
    to_end(slices.option("raw", "slices").load(), tmp_path / "checkpoint", append)
    assert list((tmp_path / "history").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"raw": "true"}, "with the option raw"),
        ({"metadata": "key, transaction_rows, query"}, r"metadata \(query, transaction_rows\)"),
    ],
)
def test_what_a_slice_alone_cannot_tell_is_refused(options: dict[str, str], what: str) -> None:
    with pytest.raises(UserError, match=what):
        SliceDecoder(url="http://h:1", consumer="c", **options)


def test_the_program_of_the_outbox_page(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    create, transaction = re.findall(r"^```sql\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    source.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, customer VARCHAR(20), total DECIMAL(10,2))",
        create.strip().removesuffix(";"),
    )
    with source.server.connect(source.database) as connection, connection.cursor() as cursor:
        for statement in filter(None, map(str.strip, transaction.split(";\n"))):
            cursor.execute(statement.removesuffix(";"))
        for number in range(5):
            cursor.execute(
                "INSERT INTO outbox VALUES (UUID(), 'order', '17', 'OrderPaid', %s)",
                [json.dumps({"part": number})],
            )
        cursor.execute("INSERT INTO outbox VALUES (UUID(), 'customer', 'Ada', 'Added', '{}')")
        cursor.execute("UPDATE outbox SET type = 'ignored'")
        connection.commit()
    source.feed()
    names = ("id", "aggregatetype", "aggregateid", "type")
    columns = [column(name, "char(36)" if name == "id" else "varchar(255)") for name in names]
    options = define(source, "outbox", [*columns, column("payload", "json")])
    target = str(tmp_path / "events")
    once = Once(outbox.publish(target))
    rows = outbox.events(spark, **options)
    with pytest.raises(StreamingQueryException, match="ended before Spark's commit"):
        to_end(rows, tmp_path / "checkpoint", once)
    to_end(rows, tmp_path / "checkpoint", once)
    assert once.calls == 2, "Spark has repeated the batch"

    read = spark.read.json(target)
    events = [row.asDict(recursive=True) for row in read.collect()]
    assert {row["topic"] for row in events} == {"outbox.event.order", "outbox.event.customer"}
    orders = [row for row in events if row["topic"] == "outbox.event.order"]
    assert {row["key"] for row in orders} == {"17"}
    values = [json.loads(row["value"]) for row in orders]
    assert values == [{"id": 17, "total": 40.0}, *({"part": number} for number in range(5))]
    assert [header["key"] for header in orders[0]["headers"]] == ["id", "type"]
    assert len({row["headers"][0]["value"] for row in events}) == len(events) == 7
