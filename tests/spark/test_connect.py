"""Clients of Spark Connect: batches, streams and their listener, and the declarative pipeline of examples/pipeline."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.conftest import Source, mysql_rows
from tests.spark.test_pipelines import PIPELINE, pipelines_command
from tests.support.java import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.rotate(2, of="jobs of Spark")

# A client without `register`. It reads a view of SQL, and a stream that the listener watches.
CLIENT = """
import json, logging, sys
from pyspark.sql import SparkSession
from spark_sink.source.listener import BinlogListener


class Lines(logging.Handler):
    def emit(self, record):
        lines.append(record.fields)

lines = []
logging.getLogger("spark_sink.streams").addHandler(Lines())
logging.getLogger("spark_sink.streams").setLevel("INFO")
address, url, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote(address).getOrCreate()
options = f"(url '{url}', consumer 'shop', retryTimeoutSeconds '5')"
spark.sql(f"CREATE TEMPORARY VIEW seen USING binlog OPTIONS {options}")
counts = spark.sql("SELECT op, count(*) AS n FROM seen GROUP BY op").collect()
listener = BinlogListener()
spark.streams.addListener(listener)
changes = spark.readStream.format("binlog").options(url=url, consumer="shop").load()
writer = changes.writeStream.format("memory").queryName("changes")
query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
rows = spark.sql("SELECT op, after FROM changes WHERE op <> 'ddl' ORDER BY seq, ordinal").collect()
spark.streams.removeListener(listener)
print(json.dumps({
    "counts": {row["op"]: row["n"] for row in counts},
    "rows": [row.asDict() for row in rows],
    "lines": lines,
}))
spark.stop()
"""


def run(command: list[str], folder: Path, **environment: str) -> str:
    """Run a program to its end. Returns the program's output."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable} | environment,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


def test_a_client_of_spark_connect_knows_the_source_without_register(
    connect_url: str, source: Source, tmp_path: Path
) -> None:
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1), (2)",
        "DELETE FROM t WHERE id = 1",
    )
    source.feed()
    client = [sys.executable, "-c", CLIENT, connect_url, source.daemon.url, str(tmp_path / "c")]
    found = json.loads(run(client, tmp_path))
    assert found["counts"] == {"ddl": 2, "insert": 2, "delete": 1}
    assert [(row["op"], row["after"]) for row in found["rows"]] == [
        ("insert", '{"id":1}'),
        ("insert", '{"id":2}'),
        ("delete", None),
    ]
    (line,) = found["lines"]
    assert (line["consumer"], line["batch"], line["transactions"], line["rows"]) == (
        "shop",
        0,
        4,
        5,
    )


def test_a_pipeline_keeps_its_view_equal_to_the_table(
    spark: SparkSession, connect_url: str, source: Source, tmp_path: Path
) -> None:
    folder = tmp_path / "pipeline"
    shutil.copytree(PIPELINE, folder)
    for file, old, new in (
        ("spark-pipeline.yml", "file:///tmp/shop-pipeline", (tmp_path / "storage").as_uri()),
        ("spark-pipeline.yml", "http://127.0.0.1:8085", source.daemon.url),
        # The session of the Spark server does not use Delta as its default format.
        (
            "spark-pipeline.yml",
            "configuration:",
            "configuration:\n  spark.sql.sources.default: delta",
        ),
        ("transformations/orders.py", "shop.orders", f"{source.database}.orders"),
    ):
        text = (folder / file).read_text(encoding="utf-8")
        assert old in text
        (folder / file).write_text(text.replace(old, new), encoding="utf-8")
    source.daemon.tables[f"{source.database}.orders"] = {
        "database": source.database,
        "table": "orders",
        "columns": [
            {"name": "id", "mysql_type": "int", "nullable": False, "charset": None},
            {"name": "item", "mysql_type": "varchar(40)", "nullable": True, "charset": "utf8mb4"},
            {"name": "amount", "mysql_type": "decimal(10,2)", "nullable": True, "charset": None},
        ],
        "key": ["id"],
    }

    source.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, item VARCHAR(40), amount DECIMAL(10,2))",
        "INSERT INTO orders VALUES (1, 'tea', 3.50), (2, 'cake', 4.20), (3, 'milk', NULL)",
        "UPDATE orders SET amount = 9 WHERE id = 2",
        "DELETE FROM orders WHERE id = 1",
        "UPDATE orders SET id = 7 WHERE id = 2",
    )
    source.feed()
    try:
        run(pipelines_command(connect_url), folder, JDK_JAVA_OPTIONS=QUICK_JAVA)
        rows: list[dict[str, Any]] = [row.asDict() for row in spark.table("orders").collect()]
        query = "SELECT * FROM orders ORDER BY id"
        expected = mysql_rows(source.server, source.database, query)
        assert sorted(rows, key=lambda row: int(row["id"])) == expected
        assert spark.table("order_changes").count() == 7
    finally:
        for table in ("order_changes", "orders"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")
