"""Fixtures: one Spark for all tests of this folder, a fake daemon, and a database whose log the fake daemon
delivers."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_sink.mirror.session import spark_session
from spark_sink.mirror.values.names import folder_name
from spark_sink.mirror.values.settings import MirrorSettings
from tests.conftest import SESSION_FILES
from tests.servers import Server
from tests.support.fake_daemon import FakeDaemon, fake_daemon
from tests.support.java import QUICK_JAVA, QUICK_SPARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


# The folder of the module with which a test can kill Spark's processes.
KILLING = Path(__file__).with_name("killing")
# The shared Spark is also a Spark Connect server.
_CONNECT = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}
NO_WORKER = "Python worker failed to connect back"
"""What Spark says if a Python process has not started within ten seconds. Spark has no setting for this time."""
WORKER_ATTEMPTS = 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            file = item.nodeid.split("::", 1)[0]
            assert file in SESSION_FILES, f"name {file} in tests/conftest.py: it uses Spark"
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def kill_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a test arms a point of `killing/sitecustomize.py` for the workers of the shared Spark."""
    return tmp_path_factory.mktemp("kill")


def killing(folder: Path) -> dict[str, str]:
    """Returns the environment of a job that starts quickly and can be killed at the points armed in `folder`."""
    path = os.pathsep.join((str(KILLING), *sys.path))
    return {"KILL_FOLDER": str(folder), "PYTHONPATH": path, "JDK_JAVA_OPTIONS": QUICK_JAVA}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, kill_folder: Path) -> Iterator[SparkSession]:
    """A session with the master `local[2,4]`: it runs two tasks at a time, and a task may fail three times before its
    job fails."""
    warehouse = tmp_path_factory.mktemp("warehouse")
    conf = {"spark.sql.warehouse.dir": str(warehouse)} | _CONNECT
    conf |= dict(setting.split("=", 1) for setting in QUICK_SPARK)
    settings = MirrorSettings.model_validate(
        {
            "url": "http://127.0.0.1:1",
            "consumers": ["none"],
            "target": "/none",
            "spark": {"master": "local[2,4]", "conf": conf},
        }
    )
    with warnings.catch_warnings():
        # pyspark does not close the pipes of the process that starts the JVM; the garbage collector does.
        warnings.simplefilter("ignore", ResourceWarning)
        # Processes that the JVM starts inherit its environment. The environment of this process is restored.
        with pytest.MonkeyPatch.context() as environment:
            for name, value in killing(kill_folder).items():
                environment.setenv(name, value)
            spark = spark_session(settings)
        yield spark
        spark.stop()


@pytest.fixture
def connect_url(spark: SparkSession) -> str:
    """Returns the Spark Connect address of the shared Spark."""
    jvm: Any = spark.sparkContext._jvm
    service = "org.apache.spark.sql.connect.service.SparkConnectService$"
    port = getattr(getattr(jvm, service), "MODULE$").localPort()
    return f"sc://127.0.0.1:{port}"


@pytest.fixture
def daemon() -> Iterator[FakeDaemon]:
    with fake_daemon() as daemon:
        yield daemon


@dataclass
class Source:
    """A database of a real MySQL server whose transactions are copied into the fake daemon."""

    server: Server
    database: str
    daemon: FakeDaemon
    first_file: str
    folder: Path

    def execute(self, *statements: str) -> None:
        self.server.execute(*statements, database=self.database)

    def feed(self) -> None:
        """Copy the server's new transactions into the fake daemon. Transactions of other databases become markers."""
        for name, _ in self.server.binlogs():
            if name >= self.first_file:
                self.server.mysqlbinlog("--raw", f"--result-file={self.folder}/", name, remote=True)
                self.daemon.feed(self.folder / name, lambda data: self.database.encode() in data)

    def rows(self, table: str) -> list[dict[str, Any]]:
        return mysql_rows(self.server, self.database, f"SELECT * FROM `{table}`")


def mysql_rows(server: Server, database: str, query: str) -> list[dict[str, Any]]:
    with server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@pytest.fixture
def source(
    mysql97: Server,
    new_database: Callable[[Server], str],
    daemon: FakeDaemon,
    tmp_path: Path,
) -> Source:
    mysql97.execute("FLUSH BINARY LOGS")
    first = mysql97.binlogs()[-1][0]
    (tmp_path / "log").mkdir()
    return Source(mysql97, new_database(mysql97), daemon, first, tmp_path / "log")


@dataclass
class Target:
    spark: SparkSession
    path: Path

    def of(self, source: Source, table: str) -> str:
        return str(self.path / folder_name(source.database) / folder_name(table))

    def rows(self, source: Source, table: str) -> list[dict[str, Any]]:
        frame = self.spark.read.format("delta").load(self.of(source, table))
        for name, kind in frame.dtypes:  # `collect` would convert it to the local time zone
            if kind == "timestamp":
                frame = frame.withColumn(name, frame[name].cast("timestamp_ntz"))
        return [row.asDict() for row in frame.collect()]

    def versions(self, source: Source, table: str) -> int:
        """Returns the number of commits of the table."""
        return len(list((Path(self.of(source, table)) / "_delta_log").glob("*.json")))


@pytest.fixture
def target(spark: SparkSession, tmp_path: Path) -> Target:
    return Target(spark, tmp_path / "target")


def comparable(rows: list[dict[str, Any]], key: str = "id") -> dict[Any, dict[str, Any]]:
    """Returns rows by key, with values in a comparable form: bytes, naive UTC times."""
    result = {}
    for row in rows:
        plain = {name: _plain(value) for name, value in row.items()}
        assert plain[key] not in result, f"key {plain[key]} comes twice"
        result[plain[key]] = plain
    return result


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def assert_equal(source: Source, target: Target, *tables: str, key: str = "id") -> None:
    for table in tables:
        assert comparable(target.rows(source, table), key) == comparable(source.rows(table), key)


def to_end(frame: DataFrame, checkpoint: Path, each: Callable[[DataFrame, int], Any]) -> None:
    """Run a stream up to the server's newest position. Raises the failure of the query.

    If Spark could not start a Python worker in time, the query is started again, as a supervisor would do. The query
    continues at its checkpoint.
    """
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - most tests need no pyspark

    for attempts_left in reversed(range(WORKER_ATTEMPTS)):
        query = (
            frame.writeStream.foreachBatch(each)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            stop_at_end(query)
        except StreamingQueryException as error:
            if NO_WORKER not in str(error) or not attempts_left:
                raise
        else:
            return


def stop_at_end(query: StreamingQuery, timeout_s: int = 120) -> None:
    try:
        assert query.awaitTermination(timeout_s), "the query has not ended"
    finally:
        with suppress(Exception):
            query.stop()
