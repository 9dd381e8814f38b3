"""Queries whose consumers the source declares, with a real server and a real daemon, with and without Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from spark_sink.source.options import SourceOptions
from spark_sink.source.readers.declared import DeclaredPartition, DeclaredStreamReader
from spark_sink.source.slices import Slice, read_bytes
from tests.daemon.harness import PASSWORD, Daemon, Transaction, transactions, until
from tests.servers import Server
from tests.spark.conftest import to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOKEN = "token-of-a-notebook"


@pytest.fixture
def database(mysql97: Server, new_database: Callable[[Server], str]) -> str:
    name = new_database(mysql97)
    mysql97.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, total DECIMAL(9,2))",
        "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(20))",
        "CREATE TABLE payroll (id INT PRIMARY KEY)",
        database=name,
    )
    return name


@pytest.fixture
def daemon(mysql97: Server, database: str, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon whose settings have no consumer, but have a token that may declare consumers of the database."""
    user = f"declared{os.getpid() % 10**6}"
    mysql97.add_user(user, PASSWORD)
    source = {
        "mysql": f"{user}@{mysql97.host}:{mysql97.port}",
        "password": PASSWORD,
        "databases": [database],
        "exclude_tables": [f"{database}.payroll"],
        "names": ["spark-*"],
    }
    scopes = ["read", "acknowledge", "declare"]
    token = {
        "token": TOKEN,
        "name": "notebook",
        "consumers": [],
        "sources": "all",
        "scopes": scopes,
    }
    running = Daemon(
        tmp_path / "daemon",
        {"consumers": {}, "sources": {"db": source}, "api": {"tokens": [token]}},
    )
    running.token = TOKEN
    try:
        running.start()
        yield running
    finally:
        running.close()
        mysql97.execute(f"DROP USER '{user}'@'%'")


class PlannedQuery:
    """A query that is planned and read without Spark. `offsets`: the query's checkpoint; `read`: the transactions that
    it has read so far."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.offsets: list[str] = []
        self.read: list[Transaction] = []
        self.reader = DeclaredStreamReader(options, StructType())

    def restart(self) -> None:
        """Continue like a new process, which has only the checkpoint."""
        self.reader.stop()
        self.reader = DeclaredStreamReader(self.options, StructType())

    def batch(self) -> None:
        """Plan, read and commit a batch, if there is anything new."""
        start = json.loads(self.offsets[-1]) if self.offsets else self.reader.initialOffset()
        end = self.reader.latestOffset(start, ReadAllAvailable())
        for part in self.reader.partitions(start, end) if end != start else ():
            assert isinstance(part, DeclaredPartition) and isinstance(part.partition, Slice)
            _, data = read_bytes(replace(self.options, consumer=part.consumer), part.partition)
            self.read += transactions(bytes(data))
        if end != start:
            self.offsets.append(json.dumps(end))

    def until_read(self, number: int) -> None:
        def has_all() -> bool:
            self.batch()
            return len(self.read) >= number

        until(has_all, f"{number} transactions are read")
        assert len(self.read) == number


def test_a_query_goes_on_at_its_checkpoint(mysql97: Server, database: str, daemon: Daemon) -> None:
    given = {"url": daemon.url, "token": TOKEN, "databases": database}
    query, other = (PlannedQuery(SourceOptions.parse(given)) for _ in range(2))
    for each in (query, other):
        until(lambda each=each: each.batch() or "server" in each.offsets[-1], "it has a position")  # type: ignore[misc]
    names = set(daemon.api.rows())
    assert len(names) == 2

    def insert(*ids: int) -> None:
        mysql97.execute(*(f"INSERT INTO orders VALUES ({n}, 1)" for n in ids), database=database)
        mysql97.execute(f"INSERT INTO payroll VALUES ({ids[0]})", database=database)

    insert(1, 2)
    query.until_read(2)
    daemon.restart(kill=True)
    insert(3)
    query.until_read(3)  # reads on in the same process
    query.restart()
    insert(4)
    query.until_read(4)
    consumer = json.loads(query.offsets[-1])["consumer"]
    daemon.api.raw("DELETE", f"/v1/consumers/{consumer}")
    insert(5)
    query.restart()
    query.until_read(5)
    other.until_read(5)
    assert set(daemon.api.rows()) == names
    for each in (query, other):
        each.reader.stop()


def test_typed_tables_need_no_consumer_of_the_settings(
    spark: SparkSession, mysql97: Server, database: str, daemon: Daemon, tmp_path: Path
) -> None:
    found: dict[str, list[tuple[int, object]]] = {"orders": [], "customers": []}

    def changes(table: str) -> DataFrame:
        given = {"url": daemon.url, "token": TOKEN, "retryTimeoutSeconds": "30"}
        given |= {"databases": database, "table": f"{database}.{table}"}
        return spark.readStream.format("binlog").options(**given).load()

    def run(table: str) -> None:
        def collect(rows: DataFrame, _number: int) -> None:
            images = rows.where("op = 'insert'").select("after.*").orderBy("id").collect()
            found[table] += [(row[0], row[1]) for row in images]

        to_end(changes(table), tmp_path / table, collect)

    for table in found:
        run(table)  # declares the query's consumer, which begins at the end of the log
    names = set(daemon.api.rows())
    assert len(names) == 2
    mysql97.execute(
        "INSERT INTO orders VALUES (1, 1.50)",
        "INSERT INTO customers VALUES (7, 'Ada')",
        "INSERT INTO orders VALUES (2, 2.50)",
        "INSERT INTO payroll VALUES (1)",
        database=database,
    )
    daemon.restart(kill=True)
    for table in found:
        run(table)
    mysql97.execute("INSERT INTO orders VALUES (3, 3.50)", database=database)
    run("orders")
    assert [(key, str(value)) for key, value in found["orders"]] == [
        (1, "1.50"),
        (2, "2.50"),
        (3, "3.50"),
    ]
    assert found["customers"] == [(7, "Ada")]
    rows = daemon.api.rows()
    assert set(rows) == names and {row["declared_by"] for row in rows.values()} == {"notebook"}
    offset = json.loads(
        (tmp_path / "orders/offsets/0").read_text(encoding="utf-8").splitlines()[-1]
    )
    assert set(offset) == {"consumer"} and offset["consumer"] in names
    with pytest.raises(AnalysisException, match="does not permit"):
        changes("payroll")
    # The source declares a removed consumer again, and the query continues at its checkpoint.
    daemon.api.raw("DELETE", f"/v1/consumers/{offset['consumer']}")
    mysql97.execute("INSERT INTO orders VALUES (4, 4.50)", database=database)
    run("orders")
    assert found["orders"][-1][0] == 4 and set(daemon.api.rows()) == names


def test_a_query_says_that_its_options_differ_from_its_consumer(
    spark: SparkSession, database: str, daemon: Daemon, tmp_path: Path
) -> None:
    def run(**options: str) -> None:
        given = {"url": daemon.url, "token": TOKEN, "databases": database} | options
        stream = spark.readStream.format("binlog").options(**given).load()
        to_end(stream, tmp_path / "checkpoint", lambda rows, _number: rows.count())

    run()
    with pytest.raises(StreamingQueryException, match="begin with a new checkpoint"):
        run(tables=f"{database}.orders")
