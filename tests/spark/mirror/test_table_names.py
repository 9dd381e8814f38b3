"""A mirror of a server with `lower_case_table_names=1`, whose statements spell names in any case."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.servers.plugin import ServerFactory
from tests.spark.conftest import Source, Target, assert_equal
from tests.spark.mirror.conftest import Mirror
from tests.support.fake_daemon import FakeDaemon


class FoldingSource(Source):
    """All transactions of a server concern its one database."""

    def feed(self) -> None:
        for name, _ in self.server.binlogs():
            if name >= self.first_file:
                self.server.mysqlbinlog("--raw", f"--result-file={self.folder}/", name, remote=True)
                self.daemon.feed(self.folder / name)


def test_tables_follow_statements_in_any_case(
    server_factory: ServerFactory,
    daemon: FakeDaemon,
    target: Target,
    tmp_path: Path,
    spark: SparkSession,
) -> None:
    server = server_factory("mysql97", "--lower-case-table-names=1")
    server.execute("CREATE DATABASE Shop", "CREATE DATABASE other")
    server.execute("FLUSH BINARY LOGS")
    (tmp_path / "log").mkdir()
    daemon.lower_case_table_names = 1
    first = server.binlogs()[-1][0]
    source = FoldingSource(server, "shop", daemon, first, tmp_path / "log")
    mirror = Mirror(spark, source, target)
    source.execute(
        "CREATE TABLE Orders (id INT PRIMARY KEY)",
        "CREATE TABLE Keep1 (id INT PRIMARY KEY)",
        "CREATE TABLE Ren (id INT PRIMARY KEY)",
        "CREATE TABLE One (id INT PRIMARY KEY)",
        "CREATE TABLE Two (id INT PRIMARY KEY)",
        "CREATE TABLE Gone (id INT PRIMARY KEY)",
        *(f"INSERT INTO {t} VALUES ({n}), (9{n})" for n, t in enumerate(
            ("ORDERS", "keep1", "REN", "ONE", "two", "GONE"), 1)),
    )  # fmt: skip
    assert mirror.run() == 0
    source.execute(
        "TRUNCATE TABLE Orders",
        "INSERT INTO orders VALUES (10)",
        "ALTER TABLE ORDERS ADD k INT NOT NULL DEFAULT 7",
        "INSERT INTO Orders VALUES (11, 11)",
        "RENAME TABLE Ren TO Ren2",
        "INSERT INTO REN2 VALUES (12)",
        "RENAME TABLE One TO SWAP, Two TO ONE, Swap TO TWO",
        "INSERT INTO TWO VALUES (13)",
        "DROP TABLE GONE",
        "CREATE TABLE T2 LIKE ORDERS",
        "INSERT INTO t2 VALUES (14, 14)",
        "USE other",
        "TRUNCATE TABLE Shop.Keep1",
    )
    assert mirror.run() == 0
    tables = {record.name for record in mirror.control.records().values() if not record.is_dropped}
    expected = ("orders", "keep1", "ren2", "one", "two", "t2")
    assert tables == {("shop", table) for table in expected}
    for table in expected:
        assert_equal(source, target, table)
    server.execute("DROP DATABASE SHOP")
    assert mirror.run() == 0
    assert all(record.is_dropped for record in mirror.control.records().values())
